/* alloc/planned.c: what a plan decides is done here.
 *
 *   plan (plan.h)  --- "this request goes to offset 4096" --->  region: an arena of its own, one range of addresses
 *
 * A planned block is a block like any other, in an ordinary segment; the plan only says which of the region's cached
 * bytes it gets. Streams share the region: where another stream used the bytes, this one waits for it on the device.
 * Where the bytes are not all cached (a free is late, or another stream still uses them), or ordering would need the
 * host to wait, the rest of the core serves the request, and the plan goes on with the next one.
 *
 * The region gets its pages as any large request does: from the driver, or from under cached blocks. While the
 * program is in step its memory serves nothing else. While it is not (an evaluation at the end of an epoch), the
 * region serves what nothing else that is cached can. The plan stops before a request may fail, and before the cache
 * is emptied. Then the region's pages can be moved and given back like those of any cached block.
 */
#include "alloc/internal.h"
#include "alloc/plan.h"

#define SCARCE 128 /* memory is, while less than this part of it is not asked for at the peak */

/* Context current. */
static enum neap_status region_obtain(struct neap_alloc *alloc, uint64_t bytes)
{
	struct neap_stream *home = alloc->streams;
	struct neap_arena *arena = home ? neap_arena_make(alloc, home, NULL, false) : NULL;
	if (!arena)
		return NEAP_ENOMEM;
	arena->planned = true;
	struct neap_cache *cache = neap_cache_of(home, arena);
	enum neap_status status = cache ? neap_cache_obtain(alloc, cache, bytes, false, NULL, NULL) : NEAP_ENOMEM;
	/* Pages that two streams share in part, and those that wait for work of streams that are gone, need more. */
	if (status == NEAP_EOOM && !neap_cache_unmap(alloc, NULL))
		status = neap_cache_obtain(alloc, cache, bytes, false, NULL, NULL);
	const struct neap_block *block = status ? NULL : neap_cache_best(cache, bytes);
	if (block) {
		alloc->region = arena;
		alloc->region_address = alloc->region_last = block->address;
	}
	neap_segments_trim(alloc);
	neap_arenas_trim(alloc);
	return block ? NEAP_OK : status;
}

static void start(struct neap_alloc *alloc, uint64_t bytes)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	neap_published_close(alloc);
	if (!neap_device_enter(alloc->device, &guard, NULL)) {
		if (!alloc->pools_open && !neap_capture_under_way(alloc, NULL, &capturing, NULL) && !capturing)
			region_obtain(alloc, bytes);
		neap_device_leave(&guard);
	}
	if (alloc->region)
		neap_plan_start(alloc->plan);
	else
		neap_plan_stop(alloc->plan);
}

/* Does what the plan advises before the next request. */
static void follow_advice(struct neap_alloc *alloc)
{
	uint64_t bytes = 0;
	enum neap_plan_advice advice = neap_plan_advise(alloc->plan, &bytes);
	if (advice == NEAP_PLAN_GO_ON)
		return;
	if (advice == NEAP_PLAN_START) {
		start(alloc, bytes);
	} else {
		neap_plan_stop(alloc->plan);
		alloc->region = NULL;
	}
}

void neap_planned_step(struct neap_alloc *alloc)
{
	if (!alloc->plan)
		return;
	neap_plan_step(alloc->plan);
	follow_advice(alloc);
}

static struct neap_plan_request plan_request(const struct neap_stream *stream, uint64_t bytes, uint64_t serial)
{
	return (struct neap_plan_request){bytes, stream->number, serial};
}

/* Whether the program has had to do with nearly all of the memory. */
static bool scarce(const struct neap_alloc *alloc)
{
	uint64_t held = alloc->held_pages * alloc->page_bytes;
	return alloc->demand_bytes > held - held / SCARCE;
}

void neap_planned_note(struct neap_alloc *alloc, const struct neap_stream *stream, const struct neap_request *request)
{
	int64_t retries = alloc->stats.num_alloc_retries;
	uint64_t strain = alloc->moved_pages - alloc->plan_moved;
	struct neap_plan_request noted = plan_request(stream, request->rounded, alloc->serial);
	/* Near a failure each move counts as if all had moved: a plan may prevent it. */
	if (retries != alloc->plan_retries || (strain && scarce(alloc)))
		strain = alloc->held_pages;
	alloc->plan_moved = alloc->moved_pages;
	alloc->plan_retries = retries;
	if (strain)
		neap_plan_strain(alloc->plan, strain * alloc->page_bytes, alloc->serial);
	if (neap_plan_watches(alloc->plan))
		neap_plan_note(alloc->plan, &noted);
}

