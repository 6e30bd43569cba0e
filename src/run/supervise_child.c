/* run/supervise_child.c: starting the command, its signals, its end.
 *
 * All readable signals come through one signalfd. Between fork and exec the child calls only async-signal-safe
 * functions; if exec fails, the child sends errno through a pipe that a successful exec closes.
 */
#include "run/supervise_internal.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/owner.h"
#include "base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Signals we do not read: those that cannot be caught, those that our own faults raise, and those that stop a
 * background process which uses its terminal. */
static const int left_alone[] = {SIGKILL, SIGSTOP, SIGFPE, SIGILL,  SIGSEGV,
				 SIGBUS,  SIGTRAP, SIGSYS, SIGTTIN, SIGTTOU};

static bool among(int number, const int *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (numbers[i] == number)
			return true;
	return false;
}

/* Chooses all other signals, except those ignored from the start: under nohup, the command keeps ignoring SIGHUP. */
static void choose_signals(sigset_t *signals)
{
	sigemptyset(signals);
	for (int number = 1; number <= SIGRTMAX; number++) {
		struct sigaction now = {0};
		if (among(number, left_alone, sizeof left_alone / sizeof *left_alone) ||
		    sigaction(number, NULL, &now)) /* the C library reserves this signal */
			continue;
		if (now.sa_handler != SIG_IGN)
			sigaddset(signals, number);
	}
}

enum neap_status neap_child_signals_begin(struct neap_supervise *run, struct neap_error *err)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigaction(SIGCHLD, &action, NULL); /* with an inherited SIG_IGN the kernel would reap the command */
	choose_signals(&run->signals);
	if (sigprocmask(SIG_BLOCK, &run->signals, &run->mask_before))
		return neap_fail_errno(err, errno, "blocking signals");
	run->signal_fd = signalfd(-1, &run->signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->signal_fd < 0) {
		enum neap_status status = neap_fail_errno(err, errno, "listening for signals");
		sigprocmask(SIG_SETMASK, &run->mask_before, NULL);
		return status;
	}
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		return neap_fail_errno(err, errno, "becoming the reaper of the run's processes");
	return NEAP_OK;
}

/* Drops pending signals by ignoring them: a signal that came too late for the command must not end us before we
 * return the command's status. */
static void drop_pending(const sigset_t *signals)
{
	for (int number = 1; number <= SIGRTMAX; number++) {
		struct sigaction before, ignore = {.sa_handler = SIG_IGN};
		if (number != SIGCHLD && sigismember(signals, number) == 1 && !sigaction(number, &ignore, &before))
			sigaction(number, &before, NULL);
	}
}

void neap_child_signals_end(struct neap_supervise *run)
{
	if (run->signal_fd < 0)
		return;
	neap_fd_close(&run->signal_fd);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	drop_pending(&run->signals);
	sigprocmask(SIG_SETMASK, &run->mask_before, NULL);
}

/* Whether one of the settings ("NAME=VALUE") has the same name as `entry`. */
static bool is_replaced(const char *entry, char *const *settings)
{
	for (; settings && *settings; settings++) {
		size_t length = strcspn(*settings, "=");
		if (!strncmp(entry, *settings, length) && entry[length] == '=')
			return true;
	}
	return false;
}

#define OWN 6

/* Copies our environment, and adds the options' settings and our own variables. The caller frees it with one free().
 */
