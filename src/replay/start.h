/* replay/start.h: finds what an allocator held before a recording's first event.
 *
 * A recording of PyTorch's ends with a list of every segment and block, and may have begun long after the process
 * did. The state at the beginning is found by undoing every event, from the last to the first. Only one thing is not
 * known: the size of a block that was allocated before the recording and freed during it. The guess is the requested
 * size, rounded by the settings. If the rest of the block's free range is too small to have been split off, the guess
 * includes it.
 */
#ifndef NEAP_REPLAY_START_H
#define NEAP_REPLAY_START_H

#include "base/map.h"
#include "replay/torch_policy.h"
#include "trace/trace.h"

struct neap_start {
	struct neap_torch_segment *segments; /* by address; pools are numbers made by `pool_of` */
	size_t segment_count;
	uint64_t end; /* all addresses of the recording are below it; 0: none is known */
	uint64_t odd; /* events that do not fit the state at the end */
};

/* What the caller knows. */
struct neap_start_facts {
	const uint32_t *pool_of;              /* a pool's number, by stream of the trace */
	const struct neap_torch_pool *traits; /* by number of the pool; NULL: there are no private pools */
	const struct neap_map *extra;         /* by address: how many bytes a block is larger than the guess */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_start_make(const struct neap_trace *trace, size_t device,
				 const struct neap_torch_settings *settings, uint64_t device_bytes,
				 const struct neap_start_facts *facts, struct neap_start *ret_start,
				 struct neap_error *err);
void neap_start_fini(struct neap_start *start);

/* start_ranges.c: finds the expandable segments of a recording, for start.c.
 *
 * A snapshot lists the mapped ranges of an expandable segment, and events show which ranges grew or were given back.
 * Ranges of the same stream and kind count as parts of one reservation of addresses, which begins with the lowest
 * range.
 */

/* A reservation of addresses: an expandable segment, which the snapshot lists in pieces. */
struct neap_start_range {
	uint64_t low, high; /* addresses that are known to lie in it */
	uint64_t size;      /* from `low` on: whole pages, up to the next range at most */
	uint16_t stream;    /* index in the trace's streams */
	bool large;
};

struct neap_start_ranges {
	struct neap_start_range *items; /* the caller frees them */
	size_t count;
	uint64_t odd; /* events that are in none of them, because there are too many */
};

/* Finds the ranges. `device_bytes`: 0 if it is not known. Errors: NEAP_ENOMEM. */
enum neap_status neap_start_ranges_find(const struct neap_trace *trace, size_t device,
					const struct neap_torch_settings *settings, uint64_t device_bytes,
					struct neap_start_ranges *ret_ranges, struct neap_error *err);

#endif
