/* alloc/obtain.c: where memory comes from when neither the stream's cache nor the arena's idle blocks have what fits.
 *
 *   idle      while streams share: other streams' blocks whose work is done
 *   new       pages from the driver
 *   ordered   while streams share: another stream's block, behind an event that this stream waits for
 *   moved     pages from under cached blocks, of any stream, that are unmapped there and mapped here
 *   stitched  ends of pages and whole pages, mapped a second time side by side (stitch.h): before pages move, once
 *             hardly any memory is free, and else after that; at once, where no new pages are left and such a view is
 *             still mapped
 *
 * An arena gets pages where it lacks the fewest. Moving costs one unmapping for each block that gives pages and one
 * mapping for each page, and no call that takes or gives memory. Pages whose work is done are moved first; for others
 * their stream is waited for, never the device.
 */
#include "alloc/stitch.h"
#include "base/error.h"

/* Pages wanted, and where none may be taken from. */
struct demand {
	uint64_t pages, start, end;
	bool wait;
};

/* From the largest block on: what small ones lose leaves more ends of pages behind. */
static enum neap_status gather_from(struct neap_alloc *alloc, const struct neap_cache *cache,
				    const struct demand *demand, struct neap_error *err)
{
	uint64_t page = alloc->page_bytes;
	struct neap_block *block = neap_cache_before(cache, UINT64_MAX, 0), *next = NULL;
	enum neap_status status = NEAP_OK;
	while (!status && block && alloc->spare_count < demand->pages) {
		uint64_t bytes = block->bytes, address = block->address;
		/* What ends at the place must not join an unmapped block that begins it. */
		bool apart = block_end(block) < demand->start || address >= demand->end;
		bool whole = round_up(address, page) < round_down(block_end(block), page);
		bool idle = apart && whole && neap_block_idle(alloc, block);
		if (apart && whole && !idle && demand->wait) {
			status = neap_block_finish(alloc, block, err);
			/* That may have completed frees, and joined any block with others. */
			block = neap_cache_before(cache, UINT64_MAX, 0);
			continue;
		}
		if (idle)
			status = neap_block_unmap(alloc, block, demand->pages - alloc->spare_count, &next, err);
		block = neap_cache_before(cache, bytes, address);
	}
	return status;
}

static enum neap_status gather(struct neap_alloc *alloc, const struct demand *demand, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_arena *arena = alloc->arenas; !status && arena; arena = arena->next) {
		if (arena->pool || arena == alloc->region)
			continue;
		status = gather_from(alloc, &arena->idle, demand, err);
		for (struct neap_cache *cache = arena->caches; !status && cache; cache = cache->next_of_arena)
			status = gather_from(alloc, cache, demand, err);
	}
	return status;
}

/* Whole pages of the cache that may be moved. */
static uint64_t count_of(const struct neap_alloc *alloc, const struct neap_cache *cache, const struct demand *demand)
{
	uint64_t page = alloc->page_bytes, pages = 0;
	for (const struct neap_block *block = neap_cache_before(cache, UINT64_MAX, 0); block && block->bytes >= page;
	     block = neap_cache_before(cache, block->bytes, block->address)) {
		uint64_t first = round_up(block->address, page), last = round_down(block_end(block), page);
		if (first < last && (block_end(block) < demand->start || block->address >= demand->end))
			pages += (last - first) / page;
	}
	return pages;
}

/* Whether there are enough of them: none leaves its place in vain. */
static bool enough(const struct neap_alloc *alloc, const struct demand *demand)
{
	uint64_t pages = alloc->spare_count;
	for (const struct neap_arena *arena = alloc->arenas; arena; arena = arena->next) {
		if (arena->pool || arena == alloc->region)
			continue;
		pages += count_of(alloc, &arena->idle, demand);
		for (const struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena)
			pages += count_of(alloc, cache, demand);
	}
	return pages >= demand->pages;
}

static enum neap_status grow(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
			     struct neap_error *err)
{
	struct neap_place place = {0};
	if (alloc->plain)
		return neap_segment_plain(alloc, cache, bytes, err);
	enum neap_status status = neap_place_find(alloc, cache, bytes, false, &place, err);
	if (!status)
		status = neap_spare_create(alloc, place.lacking_pages, err);
	if (!status)
		status = neap_place_fill(alloc, cache, place, bytes, err);
	return status;
}

