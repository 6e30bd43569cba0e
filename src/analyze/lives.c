/* analyze/lives.c: one pass over the events with a map from address to the life that holds it. If a file has no
 * FREE_REQUESTED (older layouts) or no FREE_COMPLETED (text), the one end stands for both. */
#include "analyze/lives.h"

#include "base/array.h"
#include "base/error.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

struct list {
	struct neap_life *items;
	size_t count;
};

struct finder {
	struct list begun, early; /* early: those from before, found as they are freed */
	struct neap_map live;     /* address -> index << 1 of the life that holds it; | 1: in early */
	uint64_t odd;
	bool completions; /* the trace says when frees completed */
};

/* NULL when the host has no memory. */
static struct neap_life *one_more(struct list *list)
{
	return neap_array_grow(&list->items, list->count, sizeof *list->items) ? &list->items[list->count++] : NULL;
}

static struct neap_life *find(const struct finder *finder, uint64_t address)
{
	uint64_t value;
	if (!neap_map_get(&finder->live, address, &value))
		return NULL;
	return value & 1 ? &finder->early.items[value >> 1] : &finder->begun.items[value >> 1];
}

static bool begin_life(struct finder *finder, const struct neap_trace_event *event, uint64_t at)
{
	struct neap_life *held = find(finder, event->address);
	if (held) { /* its free is missing */
		held->end = at;
		held->freed = held->freed == NEAP_LIFE_AFTER ? at : held->freed;
		finder->odd++;
	}
	struct neap_life *life = one_more(&finder->begun);
	if (!life)
		return false;
	*life = (struct neap_life){.address = event->address,
				   .size = event->size,
				   .begin = at,
				   .freed = NEAP_LIFE_AFTER,
				   .end = NEAP_LIFE_AFTER,
				   .stack = event->stack,
				   .stream = event->stream};
	return neap_map_put(&finder->live, event->address, (uint64_t)(finder->begun.count - 1) << 1);
}

static struct neap_life *early_life(struct finder *finder, uint64_t address, uint64_t size, uint16_t stream)
{
	struct neap_life *life = one_more(&finder->early);
	if (!life || !neap_map_put(&finder->live, address, (uint64_t)(finder->early.count - 1) << 1 | 1))
		return NULL;
	*life = (struct neap_life){.address = address,
				   .size = size,
				   .begin = NEAP_LIFE_BEFORE,
				   .freed = NEAP_LIFE_AFTER,
				   .end = NEAP_LIFE_AFTER,
				   .stream = stream};
	return life;
}

static bool end_life(struct finder *finder, const struct neap_trace_event *event, uint64_t at)
{
	bool last = event->kind == NEAP_TRACE_FREE_COMPLETED || !finder->completions;
	struct neap_life *life = find(finder, event->address);
	if (!life)
		life = early_life(finder, event->address, event->size, event->stream);
	if (!life)
		return false;
	if (life->freed == NEAP_LIFE_AFTER) {
		life->freed = at;
		life->freed_stack = event->stack;
	} else if (event->kind == NEAP_TRACE_FREE_REQUESTED) {
		finder->odd++;
	}
	if (last) {
		life->end = at;
		neap_map_remove(&finder->live, event->address, NULL);
	}
	return true;
}

static bool has_completions(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	while (neap_trace_next(&cursor, &event))
		if (event.kind == NEAP_TRACE_FREE_COMPLETED)
			return true;
	return false;
}

static bool walk(struct finder *finder, const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	bool ok = true;

	finder->completions = has_completions(trace, device);
	for (uint64_t at = 0; ok && neap_trace_next(&cursor, &event); at++) {
		if (event.kind == NEAP_TRACE_ALLOC)
			ok = begin_life(finder, &event, at);
		else if (event.kind == NEAP_TRACE_FREE_REQUESTED || event.kind == NEAP_TRACE_FREE_COMPLETED)
			ok = end_life(finder, &event, at);
	}
	return ok;
}

