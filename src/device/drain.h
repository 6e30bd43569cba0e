/* device/drain.h: computes whether the memory of processes is free again after their end. A pure function over
 * readings. neap/drain.h waits for it.
 *
 * The driver frees the memory of a process that exited with a delay, and may stop listing the process while its bytes
 * are still used. So a run still holds the bytes that the driver lists for its processes, and the bytes that are used
 * but listed for no process, less those before the start:
 *
 *   left = max(listed(run), used - listed(others) - that difference before the start)
 *
 * The driver's own bookkeeping changes by a few MiB with every context; less than NEAP_DRAIN_SLACK counts as 0.
 */
#ifndef NEAP_DEVICE_DRAIN_H
#define NEAP_DEVICE_DRAIN_H

#include "device/monitor.h"

#define NEAP_DRAIN_SLACK (8ull << 20)

/* Returns the bytes that the run still holds; 0: drained. `pids`: every process of the run that was ever seen. */
uint64_t neap_drain_left(const struct neap_reading *before, const struct neap_reading *now, const pid_t *pids,
			 size_t pid_count);

#endif