/* `wait`: for work on cached pages, after which the best place may be another. */
static enum neap_status move(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool wait,
			     struct neap_error *err)
{
	struct neap_place place = {0};
	enum neap_status status = neap_place_find(alloc, cache, bytes, true, &place, err);
	if (status)
		return status;
	struct demand demand = {place.lacking_pages, place.block->address, place.block->address + bytes, wait};
	if (!enough(alloc, &demand))
		return neap_fail(err, NEAP_EOOM, "all cached pages together are not enough");
	status = gather(alloc, &demand, err);
	if (!status && wait)
		status = neap_place_find(alloc, cache, bytes, true, &place, err);
	if (!status && alloc->spare_count < place.lacking_pages)
		status = neap_fail(err, NEAP_EOOM, "all cached pages together are not enough");
	if (!status)
		status = neap_place_fill(alloc, cache, place, bytes, err);
	if (!status)
		alloc->moved_pages += place.lacking_pages;
	return status;
}

/* The best of other streams' blocks in the arena; NULL: none fits. */
static struct neap_block *elsewhere(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *best = NULL;
	for (struct neap_cache *other = cache->arena->caches; other; other = other->next_of_arena) {
		struct neap_block *block = neap_cache_best(other, bytes);
		if (block && (!best || block->bytes < best->bytes))
			best = block;
	}
	return best;
}

/* Whether a view that is still mapped served. */
static bool kept(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, struct neap_block **ret_block)
{
	struct neap_block *block = ret_block ? neap_stitch_kept(alloc, cache, bytes) : NULL;
	if (block)
		*ret_block = block;
	return block;
}

/* What can be had without the driver's memory. */
static enum neap_status reuse(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
			      struct neap_block **ret_block, struct neap_error *err)
{
	struct neap_block *block = elsewhere(cache, bytes);
	if (block)
		return neap_place_fill(alloc, cache, (struct neap_place){block, 0}, bytes, err);
	if (alloc->plain)
		return NEAP_EOOM;
	if (kept(alloc, cache, bytes, ret_block))
		return NEAP_OK;
	bool tight = neap_fit_tight(alloc, bytes);
	enum neap_status status = NEAP_EOOM;
	if (ret_block && tight)
		status = neap_stitch_new(alloc, cache, bytes, ret_block, err);
	if (status == NEAP_EOOM)
		status = move(alloc, cache, bytes, false, err);
	if (status == NEAP_EOOM)
		status = move(alloc, cache, bytes, true, err);
	if (status == NEAP_EOOM && ret_block && !tight)
		status = neap_stitch_new(alloc, cache, bytes, ret_block, err);
	return status;
}

enum neap_status neap_cache_obtain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool capturing,
				   struct neap_block **ret_block, struct neap_error *err)
{
	uint64_t held = alloc->held_pages;
	if (bytes > neap_device_info(alloc->device)->total_bytes)
		return neap_fail(err, NEAP_EOOM, "more than the device has");
	uint64_t active = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES);
	if (active > alloc->limit_bytes || bytes > alloc->limit_bytes - active)
		return neap_fail(err, NEAP_EOOM, "more than the limit allows beside what is in use");
	/* While a pool is open a capture may be under way that nothing tells of. */
	bool reusing = !capturing && !alloc->pools_open;
	if (reusing) {
		neap_share_idle(alloc);
		if (neap_cache_best(&cache->arena->idle, bytes))
			return NEAP_OK;
	}
	/* Before anything new: the blocks in the bins, joined with what is beside them, may do. */
	if (neap_front_flush(alloc) && neap_cache_best(cache, bytes))
		return NEAP_OK;
	neap_published_close(alloc);
	/* While there are new pages no stream waits for another's work on what a view has. */
	if (reusing && neap_fit_full(alloc, bytes) && kept(alloc, cache, bytes, ret_block))
		return NEAP_OK;
	enum neap_status status = grow(alloc, cache, bytes, err);
	if (status == NEAP_EOOM && reusing)
		status = reuse(alloc, cache, bytes, ret_block, err);
	/* Others may need what is of no use here. */
	if (status == NEAP_EOOM && !alloc->plain && alloc->held_pages > held) {
		uint64_t more = alloc->held_pages - held;
		neap_spare_release(alloc, alloc->spare_count > more ? alloc->spare_count - more : 0, NULL);
	}
	neap_published_close(alloc);
	return status;
}