static char **make_environment(const struct neap_supervise *run)
{
	static const char *const names[OWN] = {"NEAP_ATTACH",      "NEAP_RUN_DIR",         "NEAP_RUN_ID",
					       "NEAP_BATCH_PARTS", "CUDA_VISIBLE_DEVICES", "NEAP_LEASE"};
	const char *attach = getenv("NEAP_ATTACH"); /* 0 turns the agent off here too */
	char parts[24] = "";
	if (run->asks)
		snprintf(parts, sizeof parts, "%" PRIu64, run->batch_parts);
	const char *values[OWN] = {
		attach && !strcmp(attach, "0") ? "0" : "1",      run->folder, run->run_id, parts, run->visible,
		run->options.turn ? run->options.turn->name : ""};
	char *const *settings = run->options.environment;
	char *ours[OWN + 1] = {NULL};
	size_t count = 0, bytes = 0, kept = 0, own = 0;
	while (environ[count])
		count++;
	for (size_t i = 0; settings && settings[i]; i++)
		count++;
	for (size_t i = 0; i < OWN; i++)
		bytes += strlen(names[i]) + strlen(values[i]) + 2;
	char **block = malloc((count + OWN + 1) * sizeof *block + bytes);
	if (!block)
		return NULL;
	char *text = (char *)(block + count + OWN + 1);
	for (size_t i = 0; i < OWN; i++) {
		if (!values[i][0])
			continue;
		ours[own++] = text;
		text += sprintf(text, "%s=%s", names[i], values[i]) + 1;
	}
	for (size_t i = 0; environ[i]; i++)
		if (!is_replaced(environ[i], ours) && !is_replaced(environ[i], settings))
			block[kept++] = environ[i];
	for (size_t i = 0; settings && settings[i]; i++)
		if (!is_replaced(settings[i], ours))
			block[kept++] = settings[i];
	memcpy(block + kept, ours, sizeof ours); /* with its NULL */
	return block;
}

/* Another user may be able to write to the folder, so a log must be a plain file of our own. A link could lead
 * elsewhere, and opening a pipe without a reader would wait. */
static enum neap_status open_log(const struct neap_supervise *run, const char *name, int *ret_fd,
				 struct neap_error *err)
{
	char path[4200];
	struct stat folder = {0}, file;
	enum neap_status status = neap_path_join(path, sizeof path, run->folder, name);
	if (status)
		return neap_fail(err, status, "the path of %s is too long", name);
	bool own = !stat(run->folder, &folder) && folder.st_uid == geteuid() && !(folder.st_mode & 022);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (own ? 0 : O_NOFOLLOW | O_NONBLOCK), 0644);
	int cause = errno;
	bool ours = fd >= 0 && (own || (!fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == geteuid()));
	if (!ours && fd >= 0)
		close(fd);
	if (!ours && !own && (fd >= 0 || cause == ELOOP || cause == ENXIO))
		return neap_fail(err, NEAP_EPERM,
				 "%.120s belongs to user %u, and %s in it is not our file: give another --folder",
				 run->folder, (unsigned)folder.st_uid, name);
	if (fd < 0)
		return neap_fail_errno(err, cause, "creating %s", path);
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_child_logs_check(const struct neap_supervise *run, struct neap_error *err)
{
	static const char *const names[] = {"stdout.log", "stderr.log"};
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; !status && run->options.log_files && i < 2; i++) {
		int fd = -1;
		status = open_log(run, names[i], &fd, err);
		neap_fd_close(&fd);
	}
	return status;
}

/* A start of the command. */
struct start {
	struct neap_supervise *run;
	char *const *argv;
	char **environment;
	const int *logs;      /* its stdout and stderr; below 0: those of the supervisor */
	int report_fd, go_fd; /* the child writes an errno to report_fd; it starts when go_fd has a byte */
};

/* In the command's process, whose parent is the guard: never returns. */
static void become(void *context)
{
	const struct start *start = context;
	const struct neap_supervise *run = start->run;
	char *const *argv = start->argv;
	const int *logs = start->logs;
	char go;
	if (run->child.own_group)
		setpgid(0, 0);
	while (read(start->go_fd, &go, 1) < 0 && errno == EINTR) /* until the parent has moved us into the group */
		;
	if ((logs[0] >= 0 && dup2(logs[0], STDOUT_FILENO) < 0) || (logs[1] >= 0 && dup2(logs[1], STDERR_FILENO) < 0))
		goto failed;
	sigprocmask(SIG_SETMASK, &run->mask_before, NULL);
	if (run->options.directory && chdir(run->options.directory)) {
		int cause = -errno; /* below 0: chdir failed, not exec */
		ssize_t written = write(start->report_fd, &cause, sizeof cause);
		(void)written;
		_exit(127);
	}
	execvpe(argv[0], argv, start->environment);
	/* EACCES from an unreadable folder of PATH does not mean that the command exists. */
	if (errno == EACCES && !strchr(argv[0], '/'))
		errno = neap_path_search(argv[0], NULL) ? EACCES : ENOENT;
failed:;
	int cause = errno;
	ssize_t written = write(start->report_fd, &cause, sizeof cause);
	(void)written;
	_exit(cause == ENOENT ? 127 : 126);
}

