/* Files published whole or not at all, the folders in which neap keeps things, and what /proc says about
 * processes. */
#include "base/error.h"
#include "base/file.h"
#include "base/paths.h"
#include "base/process.h"
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char itself[] = "/proc/self/exe";
static char folder[] = "/tmp/neap-test-base-XXXXXX";

static const char *in_folder(const char *name)
{
	static char path[8][256]; /* several are in use at once */
	static int turn;

	turn = (turn + 1) % 8;
	assert_int_equal(neap_path_join(path[turn], sizeof path[turn], folder, name), NEAP_OK);
	return path[turn];
}

static size_t entries(void)
{
	DIR *dir = opendir(folder);
	size_t count = 0;

	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static void check_content(const char *path, const char *expected)
{
	struct neap_buffer buffer = {0};

	assert_int_equal(neap_file_read(path, 1000, &buffer, NULL), NEAP_OK);
	assert_string_equal(neap_buffer_string(&buffer), expected);
	neap_buffer_fini(&buffer);
}

static void files_appear_whole(void **unused)
{
	struct neap_file file = {0};
	struct neap_buffer buffer = {0};
	struct neap_error err;
	const char *path = in_folder("whole");

	(void)unused;
	neap_file_abort(&file); /* nothing is open, so nothing is closed (0 belongs to someone else) */
	assert_int_not_equal(fcntl(0, F_GETFD), -2);
	assert_int_equal(neap_file_write(path, "old", 3, &err), NEAP_OK);
	assert_int_equal(neap_file_begin(&file, path, 0600, &err), NEAP_OK);
	assert_int_equal(neap_file_append(&file, "new", 3, &err), NEAP_OK);
	check_content(path, "old");
	pid_t child = fork(); /* which drops all that it inherited */
	if (child == 0) {
		neap_file_abort(&file);
		_exit(0);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(entries(), 2);
	neap_file_abort(&file);
	neap_file_abort(&file);
	assert_int_equal(neap_file_commit(&file, &err), NEAP_ESTATE);
	check_content(path, "old");
	assert_int_equal(entries(), 1);
	assert_int_equal(neap_file_write(path, "new", 3, &err), NEAP_OK);
	check_content(path, "new");
	assert_int_equal(entries(), 1);

	assert_int_equal(neap_file_read(path, 2, &buffer, &err), NEAP_EINVAL);
	assert_int_equal(neap_file_read(in_folder("none"), 2, &buffer, &err), NEAP_ENOENT);
	assert_non_null(strstr(err.message, folder));
	assert_int_equal(neap_file_write(in_folder("none/x"), "a", 1, &err), NEAP_ENOENT);
	neap_buffer_fini(&buffer);
	unlink(path);
}

/* A disk that takes no more than 4 KiB of a file: the write fails, the old file stays, no temporary is left. */
static void failed_writes_leave_the_old_file(void **unused)
{
	static char big[100000];
	const char *path = in_folder("kept");
	struct rlimit before, small;
	struct neap_error err = {0};

	(void)unused;
	assert_int_equal(neap_file_write(path, "old", 3, NULL), NEAP_OK);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = before;
	small.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum neap_status status = neap_file_write(path, big, sizeof big, &err);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(status, NEAP_EIO);
	assert_int_equal(err.cause, EFBIG);
	assert_non_null(strstr(err.message, path));
	check_content(path, "old");
	assert_int_equal(entries(), 1);
	unlink(path);

	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(neap_fd_write(fd, "x", 1, &err), NEAP_ENOSPC);
	close(fd);
}

/* Standard input is closed, and no descriptor above the standard ones is free: the file is made but cannot be kept.
 */
static void a_file_without_a_descriptor_is_not_left(void **unused)
{
	struct neap_file file;
	struct rlimit before, none;
	const size_t count = entries();

	(void)unused;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){STDERR_FILENO + 1, before.rlim_max};
	int kept = dup(STDIN_FILENO);
	const char *path = in_folder("none");
	close(STDIN_FILENO);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	enum neap_status status = neap_file_begin(&file, path, 0600, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
	dup2(kept, STDIN_FILENO);
	close(kept);
	assert_int_not_equal(status, NEAP_OK);
	assert_int_equal(entries(), count);
}

static void short_reads_go_on(void **unused)
{
	char text[6] = "-----";
	struct neap_error err;
	int ends[2], wait_status;

	(void)unused;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++)
			if (write(ends[1], "abcde" + i, 1) != 1)
				_exit(1);
		_exit(0);
	}
	close(ends[1]);
	assert_int_equal(neap_fd_read(ends[0], text, 3, &err), NEAP_OK);
	assert_string_equal(text, "abc--");
	assert_int_equal(neap_fd_read(ends[0], text, 3, &err), NEAP_EIO); /* two bytes and the end */
	assert_string_equal(err.message, "end of input with 1 bytes still to come");
	close(ends[0]);
	waitpid(child, &wait_status, 0);
}

