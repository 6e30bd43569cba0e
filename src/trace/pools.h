/* trace/pools.h: finds the private pools of events that do not name them: older releases of PyTorch do not. The
 * segments at the end show the pool of an address. They also show the pool of a stream, if all of the stream's
 * segments are of one private pool, as when a graph was captured on it. If an event names its pool, this is not used.
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
	bool made; /* whether the tables were made: at the first event, from the segments known then */
	struct neap_pool_entry *segments, *streams;
	size_t segment_count, stream_count;
};

/* Returns the stream, with its pool, of an event that names no pool. `address` NULL: the event has none. */
uint16_t neap_pools_stream(struct neap_pools *pools, struct neap_build *build, uint64_t handle,
			   const uint64_t *address);
void neap_pools_fini(struct neap_pools *pools);

#endif
