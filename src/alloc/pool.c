/* alloc/pool.c: begins, ends and releases private pools, and makes their blocks LIVE again at the same addresses.
 *
 * While a pool has owners, its pages stay even when every block in them is free: a captured graph has their addresses
 * and will run again. */
#include "alloc/front/front.h"
#include "base/error.h"

#include <stdlib.h>

/* Opens the pool that `wanted` describes. */
static enum neap_status pool_open(struct neap_alloc *alloc, const struct neap_pool *wanted, struct neap_error *err)
{
	if (!wanted->filter)
		return neap_fail(err, NEAP_EINVAL, "a private pool needs a filter");
	enum neap_status status = NEAP_OK;
	neap_alloc_lock(alloc);
	struct neap_pool **link = neap_pool_find(alloc, wanted->high, wanted->low), *pool = *link;
	if (pool && pool->filter) {
		status = neap_fail(err, NEAP_ESTATE, "the private pool is already between begin and end");
		goto out;
	}
	if (pool)
		*link = pool->next;
	else
		pool = calloc(1, sizeof *pool);
	if (!pool) {
		status = neap_fail(err, NEAP_ENOMEM, "no host memory for a private pool");
		goto out;
	}
	uint64_t owners = pool->owners + 1;
	*pool = *wanted;
	pool->owners = owners;
	pool->next = alloc->pools;
	alloc->pools = pool;
	alloc->pools_open++;
	alloc->captures_open += pool->captures;
out:
	neap_alloc_unlock(alloc);
	return status;
}

enum neap_status neap_pool_begin(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
				 bool (*filter)(void *context, void *stream), void *context, struct neap_error *err)
{
	const struct neap_pool wanted = {
		.high = pool_high, .low = pool_low, .filter = filter, .context = context, .captures = true};
	return pool_open(alloc, &wanted, err);
}

enum neap_status neap_pool_use(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
			       bool (*filter)(void *context, void *stream), void *context, struct neap_error *err)
{
	const struct neap_pool wanted = {.high = pool_high, .low = pool_low, .filter = filter, .context = context};
	return pool_open(alloc, &wanted, err);
}

enum neap_status neap_pool_end(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low)
{
	enum neap_status status = NEAP_ESTATE;
	neap_alloc_lock(alloc);
	struct neap_pool *pool = *neap_pool_find(alloc, pool_high, pool_low);
	if (pool && pool->filter) {
		pool->filter = NULL;
		pool->context = NULL;
		alloc->pools_open--;
		alloc->captures_open -= pool->captures;
		pool->captures = false;
		status = NEAP_OK;
	}
	neap_arenas_trim(alloc);
	neap_alloc_unlock(alloc);
	return status;
}

enum neap_status neap_pool_release(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low)
{
	enum neap_status status = NEAP_ESTATE;
	neap_alloc_lock(alloc);
	struct neap_pool *pool = *neap_pool_find(alloc, pool_high, pool_low);
	if (pool && pool->owners) {
		pool->owners--;
		/* A graph may have run on its free blocks since they were freed. */
		alloc->dirty = true;
		status = NEAP_OK;
	}
	neap_arenas_trim(alloc);
	neap_alloc_unlock(alloc);
	return status;
}

/* Returns the first of the pool's CACHED blocks that together hold the wanted bytes; NULL: some of these are not
 * CACHED. The blocks may be in several caches: those of the streams that freed them, and the idle one. */
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

/* The lock is held, and the sizes were checked. */
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