bool neap_planned_stop(struct neap_alloc *alloc)
{
	if (!alloc->region)
		return false;
	neap_plan_stop(alloc->plan);
	alloc->region = NULL;
	return true;
}

/* The region's block that holds the byte at `address`. Searched from the last planned block on, if that is still
 * live: what is allocated in turn lies close together. */
static struct neap_block *block_at(const struct neap_alloc *alloc, uint64_t address)
{
	struct neap_block *block = neap_index_find(&alloc->live, alloc->region_last);
	if (!block) {
		const struct neap_segment *segment = alloc->segments;
		while (segment->arena != alloc->region)
			segment = segment->next;
		block = segment->first;
	}
	while (block->address > address)
		block = block->previous;
	while (block_end(block) <= address)
		block = block->next;
	return block;
}

/* Whether [address, end) from `first` on is cached and in order for the stream. */
static bool make_ready(struct neap_alloc *alloc, struct neap_block *first, uint64_t end, struct neap_stream *stream)
{
	struct neap_device_guard guard = {0};
	bool capturing = true, waited = false, foreign = false;
	for (const struct neap_block *block = first; block && block->address < end; block = block->next) {
		if (block->state != NEAP_BLOCK_CACHED)
			return false;
		foreign |= block_stream(block) && block_stream(block) != stream;
	}
	if (!foreign)
		return true;
	if (alloc->captures_open || neap_device_enter(alloc->device, &guard, NULL))
		return false;
	bool ready = !neap_capture_under_way(alloc, stream->handle, &capturing, NULL) && !capturing;
	for (struct neap_block *block = first; ready && block && block->address < end;) {
		if (block_stream(block))
			ready = !neap_block_order(alloc, block, stream, &waited, NULL) && !waited;
		/* Once it has waited here, any block may have been joined with others. */
		if (ready)
			block = block->next;
	}
	neap_device_leave(&guard);
	return ready;
}

/* The `bytes` at `address`, in the region's block `first` and those after it, for the stream: LIVE and in the index.
 * NULL: they are not free, or there is no host memory. */
static struct neap_block *claim(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *first,
				uint64_t address, uint64_t bytes)
{
	struct neap_cache *cache = neap_cache_of(stream, alloc->region);
	if (!cache || !make_ready(alloc, first, address + bytes, stream) || !neap_blocks_ensure(alloc, 2))
		return NULL;
	struct neap_block *block = neap_block_carve(alloc, first, address, bytes, cache);
	if (!neap_index_put(&alloc->live, address, block)) {
		neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
		return NULL;
	}
	alloc->region_last = address;
	return block;
}

/* Any part of the region that holds the request: one that the stream may have at once, if there is one. */
static struct neap_block *claim_any(struct neap_alloc *alloc, struct neap_stream *stream, uint64_t bytes)
{
	struct neap_block *best = neap_cache_best(&alloc->region->idle, bytes), *own = NULL, *other = NULL;
	for (struct neap_cache *cache = alloc->region->caches; cache; cache = cache->next_of_arena) {
		struct neap_block *block = neap_cache_best(cache, bytes);
		struct neap_block **kind = cache->stream == stream ? &own : &other;
		if (block && (!*kind || block->bytes < (*kind)->bytes))
			*kind = block;
	}
	if (!best || (own && own->bytes < best->bytes))
		best = own;
	best = best ? best : other;
	return best ? claim(alloc, stream, best, best->address, bytes) : NULL;
}

struct neap_block *neap_planned_take(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request)
{
	uint64_t offset = 0;
	follow_advice(alloc);
	struct neap_plan_request asked = plan_request(stream, request->rounded, alloc->serial + 1);
	if (!neap_plan_expects(alloc->plan, &asked, &offset) || !alloc->region ||
	    neap_pool_match(alloc, request->stream))
		return NULL;
	uint64_t address = alloc->region_address + offset;
	struct neap_block *block = claim(alloc, stream, block_at(alloc, address), address, request->rounded);
	if (!block)
		neap_plan_miss(alloc->plan, &asked);
	return block;
}

struct neap_block *neap_planned_lend(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request, bool last)
{
	bool large = request->rounded > SMALL_LIMIT_BYTES;
	if (!alloc->region || !(last || (large && neap_plan_lost(alloc->plan))))
		return NULL;
	return claim_any(alloc, stream, request->rounded);
}
