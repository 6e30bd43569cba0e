/* series/series_attempt.c: see series_attempt.h. */
#include "series/series_attempt.h"

#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "base/pidfd.h"
#include "base/process.h"
#include "run/run_stage.h"
#include "series/spec_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static enum neap_status path_of(const struct neap_attempt *attempt, const char *name, char path[4096],
				struct neap_error *err)
{
	if (neap_path_join(path, 4096, attempt->folder, name))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", attempt->folder);
	return NEAP_OK;
}

enum neap_status neap_attempt_init(struct neap_attempt *attempt, const char *series_folder, const char *experiment,
				   uint32_t number, struct neap_error *err)
{
	*attempt = (struct neap_attempt){.lock_fd = -1, .pidfd = -1, .log_fd = -1, .exit_code = -1};
	int length = snprintf(attempt->folder, sizeof attempt->folder, "%s/runs/%s-%" PRIu32, series_folder,
			      experiment, number);
	if (length < 0 || (size_t)length + 32 > sizeof attempt->folder)
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", series_folder);
	return NEAP_OK;
}

void neap_attempt_fini(struct neap_attempt *attempt)
{
	int *fds[] = {&attempt->lock_fd, &attempt->pidfd, &attempt->log_fd};
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	if (attempt->owned)
		neap_owner_leave(attempt->folder);
	attempt->owned = false;
}

enum neap_status neap_attempt_find(const struct neap_attempt *attempt, enum neap_step_found *ret_found,
				   struct neap_error *err)
{
	char path[4096];
	bool held = false;
	if (path_of(attempt, "lock", path, err))
		return NEAP_EINVAL;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		return neap_fail_errno(err, errno, "opening %.150s", path);
	if (fd >= 0) {
		int failed = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
		close(fd);
		bool unlockable = failed && neap_owner_is_needed(failed);
		if (failed && failed != EWOULDBLOCK && !unlockable)
			return neap_fail_errno(err, failed, "looking at the lock %.150s", path);
		held = unlockable ? neap_owner_lives(attempt->folder, NULL) : failed != 0;
	}
	static const enum neap_step_found founds[] = {
		[NEAP_STAGE_UNBEGUN] = NEAP_STEP_FOUND_UNBEGUN,
		[NEAP_STAGE_BEGAN] = NEAP_STEP_FOUND_NOTHING,
		[NEAP_STAGE_ENDED] = NEAP_STEP_FOUND_ENDED,
		[NEAP_STAGE_OVER] = NEAP_STEP_FOUND_RESULT,
	};
	*ret_found = held ? NEAP_STEP_FOUND_LOCK : founds[neap_run_stage_read(attempt->folder)];
	return NEAP_OK;
}

enum neap_status neap_attempt_claim(struct neap_attempt *attempt, struct neap_error *err)
{
	char path[4096], result[4096];
	enum neap_status status = neap_make_folder(attempt->folder, 0700, err);
	if (!status)
		status = path_of(attempt, "lock", path, err);
	if (!status)
		status = path_of(attempt, "result.json", result, err);
	if (status)
		return status;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s", path);
	if (!flock(fd, LOCK_EX | LOCK_NB)) {
		attempt->lock_fd = fd;
	} else {
		int failed = errno;
		close(fd);
		status = neap_owner_is_needed(failed) ? neap_owner_take(attempt->folder, err)
						      : neap_fail_errno(err, failed, "locking %.150s", path);
		attempt->owned = status == NEAP_OK;
	}
	if (status || access(result, F_OK))
		return status;
	neap_attempt_fini(attempt);
	return neap_fail(err, NEAP_EEXIST, "%.150s is there already", result);
}

static enum neap_status make_arguments(const struct neap_attempt *attempt, const struct neap_experiment *experiment,
				       const char *needs, const char *run_id, bool quiet, struct neap_words *argv)
{
	const struct {
		const char *option, *value;
	} options[] = {
		{"--folder", attempt->folder},
		{"--run-id", run_id},
		{"--name", experiment->name},
		{"--needs", needs},
		/* without rules there is nothing to retry with */
		{"--retries", experiment->on_oom ? experiment->retries : NULL},
	};
	bool failed = neap_words_add(argv, "neap") || neap_words_add(argv, "run");
	if (!failed && attempt->lock_fd >= 0)
		failed = neap_words_add(argv, "--lock-fd") || neap_words_format(argv, "%d", attempt->lock_fd);
	for (size_t i = 0; i < sizeof options / sizeof *options && !failed; i++)
		failed = options[i].value &&
			 (neap_words_add(argv, options[i].option) || neap_words_add(argv, options[i].value));
	for (const struct neap_setting *setting = neap_settings; setting->key && !failed; setting++) {
		const char *value = neap_setting_value(setting, experiment);
		failed = setting->option && value &&
			 (neap_words_add(argv, setting->option) || neap_words_add(argv, value));
	}
	const char *clear = experiment->clear_memory_on_start;
	if (!failed && clear && !strcmp(clear, "true"))
		failed = neap_words_add(argv, "--clear-memory-on-start");
	for (size_t i = 0; i < experiment->params.count && !failed; i++)
		failed = neap_words_add(argv, "--param") || neap_words_add(argv, experiment->params.items[i]);
	failed = failed || neap_words_add(argv, "--log") || neap_words_add(argv, "--no-history") ||
		 (quiet && neap_words_add(argv, "--quiet")) || neap_words_add(argv, "--");
	for (size_t i = 0; i < experiment->command.count && !failed; i++)
		failed = neap_words_add(argv, experiment->command.items[i]);
	return failed ? NEAP_ENOMEM : NEAP_OK;
}

