/* alloc/watch.c: changes of blocks and pages for the watcher. Like events they are made under the lock, so a watcher
 * sees them in the order in which things happened. */
#include "alloc/view.h"

void neap_watch(struct neap_alloc *alloc, const struct neap_watcher *watcher)
{
	neap_alloc_lock(alloc);
	alloc->watcher = watcher ? *watcher : (struct neap_watcher){0};
	neap_alloc_unlock(alloc);
}

static void change_send(struct neap_alloc *alloc, const struct neap_arena *arena, struct neap_alloc_change *change)
{
	change->small_pool = arena->small;
	change->pool_high = arena->pool ? arena->pool->high : 0;
	change->pool_low = arena->pool ? arena->pool->low : 0;
	neap_published_close(alloc);
	alloc->watcher.changed(alloc->watcher.context, change);
}

void neap_change_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block)
{
	struct neap_alloc_change change = {.kind = kind,
					   .stream = block_stream(block)->handle,
					   .address = block->address,
					   .bytes = block->bytes,
					   .requested = block->requested};
	change_send(alloc, block->segment->arena, &change);
}

void neap_change_range(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_stream *stream,
		       uint64_t address, uint64_t bytes)
{
	struct neap_alloc_change change = {
		.kind = kind, .stream = stream->handle, .address = address, .bytes = bytes};
	const struct neap_segment *segment = neap_segment_at(alloc, address);
	if (segment)
		change_send(alloc, segment->arena, &change);
}
