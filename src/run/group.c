/* run/group.c: see group.h. */
#include "run/group.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROC_BYTES   (1u << 20)
#define SYSTEMD_MS   2000 /* longest wait for systemd's answer */
#define POLL_NS      (5 * NEAP_NS_PER_MS)
#define ENDED_POLLS  400
#define KILL_ROUNDS  100
#define FOLDER_DEPTH 16

extern char **environ;

/* Finds where the cgroup file system is mounted, and which of its folders is mounted there. */
static bool find_mount(char *point, char *root, size_t capacity)
{
	struct neap_buffer text = {0};
	bool found = false;
	if (!neap_file_read("/proc/self/mountinfo", PROC_BYTES, &text, NULL)) {
		char *rest = NULL;
		for (char *line = strtok_r(text.data, "\n", &rest); line && !found;
		     line = strtok_r(NULL, "\n", &rest)) {
			char at[4096], from[4096];
			found = strstr(line, " - cgroup2 ") &&
				sscanf(line, "%*s %*s %*s %4095s %4095s", from, at) == 2 && !strchr(at, '\\') &&
				strlen(at) < capacity && strlen(from) < capacity;
			if (found) {
				strcpy(point, at);
				strcpy(root, from);
			}
		}
	}
	neap_buffer_fini(&text);
	return found;
}

/* Reads the path of a process's group in the cgroup v2 hierarchy: "/a/b". */
static bool read_group(pid_t pid, char *path, size_t capacity)
{
	char file[64];
	struct neap_buffer text = {0};
	bool found = false;
	snprintf(file, sizeof file, "/proc/%d/cgroup", (int)pid);
	if (!neap_file_read(file, PROC_BYTES, &text, NULL)) {
		const char *line = strstr(neap_buffer_string(&text), "0::/");
		if (line && (line == text.data || line[-1] == '\n')) {
			size_t length = strcspn(line + 3, "\n");
			found = length < capacity;
			if (found)
				snprintf(path, capacity, "%.*s", (int)length, line + 3);
		}
	}
	neap_buffer_fini(&text);
	return found;
}

/* Finds the folder of a group, given its path in the hierarchy. */
static bool folder_of(const char *group, char *folder, size_t capacity)
{
	char point[4096], root[4096];
	if (!find_mount(point, root, sizeof point))
		return false;
	size_t length = strcmp(root, "/") ? strlen(root) : 0;
	if (strncmp(group, root, length) != 0 || (group[length] && group[length] != '/'))
		return false; /* outside the mount */
	return !neap_path_join(folder, capacity, point, group + length);
}

static bool write_to(const char *folder, const char *file, const char *text)
{
	char path[4400];
	int fd = neap_path_join(path, sizeof path, folder, file) ? -1 : open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	int cause = errno;
	if (fd >= 0)
		close(fd);
	errno = cause;
	return written;
}

static bool in_login_session(const char *group)
{
	char session[64];
	snprintf(session, sizeof session, "/user.slice/user-%u.slice/session-", (unsigned)getuid());
	return !strncmp(group, session, strlen(session));
}

void neap_group_make(const char *run_id, struct neap_group *ret_group)
{
	struct neap_group group = {0};
	char own[4096], folder[4096];
	snprintf(group.name, sizeof group.name, "neap-%s", run_id);
	if (!read_group(getpid(), own, sizeof own) || !folder_of(own, folder, sizeof folder)) {
		snprintf(group.why, sizeof group.why, "no cgroup v2 is mounted");
	} else if (neap_path_join(group.path, sizeof group.path, folder, group.name)) {
		snprintf(group.why, sizeof group.why, "its path would be too long");
	} else if (mkdir(group.path, 0755) && errno != EEXIST) { /* left by an earlier run of this id: use it */
		group.scope = in_login_session(own);
		if (!group.scope)
			snprintf(group.why, sizeof group.why, "no group can be made in %.100s: %s", folder,
				 strerror(errno));
		group.path[0] = '\0';
	}
	*ret_group = group;
}

/* Runs busctl, with a timeout. */
static bool call_systemd(char *const *argv)
{
	const struct neap_spawn spawn = {.doing = "asking systemd for a group",
					 .argv = argv,
					 .fds = {NEAP_SPAWN_NULL, NEAP_SPAWN_NULL, NEAP_SPAWN_NULL},
					 .limit_ns = SYSTEMD_MS * NEAP_NS_PER_MS};
	int code = -1;
	return !neap_spawn_run(&spawn, &code, NULL) && code == 0;
}

/* Asks the user's systemd for a scope with this process in it, and waits until it is there. */
static bool enter_scope(struct neap_group *group, pid_t pid)
{
	char unit[96], number[16], run[96], path[4200];
	const char *run_id = group->name + strlen("neap-");
	snprintf(unit, sizeof unit, "%s.scope", group->name);
	snprintf(number, sizeof number, "%d", (int)pid);
	snprintf(run, sizeof run, "neap run %s", run_id);
	char *const argv[] = {"busctl",
			      "--user",
			      "--quiet",
			      "call",
			      "org.freedesktop.systemd1",
			      "/org/freedesktop/systemd1",
			      "org.freedesktop.systemd1.Manager",
			      "StartTransientUnit",
			      "ssa(sv)a(sa(sv))",
			      unit,
			      "fail",
			      "3",
			      "PIDs",
			      "au",
			      "1",
			      number,
			      "Description",
			      "s",
			      run,
			      "CollectMode",
			      "s",
			      "inactive-or-failed",
			      "0",
			      NULL};
	if (!call_systemd(argv)) {
		snprintf(group->why, sizeof group->why, "systemd's user manager gives no scope");
		return false;
	}
	for (uint64_t waited_ns = 0; waited_ns < SYSTEMD_MS * NEAP_NS_PER_MS; waited_ns += POLL_NS) {
		if (neap_group_find(pid, run_id, path, sizeof path)) {
			strcpy(group->path, path);
			return true;
		}
		neap_clock_sleep(neap_clock_system(), POLL_NS);
	}
	snprintf(group->why, sizeof group->why, "systemd's user manager did not move the command into its scope");
	return false;
}

