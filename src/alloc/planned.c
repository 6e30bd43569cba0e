/* alloc/planned.c: what a plan decides is done here.
 *
 *   plan (plan.h)  --- "this request goes to offset 4096" --->  region: an arena of its own, one range of addresses
 *
 * A planned block is a block like any other, in an ordinary segment; the plan only says which of the region's cached
 * bytes it gets. Streams share the region: where another stream used the bytes, this one waits for it on the device.
 * Where the bytes are not all cached (a free is late, or another stream still uses them), or ordering would need the
 * host to wait, the rest of the core serves the request, and the plan goes on with the next one.
 *
 * The region gets its pages from all that is cached, which takes one synchronisation; the rest goes back to the
 * driver. Its memory serves nothing else until the plan stops, which it does before a request may fail and before the
 * cache is emptied. Then its pages can be moved and given back like those of any cached block.
 */
#include "alloc/internal.h"
#include "alloc/plan.h"

/* Context current. */
static enum neap_status region_obtain(struct neap_alloc *alloc, uint64_t bytes)
{
	struct neap_stream *home = alloc->streams;
	struct neap_arena *arena = home ? neap_arena_make(alloc, home, NULL, false) : NULL;
	if (!arena)
		return NEAP_ENOMEM;
	arena->planned = true;
	struct neap_cache *cache = neap_cache_of(home, arena);
	enum neap_status status = cache ? neap_cache_unmap(alloc, NULL) : NEAP_ENOMEM;
	if (!status)
		status = neap_cache_obtain(alloc, cache, bytes, false, NULL);
	const struct neap_block *block = status ? NULL : neap_cache_best(cache, bytes);
	if (block) {
		alloc->region = arena;
		alloc->region_address = alloc->region_last = block->address;
	}
	neap_spare_release(alloc, 0, NULL);
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

void neap_planned_step(struct neap_alloc *alloc)
{
	uint64_t bytes = 0;
	if (!alloc->plan)
		return;
	enum neap_plan_advice advice = neap_plan_step(alloc->plan, &bytes);
	if (advice == NEAP_PLAN_START)
		start(alloc, bytes);
	else if (advice == NEAP_PLAN_STOP)
		alloc->region = NULL;
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

struct neap_block *neap_planned_take(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request)
{
	uint64_t offset = 0;
	if (!alloc->region || neap_pool_match(alloc, request->stream) ||
	    !neap_plan_expects(alloc->plan, request->rounded, stream, &offset))
		return NULL;
	uint64_t address = alloc->region_address + offset;
	struct neap_block *block = block_at(alloc, address);
	struct neap_cache *cache = neap_cache_of(stream, alloc->region);
	if (!cache || !make_ready(alloc, block, address + request->rounded, stream) || !neap_blocks_ensure(alloc, 2))
		return NULL;
	block = neap_block_carve(alloc, block, address, request->rounded, cache);
	if (!neap_index_put(&alloc->live, address, block)) {
		neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
		return NULL;
	}
	alloc->region_last = address;
	return block;
}
