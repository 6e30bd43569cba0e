/* analyze/fragments.h: the state at one instant of a trace: the reserved memory that is free, and the blocks that
 * keep it from being given back. Pure.
 *
 *   reserved = live + releasable + pinned
 *
 *   releasable   free, in segments (of expandable ones: in pages) without a live block: emptying the cache returns it
 *   pinned       free, but a live block of the same segment (page) keeps it from being returned
 */
#ifndef NEAP_ANALYZE_FRAGMENTS_H
#define NEAP_ANALYZE_FRAGMENTS_H

#include "analyze/holders.h"

#define NEAP_FRAGMENT_SEGMENTS 16
#define NEAP_FRAGMENT_PINS     3

struct neap_pinned_segment {
	uint64_t address, size, pinned, largest_free, live_bytes, live_blocks;
	uint16_t stream;
	bool large, expandable;
	struct neap_holder pins[NEAP_FRAGMENT_PINS]; /* by live block: the largest share first */
	size_t pin_count;
};

struct neap_fragments {
	bool known;     /* segments and addresses are known: at the end from the file, else by state_at.h */
	uint64_t event; /* just after this one; NEAP_LIFE_AFTER: at the end */
	size_t segments, pinned_segments;
	uint64_t reserved, live, releasable, pinned, largest_free; /* bytes; live as rounded, pending ones too */
	/* For `request`: the largest free piece that it may use (same stream, pool and class of sizes); the largest
	 * one that it may not use; and the free bytes in private pools other than its own. */
	uint64_t usable_free, elsewhere_free, pools_free;
	uint64_t usable_bytes; /* all free bytes that the request could use */
	/* Whether elsewhere_free has the request's stream and pool, but the other class of sizes. */
	bool elsewhere_other_size;
	struct neap_pinned_segment worst[NEAP_FRAGMENT_SEGMENTS]; /* the most pinned bytes first */
	size_t worst_count;
};

/* The largest request that PyTorch's small pool serves. In a recording, a failed request has the size that PyTorch
 * asked the driver for: 2 MiB for a small request, more for any other. */
uint64_t neap_fragments_small_request(const struct neap_trace *trace);

/* `request`: an event of a snapshot; NULL: none. Errors: NEAP_ENOMEM. */
enum neap_status neap_fragments_find(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
				     const struct neap_sites *sites, uint64_t event,
				     const struct neap_trace_event *request, struct neap_fragments *ret_fragments,
				     struct neap_error *err);

#endif
