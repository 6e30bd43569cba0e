/* device/drain.h: is the memory of processes back after their end? A pure function over readings. Waiting for it:
 * neap/drain.h.
 *
 * After a process has died the driver frees its memory with a delay, and may list the process no more while its bytes
 * are still used. So what a run still holds is what the driver lists for its processes, and what is used, listed for
 * nobody, and was not so before the start:
 *
 *   left = max(listed(run), used - listed(others) - what that difference was before the start)
 *
 * The driver's own bookkeeping moves by a few MiB with every context; less than NEAP_DRAIN_SLACK counts as nothing.
 */
#ifndef NEAP_DEVICE_DRAIN_H
#define NEAP_DEVICE_DRAIN_H

#include "device/monitor.h"

#define NEAP_DRAIN_SLACK (8ull << 20)

/* Bytes the run still holds; 0: drained. `pids`: every process of the run that was ever seen. */
uint64_t neap_drain_left(const struct neap_reading *before, const struct neap_reading *now, const pid_t *pids,
			 size_t pid_count);

#endif
