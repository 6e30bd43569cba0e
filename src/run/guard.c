/* run/guard.c: see guard.h. The guard only waits until the supervisor is dead. Then it works on its copy of the
 * supervisor's memory, made by fork, and on the memory that the supervisor shares.
 */
#include "run/guard.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/spawn.h"
#include "run/group.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel needs a while to unmap a large process; one inside a driver's call never ends. */
#define KILLED_MS 60000

/* The guard's state. `wait_status` is set if `known` is. */
struct watch {
	const struct neap_guard_task *task;
	pid_t command;
	int alive_fd, news_fd, child_fd; /* child_fd is readable when a child has changed */
	bool known;                      /* the command has ended */
	bool released;                   /* the command's end is on disk */
	int wait_status;
	char group[4200];
};

/* Keeps stderr if it is a file: the end of the output is read from it, and nobody waits for a file to be closed. */
static void close_standard(void)
{
	struct stat info;
	bool is_file = !fstat(STDERR_FILENO, &info) && S_ISREG(info.st_mode);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; null_fd >= 0 && fd <= 2 - is_file; fd++)
		dup2(null_fd, fd);
}

/* Checks whether the command has ended, without reaping it. */
static bool has_ended(struct watch *watch)
{
	siginfo_t info = {0};
	if (!watch->known && !waitid(P_PID, (id_t)watch->command, &info, WEXITED | WNOHANG | WNOWAIT) &&
	    info.si_pid) {
		watch->known = true;
		watch->wait_status =
			info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status);
		watch->wait_status |= info.si_code == CLD_DUMPED ? WCOREFLAG : 0;
	}
	return watch->known;
}

/* Finds the command's control group: systemd may have made it after the fork. */
static void find_group(struct watch *watch)
{
	char group[sizeof watch->group];
	if (neap_group_find(watch->command, watch->task->run_id, group, sizeof group))
		memcpy(watch->group, group, sizeof group);
}

static void wait_for_end(struct watch *watch)
{
	const struct neap_deadline end = neap_deadline_in_ms(neap_clock_system(), KILLED_MS);
	struct pollfd fd = {.fd = watch->child_fd, .events = POLLIN};
	struct signalfd_siginfo info;
	while (!has_ended(watch) && !neap_deadline_over(&end)) {
		poll(&fd, 1, neap_deadline_poll_ms(&end));
		while (read(watch->child_fd, &info, sizeof info) > 0)
			;
	}
}

static void take_over(struct watch *watch)
{
	if (!watch->released) {
		find_group(watch);
		if (!has_ended(watch)) {
			kill(watch->command, SIGKILL); /* not reaped yet, so the PID is still its own */
			wait_for_end(watch);
			watch->known = watch->known && watch->wait_status != SIGKILL; /* else our signal ended it */
		}
		if (watch->known)
			watch->task->note(watch->task->context, watch->wait_status);
	}
	if (watch->group[0]) {
		struct neap_group group = {0};
		snprintf(group.path, sizeof group.path, "%s", watch->group);
		neap_group_kill(group.path);
		neap_group_remove(&group);
	}
}

static void release(struct watch *watch)
{
	watch->released = true;
	for (size_t i = 0; i < NEAP_GUARD_KEEPS; i++)
		if (watch->task->keep[i] >= 0)
			close(watch->task->keep[i]);
	find_group(watch);
	waitpid(watch->command, NULL, WNOHANG);
}

/* Returns when the supervisor is dead. */
static void wait_for_supervisor(struct watch *watch)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = watch->alive_fd, .events = POLLIN},
				       {.fd = watch->child_fd, .events = POLLIN}};
		struct signalfd_siginfo info;
		char byte;
		bool knew = watch->known;
		poll(fds, 2, -1);
		while (read(watch->child_fd, &info, sizeof info) > 0)
			;
		if (!knew && has_ended(watch))
			neap_fd_write(watch->news_fd, &watch->wait_status, sizeof watch->wait_status, NULL);
		if (!fds[0].revents)
			continue;
		ssize_t got = read(watch->alive_fd, &byte, 1);
		if (got == 0 || (got < 0 && errno != EINTR))
			return;
		if (got > 0 && !watch->released)
			release(watch);
	}
}