/* Called in the guard when the supervisor has died. */
static void note(void *context, int wait_status)
{
	const struct start *start = context;
	neap_supervise_take_over(start->run, wait_status);
}

/* Without locks the guard owns the folder while it lives, so that nobody takes the folder while the guard writes the
 * end. */
static void own_folder(const struct neap_supervise *run, pid_t pid)
{
	if (run->owned)
		neap_owner_give(run->folder, pid, NULL);
}

void neap_child_guard_end(struct neap_supervise *run)
{
	if (!run->guard.pid)
		return;
	neap_guard_end(&run->guard);
	own_folder(run, getpid());
}

/* Sends its output through the tee: stderr, and stdout if both lead to the same place. */
static enum neap_status use_tee(const struct neap_supervise *run, int *logs, struct neap_error *err)
{
	logs[1] = fcntl(run->tee.write_fd, F_DUPFD_CLOEXEC, 3);
	if (run->tee.both)
		logs[0] = fcntl(run->tee.write_fd, F_DUPFD_CLOEXEC, 3);
	return logs[1] < 0 || (run->tee.both && logs[0] < 0) ? neap_fail_errno(err, errno, "passing output on")
							     : NEAP_OK;
}

/* Whether we are in a terminal's foreground. Then the command stays in our group, so that Ctrl-C, Ctrl-Z and reading
 * work as without neap. */
static bool at_terminal(void) { return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

enum neap_status neap_child_start(struct neap_supervise *run, char *const *argv, int *ret_spawn_errno,
				  struct neap_error *err)
{
	int logs[2] = {-1, -1}, report[2] = {-1, -1}, go[2] = {-1, -1}, cause = 0;
	char **environment = make_environment(run);
	enum neap_status status = NEAP_OK;
	struct stat stat_buffer;
	if (!environment)
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory while starting %s", argv[0]);
	if (!status && run->options.log_files)
		status = open_log(run, "stdout.log", &logs[0], err);
	if (!status && run->options.log_files)
		status = open_log(run, "stderr.log", &logs[1], err);
	if (!status && run->tee.ring && run->tee.read_fd >= 0)
		status = use_tee(run, logs, err);
	if (status)
		goto out;
	neap_supervise_last_begin(run);
	if (run->options.log_files)
		run->log_offset = !fstat(logs[1], &stat_buffer) ? (uint64_t)stat_buffer.st_size : 0;
	if (pipe2(report, O_CLOEXEC) || pipe2(go, O_CLOEXEC)) {
		status = neap_fail_errno(err, errno, "starting %s", argv[0]);
		goto out;
	}
	run->child = (struct neap_child){.own_group = !at_terminal()};
	neap_child_guard_end(run); /* the guard of the last start */
	struct start start = {run, argv, environment, logs, report[1], go[0]};
	pid_t pid = 0;
	status = neap_guard_start(&(struct neap_guard_task){.become = become,
							    .note = note,
							    .context = &start,
							    .run_id = run->run_id,
							    .group = run->group.path,
							    .keep = {run->lock_fd, run->room_fd,
								     run->options.turn ? run->options.turn->fd : -1},
							    .own_group = run->child.own_group},
				  &run->guard, &pid, err);
	if (status)
		goto out;
	own_folder(run, run->guard.pid);
	neap_group_enter(&run->group, pid);
	neap_fd_write(go[1], "", 1, NULL);
	neap_fd_close(&report[1]);
	if (!neap_fd_read(report[0], &cause, sizeof cause, NULL)) {
		neap_child_guard_end(run);
		*ret_spawn_errno = cause;
	} else {
		run->child.pid = pid;
	}
out:
	for (int i = 0; i < 2; i++) {
		neap_fd_close(&logs[i]);
		neap_fd_close(&report[i]);
		neap_fd_close(&go[i]);
	}
	free(environment);
	return status;
}

void neap_child_signal(struct neap_supervise *run, int number)
{
	if (run->child.pid <= 0 || run->child.ended) /* the process is reaped: another may have its number now */
		return;
	if (number == SIGKILL && !run->child.killed_ns)
		run->child.killed_ns = neap_supervise_now(run);
	kill(run->child.own_group ? -run->child.pid : run->child.pid, number);
}

static void note_child_end(struct neap_supervise *run, int wait_status)
{
	if (run->child.ended)
		return;
	run->child.ended = true;
	run->child.wait_status = wait_status;
	run->child.ended_ns = neap_supervise_now(run);
}

/* When the guard dies, the kernel kills the command and makes it our child. */
static void lose_guard(struct neap_supervise *run)
{
	if (!run->child.ended)
		neap_log(run->options.log, NEAP_LOG_WARNING,
			 "The guard of this run, process %d (neap-guard), was killed: the command ends with it",
			 (int)run->guard.pid);
	neap_guard_reaped(&run->guard);
	own_folder(run, getpid());
}

static void reap(struct neap_supervise *run)
{
	int wait_status = 0;
	if (neap_guard_news(&run->guard, &wait_status))
		note_child_end(run, wait_status);
	for (;;) {
		pid_t pid = waitpid(-1, &wait_status, WNOHANG);
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid <= 0)
			return;
		neap_tee_reaped(&run->tee, pid, wait_status);
		if (pid == run->guard.pid)
			lose_guard(run);
		else if (pid == run->child.pid)
			note_child_end(run, wait_status);
	}
}

