/* replay/start_ranges.h: the expandable segments of a recording, put together.
 *
 * A snapshot lists the mapped ranges of an expandable segment, and events show which ranges grew or were given back.
 * Ranges of one stream and kind are taken to lie in one reservation of addresses, which begins with the lowest range.
 */
#ifndef NEAP_REPLAY_START_RANGES_H
#define NEAP_REPLAY_START_RANGES_H

#include "replay/torch_policy.h"
#include "trace/trace.h"

/* A reservation of addresses: what an expandable segment was before the snapshot cut it up. */
struct neap_start_range {
	uint64_t low, high; /* addresses that are known to lie in it */
	uint64_t size;      /* from `low` on: whole pages, up to the next range at most */
	uint16_t stream;    /* index in the trace's streams */
	bool large;
};

struct neap_start_ranges {
	struct neap_start_range *items; /* the caller frees them */
	size_t count;
	uint64_t odd; /* events that lie in none, because there are too many */
};

/* `device_bytes`: 0 when it is not known. Errors: NEAP_ENOMEM. */
enum neap_status neap_start_ranges_find(const struct neap_trace *trace, size_t device,
					const struct neap_torch_settings *settings, uint64_t device_bytes,
					struct neap_start_ranges *ret_ranges, struct neap_error *err);

#endif
