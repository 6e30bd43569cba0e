/* trace/pools.h: finds the private pools of events that do not name them: older releases of PyTorch do not. The
 * segments at the end show which pool an address belongs to. They are used for streams with segments of one private
 * pool only, as the one on which a graph was captured. A pool that the event names comes first.
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
	bool made; /* the tables were made, at the first event, from the segments known by then */
	struct neap_pool_entry *segments, *streams;
	size_t segment_count, stream_count;
};

/* The stream, with its pool, of an event that names no pool; `address` NULL: it has none. */
uint16_t neap_pools_stream(struct neap_pools *pools, struct neap_build *build, uint64_t handle,
			   const uint64_t *address);
void neap_pools_fini(struct neap_pools *pools);

#endif
