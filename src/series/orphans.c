/* series/orphans.c: rounds of find, TERM, wait, KILL, wait: a process that forks while it is being ended is caught by
 * the next round. */
#include "series/orphans.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS       3
#define BATCH        64
#define KILL_WAIT_MS 2000
#define GRACE_MS     3000
#define FLIGHTS      256 /* of BATCH each: a fork bomb is not chased for ever */
#define DEPTH        64

struct search {
	const char *run_id;
	pid_t ancestor;
	struct neap_process *found;
	size_t room, count;
};

static bool descends_from(const struct neap_process *process, pid_t ancestor)
{
	struct neap_process parent = *process;
	for (int depth = 0; ancestor > 0 && depth < DEPTH && parent.parent > 1; depth++) {
		if (parent.parent == ancestor)
			return true;
		if (neap_process_read(parent.parent, &parent, NULL))
			return false;
	}
	return false;
}

bool neap_orphans_match(const struct neap_process *process, const char *process_run_id, const char *run_id,
			bool descends, pid_t self, uid_t uid)
{
	if (process->pid == self || process->pid <= 1 || process->uid != uid || process->state == 'Z' ||
	    process->state == 'X')
		return false;
	return descends || (run_id[0] && process_run_id && !strcmp(process_run_id, run_id));
}

static bool visit(void *context, const struct neap_process *process)
{
	struct search *search = context;
	char value[128];
	if (process->uid != getuid())
		return true;
	bool known = !neap_process_environment(process->pid, "NEAP_RUN_ID", value, sizeof value);
	if (neap_orphans_match(process, known ? value : NULL, search->run_id,
			       descends_from(process, search->ancestor), getpid(), getuid()))
		search->found[search->count++] = *process;
	return search->count < search->room;
}

enum neap_status neap_orphans_find(const char *run_id, pid_t ancestor, struct neap_process *ret_processes,
				   size_t room, size_t *ret_count, struct neap_error *err)
{
	struct search search = {run_id, ancestor, ret_processes, room, 0};
	if (room) {
		enum neap_status status = neap_process_each(visit, &search, err);
		if (status)
			return status;
	}
	*ret_count = search.count;
	return NEAP_OK;
}

/* A pidfd of exactly this process, or -1 when it is gone. */
static int open_process(const struct neap_process *process)
{
	int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (fd >= 0 && !neap_process_alive(process->pid, process->start_ticks)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Waits until every pidfd is readable (its process ended) or the time is over; ended ones are marked and closed. */
static void wait_ended(struct pollfd *fds, struct neap_orphan *orphans, size_t count, int signal_number, int wait_ms)
{
	const struct neap_clock *clock = neap_clock_system();
	uint64_t end_ns = neap_clock_now(clock) + (uint64_t)wait_ms * NEAP_NS_PER_MS;
	for (;;) {
		size_t left = 0;
		for (size_t i = 0; i < count; i++)
			left += fds[i].fd >= 0;
		uint64_t now_ns = neap_clock_now(clock);
		if (!left || now_ns >= end_ns)
			return;
		int timeout_ms = (int)((end_ns - now_ns + NEAP_NS_PER_MS - 1) / NEAP_NS_PER_MS);
		if (poll(fds, count, timeout_ms) < 0 && errno != EINTR)
			return;
		for (size_t i = 0; i < count; i++) {
			if (fds[i].fd < 0 || !(fds[i].revents & POLLIN))
				continue;
			close(fds[i].fd);
			fds[i].fd = -1;
			orphans[i].ended_by = signal_number;
		}
	}
}

static void signal_all(struct pollfd *fds, size_t count, int signal_number)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i].fd >= 0)
			syscall(SYS_pidfd_send_signal, fds[i].fd, signal_number, NULL, 0);
}

static void end_batch(struct neap_orphan *orphans, size_t count, int grace_ms)
{
	struct pollfd fds[BATCH];
	for (size_t i = 0; i < count; i++) {
		fds[i] = (struct pollfd){.fd = open_process(&orphans[i].process), .events = POLLIN};
		if (fds[i].fd < 0) /* it ended by itself meanwhile, or cannot be opened */
			orphans[i].ended_by =
				neap_process_alive(orphans[i].process.pid, orphans[i].process.start_ticks) ? 0
													   : SIGTERM;
	}
	signal_all(fds, count, SIGTERM);
	signal_all(fds, count, SIGCONT); /* a stopped one must run to end */
	wait_ended(fds, orphans, count, SIGTERM, grace_ms);
	signal_all(fds, count, SIGKILL);
	wait_ended(fds, orphans, count, SIGKILL, KILL_WAIT_MS);
	for (size_t i = 0; i < count; i++)
		if (fds[i].fd >= 0)
			close(fds[i].fd);
}

enum neap_status neap_orphans_end(const char *run_id, pid_t ancestor, int grace_ms, struct neap_orphan *ret_orphans,
				  size_t room, size_t *ret_count, struct neap_error *err)
{
	size_t total = 0;
	for (int round = 0; round < ROUNDS && total < room; round++) {
		struct neap_process found[BATCH];
		size_t wanted = room - total < BATCH ? room - total : BATCH, count = 0;
		enum neap_status status = neap_orphans_find(run_id, ancestor, found, wanted, &count, err);
		if (status)
			return status;
		if (!count)
			break;
		for (size_t i = 0; i < count; i++)
			ret_orphans[total + i] = (struct neap_orphan){.process = found[i]};
		end_batch(ret_orphans + total, count, grace_ms);
		total += count;
	}
	*ret_count = total;
	return NEAP_OK;
}

enum neap_status neap_orphans_end_all(const char *run_id, pid_t ancestor,
				      void (*tell)(void *context, const struct neap_orphan *orphan), void *context,
				      size_t *ret_count, struct neap_error *err)
{
	size_t total = 0;
	for (int flight = 0; flight < FLIGHTS; flight++) {
		struct neap_orphan orphans[BATCH];
		size_t count = 0, ended = 0;
		enum neap_status status = neap_orphans_end(run_id, ancestor, GRACE_MS, orphans, BATCH, &count, err);
		if (status)
			return status;
		for (size_t i = 0; i < count; i++) {
			tell(context, &orphans[i]);
			ended += orphans[i].ended_by != 0;
		}
		total += count;
		if (count < BATCH || !ended) /* those that cannot be ended are found again */
			break;
	}
	*ret_count = total;
	return NEAP_OK;
}
