/* base/ending.h: ends the given processes, and no others.
 *
 * Opens a pidfd of each process, compares the start time, and signals through the pidfd: so it never signals a reused
 * PID. Sends SIGTERM to all, in the given order, then SIGCONT (a stopped process must run to end), waits for a time
 * of grace, and sends SIGKILL to those that still live. Does not check whose the processes are: the caller does. Any
 * thread.
 */
#ifndef NEAP_BASE_ENDING_H
#define NEAP_BASE_ENDING_H

#include "base/process.h"

#include <stddef.h>

#define NEAP_ENDING_BATCH 64 /* processes to end at the same time: each needs an open descriptor */

struct neap_ended {
	struct neap_process process; /* named by its pid and start_ticks */
	int ended_by;                /* SIGTERM (also if it had ended before), or SIGKILL; 0: it still lives */
};

/* Sets `ended_by` of each. Waits at most 30 s after SIGKILL. Ends more than a batch one batch after another. Our own
 * children stay zombies until the caller reaps them. */
void neap_process_end(struct neap_ended *processes, size_t count, uint64_t grace_ms);

#endif
