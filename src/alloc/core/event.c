/* alloc/core/event.c: sends events to the observer, and changes of blocks and pages to the watcher. Both are sent
 * under the lock, so they arrive in the order in which things happened. */
#include "alloc/core/core.h"
#include "base/clock.h"

void neap_event_send(struct neap_alloc *alloc, struct neap_event *event)
{
	if (!alloc->observer || !alloc->observer->event)
		return;
	uint64_t now = neap_clock_now(neap_clock_system());
	alloc->event_ns = now > alloc->event_ns ? now : alloc->event_ns;
	event->time_ns = alloc->event_ns;
	event->sequence = 0;
	event->device = (uint16_t)neap_device_info(alloc->device)->ordinal;
	alloc->observer->event(alloc->observer->context, event);
}

struct neap_event_held neap_event_held_now(const struct neap_alloc *alloc)
{
	return (struct neap_event_held){metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES),
					metric_now(alloc, NEAP_METRIC_RESERVED_BYTES)};
}

static void change_send(struct neap_alloc *alloc, const struct neap_arena *arena, struct neap_alloc_change *change)
{
	change->small_pool = arena->small;
	change->pool_high = arena->pool ? arena->pool->high : 0;
	change->pool_low = arena->pool ? arena->pool->low : 0;
	neap_published_close(alloc);
	alloc->watcher.changed(alloc->watcher.context, change);
}

static void change_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block)
{
	struct neap_alloc_change change = {.kind = kind,
					   .stream = block_stream(block)->handle,
					   .address = block->address,
					   .bytes = block->bytes,
					   .requested = block->requested};
	change_send(alloc, block->segment->arena, &change);
}

void neap_event_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block,
		      const struct neap_stream *stream)
{
	if (alloc->watcher.blocks && kind != NEAP_EVENT_RECORD_STREAM)
		change_block(alloc, kind, block);
	if (!alloc->observer)
		return;
	struct neap_event event =
		neap_event_of_allocation(kind, 0,
					 (struct neap_event_allocation){
						 .held = neap_event_held_now(alloc),
						 .tag = neap_tag_number(alloc, block->tag),
						 .stream = (stream ? stream : block_stream(block))->number,
						 .address = block->address,
						 .requested_bytes = block->requested,
						 .bytes = block->bytes,
					 });
	neap_event_send(alloc, &event);
}

void neap_event_range(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_arena *arena,
		      const struct neap_stream *stream, uint64_t address, uint64_t bytes)
{
	struct neap_alloc_change change = {
		.kind = kind, .stream = stream->handle, .address = address, .bytes = bytes};
	if (alloc->watcher.changed)
		change_send(alloc, arena, &change);
	struct neap_event event =
		neap_event_of_segment(kind, 0,
				      (struct neap_event_segment){.held = neap_event_held_now(alloc),
								  .stream = stream->number,
								  .address = address,
								  .bytes = bytes});
	neap_event_send(alloc, &event);
}

void neap_event_empty_cache(struct neap_alloc *alloc, uint64_t freed_bytes, uint64_t ns)
{
	struct neap_event event = neap_event_of_empty_cache(
		0, (struct neap_event_empty_cache){neap_event_held_now(alloc), ns, freed_bytes});
	neap_event_send(alloc, &event);
}
