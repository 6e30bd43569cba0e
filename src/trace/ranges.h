/* trace/ranges.h: finds the private pool of a block in a recording of PyTorch's own allocator. Its events name only
 * the pools of segments, so this keeps the addresses of the segments that private pools have now. */
#ifndef NEAP_TRACE_RANGES_H
#define NEAP_TRACE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_RANGES_MAX 1024u /* of one recording, after neighbours are joined; further ranges are dropped */

/* Sorted by address; they do not overlap. A zeroed struct is empty. */
struct neap_ranges {
	struct neap_range {
		uint64_t begin, end, pool;
	} items[NEAP_RANGES_MAX];
	size_t count;
};

/* Adds a segment of `pool`. Does nothing for 0 bytes, or beyond the last address. */
void neap_ranges_add(struct neap_ranges *ranges, uint64_t address, uint64_t bytes, uint64_t pool);
/* Removes the addresses. */
void neap_ranges_remove(struct neap_ranges *ranges, uint64_t address, uint64_t bytes);
/* The pool of the segment at the address; 0: none. */
uint64_t neap_ranges_pool(const struct neap_ranges *ranges, uint64_t address);

#endif
