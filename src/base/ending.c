/* base/ending.c: see ending.h. */
#include "base/ending.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

/* A large process takes seconds to unmap its memory, and longer on a loaded machine. A process that hangs in a driver
 * call never ends. */
#define KILL_WAIT_MS 30000

/* Waits until all processes have ended (their pidfds are readable) or the time is over. Marks each process that has
 * ended, and closes its pidfd. */
static void wait_ended(struct pollfd *fds, struct neap_ended *processes, size_t count, int signal_number,
		       uint64_t wait_ms)
{
	const struct neap_deadline end = neap_deadline_in_ms(neap_clock_system(), wait_ms);
	for (;;) {
		size_t left = 0;
		for (size_t i = 0; i < count; i++)
			left += fds[i].fd >= 0;
		if (!left || neap_deadline_over(&end))
			return;
		if (poll(fds, count, neap_deadline_poll_ms(&end)) < 0 && errno != EINTR)
			return;
		for (size_t i = 0; i < count; i++) {
			if (fds[i].fd < 0 || !(fds[i].revents & POLLIN))
				continue;
			close(fds[i].fd);
			fds[i].fd = -1;
			processes[i].ended_by = signal_number;
		}
	}
}

static void signal_all(struct pollfd *fds, size_t count, int signal_number)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i].fd >= 0)
			neap_pidfd_signal(fds[i].fd, signal_number);
}

static void end_batch(struct neap_ended *processes, size_t count, uint64_t grace_ms)
{
	struct pollfd fds[NEAP_ENDING_BATCH];
	for (size_t i = 0; i < count; i++) {
		fds[i] = (struct pollfd){
			.fd = neap_process_open(processes[i].process.pid, processes[i].process.start_ticks),
			.events = POLLIN};
		if (fds[i].fd < 0) /* it ended by itself meanwhile, or cannot be opened */
			processes[i].ended_by =
				neap_process_alive(processes[i].process.pid, processes[i].process.start_ticks)
					? 0
					: SIGTERM;
	}
	signal_all(fds, count, SIGTERM);
	signal_all(fds, count, SIGCONT); /* a stopped process must run to end */
	wait_ended(fds, processes, count, SIGTERM, grace_ms);
	signal_all(fds, count, SIGKILL);
	wait_ended(fds, processes, count, SIGKILL, KILL_WAIT_MS);
	for (size_t i = 0; i < count; i++)
		if (fds[i].fd >= 0)
			close(fds[i].fd);
}

void neap_process_end(struct neap_ended *processes, size_t count, uint64_t grace_ms)
{
	for (size_t done = 0; done < count; done += NEAP_ENDING_BATCH) {
		size_t left = count - done;
		end_batch(processes + done, left < NEAP_ENDING_BATCH ? left : NEAP_ENDING_BATCH, grace_ms);
	}
}
