/* base/spawn.c: see spawn.h.
 *
 * A child that is to become a program reports the errno of its set-up or of exec through a pipe that exec closes.
 * Without a program there is no such pipe: in a process with threads, a child that another thread forks at this
 * moment would hold its writing end, and the parent would wait for that child.
 */
#include "base/spawn.h"

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define POLL_MS    50 /* how often a child is checked if no descriptor reports its end */
#define PIPE_READS 64 /* enough reads to empty a pipe: its 16 pages hold up to 64 KiB each */

extern char **environ;

/* --- in the child --- */

/* No handler may run in the child before exec: it would act on the parent's behalf. */
static void reset_signals(void)
{
	for (int number = 1; number <= SIGRTMAX; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action)) /* reserved by the C library */
			continue;
		bool ignored = action.sa_handler == SIG_IGN && number != SIGPIPE && number != SIGXFSZ;
		if (action.sa_handler != SIG_DFL && !ignored)
			sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	}
}

/* Returns 0 or an errno. */
static int set_up(const struct neap_spawn *spawn)
{
	sigset_t mask;
	if (spawn->place == NEAP_SPAWN_OWN_GROUP)
		setpgid(0, 0);
	else if (spawn->place == NEAP_SPAWN_OWN_SESSION)
		setsid();
	reset_signals();
	if (spawn->blocked)
		sigfillset(&mask);
	else
		sigemptyset(&mask);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	for (int to = 0; to < 3; to++) {
		int from = spawn->fds[to];
		if (from == NEAP_SPAWN_NULL)
			from = neap_fd_above_standard(open("/dev/null", O_RDWR | O_CLOEXEC));
		if (from && (from < 0 || dup2(from, to) < 0))
			return errno;
	}
	return 0;
}

int neap_spawn_become(const struct neap_spawn *spawn)
{
	int cause = set_up(spawn);
	if (!cause && spawn->run)
		cause = spawn->run(spawn->context);
	if (cause)
		return cause;
	char **environment = spawn->environment ? spawn->environment : environ;
	(spawn->program ? execve : execvpe)(spawn->program ? spawn->program : spawn->argv[0], spawn->argv,
					    environment);
	return errno;
}

_Noreturn static void be_child(const struct neap_spawn *spawn, pid_t parent, int report_fd)
{
	if (spawn->death_signal) {
		prctl(PR_SET_PDEATHSIG, spawn->death_signal);
		if (getppid() != parent) /* it died before the line above */
			_exit(NEAP_SPAWN_FAILED);
	}
	if (!spawn->argv)
		_exit(set_up(spawn) ? NEAP_SPAWN_FAILED : spawn->run(spawn->context));
	int cause = neap_spawn_become(spawn);
	(void)!neap_fd_write(report_fd, &cause, sizeof cause, NULL);
	_exit(NEAP_SPAWN_FAILED);
}

/* The fallback where close_range(2) is missing or forbidden. */
static bool close_listed(const int *keep, size_t count)
{
	DIR *entries = opendir("/proc/self/fd");
	struct dirent *entry;
	if (!entries)
		return false;
	while ((entry = readdir(entries))) {
		int fd = atoi(entry->d_name);
		bool kept = fd <= STDERR_FILENO || fd == dirfd(entries);
		for (size_t i = 0; i < count; i++)
			kept = kept || fd == keep[i];
		if (!kept)
			close(fd);
	}
	closedir(entries);
	return true;
}

bool neap_spawn_close_others(const int *keep, size_t count)
{
	for (int from = STDERR_FILENO + 1;;) {
		int next = INT_MAX;
		for (size_t i = 0; i < count; i++)
			if (keep[i] >= from && keep[i] < next)
				next = keep[i];
		if (next > from && close_range((unsigned)from, next == INT_MAX ? UINT_MAX : (unsigned)next - 1, 0))
			return close_listed(keep, count);
		if (next == INT_MAX)
			return true;
		from = next + 1;
	}
}

/* --- in the parent --- */

/* A host may have closed its standard descriptors: a pipe must not get their numbers. */
static bool open_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC))
		return false;
	for (int i = 0; i < 2; i++)
		ends[i] = neap_fd_above_standard(ends[i]);
	return ends[0] >= 0 && ends[1] >= 0;
}

