/* alloc/layout.h: where to put blocks whose sizes and lives are all known in advance.
 *
 *   offset
 *     ^      +--------+-------------+
 *     |      | c      | d           |       a block is a rectangle: as high as its bytes, as wide as its life; no two
 *     |      +----+---+------+------+       may overlap, and the highest edge is the memory that all of them need
 *     |      | a  |   b      |
 *     +------+----+----------+------> events
 *
 * This is dynamic storage allocation, which is NP-hard. The most bytes live at once are a lower bound. How near a
 * layout comes to it depends on the work it may take.
 *
 * Pure: host memory only, any thread, the same result everywhere.
 */
#ifndef NEAP_ALLOC_LAYOUT_H
#define NEAP_ALLOC_LAYOUT_H

#include "neap/status.h"

#include <stddef.h>

/* Live from event `from` until before event `to`. */
struct neap_layout_block {
	uint64_t bytes, from, to;
	uint64_t offset; /* the result */
};

struct neap_layout {
	uint64_t total_bytes; /* the highest end of a block */
	uint64_t bound_bytes; /* the most bytes live at once: no layout needs fewer */
	uint64_t tries, work; /* what it took; work is counted in comparisons of two blocks */
};

#define NEAP_LAYOUT_BLOCKS_MAX (1u << 20)

/* Sets the offset of each block. It ends when a layout meets the bound, or after `work` comparisons; the first try
 * always runs to its end, at most count * count / 2. Offsets are sums of sizes, so if all sizes are multiples of
 * an alignment, offsets are too. Errors: NEAP_EINVAL for a block of no bytes or no life, for more than
 * NEAP_LAYOUT_BLOCKS_MAX blocks, and for sizes whose sum is 2^63 or more; NEAP_ENOMEM. No offset has changed then. */
enum neap_status neap_layout_make(struct neap_layout_block *blocks, size_t count, uint64_t work,
				  struct neap_layout *ret_layout, struct neap_error *err);

#endif