/* Writes the supervisor's pid, for a series process that adopts it. */
static void leave_name(const char *path)
{
	struct neap_process self;
	char text[64];
	if (neap_process_read(getpid(), &self, NULL))
		return;
	snprintf(text, sizeof text, "%ld %" PRIu64 "\n", (long)self.pid, self.start_ticks);
	neap_file_write(path, text, strlen(text), NULL);
}

/* Sets NEAP_SERIES, by which processes of one series find each other (src/agent/peers.c). It does not depend on the
 * path of the series' folder. */
static void name_series(const struct neap_attempt *attempt)
{
	char path[sizeof attempt->folder + 8], name[64];
	struct stat folder;
	unsetenv("NEAP_SERIES"); /* may be set by a series that runs this one */
	snprintf(path, sizeof path, "%s/../..", attempt->folder);
	if (stat(path, &folder) != 0)
		return;
	snprintf(name, sizeof name, "%llx-%llx", (unsigned long long)folder.st_dev,
		 (unsigned long long)folder.st_ino);
	setenv("NEAP_SERIES", name, 1);
}

/* Sets descriptors, signals and environment, and becomes the supervisor. Returns only if the program cannot be
 * started.
 */
static void exec_supervisor(const struct neap_attempt *attempt, const char *program,
			    const struct neap_experiment *experiment, char **argv, int log_fd)
{
	sigset_t none;
	struct sigaction usual = {.sa_handler = SIG_DFL};
	sigaction(SIGPIPE, &usual, NULL); /* the series ignores it, and exec would keep that */
	sigaction(SIGXFSZ, &usual, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null_fd = open("/dev/null", O_RDONLY);
	if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
	    dup2(log_fd, STDERR_FILENO) < 0 || (attempt->lock_fd >= 0 && fcntl(attempt->lock_fd, F_SETFD, 0)))
		return;
	if (null_fd > STDERR_FILENO)
		close(null_fd);
	for (size_t i = 0; i < experiment->env.count; i++) {
		char *pair = experiment->env.items[i];
		char *equals = strchr(pair, '=');
		*equals = '\0';
		setenv(pair, equals + 1, 1);
		*equals = '=';
	}
	name_series(attempt);
	execv(program, argv);
	dprintf(STDERR_FILENO, "cannot start the supervisor %s: %s\n", program, strerror(errno));
}

/* In the child: waits until the series lets it start; exits if the series has exited. Then writes its own pid. */
static void wait_for_go(const int go[2], const char *name_path)
{
	char byte;
	close(go[1]);
	if (read(go[0], &byte, 1) != 1) /* the attempt is not ours */
		_exit(71);
	setsid();
	leave_name(name_path);
}

