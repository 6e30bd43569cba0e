/* alloc/plan/planned.c: serves requests from the places that a plan has for them.
 *
 *   plan (plan.h)  --- "this request goes to offset 4096" --->  region: an arena of its own, one range of addresses
 *
 * A planned block is an ordinary block in an ordinary segment; the plan only says which of the region's cached bytes
 * it gets. Streams share the region: if another stream used the bytes, this one waits for it on the device. If not
 * all bytes are cached (a free is late, or another stream still uses them), or if the host would have to wait, the
 * core serves the request, and the plan goes on with the next one.
 *
 * The region gets its pages as any large request does: from the driver, or from under cached blocks. While the
 * program is in step, the region serves only planned blocks. While it is out of step (an evaluation at the end of an
 * epoch), the region also serves requests for which no other cached block fits. The plan stops before a request may
 * fail, and before the cache is emptied. Then the region's pages can be moved and given back like those of any cached
 * block.
 */
#include "alloc/core/cache.h"
#include "alloc/plan/plan.h"

#define SCARCE 128 /* memory is scarce if the peak demand leaves less than this part of it free */

static struct neap_plan_request plan_request(const struct neap_stream *stream, uint64_t bytes, uint64_t serial)
{
	return (struct neap_plan_request){bytes, stream->number, serial};
}

/* Whether the program has needed nearly all of the memory that is held. */
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
	/* When memory is nearly exhausted, any move counts as if all pages had moved: a plan may prevent a
	 * failure. */
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

/* Returns the region's block that holds the byte at `address`. The search begins at the last planned block, if it is
 * still live: blocks that are allocated one after another lie close together. */
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

/* Makes the stream wait for the work on the blocks from `first` to `end`. False: some of them are not CACHED, or the
 * stream cannot wait. */
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
		/* After a wait of the host, any block may have been joined with others. */
		if (ready)
			block = block->next;
	}
	neap_device_leave(&guard);
	return ready;
}

/* Makes a block of the `bytes` at `address`, which lie in the region's block `first` and the blocks after it. It is
 * LIVE and in the index. NULL: the bytes are not free, or there is no host memory. */
static struct neap_block *claim(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *first,
				uint64_t address, uint64_t bytes)
{
	struct neap_cache *cache = neap_cache_of(alloc, stream, alloc->region);
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

/* Claims any part of the region that is large enough; it prefers one that the stream may use at once. */
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
