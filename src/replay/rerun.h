/* replay/rerun.h: runs a sequence of allocations and frees through neap's own allocator, or another one
 * (rerun_torch.h), on a device that only counts.
 *
 * The allocator is the real one. So rounding, classes, streams, pages, fragmentation and the emptying of the cache
 * before "out of memory" are as in a training process. The device is a table of driver functions that counts pages
 * and hands out addresses; nothing is behind them, and no driver is loaded.
 *
 * Threads: any; each call is complete in itself. Memory: the allocator's records, given back before it returns.
 */
#ifndef NEAP_REPLAY_RERUN_H
#define NEAP_REPLAY_RERUN_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_rerun_op {
	uint32_t slot;   /* the block's slot: an index below slot_count */
	uint32_t stream; /* of an allocation: a dense number, 0 the default stream */
	uint64_t bytes;  /* to allocate; 0: free the slot's block */
};

struct neap_rerun_result {
	bool fits;                                          /* no request ran out of memory */
	uint64_t peak_reserved_bytes, peak_allocated_bytes; /* up to the end, or up to the failure */
	uint64_t flushes; /* how often the cache was given back because a request found no memory */
};

struct neap_rerun {
	const struct neap_rerun_op *base, *step; /* `base` is done once, then `step` is done `passes` times */
	size_t base_count, step_count;
	size_t slot_count;
	unsigned passes;     /* if a pass allocates a slot that is still in use, its block is freed first */
	uint64_t room_bytes; /* how many bytes the device may give out */
	/* A function that runs it on another allocator; NULL: neap's own. */
	enum neap_status (*other)(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
				  struct neap_error *err);
	const void *other_context;
	uint64_t page_bytes; /* granularity of its virtual memory; 0: it has none */
};

/* Errors: NEAP_ENOMEM; NEAP_EINVAL for a slot out of range. To run out of device memory is a result, not an error. */
enum neap_status neap_rerun(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
			    struct neap_error *err);

#endif
