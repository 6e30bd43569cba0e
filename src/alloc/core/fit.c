/* alloc/core/fit.c: chooses the block that serves a request, and decides whether streams share arenas.
 *
 * As a rule the smallest block that fits serves: programs request the same sizes again, so freed blocks then fit
 * exactly. Some programs rarely repeat a size, but their sizes are much alike, such as a server's growing caches. For
 * such a program the smallest block is often only a little too large, and best fit leaves thin remainders that no
 * request fits into. So it gets the lowest block, which keeps the far end of the memory free. Each arena of large
 * blocks counts, to choose between the two:
 *
 *   thin = the best fit exceeds the request, by an eighth of it or less
 *   lowest fit begins when more than 20 percent of the fits are thin, and ends at 5
 *
 * Requests of the small class have pages of their own. Once little memory is left, a request that would need another
 * page gets an end of a page between blocks of the large class, which no other arena could use.
 *
 * Each stream has arenas of its own, or all streams share the arenas of one. While they are apart, bytes that one
 * stream frees never lie between another's blocks. That packs best, but memory moves between streams by pages, at two
 * driver calls each. Streams that take turns with much memory, as in sharded training, would move it all in every
 * step. So once the moved pages exceed a part of the held ones, all streams are served from the arenas of the stream
 * that holds most. There, freed bytes serve any stream once they are idle. Sharing packs worse, so streams do not
 * share while the demand comes close to the memory held:
 *
 *   share <=> moved pages > held / MOVED_DIVISOR  and  demand <= held * (1 - ROOM_PERMILLE / 1000)
 *
 * `demand` is the most that was ever active or requested at once when no block fitted. Existing blocks stay where
 * they are.
 */
#include "alloc/core/cache.h"

#define FITS_COUNTED  256
#define THIN_DIVISOR  8
#define TIGHT_DIVISOR 24 /* tight: less than this part of the limit is free, so ends of pages count */
#define MOVED_DIVISOR 8
#define ROOM_PERMILLE 35
#define LAST_DIVISOR  64 /* little memory is left: less than this part of the limit */

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

uint64_t neap_limit_bytes(const struct neap_alloc *alloc)
{
	uint64_t device = neap_device_info(alloc->device)->total_bytes - neap_device_context_bytes(alloc->device);
	return alloc->limit_bytes < device ? alloc->limit_bytes : device;
}

bool neap_fit_full(const struct neap_alloc *alloc, uint64_t bytes)
{
	return alloc->held_pages * alloc->page_bytes + bytes > neap_limit_bytes(alloc);
}

bool neap_fit_tight(const struct neap_alloc *alloc, uint64_t bytes)
{
	uint64_t limit = neap_limit_bytes(alloc);
	return metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES) + bytes >= limit - limit / TIGHT_DIVISOR;
}

/* Whether so little memory is left that small requests get no further pages. */
static bool is_short(const struct neap_alloc *alloc)
{
	uint64_t limit = neap_limit_bytes(alloc);
	return !alloc->plain && alloc->held_pages * alloc->page_bytes >= limit - limit / LAST_DIVISOR;
}

/* Returns the smallest block that fits and that the stream may use at once; NULL if there is none, or if that block
 * has a whole page. */
static struct neap_block *page_end(const struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *block = best(cache, bytes);
	bool whole = block &&
		     round_up(block->address, alloc->page_bytes) < round_down(block_end(block), alloc->page_bytes);
	return whole ? NULL : block;
}

struct neap_block *neap_fit_borrow(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_cache **cache,
				   uint64_t bytes, bool last)
{
	bool small = (*cache)->arena->small;
	if ((*cache)->arena->pool || (!last && (!small || !is_short(alloc))))
		return NULL;
	struct neap_cache *other = neap_cache_find(alloc, stream, NULL, !small);
	struct neap_block *block = other ? page_end(alloc, other, bytes) : NULL;
	if (block)
		*cache = other;
	return block;
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
	/* Older fits count half. */
	arena->fits /= 2;
	arena->thin_fits /= 2;
}

static struct neap_stream *largest_stream(const struct neap_alloc *alloc)
{
	struct neap_stream *largest = alloc->streams;
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		stream->pages = 0;
	for (const struct neap_segment *segment = alloc->segments; segment; segment = segment->next)
		if (!segment->arena->pool)
			segment->arena->stream->pages += segment->held_pages;
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		if (stream->pages > largest->pages)
			largest = stream;
	return largest;
}

void neap_share_decide(struct neap_alloc *alloc, uint64_t bytes)
{
	uint64_t demand = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES) + bytes, held = alloc->held_pages;
	alloc->demand_bytes = demand > alloc->demand_bytes ? demand : alloc->demand_bytes;
	bool headroom = alloc->demand_bytes <= held * alloc->page_bytes / 1000 * (1000 - ROOM_PERMILLE);
	bool share = headroom && alloc->moved_pages > held / MOVED_DIVISOR;
	if (!share)
		alloc->home = NULL;
	else if (!alloc->home)
		alloc->home = largest_stream(alloc);
}

/* Queries the driver at most once: the stream's one event answers for all its blocks. */
static void gather_idle(struct neap_alloc *alloc, struct neap_cache *cache)
{
	uint64_t bytes = 0, address = 0;
	bool asked = false;
	struct neap_block *block;
	while ((block = neap_cache_after(cache, bytes, address))) {
		bytes = block->bytes;
		address = block->address;
		bool idle = block->stamp <= cache->stream->done;
		if (!idle && !asked) {
			idle = neap_block_idle(alloc, block);
			asked = true;
		}
		if (idle)
			neap_block_adopt(alloc, block, bytes, &cache->arena->idle);
	}
}

void neap_share_idle(struct neap_alloc *alloc)
{
	for (struct neap_arena *arena = alloc->common_arenas ? alloc->arenas : NULL; arena; arena = arena->next) {
		if (arena->pool || !arena->caches || !arena->caches->next_of_arena)
			continue;
		for (struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena)
			gather_idle(alloc, cache);
	}
}
