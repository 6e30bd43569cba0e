/* analyze/step_room.h: how much memory a whole step takes with the settings under which a request failed. Pure.
 *
 * Even if the failed request fits, the rest of its step may not. If the recording holds whole steps with the same
 * settings, or with settings that differ only in the micro-batch (after a rung), neap's allocator repeats one of
 * them, with the sizes of the micro-batch that failed, on ever smaller devices. */
#ifndef NEAP_ANALYZE_STEP_ROOM_H
#define NEAP_ANALYZE_STEP_ROOM_H

#include "trace/record.h"

struct neap_step_room {
	uint64_t bytes;       /* of device memory: for the blocks live between steps, and the step */
	uint64_t micro_batch; /* of the step that was repeated */
	bool scaled;          /* it differs from the micro-batch that failed */
};

/* `oom`: index of the failure in the journal. Errors: NEAP_ENOENT: the recording holds no such step; NEAP_ENOMEM. */
enum neap_status neap_step_room(const struct neap_record *record, size_t oom, struct neap_step_room *ret_room,
				struct neap_error *err);

#endif