enum neap_status neap_spawn(const struct neap_spawn *spawn, pid_t *ret_child, struct neap_error *err)
{
	int report[2] = {-1, -1}, cause = 0;
	sigset_t all, before;
	pid_t child = -1;
	if (spawn->argv && !open_pipe(report)) {
		cause = errno;
		goto out;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const pid_t parent = getpid();
	child = fork();
	if (!child)
		be_child(spawn, parent, report[1]);
	cause = child < 0 ? errno : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	neap_fd_close(&report[1]);
	if (child > 0 && report[0] >= 0 && !neap_fd_read(report[0], &cause, sizeof cause, NULL))
		neap_spawn_end(child);
out:
	neap_fd_close(&report[0]);
	neap_fd_close(&report[1]);
	if (cause)
		return neap_fail_errno(err, cause, "%s", spawn->doing);
	*ret_child = child;
	return NEAP_OK;
}

bool neap_spawn_wait(pid_t child, struct neap_deadline deadline, int *ret_code)
{
	struct pollfd end = {.fd = -1, .events = POLLIN};
	int wait_status = 0;
	pid_t got;
	while ((got = waitpid(child, &wait_status, deadline.clock ? WNOHANG : 0)) <= 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || neap_deadline_over(&deadline))
			break;
		if (end.fd < 0)
			end.fd = neap_pidfd_open(child);
		int left_ms = neap_deadline_poll_ms(&deadline);
		poll(&end, 1, end.fd < 0 && left_ms > POLL_MS ? POLL_MS : left_ms);
	}
	neap_fd_close(&end.fd);
	if (got)
		*ret_code = got > 0 ? neap_exit_code(wait_status) : -1;
	return got != 0;
}

int neap_spawn_end(pid_t child)
{
	int code = -1;
	neap_spawn_wait(child, (struct neap_deadline){0}, &code);
	return code;
}

/* Reads what is in the pipes. False: more than the limit. */
static bool read_output(const struct neap_spawn *spawn, struct pollfd fds[2])
{
	struct neap_buffer *const buffers[2] = {spawn->output, spawn->errors};
	char bytes[16384];
	for (int i = 0; i < 2; i++) {
		ssize_t got = 1;
		for (int reads = 0; reads < PIPE_READS && fds[i].fd >= 0 && got > 0; reads++) {
			got = read(fds[i].fd, bytes, sizeof bytes);
			if (got > 0)
				neap_buffer_append(buffers[i], bytes, (size_t)got);
			else if (!got || (errno != EINTR && errno != EAGAIN))
				neap_fd_close(&fds[i].fd);
			if (spawn->limit_bytes && buffers[i]->length > spawn->limit_bytes)
				return false;
		}
	}
	return true;
}

/* Reads until the child has ended; kills it at its limits. `fds`: its stdout, its stderr, its pidfd; -1: none. */
static enum neap_status follow(pid_t child, const struct neap_spawn *spawn, struct pollfd fds[3], int *ret_code,
			       struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	const struct neap_deadline now = neap_deadline_in(clock, 0);
	const struct neap_deadline end = neap_deadline_in(clock, spawn->limit_ns ? spawn->limit_ns : UINT64_MAX);
	bool stopped = false;
	for (;;) {
		/* Check for the end first: then the pipes hold all that the child wrote before it. */
		bool ended = neap_spawn_wait(child, now, ret_code), whole = read_output(spawn, fds);
		enum neap_status status = NEAP_OK;
		if (!whole)
			status = neap_fail(err, NEAP_EPROTO, "%s: it wrote more than %zu bytes", spawn->doing,
					   spawn->limit_bytes);
		else if (ended && stopped)
			status = neap_fail(err, NEAP_ECANCELED, "%s: stopped", spawn->doing);
		else if (!ended && neap_deadline_over(&end))
			status = neap_fail(err, NEAP_ETIMEDOUT, "%s: it did not end within %.3g s", spawn->doing,
					   (double)spawn->limit_ns / NEAP_NS_PER_S);
		if (status && !ended) {
			kill(child, SIGKILL); /* not reaped yet, so the PID is still its own */
			neap_spawn_end(child);
		}
		if (status || ended)
			return status;
		if (!stopped && spawn->go_on && !spawn->go_on(spawn->context))
			stopped = !kill(child, SIGTERM);
		int left_ms = neap_deadline_poll_ms(&end);
		poll(fds, 3, (spawn->go_on || fds[2].fd < 0) && left_ms > POLL_MS ? POLL_MS : left_ms);
	}
}

enum neap_status neap_spawn_run(const struct neap_spawn *spawn, int *ret_code, struct neap_error *err)
{
	struct neap_buffer *const buffers[2] = {spawn->output, spawn->errors};
	struct pollfd fds[3] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
	struct neap_spawn piped = *spawn;
	int ends[2][2] = {{-1, -1}, {-1, -1}}, code = -1;
	enum neap_status status = NEAP_OK;
	pid_t child;
	for (int i = 0; i < 2 && !status; i++) {
		if (!buffers[i])
			continue;
		if (!open_pipe(ends[i]) || fcntl(ends[i][0], F_SETFL, O_NONBLOCK))
			status = neap_fail_errno(err, errno, "%s", spawn->doing);
		fds[i].fd = ends[i][0];
		piped.fds[1 + i] = ends[i][1];
	}
	if (!status)
		status = neap_spawn(&piped, &child, err);
	for (int i = 0; i < 2; i++)
		neap_fd_close(&ends[i][1]);
	if (!status) {
		fds[2].fd = neap_pidfd_open(child);
		status = follow(child, spawn, fds, &code, err);
	}
	for (int i = 0; i < 3; i++)
		neap_fd_close(&fds[i].fd);
	for (int i = 0; i < 2 && !status; i++)
		status = buffers[i] ? neap_buffer_status(buffers[i], err) : NEAP_OK;
	if (!status)
		*ret_code = code;
	return status;
}