static void paths_are_joined(void **unused)
{
	char text[12];

	(void)unused;
	assert_int_equal(neap_path_join(text, sizeof text, "/a/b//", "/c"), NEAP_OK);
	assert_string_equal(text, "/a/b/c");
	assert_int_equal(neap_path_join(text, sizeof text, "/", "c"), NEAP_OK);
	assert_string_equal(text, "/c");
	assert_int_equal(neap_path_join(text, sizeof text, "/123456789", "x"), NEAP_EINVAL);
	assert_int_equal(strlen(text), sizeof text - 1);
}

static void runtime_folder_is_checked(void **unused)
{
	char text[256] = "untouched";
	struct neap_error err;
	const char *own = in_folder("neap");
	char state[300];

	(void)unused;
	setenv("XDG_RUNTIME_DIR", folder, 1);
	assert_int_equal(neap_path_runtime(text, 5, &err), NEAP_EINVAL);
	assert_string_equal(text, "untouched");
	assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_OK);
	assert_string_equal(text, own);
	struct stat info;
	assert_int_equal(stat(own, &info), 0);
	assert_int_equal(info.st_mode & 0777, 0700);

	assert_int_equal(chmod(own, 0750), 0);
	assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_EPERM);
	assert_non_null(strstr(err.message, "chmod 700"));
	rmdir(own);
	assert_int_equal(symlink("/tmp", own), 0);
	assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_EPERM);
	unlink(own);
	assert_int_equal(neap_file_write(own, "x", 1, NULL), NEAP_OK);
	assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_EPERM);
	unlink(own);
	if (geteuid() == 0) { /* only root can make a folder that is someone else's */
		assert_int_equal(mkdir(own, 0700), 0);
		assert_int_equal(chown(own, 12345, 12345), 0);
		assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_EPERM);
		assert_non_null(strstr(err.message, "12345"));
		rmdir(own);
	}
	setenv("XDG_RUNTIME_DIR", in_folder("gone"), 1);
	assert_int_equal(neap_path_runtime(text, sizeof text, &err), NEAP_ENOENT);

	snprintf(state, sizeof state, "%s/state", folder);
	setenv("XDG_STATE_HOME", state, 1);
	assert_int_equal(neap_path_state(text, sizeof text, &err), NEAP_OK);
	assert_string_equal(text, in_folder("state/neap"));
	rmdir(text);
	rmdir(state);
	assert_int_equal(neap_file_write(in_folder("file"), "x", 1, NULL), NEAP_OK);
	setenv("XDG_STATE_HOME", in_folder("file"), 1);
	assert_int_equal(neap_path_state(text, sizeof text, &err), NEAP_EIO);
	assert_non_null(strstr(err.message, "/file"));
	unlink(in_folder("file"));
}

static bool find_self(void *context, const struct neap_process *process)
{
	if (process->pid == getpid())
		*(bool *)context = true;
	return process->pid != getpid();
}

