/* alloc/restore.c: a block of a private pool made live again where it was.
 *
 * What is cached there may lie in several caches, side by side: streams freed it, or its work is done. */
#include "alloc/internal.h"
#include "base/error.h"

/* The first of the CACHED blocks of the pool that together hold all of the wanted bytes; NULL: they do not. */
static struct neap_block *cached_find(const struct neap_alloc *alloc, const struct neap_block_info *wanted)
{
	uint64_t end = wanted->address + wanted->bytes;
	for (const struct neap_segment *segment = alloc->segments; segment; segment = segment->next) {
		const struct neap_pool *pool = segment->arena->pool;
		if (!pool || pool->high != wanted->pool_high || pool->low != wanted->pool_low ||
		    segment->arena->small != wanted->small_pool || wanted->address < segment->address ||
		    wanted->address - segment->address >= segment->bytes)
			continue;
		struct neap_block *first = segment->first;
		while (first && block_end(first) <= wanted->address)
			first = first->next;
		struct neap_block *last = first;
		while (last && last->state == NEAP_BLOCK_CACHED && block_end(last) < end)
			last = last->next;
		return last && last->state == NEAP_BLOCK_CACHED ? first : NULL;
	}
	return NULL;
}

/* Locked; the sizes were checked. */
static enum neap_status restore(struct neap_alloc *alloc, const struct neap_block_info *wanted,
				struct neap_error *err)
{
	struct neap_block *block = cached_find(alloc, wanted);
	if (!block)
		return neap_fail(err, NEAP_EINVAL, "the %llu bytes at 0x%llx are not cached memory of the pool",
				 (unsigned long long)wanted->bytes, (unsigned long long)wanted->address);
	struct neap_stream *stream = neap_stream_find(alloc, wanted->stream);
	struct neap_cache *cache = NULL;
	if (stream)
		cache = neap_cache_find(alloc, stream, block->segment->arena->pool, wanted->small_pool);
	if (!cache || cache->arena != block->segment->arena || !neap_blocks_ensure(alloc, 2))
		return neap_fail(err, NEAP_ENOMEM,
				 "no host memory for a block, or the pool's stream has other addresses");
	block = neap_block_carve(alloc, block, wanted->address, wanted->bytes, cache);
	if (!neap_index_put(&alloc->live, block->address, block)) {
		neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block");
	}
	block->requested = wanted->requested_bytes;
	block->tag = neap_tag_find(alloc);
	block->serial = ++alloc->serial;
	stream->live_blocks++;
	neap_count_live(alloc, block, 1);
	neap_count_active(alloc, block, 1);
	neap_event_block(alloc, NEAP_EVENT_ALLOC, block, NULL);
	return NEAP_OK;
}

enum neap_status neap_pool_restore(struct neap_alloc *alloc, const struct neap_block_info *wanted,
				   struct neap_error *err)
{
	uint64_t bytes = wanted->bytes, requested = wanted->requested_bytes;
	if (!bytes || bytes % BLOCK_ALIGNMENT || wanted->address % BLOCK_ALIGNMENT || !requested ||
	    requested > bytes || bytes > UINT64_MAX - wanted->address)
		return neap_fail(err, NEAP_EINVAL, "a block of %llu bytes for %llu requested ones cannot be restored",
				 (unsigned long long)bytes, (unsigned long long)requested);
	neap_alloc_lock(alloc);
	neap_front_flush(alloc);
	enum neap_status status = restore(alloc, wanted, err);
	neap_alloc_unlock(alloc);
	return status;
}