pid_t neap_group_fork(const char *path)
{
	pid_t pid = -1;
	(void)path;
#if defined CLONE_INTO_CGROUP && !defined __SANITIZE_THREAD__ /* which has to see each fork */
	int fd = path[0] ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
	if (fd >= 0)
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	if (fd >= 0)
		close(fd);
#endif
	return pid < 0 ? fork() : pid;
}

/* Whether the process is in a group of this name, below any other. */
static bool is_in(pid_t pid, const char *name)
{
	char path[4096];
	const char *last = read_group(pid, path, sizeof path) ? strrchr(path, '/') : NULL;
	return last && !strcmp(last + 1, name);
}

bool neap_group_enter(struct neap_group *group, pid_t pid)
{
	char number[16];
	if (group->scope)
		return enter_scope(group, pid); /* a new one for each start: systemd removed the last one */
	if (!group->path[0])
		return false;
	if (is_in(pid, group->name))
		return true;
	snprintf(number, sizeof number, "%d", (int)pid);
	if (write_to(group->path, "cgroup.procs", number))
		return true;
	snprintf(group->why, sizeof group->why, "the command cannot be moved into %.100s: %s", group->path,
		 strerror(errno));
	if (!rmdir(group->path)) /* fails if an earlier start left processes in it */
		group->path[0] = '\0';
	return false;
}

static bool is_empty(const char *path)
{
	char file[4400];
	struct neap_buffer text = {0};
	bool populated = !neap_path_join(file, sizeof file, path, "cgroup.events") &&
			 !neap_file_read(file, PROC_BYTES, &text, NULL) &&
			 strstr(neap_buffer_string(&text), "populated 1");
	neap_buffer_fini(&text);
	return !populated;
}

/* Linux before 5.14 has no cgroup.kill: kills one process after another. The caller freezes the group meanwhile, so
 * that no process forks. */
static void kill_each(const char *path, int depth)
{
	char file[4400];
	struct neap_buffer text = {0};
	DIR *folder = depth < FOLDER_DEPTH ? opendir(path) : NULL;
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    !neap_path_join(file, sizeof file, path, entry->d_name))
			kill_each(file, depth + 1);
	if (folder)
		closedir(folder);
	if (!neap_path_join(file, sizeof file, path, "cgroup.procs") &&
	    !neap_file_read(file, PROC_BYTES, &text, NULL)) {
		char *rest = NULL;
		for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
			long pid = strtol(line, NULL, 10);
			if (pid > 1 && pid <= INT32_MAX)
				kill((pid_t)pid, SIGKILL);
		}
	}
	neap_buffer_fini(&text);
}

bool neap_group_kill(const char *path)
{
	bool whole = write_to(path, "cgroup.kill", "1");
	if (!whole && errno == ENOENT && access(path, F_OK)) /* the group itself is gone */
		return true;
	for (int round = 0; !whole && round < KILL_ROUNDS && !is_empty(path); round++) {
		write_to(path, "cgroup.freeze", "1");
		kill_each(path, 0);
		write_to(path, "cgroup.freeze", "0");
		neap_clock_sleep(neap_clock_system(), NEAP_NS_PER_MS);
	}
	for (int poll = 0; poll < ENDED_POLLS && !is_empty(path); poll++)
		neap_clock_sleep(neap_clock_system(), POLL_NS);
	return is_empty(path);
}

static void remove_folder(const char *path, int depth)
{
	char below[4400];
	DIR *folder = depth < FOLDER_DEPTH ? opendir(path) : NULL;
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
		    !neap_path_join(below, sizeof below, path, entry->d_name))
			remove_folder(below, depth + 1);
	if (folder)
		closedir(folder);
	rmdir(path);
}

void neap_group_remove(struct neap_group *group)
{
	if (group->path[0] && is_empty(group->path))
		remove_folder(group->path, 0);
	group->path[0] = '\0';
}

void neap_group_end(const char *run_id)
{
	char own[4096], folder[4096];
	struct neap_group group = {0};
	if (!read_group(getpid(), own, sizeof own) || !folder_of(own, folder, sizeof folder))
		return;
	snprintf(group.name, sizeof group.name, "neap-%s", run_id);
	if (neap_path_join(group.path, sizeof group.path, folder, group.name) || access(group.path, F_OK))
		return;
	neap_group_kill(group.path);
	neap_group_remove(&group);
}

bool neap_group_find(pid_t pid, const char *run_id, char *path, size_t capacity)
{
	char group[4096], name[96];
	if (!run_id[0] || !read_group(pid, group, sizeof group))
		return false;
	size_t length = (size_t)snprintf(name, sizeof name, "/neap-%.80s", run_id);
	for (char *at = strstr(group, name); at; at = strstr(at + 1, name)) {
		size_t more = strcspn(at + length, "/");
		if (more && (more != strlen(".scope") || strncmp(at + length, ".scope", more) != 0))
			continue;
		at[length + more] = '\0'; /* cuts off groups that the command made below it */
		return folder_of(group, path, capacity);
	}
	return false;
}
