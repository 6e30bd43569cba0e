/* series/drain.h: is there room before a start, and is the memory back after an end? Pure functions over readings.
 *
 * After a process has died the driver frees its memory with a delay, and may list the process no more while its bytes
 * are still used. So what a run still holds is what the driver lists for its processes, and what is used, listed for
 * nobody, and was not so before the start:
 *
 *   left = max(listed(run), used - listed(others) - what that difference was before the start)
 *
 * The driver's own bookkeeping moves by a few MiB with every context; less than NEAP_DRAIN_SLACK counts as nothing.
 */
#ifndef NEAP_SERIES_DRAIN_H
#define NEAP_SERIES_DRAIN_H

#include "device/monitor.h"

#define NEAP_DRAIN_SLACK (8ull << 20)
/* How far from empty a device may be and still be whole: the driver's bookkeeping. */
#define NEAP_WHOLE_SLACK (32ull << 20)

enum neap_needs_kind { NEAP_NEEDS_NONE, NEAP_NEEDS_BYTES, NEAP_NEEDS_DEVICE };

struct neap_needs {
	enum neap_needs_kind kind;
	uint64_t bytes; /* for NEAP_NEEDS_BYTES */
};

/* "none", "device" or a size. Errors: NEAP_EPARSE. */
enum neap_status neap_needs_parse(const char *text, struct neap_needs *ret_needs, struct neap_error *err);

enum neap_room { NEAP_ROOM_NOW, NEAP_ROOM_LATER, NEAP_ROOM_NEVER /* more than the device has */ };
enum neap_room neap_needs_room(const struct neap_needs *needs, const struct neap_reading *reading);

/* Bytes the run still holds; 0: drained. `pids`: every process of the run that was ever seen. */
uint64_t neap_drain_left(const struct neap_reading *before, const struct neap_reading *now, const pid_t *pids,
			 size_t pid_count);

#endif
