/* alloc/share.c: whether each stream has arenas of its own or all share those of one.
 *
 * Apart, what one stream frees never lies between another's blocks. That packs best, and memory that goes from stream
 * to stream is moved by pages: two driver calls for each. Streams that take turns with much memory, as those of
 * sharded training do, would move it all in every step. So once as many pages were moved as a part of those held, all
 * streams are served from the arenas of the one that holds most, where freed bytes serve whichever needs them once
 * they are idle. Sharing costs packing, so it ends, and never begins, while the memory that there is leaves little
 * room:
 *
 *   share <=> moved pages > held / MOVED_DIVISOR  and  demand <= held * (1 - ROOM_PERMILLE / 1000)
 *
 * with `demand` the most that was ever active or asked for at once. What was allocated before stays where it is.
 */
#include "alloc/internal.h"

#define MOVED_DIVISOR 8
#define ROOM_PERMILLE 35

static uint64_t pages_of(const struct neap_alloc *alloc, const struct neap_stream *stream)
{
	uint64_t pages = 0;
	for (const struct neap_segment *segment = alloc->segments; segment; segment = segment->next)
		if (!segment->arena->pool && segment->arena->stream == stream)
			pages += segment->held_pages;
	return pages;
}

static struct neap_stream *largest_stream(const struct neap_alloc *alloc)
{
	struct neap_stream *largest = alloc->streams;
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		if (pages_of(alloc, stream) > pages_of(alloc, largest))
			largest = stream;
	return largest;
}

void neap_share_decide(struct neap_alloc *alloc, uint64_t bytes)
{
	uint64_t demand = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES) + bytes, held = alloc->held_pages;
	alloc->demand_bytes = demand > alloc->demand_bytes ? demand : alloc->demand_bytes;
	bool room = alloc->demand_bytes <= held * alloc->page_bytes / 1000 * (1000 - ROOM_PERMILLE);
	bool share = room && alloc->moved_pages > held / MOVED_DIVISOR;
	if (!share)
		alloc->home = NULL;
	else if (!alloc->home)
		alloc->home = largest_stream(alloc);
}

/* Asks the driver at most once: a record that is not done yet is the latest. */
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
	for (struct neap_arena *arena = alloc->arenas; arena; arena = arena->next) {
		if (arena->pool || !arena->caches || !arena->caches->next_of_arena)
			continue;
		for (struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena)
			gather_idle(alloc, cache);
	}
}
