/* series/series_attempt.c: see series_attempt.h. */
#include "series/series_attempt.h"

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "base/process.h"
#include "base/spawn.h"
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
	neap_fd_close(&attempt->lock_fd);
	neap_fd_close(&attempt->pidfd);
	neap_fd_close(&attempt->log_fd);
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
				       const char *needs, const char *run_id, bool quiet, struct neap_argv *argv)
{
	const struct {
		const char *option, *value;
	} options[] = {
		{"--folder", attempt->folder},
		{"--run-id", run_id},
		{"--name", experiment->name},
		{"--needs", needs},
		/* a retry needs the rules of on_oom */
		{"--retries", experiment->on_oom ? experiment->retries : NULL},
	};
	bool failed = neap_argv_add(argv, "neap") || neap_argv_add(argv, "run");
	if (!failed && attempt->lock_fd >= 0)
		failed = neap_argv_add(argv, "--lock-fd") || neap_argv_format(argv, "%d", attempt->lock_fd);
	for (size_t i = 0; i < sizeof options / sizeof *options && !failed; i++)
		failed = options[i].value &&
			 (neap_argv_add(argv, options[i].option) || neap_argv_add(argv, options[i].value));
	for (const struct neap_setting *setting = neap_settings; setting->key && !failed; setting++) {
		const char *value = neap_setting_value(setting, experiment);
		failed = setting->option && value &&
			 (neap_argv_add(argv, setting->option) || neap_argv_add(argv, value));
	}
	const char *clear = experiment->clear_memory_on_start;
	if (!failed && clear && !strcmp(clear, "true"))
		failed = neap_argv_add(argv, "--clear-memory-on-start");
	for (size_t i = 0; i < experiment->params.count && !failed; i++)
		failed = neap_argv_add(argv, "--param") || neap_argv_add(argv, experiment->params.items[i]);
	failed = failed || neap_argv_add(argv, "--log") || neap_argv_add(argv, "--no-history") ||
		 (quiet && neap_argv_add(argv, "--quiet")) || neap_argv_add(argv, "--");
	for (size_t i = 0; i < experiment->command.count && !failed; i++)
		failed = neap_argv_add(argv, experiment->command.items[i]);
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

/* Sets NEAP_SERIES, by which the processes of one series find each other (src/agent/peers.c). Its value does not
 * depend on the path of the series' folder. */
static void name_series(const struct neap_attempt *attempt)
{
	char path[sizeof attempt->folder + 8], name[64];
	struct stat folder;
	unsetenv("NEAP_SERIES"); /* a series that runs this one may have set it */
	snprintf(path, sizeof path, "%s/../..", attempt->folder);
	if (stat(path, &folder) != 0)
		return;
	snprintf(name, sizeof name, "%llx-%llx", (unsigned long long)folder.st_dev,
		 (unsigned long long)folder.st_ino);
	setenv("NEAP_SERIES", name, 1);
}

/* A supervisor that is to be started. */
struct start {
	const struct neap_attempt *attempt;
	const struct neap_experiment *experiment;
	const char *program;
	char **argv;
	int log_fd;
	const char *name_path; /* RUN/supervisor */
	int go[2];
};

/* Before exec: the supervisor's environment, and the lock that it inherits. Returns 0 or an errno. */
static int prepare(void *context)
{
	const struct start *start = context;
	const struct neap_argv *env = &start->experiment->env;
	if (start->attempt->lock_fd >= 0 && fcntl(start->attempt->lock_fd, F_SETFD, 0))
		return errno;
	for (size_t i = 0; i < env->count; i++) {
		char *equals = strchr(env->items[i], '=');
		*equals = '\0';
		setenv(env->items[i], equals + 1, 1);
		*equals = '=';
	}
	name_series(start->attempt);
	return 0;
}

/* Becomes the supervisor. Returns only if that fails; then the log has the reason. */
static void become(struct start *start)
{
	int cause = neap_spawn_become(&(struct neap_spawn){.program = start->program,
							   .argv = start->argv,
							   .run = prepare,
							   .context = start,
							   .fds = {NEAP_SPAWN_NULL, start->log_fd, start->log_fd}});
	dprintf(start->log_fd, "cannot start the supervisor %s: %s\n", start->program, strerror(cause));
}

/* In the child: waits until the series lets it start; ends if the series has exited. Then writes its own pid. */
static int start_when_told(void *context)
{
	struct start *start = context;
	char byte;
	close(start->go[1]);
	if (!neap_fd_read(start->go[0], &byte, 1, NULL)) { /* else another process has the attempt */
		leave_name(start->name_path);
		become(start);
	}
	return NEAP_SPAWN_FAILED;
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
	struct neap_argv argv = {0};
	int log_fd = -1;
	enum neap_status status = open_log(attempt, &log_fd, err);
	if (!status && make_arguments(attempt, experiment, needs, run_id, false, &argv))
		status = neap_fail(err, NEAP_ENOMEM, "starting '%s': out of memory", experiment->name);
	if (!status) {
		become(&(struct start){attempt, experiment, program, argv.items, log_fd});
		status =
			neap_fail(err, NEAP_EIO, "cannot start the supervisor: see %.150s/neap.log", attempt->folder);
	}
	neap_fd_close(&log_fd);
	neap_argv_fini(&argv);
	return status;
}

enum neap_status neap_attempt_start(struct neap_attempt *attempt, const char *program,
				    const struct neap_experiment *experiment, const char *needs, const char *run_id,
				    bool quiet, struct neap_error *err)
{
	struct neap_argv argv = {0};
	char name_path[4096], doing[sizeof err->message];
	int log_fd = -1, go[2] = {-1, -1};
	enum neap_status status = path_of(attempt, "supervisor", name_path, err);
	if (!status && make_arguments(attempt, experiment, needs, run_id, quiet, &argv))
		status = neap_fail(err, NEAP_ENOMEM, "starting '%s': out of memory", experiment->name);
	if (!status)
		status = open_log(attempt, &log_fd, err);
	snprintf(doing, sizeof doing, "starting a supervisor for '%s'", experiment->name);
	if (!status && pipe2(go, O_CLOEXEC))
		status = neap_fail_errno(err, errno, "%s", doing);
	if (!status)
		status = neap_spawn(&(struct neap_spawn){.doing = doing,
							 .run = start_when_told,
							 .context = &(struct start){attempt,
										    experiment,
										    program,
										    argv.items,
										    log_fd,
										    name_path,
										    {go[0], go[1]}},
							 .place = NEAP_SPAWN_OWN_SESSION},
				    &attempt->child, err);
	if (status)
		goto out;
	attempt->pidfd = neap_pidfd_open(attempt->child);
	if (attempt->owned)
		status = neap_owner_give(attempt->folder, attempt->child, err);
	if (!status)
		status = neap_fd_write(go[1], "", 1, err);
	attempt->owned = attempt->owned && status;
	neap_fd_close(&attempt->lock_fd);
out:
	neap_fd_close(&go[0]);
	neap_fd_close(&go[1]);
	neap_fd_close(&log_fd);
	neap_argv_fini(&argv);
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
	const struct neap_deadline now = neap_deadline_in(neap_clock_system(), 0);
	poll(&ended, 1, timeout_ms); /* if there is no pidfd, poll only sleeps */
	if (attempt->child && neap_spawn_wait(attempt->child, now, &attempt->exit_code)) {
		attempt->child = 0;
		neap_fd_close(&attempt->pidfd);
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
	int pidfd = pid > 0 && pid <= INT32_MAX ? neap_process_open((pid_t)pid, start_ticks) : -1;
	if (pidfd < 0)
		return neap_fail(err, NEAP_ENOENT, "the supervisor of %.150s is gone", attempt->folder);
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
