/* alloc/core/move.c: moves pages from under cached blocks, of any stream, to the place where a block is wanted.
 *
 * The block goes to the place that lacks the fewest pages. A move costs one unmapping for each block that loses pages
 * and one mapping for each page. It neither creates nor releases memory. Pages whose work is done move first. For the
 * others the caller waits for their stream or, if that has no event to wait for, for the context.
 */
#include "alloc/core/cache.h"
#include "base/error.h"

/* How many spare pages a place needs. The place's own pages, [start, end), must stay. */
struct demand {
	uint64_t pages, start, end;
	bool wait;
};

/* Takes pages from the largest block first: small blocks would leave more ends of pages behind. */
static enum neap_status gather_from(struct neap_alloc *alloc, const struct neap_cache *cache,
				    const struct demand *demand, struct neap_error *err)
{
	uint64_t page = alloc->page_bytes;
	struct neap_block *block = neap_cache_before(cache, UINT64_MAX, 0), *next = NULL;
	enum neap_status status = NEAP_OK;
	while (!status && block && alloc->spare_count < demand->pages) {
		uint64_t bytes = block->bytes, address = block->address;
		/* Else a block that ends at the place would join the unmapped block at its start. */
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

/* Counts the whole pages of the cache that may be moved. */
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

/* Whether there are enough pages: otherwise pages would be moved in vain. */
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

enum neap_status neap_pages_move(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool wait,
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
	/* Waiting may have completed frees and made another place better. */
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