/* Ctrl-Z, if the command has its own group: stops the command, then us; both continue together. */
static void suspend(struct neap_supervise *run)
{
	neap_child_signal(run, SIGTSTP);
	raise(SIGSTOP);
	neap_child_signal(run, SIGCONT);
}

/* Whether our own action caused the signal: we wrote to a closed pipe or beyond a file size limit, or used up our CPU
 * time. */
static bool is_our_own(const struct signalfd_siginfo *info)
{
	switch (info->ssi_signo) {
	case SIGPIPE:
	case SIGXFSZ:
		return info->ssi_pid == (uint32_t)getpid();
	case SIGXCPU:
		return info->ssi_code == SI_KERNEL;
	default:
		return false;
	}
}

/* Called when the user asks the command to end. The second request kills it. */
static void cancel(struct neap_supervise *run, int number, bool had_it)
{
	if (!run->cancel_count++)
		run->canceled_by = number;
	if (run->cancel_count > 1)
		neap_child_signal(run, SIGKILL);
	else if (!had_it)
		neap_child_signal(run, number);
	neap_child_signal(run, SIGCONT); /* a stopped command must continue to end */
}

/* A terminal signals a whole group, so we signal the command's group. A process signals one process, so we signal the
 * command alone. Programs use such signals: they save on SIGUSR1, or print their stacks on SIGQUIT. */
static void pass_on(struct neap_supervise *run, const struct signalfd_siginfo *info)
{
	static const int of_terminals[] = {SIGINT, SIGQUIT, SIGHUP, SIGWINCH};
	int number = (int)info->ssi_signo;
	bool terminal = info->ssi_code == SI_KERNEL &&
			among(number, of_terminals, sizeof of_terminals / sizeof *of_terminals);
	bool had_it = terminal && !run->child.own_group;
	if (number == SIGCHLD || is_our_own(info))
		return;
	if (number == SIGTSTP)
		suspend(run);
	else if (number == SIGINT || number == SIGTERM || number == SIGHUP)
		cancel(run, number, had_it);
	else if (terminal && !had_it)
		neap_child_signal(run, number);
	else if (!terminal && run->child.pid > 0 && !run->child.ended)
		kill(run->child.pid, number);
}

void neap_child_wait(struct neap_supervise *run, uint64_t wait_ns)
{
	struct pollfd fds[] = {{.fd = run->signal_fd, .events = POLLIN},
			       {.fd = run->guard.pid ? run->guard.from_fd : -1, .events = POLLIN}};
	uint64_t wait_ms = (wait_ns + NEAP_NS_PER_MS - 1) / NEAP_NS_PER_MS;
	struct signalfd_siginfo info;
	poll(fds, 2, wait_ms < 60000 ? (int)wait_ms : 60000);
	while (read(run->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		pass_on(run, &info);
	reap(run);
	neap_tee_keep_up(&run->tee);
}
