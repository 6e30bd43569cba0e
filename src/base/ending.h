/* base/ending.h: ends processes, and only those that are meant.
 *
 * Each is opened as a pidfd, its start time compared, and signalled through the pidfd: never a reused PID. SIGTERM to
 * all, in the order given, then SIGCONT (a stopped one must run to end), a time of grace, SIGKILL to those that still
 * live. The caller decides whose processes it ends. Any thread.
 */
#ifndef NEAP_BASE_ENDING_H
#define NEAP_BASE_ENDING_H

#include "base/process.h"

#include <stddef.h>

#define NEAP_ENDING_BATCH 64 /* processes that are ended at the same time: as many descriptors are open */

struct neap_ended {
	struct neap_process process; /* pid and start_ticks say which */
	int ended_by;                /* SIGTERM (also: it had ended before) or SIGKILL; 0: it still lives */
};

/* Sets `ended_by` of each; at most 30 s after SIGKILL. More than a batch: one batch after another. Ended ones that
 * are our children are left as zombies for the caller to reap. */
void neap_process_end(struct neap_ended *processes, size_t count, uint64_t grace_ms);

#endif