/* Adds the blocks that the final state shows live and that have no life yet: they were live before the first event,
 * and stayed. For other blocks, the final state may have the stack that the events lack. */
static bool add_final(struct finder *finder, const struct neap_trace *trace, size_t device)
{
	const struct neap_trace_device *info = &trace->devices[device];
	for (size_t s = 0; s < info->segment_count; s++) {
		const struct neap_trace_segment *segment = &trace->segments[info->first_segment + s];
		for (size_t b = 0; b < segment->block_count; b++) {
			const struct neap_trace_block *block = &trace->blocks[segment->first_block + b];
			if (block->state == NEAP_TRACE_BLOCK_FREE)
				continue;
			struct neap_life *life = find(finder, block->address);
			if (!life)
				life = early_life(finder, block->address,
						  block->requested ? block->requested : block->size, segment->stream);
			if (!life)
				return false;
			if (!life->stack)
				life->stack = block->stack;
		}
	}
	return true;
}

/* Adds one life for the bytes that a recording has lost and that no later event mentions (neap_trace_live_before). */
static bool add_rest(struct finder *finder, const struct neap_trace *trace, size_t device)
{
	struct neap_trace_block *blocks = NULL;
	size_t count = 0;

	if (!trace->devices[device].before_bytes)
		return true;
	if (neap_trace_live_before(trace, device, &blocks, &count, NULL) != NEAP_OK)
		return false;
	const struct neap_trace_block *last = count ? &blocks[count - 1] : NULL;
	struct neap_life *rest = NULL;
	bool wanted = last && last->address == NEAP_TRACE_REST;
	if (wanted)
		rest = early_life(finder, last->address, last->requested, 0);
	if (rest)
		rest->stack = trace->devices[device].before_stack;
	free(blocks);
	return !wanted || rest;
}

/* If stacks of frees were not asked for, PyTorch gives each free the stack of its allocation. Then no free has a
 * stack of its own, and the frees of blocks from before the trace show where these were allocated. */
static void see_whose_stacks(struct finder *finder)
{
	size_t freed = 0, same = 0;
	for (size_t i = 0; i < finder->begun.count; i++) {
		const struct neap_life *life = &finder->begun.items[i];
		freed += life->stack && life->freed_stack;
		same += life->stack && life->freed_stack == life->stack;
	}
	if (same == 0 || same != freed)
		return;
	for (size_t i = 0; i < finder->begun.count; i++)
		finder->begun.items[i].freed_stack = 0;
	for (size_t i = 0; i < finder->early.count; i++) {
		struct neap_life *life = &finder->early.items[i];
		life->stack = life->stack ? life->stack : life->freed_stack;
		life->freed_stack = 0;
	}
}

enum neap_status neap_lives_find(const struct neap_trace *trace, size_t device, struct neap_lives *ret_lives,
				 struct neap_error *err)
{
	struct finder finder = {0};
	struct neap_life *items = NULL;
	bool ok =
		walk(&finder, trace, device) && add_final(&finder, trace, device) && add_rest(&finder, trace, device);
	size_t count = finder.begun.count + finder.early.count;
	see_whose_stacks(&finder);

	if (ok) {
		items = malloc((count + 1) * sizeof *items);
		ok = items != NULL;
	}
	if (ok) {
		if (finder.early.count > 0)
			memcpy(items, finder.early.items, finder.early.count * sizeof *items);
		if (finder.begun.count > 0)
			memcpy(items + finder.early.count, finder.begun.items, finder.begun.count * sizeof *items);
		*ret_lives = (struct neap_lives){
			.items = items, .count = count, .before = finder.early.count, .odd = finder.odd};
	}
	free(finder.begun.items);
	free(finder.early.items);
	neap_map_fini(&finder.live);
	return ok ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "no memory for the lives of a trace's allocations");
}

void neap_lives_fini(struct neap_lives *lives)
{
	free(lives->items);
	*lives = (struct neap_lives){0};
}