/* Never returns. */
static void guard(const struct neap_guard_task *task, int alive_fd, int news_fd)
{
	struct watch watch = {.task = task, .alive_fd = alive_fd, .news_fd = news_fd};
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	snprintf(watch.group, sizeof watch.group, "%s", task->group); /* before the supervisor changes it */
	const pid_t self = getpid();
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	watch.child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	watch.command = watch.child_fd < 0 ? -1 : neap_group_fork(watch.group);
	int first = watch.command < 0 ? -errno : watch.command;
	if (!watch.command) {
		close(news_fd);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == self) /* else the guard died before the line above */
			task->become(task->context);
		_exit(125);
	}
	if (watch.command > 0 && task->own_group)
		setpgid(watch.command, watch.command); /* the parent does it too: either may be first */
	setpgid(0, 0);
	prctl(PR_SET_NAME, "neap-guard");
	neap_fd_write(news_fd, &first, sizeof first, NULL); /* fails if the supervisor is dead: noticed below */
	if (first < 0)
		_exit(71);
	int keep[3 + NEAP_GUARD_KEEPS] = {alive_fd, news_fd, watch.child_fd};
	memcpy(keep + 3, task->keep, sizeof task->keep);
	close_standard();
	/* The guard may outlive the run: a reader of the run's output must see its end, and a device must be free. */
	neap_spawn_close_others(keep, sizeof keep / sizeof *keep);
	if (chdir("/"))
		errno = 0;
	wait_for_supervisor(&watch);
	take_over(&watch);
	_exit(0);
}

enum neap_status neap_guard_start(const struct neap_guard_task *task, struct neap_guard *ret_guard,
				  pid_t *ret_command, struct neap_error *err)
{
	int to[2] = {-1, -1}, from[2] = {-1, -1}, first = 0;
	enum neap_status status = NEAP_OK;
	pid_t pid = 0;
	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		status = neap_fail_errno(err, errno, "starting the guard of the command");
	if (!status && (pid = fork()) < 0)
		status = neap_fail_errno(err, errno, "starting the guard of the command");
	if (!status && !pid) {
		close(to[1]); /* else the guard would never see the end of the pipe */
		close(from[0]);
		guard(task, to[0], from[1]);
	}
	neap_fd_close(&to[0]);
	neap_fd_close(&from[1]);
	if (!status)
		*ret_guard = (struct neap_guard){pid, to[1], from[0]};
	if (!status && neap_fd_read(from[0], &first, sizeof first, NULL))
		first = -ECHILD; /* the guard was killed before it sent the PID */
	if (first < 0) {
		neap_guard_end(ret_guard);
		return neap_fail_errno(err, -first, "starting the command");
	}
	if (!status) {
		fcntl(from[0], F_SETFL, O_NONBLOCK);
		*ret_command = first;
		return NEAP_OK;
	}
	neap_fd_close(&to[1]);
	neap_fd_close(&from[0]);
	return status;
}

bool neap_guard_news(struct neap_guard *guard, int *ret_wait_status)
{
	int wait_status;
	if (!guard->pid || guard->from_fd < 0)
		return false;
	ssize_t got = read(guard->from_fd, &wait_status, sizeof wait_status);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	close(guard->from_fd); /* the guard sends no more; if it is dead, the command is now our child */
	guard->from_fd = -1;
	if (got != (ssize_t)sizeof wait_status)
		return false;
	*ret_wait_status = wait_status;
	return true;
}

void neap_guard_release(const struct neap_guard *guard)
{
	if (guard->pid && guard->to_fd >= 0)
		neap_fd_write(guard->to_fd, "", 1, NULL); /* fails if the guard is dead: nothing to release */
}

void neap_guard_reaped(struct neap_guard *guard)
{
	neap_fd_close(&guard->to_fd);
	neap_fd_close(&guard->from_fd);
	guard->pid = 0;
}

void neap_guard_end(struct neap_guard *guard)
{
	if (!guard->pid)
		return;
	kill(guard->pid, SIGKILL);
	neap_spawn_end(guard->pid);
	neap_guard_reaped(guard);
}
