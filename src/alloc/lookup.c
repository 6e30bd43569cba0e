/* alloc/lookup.c: what a block is, for snapshots and for callers that have only its address. */
#include "alloc/internal.h"

static struct neap_block_info describe(const struct neap_alloc *alloc, const struct neap_block *block)
{
	const struct neap_segment *segment = block->segment;
	const struct neap_pool *pool = segment->arena->pool;
	const struct neap_stream *own = block->cache ? block_stream(block) : NULL;
	return (struct neap_block_info){
		.segment_address = segment->address,
		.segment_bytes = segment->bytes,
		.address = block->address,
		.bytes = block->bytes,
		.requested_bytes = block->requested,
		.tag = alloc->tags[block->tag].text,
		.stream = (own ? own : segment->arena->stream)->handle,
		.state = block->state,
		.small_pool = segment->arena->small,
		.serial = block->serial,
		.pool_high = pool ? pool->high : 0,
		.pool_low = pool ? pool->low : 0,
	};
}

void neap_each_block(struct neap_alloc *alloc, void (*visit)(void *context, const struct neap_block_info *),
		     void *context)
{
	neap_alloc_lock(alloc);
	neap_front_flush(alloc);
	for (struct neap_segment *segment = alloc->segments; segment; segment = segment->next) {
		for (struct neap_block *block = segment->first; block; block = block->next) {
			struct neap_block_info info = describe(alloc, block);
			visit(context, &info);
		}
	}
	neap_alloc_unlock(alloc);
}

enum neap_status neap_block_at(struct neap_alloc *alloc, uint64_t address, struct neap_block_info *ret_block)
{
	neap_alloc_lock(alloc);
	const struct neap_block *block = neap_index_find(&alloc->live, address);
	bool found = block && !block->binned;
	if (found)
		*ret_block = describe(alloc, block);
	neap_alloc_unlock(alloc);
	return found ? NEAP_OK : NEAP_EINVAL;
}
