/* alloc/fit.c: which of the blocks that fit serves a request.
 *
 * The smallest, as a rule: programs ask for the same sizes again, and what is freed then serves them exactly. Where
 * sizes rarely repeat but are much alike, as the growing caches of a server's requests, the smallest block is often
 * only a little too large, and best fit leaves thin remainders everywhere that nothing fits. There the lowest block
 * serves, which keeps the far end of the memory free. Which of both it is is counted, per arena of large blocks:
 *
 *   thin = the best fit exceeds the request, by an eighth of it or less
 *   lowest fit begins at a share of thin ones above 20 percent, and ends at 5
 *
 * Requests of the small class have pages of their own. Once little memory is left, a request that would need another
 * page is served between blocks of the large class, from an end of a page that no other arena can have.
 */
#include "alloc/internal.h"
#include "alloc/lane.h"

#define FITS_COUNTED  256
#define THIN_DIVISOR  8
#define TIGHT_DIVISOR 24 /* ends of pages count: less than this part of what may be reserved is free */
#define LAST_DIVISOR  64 /* little memory is left: less than this part of what may be reserved */

static struct neap_block *best(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *own = neap_cache_best(cache, bytes), *idle = neap_cache_best(&cache->arena->idle, bytes);
	if (!own || !idle)
		return own ? own : idle;
	return own->bytes <= idle->bytes ? own : idle;
}

static struct neap_block *lowest(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *own = neap_cache_lowest(cache, bytes),
			  *idle = neap_cache_lowest(&cache->arena->idle, bytes);
	if (!own || !idle)
		return own ? own : idle;
	return own->address < idle->address ? own : idle;
}

struct neap_block *neap_fit_find(const struct neap_cache *cache, uint64_t bytes)
{
	return cache->arena->lowest_fit ? lowest(cache, bytes) : best(cache, bytes);
}

bool neap_fit_full(const struct neap_alloc *alloc, uint64_t bytes)
{
	return alloc->held_pages * alloc->page_bytes + bytes > neap_front_limit(alloc);
}

bool neap_fit_tight(const struct neap_alloc *alloc, uint64_t bytes)
{
	uint64_t limit = neap_front_limit(alloc);
	return metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES) + bytes >= limit - limit / TIGHT_DIVISOR;
}

bool neap_fit_short(const struct neap_alloc *alloc)
{
	uint64_t limit = neap_front_limit(alloc);
	return !alloc->plain && alloc->held_pages * alloc->page_bytes >= limit - limit / LAST_DIVISOR;
}

struct neap_block *neap_fit_page_end(const struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *block = best(cache, bytes);
	bool whole = block &&
		     round_up(block->address, alloc->page_bytes) < round_down(block_end(block), alloc->page_bytes);
	return whole ? NULL : block;
}

void neap_fit_count(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_arena *arena = cache->arena;
	const struct neap_block *block = best(cache, bytes);
	if (arena->small)
		return;
	arena->thin_fits += block->bytes > bytes && block->bytes - bytes <= bytes / THIN_DIVISOR;
	if (++arena->fits < FITS_COUNTED)
		return;
	arena->lowest_fit = arena->thin_fits * 20 > arena->fits * (arena->lowest_fit ? 1 : 4);
	/* What was counted before counts half. */
	arena->fits /= 2;
	arena->thin_fits /= 2;
}
