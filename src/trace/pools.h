/* trace/pools.h: the private pools of events that do not name theirs, as before PyTorch named them in a history: the
 * segments at the end say whose an address is, and a stream that has segments of one private pool alone (that on
 * which a graph was captured) asks there. An event's own word comes first.
 *
 * Memory: 24 bytes for each segment of a private pool and for each such stream.
 */
#ifndef NEAP_TRACE_POOLS_H
#define NEAP_TRACE_POOLS_H

#include "trace/build.h"

/* `key`: an address, or a stream's handle. */
struct neap_pool_entry {
	uint64_t key, size;
	uint16_t stream; /* index in the trace's streams */
};

struct neap_pools {
	bool made; /* at the first event: from the segments that are known by then */
	struct neap_pool_entry *segments, *streams;
	size_t segment_count, stream_count;
};

/* The stream of an event without a pool; `address` NULL: it has none. */
uint16_t neap_pools_stream(struct neap_pools *pools, struct neap_build *build, uint64_t handle,
			   const uint64_t *address);
void neap_pools_fini(struct neap_pools *pools);

#endif