static enum neap_status open_log(const struct neap_attempt *attempt, int *ret_fd, struct neap_error *err)
{
	char path[4096];
	enum neap_status status = path_of(attempt, "neap.log", path, err);
	if (status)
		return status;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %.150s", path);
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_attempt_become(struct neap_attempt *attempt, const char *program,
				     const struct neap_experiment *experiment, const char *needs, const char *run_id,
				     struct neap_error *err)
{
	struct neap_words argv = {0};
	int log_fd = -1;
	enum neap_status status = open_log(attempt, &log_fd, err);
	if (!status && make_arguments(attempt, experiment, needs, run_id, false, &argv))
		status = neap_fail(err, NEAP_ENOMEM, "starting '%s': out of memory", experiment->name);
	if (!status) {
		exec_supervisor(attempt, program, experiment, argv.items, log_fd);
		status =
			neap_fail(err, NEAP_EIO, "cannot start the supervisor: see %.150s/neap.log", attempt->folder);
	}
	if (log_fd >= 0)
		close(log_fd);
	neap_words_fini(&argv);
	return status;
}

enum neap_status neap_attempt_start(struct neap_attempt *attempt, const char *program,
				    const struct neap_experiment *experiment, const char *needs, const char *run_id,
				    bool quiet, struct neap_error *err)
{
	struct neap_words argv = {0};
	char name_path[4096];
	int log_fd = -1, go[2] = {-1, -1};
	enum neap_status status = path_of(attempt, "supervisor", name_path, err);
	if (!status && make_arguments(attempt, experiment, needs, run_id, quiet, &argv))
		status = neap_fail(err, NEAP_ENOMEM, "starting '%s': out of memory", experiment->name);
	if (!status)
		status = open_log(attempt, &log_fd, err);
	if (!status && pipe2(go, O_CLOEXEC))
		status = neap_fail_errno(err, errno, "starting a supervisor for '%s'", experiment->name);
	if (status)
		goto out;
	attempt->child = fork();
	if (!attempt->child) {
		wait_for_go(go, name_path);
		exec_supervisor(attempt, program, experiment, argv.items, log_fd);
		_exit(71);
	}
	if (attempt->child < 0) {
		attempt->child = 0;
		status = neap_fail_errno(err, errno, "starting a supervisor for '%s'", experiment->name);
		goto out;
	}
	attempt->pidfd = neap_pidfd_open(attempt->child);
	if (attempt->owned)
		status = neap_owner_give(attempt->folder, attempt->child, err);
	if (!status)
		status = neap_fd_write(go[1], "", 1, err);
	attempt->owned = attempt->owned && status;
	if (attempt->lock_fd >= 0)
		close(attempt->lock_fd);
	attempt->lock_fd = -1;
out:
	for (int i = 0; i < 2; i++)
		if (go[i] >= 0)
			close(go[i]);
	if (log_fd >= 0)
		close(log_fd);
	neap_words_fini(&argv);
	return status;
}

void neap_attempt_show(struct neap_attempt *attempt, void (*line)(void *context, const char *text), void *context)
{
	char path[4096], bytes[4096];
	ssize_t got;
	if (attempt->log_fd < 0) {
		if (path_of(attempt, "neap.log", path, NULL))
			return;
		attempt->log_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	while (attempt->log_fd >= 0 && (got = read(attempt->log_fd, bytes, sizeof bytes)) > 0)
		for (ssize_t i = 0; i < got; i++) {
			bool full = attempt->line_length == sizeof attempt->line - 1;
			if (bytes[i] != '\n' && !full) {
				attempt->line[attempt->line_length++] = bytes[i];
				continue;
			}
			attempt->line[attempt->line_length] = '\0';
			line(context, attempt->line);
			attempt->line_length = 0;
			if (bytes[i] != '\n')
				attempt->line[attempt->line_length++] = bytes[i];
		}
}

void neap_attempt_sleep(struct neap_attempt *attempt, int timeout_ms)
{
	struct pollfd ended = {.fd = attempt->pidfd, .events = POLLIN};
	int status;
	poll(&ended, 1, timeout_ms); /* a negative descriptor is only a sleep */
	if (attempt->child && waitpid(attempt->child, &status, WNOHANG) == attempt->child) {
		attempt->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		attempt->child = 0;
		if (attempt->pidfd >= 0)
			close(attempt->pidfd);
		attempt->pidfd = -1;
	}
}

/* Opens a pidfd of the supervisor that RUN/supervisor names. */
static enum neap_status find_supervisor(const struct neap_attempt *attempt, int *ret_pidfd, struct neap_error *err)
{
	char path[4096], *end = NULL;
	struct neap_buffer text = {0};
	enum neap_status status = path_of(attempt, "supervisor", path, err);
	if (!status)
		status = neap_file_read(path, 64, &text, err);
	long pid = status ? 0 : strtol(neap_buffer_string(&text), &end, 10);
	uint64_t start_ticks = status ? 0 : strtoull(end, NULL, 10);
	neap_buffer_fini(&text);
	if (status)
		return status;
	/* Open the handle first, then check: a process alive now is the one that the handle refers to. */
	int pidfd = pid > 0 && pid <= INT32_MAX ? neap_pidfd_open((pid_t)pid) : -1;
	if (pidfd < 0 || !neap_process_alive((pid_t)pid, start_ticks)) {
		if (pidfd >= 0)
			close(pidfd);
		return neap_fail(err, NEAP_ENOENT, "the supervisor of %.150s is gone", attempt->folder);
	}
	*ret_pidfd = pidfd;
	return NEAP_OK;
}

enum neap_status neap_attempt_cancel(const struct neap_attempt *attempt, struct neap_error *err)
{
	int pidfd = -1;
	if (attempt->child) /* not reaped yet, so the PID is still its own */
		return kill(attempt->child, SIGTERM) ? neap_fail_errno(err, errno, "ending the run") : NEAP_OK;
	enum neap_status status = find_supervisor(attempt, &pidfd, err);
	if (status)
		return status;
	if (neap_pidfd_signal(pidfd, SIGTERM))
		status = neap_fail_errno(err, errno, "ending the run in %.150s", attempt->folder);
	close(pidfd);
	return status;
}