/* A process that goes from program to program: it has its environment at every instant. */
static void the_environment_is_read_in_the_middle_of_an_exec(void **unused)
{
	(void)unused;
	char mark[] = "NEAP_TEST_MARK=at the end", filler[5000], text[64];
	char *environment[] = {filler, mark, NULL}, *words[] = {itself, "again", NULL};
	memset(filler, 'x', sizeof filler - 1);
	filler[sizeof filler - 1] = '\0';
	filler[1] = '=';
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execve(itself, words, environment);
		_exit(1);
	}
	while (neap_process_environment(child, "NEAP_TEST_MARK", text, sizeof text) != NEAP_OK)
		assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
	for (int i = 0; i < 5000; i++)
		assert_int_equal(neap_process_environment(child, "NEAP_TEST_MARK", text, sizeof text), NEAP_OK);
	assert_string_equal(text, "at the end");
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void processes_are_read(void **unused)
{
	struct neap_process self, other = {.pid = 77};
	struct neap_error err;
	bool found = false;
	char text[64];
	int wait_status;

	(void)unused;
	assert_int_equal(neap_process_read(getpid(), &self, &err), NEAP_OK);
	assert_int_equal(self.parent, getppid());
	assert_int_equal(self.uid, getuid());
	assert_int_equal(self.session, getsid(0));
	assert_true(self.rss_bytes > 100000 && self.start_ticks > 0);
	assert_true(neap_process_alive(getpid(), self.start_ticks));
	assert_false(neap_process_alive(getpid(), self.start_ticks + 1)); /* the PID of an earlier process */
	assert_int_equal(neap_process_each(find_self, &found, &err), NEAP_OK);
	assert_true(found);

	/* A name that contains what looks like the end of the field, and a zombie. */
	int ends[2], ready[2];
	char byte;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(ready), 0);
	setenv("NEAP_TEST_VALUE", "one=two", 1);
	pid_t child = fork();
	if (child == 0) {
		close(ends[1]);
		prctl(PR_SET_NAME, "a) R 1 (b");
		_exit(write(ready[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(ends[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(neap_process_read(child, &other, &err), NEAP_OK);
	assert_int_equal(other.parent, getpid());
	close(ends[1]);
	siginfo_t ended;
	assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
	assert_false(neap_process_alive(child, other.start_ticks));
	assert_int_equal(neap_process_read(child, &other, &err), NEAP_OK);
	assert_int_equal(other.state, 'Z');
	waitpid(child, &wait_status, 0);
	assert_int_equal(neap_process_read(child, &other, &err), NEAP_ENOENT);
	assert_int_equal(neap_process_read(-1, &other, &err), NEAP_ENOENT);

	assert_int_equal(neap_process_environment(getpid(), "NEAP_TEST_START", text, sizeof text), NEAP_OK);
	assert_string_equal(text, "here=now");
	assert_int_equal(neap_process_environment(getpid(), "NEAP_TEST_START", text, 4), NEAP_EINVAL);
	assert_int_equal(neap_process_environment(getpid(), "NEAP_TEST_STAR", text, sizeof text), NEAP_ENOENT);
	assert_int_equal(neap_process_environment(getpid(), "NEAP_TEST_VALUE", text, sizeof text), NEAP_ENOENT);
}

static int clean_up(void **unused)
{
	(void)unused;
	return rmdir(folder); /* fails where a test left something behind */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_appear_whole),
		cmocka_unit_test(failed_writes_leave_the_old_file),
		cmocka_unit_test(a_file_without_a_descriptor_is_not_left),
		cmocka_unit_test(short_reads_go_on),
		cmocka_unit_test(paths_are_joined),
		cmocka_unit_test(runtime_folder_is_checked),
		cmocka_unit_test(processes_are_read),
		cmocka_unit_test(the_environment_is_read_in_the_middle_of_an_exec),
	};

	if (argc > 1 && strcmp(argv[1], "again") == 0)
		return execv("/proc/self/exe", argv);
	/* /proc shows only the environment that a process had at its exec. */
	if (!getenv("NEAP_TEST_START")) {
		setenv("NEAP_TEST_START", "here=now", 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	if (!mkdtemp(folder))
		return 1;
	return cmocka_run_group_tests(tests, NULL, clean_up);
}
