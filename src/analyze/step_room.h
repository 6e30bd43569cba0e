/* analyze/step_room.h: how much memory a whole step takes with the settings under which a request failed. Pure.
 *
 * A request that fits is not yet a step that ends. Where the recording holds whole steps with the same settings, or
 * with the same settings but for the micro-batch (the ladder's), one of them is done again by neap's allocator, with
 * the sizes of the micro-batch that failed, on devices of falling size. */
#ifndef NEAP_ANALYZE_STEP_ROOM_H
#define NEAP_ANALYZE_STEP_ROOM_H

#include "trace/record.h"

struct neap_step_room {
	uint64_t bytes;       /* of device memory: for what is live between steps, and the step */
	uint64_t micro_batch; /* of the step that was done again */
	bool scaled;          /* that is another one than the micro-batch that failed */
};

/* `oom`: index of the failure in the journal. Errors: NEAP_ENOENT: the recording holds no such step; NEAP_ENOMEM. */
enum neap_status neap_step_room(const struct neap_record *record, size_t oom, struct neap_step_room *ret_room,
				struct neap_error *err);

#endif
