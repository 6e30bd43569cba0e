/* estimate/view_forks.c: views for processes that the program of a run forks for other GPUs. Neither the run nor the
 * other processes may see their writes.
 *
 *   keeper ── neap run ── program ──────── asks ─────┐
 *      └ serves, where the machine's mounts are ── one process for each ── its view, which the asker's child joins
 *
 * A view of a view would be an overlay on an overlay on the machine's file system, which may be an overlay itself;
 * but Linux stacks only two. So the new view lies on the machine's mounts, as the first one does, and begins with a
 * copy of the written files.
 */
#include "estimate/view.h"

#include "base/error.h"
#include "base/file.h"
#include "base/spawn.h"
#include "estimate/view_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME "views" /* of the socket */

int neap_view_listen(const char *folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" NAME, folder_fd);
	bool listens = folder_fd >= 0 && fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
		       listen(fd, SOMAXCONN) == 0;
	if (folder_fd >= 0)
		close(folder_fd);
	if (!listens && fd >= 0)
		close(fd);
	return listens ? fd : -1;
}

void neap_view_stop_listening(const char *folder)
{
	char path[PATH_MAX];
	if (!neap_path_join(path, sizeof path, folder, NAME))
		(void)unlink(path);
}

enum neap_status neap_view_copy_layer(const struct neap_view *from, const char *path, int upper_fd,
				      struct neap_error *err)
{
	/* Marks of the overlay are devices and attributes, which -a copies. */
	static char *const argv[] = {"cp", "-a", "/proc/self/fd/0/.", "/proc/self/fd/1/", NULL};
	char name[32];
	size_t i = 0;
	int code = -1;
	while (i < from->count && (!from->paths[i] || strcmp(from->paths[i], path) != 0))
		i++;
	if (i == from->count)
		return NEAP_OK;
	snprintf(name, sizeof name, "up/%zu", i);
	int layer_fd = openat(from->scratch_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (layer_fd < 0)
		return neap_fail_errno(err, errno, "%s: what was written there", path);
	enum neap_status status = neap_spawn_run(&(struct neap_spawn){.doing = "copying a view",
								      .argv = argv,
								      .fds = {layer_fd, upper_fd, NEAP_SPAWN_NULL}},
						 &code, err);
	close(layer_fd);
	return status || code == 0 ? status : neap_fail(err, NEAP_EIO, "%s: what was written there: cp failed", path);
}

/* Returns to the machine's mounts, in the same working directory. */
static enum neap_status return_to_machine(const struct neap_view *view, struct neap_error *err)
{
	char here[PATH_MAX];
	struct stat root, ours;
	if (!getcwd(here, sizeof here) || setns(view->machine_fd, CLONE_NEWNS) || fchdir(view->root_fd) ||
	    stat(".", &root) || stat("/", &ours))
		return neap_fail_errno(err, errno, "the machine's mounts");
	/* If this process is in a chroot, the root of the namespace is another one: enter the chroot again. */
	if ((root.st_dev != ours.st_dev || root.st_ino != ours.st_ino) && chroot("."))
		return neap_fail_errno(err, errno, "the machine's root");
	return chdir(here) ? neap_fail_errno(err, errno, "%s", here) : NEAP_OK;
}

struct asked {
	int fd; /* of the connection */
	const struct neap_view_options *options;
};

/* Enters the new view. An ordinary user's view gets a user namespace of its own, which the asking process may join;
 * from then on it may open the files that this process has open. So before that the view is complete, and every file
 * that leads out of it is closed. The namespace also locks the mounts: those that are read-only stay so. */
static enum neap_status enter(const struct asked *asked, struct neap_view *ret_view, struct neap_error *err)
{
	enum neap_status status = return_to_machine(asked->options->from, err);
	if (!status)
		status = neap_view_enter(asked->options, ret_view, err);
	if (!status && !neap_spawn_close_others((const int[]){asked->fd, ret_view->scratch_fd}, 2))
		status = neap_fail_errno(err, errno, "/proc/self/fd");
	if (!status && geteuid() != 0)
		status = neap_view_unshare_as_user(CLONE_NEWNS, err);
	return status;
}

/* Serves one request. Called in a process of its own. */
static int answer(void *context)
{
	const struct asked *asked = context;
	char name[64], folder[PATH_MAX], pid[16], end;
	struct neap_view view;
	ssize_t length = recv(asked->fd, name, sizeof name - 1, 0);
	name[length > 0 ? length : 0] = '\0';
	if (strncmp(name, "other.", 6) != 0 || strchr(name, '/') ||
	    neap_path_join(folder, sizeof folder, asked->options->folder, name) || enter(asked, &view, NULL))
		return NEAP_SPAWN_FAILED;
	int count = snprintf(pid, sizeof pid, "%d", (int)getpid());
	if (send(asked->fd, pid, (size_t)count, MSG_NOSIGNAL) != count)
		return NEAP_SPAWN_FAILED;
	while (recv(asked->fd, &end, 1, 0) < 0 && errno == EINTR)
		;
	neap_view_measure(&view, -1);
	return neap_view_facts_write(folder, &view.facts, NULL) ? NEAP_SPAWN_FAILED : 0;
}

int neap_view_serve(int socket_fd, const struct neap_view *view, const struct neap_view_options *options)
{
	const struct neap_view_options of_fork = {.folder = options->folder,
						  .cache = options->cache,
						  .limit_bytes = options->limit_bytes / options->forks,
						  .argv = options->argv,
						  .from = view};
	size_t asked = 0;
	while (asked < options->forks) {
		int fd = accept4(socket_fd, NULL, NULL, SOCK_CLOEXEC);
		pid_t child;
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			return NEAP_SPAWN_FAILED;
		asked++;
		(void)neap_spawn(&(struct neap_spawn){.doing = "making a view",
						      .run = answer,
						      .context = &(struct asked){fd, &of_fork},
						      .fds = {NEAP_SPAWN_NULL, NEAP_SPAWN_NULL, NEAP_SPAWN_NULL}},
				 &child, NULL);
		close(fd);
	}
	return 0;
}
