/* analyze/lives.c: one pass over the events with a map from address to the life that holds it. If a file has no
 * FREE_REQUESTED (older layouts) or no FREE_COMPLETED (text), the event that it has stands for both.
 *
 * While a life has not ended, all of it is in `open`. After its end only these facts are kept, by its number:
 *
 *   freed         events from its begin to its free;     NEVER, or FAR: in the map far_freed
 *   tails         events from its free to its end;       TAIL_NEVER, or TAIL_FAR: in the map far_end; bit 7: paired
 *   freed_stacks  once any free has a stack of its own
 *   stacks        a map: the stacks of lives whose event has none, while the final state has one
 */
#include "analyze/lives.h"

#include "base/array.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define NEVER      UINT32_MAX
#define FAR        (UINT32_MAX - 1)
#define TAIL_NEVER 127u
#define TAIL_FAR   126u
#define TAIL       127u
#define PAIRED     128u
#define NO_SPARE   SIZE_MAX

struct open_life {
	struct neap_life life; /* in a spare entry, `address` is the index of the next spare one */
	size_t number;
};

struct finder {
	struct neap_lives lives;
	size_t begun, capacity; /* capacity: of the arrays by number */
	struct open_life *open;
	size_t open_count, spare;
	/* Address -> the index << 1 of the open life that holds it; | 1: the index of an early one. */
	struct neap_map live;
	/* How many frees have a stack, and how many of those have their allocation's. */
	uint64_t own_stacks, same_stacks;
	bool completions; /* the trace says when frees completed */
};

static struct neap_life *find(const struct finder *finder, uint64_t address)
{
	uint64_t value;
	if (!neap_map_get(&finder->live, address, &value))
		return NULL;
	return value & 1 ? &finder->lives.early[value >> 1] : &finder->open[value >> 1].life;
}

/* Makes the arrays long enough for one more life. New memory stays untouched, except in the array of stacks. */
static bool reserve(struct finder *finder)
{
	struct neap_lives *lives = &finder->lives;
	size_t capacity = finder->capacity ? finder->capacity * 2 : 64;
	if (finder->begun < finder->capacity)
		return true;
	uint32_t *freed = realloc(lives->freed, capacity * sizeof *freed);
	lives->freed = freed ? freed : lives->freed;
	uint8_t *tails = realloc(lives->tails, capacity);
	lives->tails = tails ? tails : lives->tails;
	if (!freed || !tails)
		return false;
	if (lives->freed_stacks) {
		uint32_t *stacks = realloc(lives->freed_stacks, capacity * sizeof *stacks);
		if (!stacks)
			return false;
		memset(stacks + finder->capacity, 0, (capacity - finder->capacity) * sizeof *stacks);
		lives->freed_stacks = stacks;
	}
	finder->capacity = capacity;
	return true;
}

static bool keep_stack(struct finder *finder, size_t number, uint32_t stack)
{
	struct neap_lives *lives = &finder->lives;
	if (!lives->freed_stacks && stack)
		lives->freed_stacks = calloc(finder->capacity, sizeof *lives->freed_stacks);
	if (lives->freed_stacks)
		lives->freed_stacks[number] = stack;
	return !stack || lives->freed_stacks;
}

/* Packs the members of an open life that are still needed. */
static bool pack(struct finder *finder, const struct open_life *open)
{
	struct neap_lives *lives = &finder->lives;
	const struct neap_life *life = &open->life;
	size_t number = open->number;
	uint64_t freed = life->freed - life->begin, tail = life->end - life->freed;
	bool ok = keep_stack(finder, number, life->freed_stack);

	finder->own_stacks += life->stack && life->freed_stack;
	finder->same_stacks += life->stack && life->freed_stack == life->stack;
	lives->freed[number] = life->freed == NEAP_LIFE_AFTER ? NEVER : freed < FAR ? (uint32_t)freed : FAR;
	lives->tails[number] = life->end == NEAP_LIFE_AFTER ? TAIL_NEVER : tail < TAIL_FAR ? (uint8_t)tail : TAIL_FAR;
	if (lives->freed[number] == FAR)
		ok = ok && neap_map_put(&lives->far_freed, number, life->freed);
	if (lives->tails[number] == TAIL_FAR)
		ok = ok && neap_map_put(&lives->far_end, number, life->end);
	return ok;
}

/* Packs the open life with this index, which becomes a spare one. */
static bool close_life(struct finder *finder, size_t index)
{
	bool ok = pack(finder, &finder->open[index]);
	finder->open[index].life = (struct neap_life){.address = finder->spare};
	finder->open[index].number = SIZE_MAX;
	finder->spare = index;
	return ok;
}

static bool begin_life(struct finder *finder, const struct neap_trace_event *event, uint64_t at)
{
	struct neap_life *held = find(finder, event->address);
	uint64_t value = 0;
	size_t index = finder->spare;
	if (held) { /* the free of the earlier block is missing */
		held->end = at;
		held->freed = held->freed == NEAP_LIFE_AFTER ? at : held->freed;
		finder->lives.odd++;
		neap_map_remove(&finder->live, event->address, &value);
		if (!(value & 1) && !close_life(finder, value >> 1))
			return false;
		index = finder->spare;
	}
	if (!reserve(finder))
		return false;
	if (index == NO_SPARE) {
		if (!neap_array_grow(&finder->open, finder->open_count, sizeof *finder->open))
			return false;
		index = finder->open_count++;
	} else {
		finder->spare = finder->open[index].life.address;
	}
	finder->open[index] = (struct open_life){.life = {.address = event->address,
							  .size = event->size,
							  .begin = at,
							  .freed = NEAP_LIFE_AFTER,
							  .end = NEAP_LIFE_AFTER,
							  .stack = event->stack,
							  .stream = event->stream},
						 .number = finder->begun++};
	return neap_map_put(&finder->live, event->address, (uint64_t)index << 1);
}

static struct neap_life *early_life(struct finder *finder, uint64_t address, uint64_t size, uint16_t stream)
{
	struct neap_lives *lives = &finder->lives;
	if (!neap_array_grow(&lives->early, lives->before, sizeof *lives->early) ||
	    !neap_map_put(&finder->live, address, (uint64_t)lives->before << 1 | 1))
		return NULL;
	struct neap_life *life = &lives->early[lives->before++];
	*life = (struct neap_life){.address = address,
				   .size = size,
				   .begin = NEAP_LIFE_BEFORE,
				   .freed = NEAP_LIFE_AFTER,
				   .end = NEAP_LIFE_AFTER,
				   .stream = stream};
	return life;
}

static bool note_resized(struct finder *finder, uint64_t at)
{
	struct neap_lives *lives = &finder->lives;
	if (!neap_array_grow(&lives->resized, lives->resized_count, sizeof *lives->resized))
		return false;
	lives->resized[lives->resized_count++] = at;
	return true;
}

static bool end_life(struct finder *finder, const struct neap_trace_event *event, uint64_t at)
{
	bool last = event->kind == NEAP_TRACE_FREE_COMPLETED || !finder->completions;
	struct neap_life *life = find(finder, event->address);
	uint64_t value = 0;
	if (!life)
		life = early_life(finder, event->address, event->size, event->stream);
	if (!life || (life->size != event->size && !note_resized(finder, at)))
		return false;
	if (life->freed == NEAP_LIFE_AFTER) {
		life->freed = at;
		life->freed_stack = event->stack;
	} else if (event->kind == NEAP_TRACE_FREE_REQUESTED) {
		finder->lives.odd++;
	}
	if (!last)
		return true;
	life->end = at;
	neap_map_remove(&finder->live, event->address, &value);
	return value & 1 || close_life(finder, value >> 1);
}

static bool has_completions(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	return neap_trace_find(&cursor, 1u << NEAP_TRACE_FREE_COMPLETED, &event);
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

/* Sets the stack of a life that has not ended. */
static bool set_stack(struct finder *finder, uint64_t address, uint32_t stack)
{
	uint64_t value = 0;
	find(finder, address)->stack = stack;
	return !stack || !neap_map_get(&finder->live, address, &value) || value & 1 ||
	       neap_map_put(&finder->lives.stacks, finder->open[value >> 1].number, stack);
}

/* Adds the blocks that the final state shows live and that have no life yet: they were live before the first event,
 * and stayed. For blocks that have a life, takes the stack from the final state if the events lack it. */
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
			if (!life->stack && !set_stack(finder, block->address, block->stack))
				return false;
		}
	}
	return true;
}

/* Adds one life for the bytes that a recording has lost and that no later event names (neap_trace_live_before). */
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

static bool close_all(struct finder *finder)
{
	bool ok = true;
	for (size_t i = 0; ok && i < finder->open_count; i++)
		ok = finder->open[i].number == SIZE_MAX || close_life(finder, i);
	return ok;
}

/* Finds out what the stacks of frees mean. If the program did not ask for them, PyTorch gives each free the stack of
 * its allocation. Then no free has a stack of its own, and the frees of blocks from before the trace show where these
 * were allocated. */
static void see_whose_stacks(struct finder *finder)
{
	struct neap_lives *lives = &finder->lives;
	if (finder->same_stacks == 0 || finder->same_stacks != finder->own_stacks)
		return;
	free(lives->freed_stacks);
	lives->freed_stacks = NULL;
	for (size_t i = 0; i < lives->before; i++) {
		struct neap_life *life = &lives->early[i];
		life->stack = life->stack ? life->stack : life->freed_stack;
		life->freed_stack = 0;
	}
}

enum neap_status neap_lives_find(const struct neap_trace *trace, size_t device, struct neap_lives *ret_lives,
				 struct neap_error *err)
{
	struct finder finder = {.lives = {.trace = trace, .device = device}, .spare = NO_SPARE};
	bool ok = walk(&finder, trace, device) && add_final(&finder, trace, device) &&
		  add_rest(&finder, trace, device) && close_all(&finder);

	if (ok) {
		see_whose_stacks(&finder);
		finder.lives.count = finder.lives.before + finder.begun;
		*ret_lives = finder.lives;
	} else {
		neap_lives_fini(&finder.lives);
	}
	free(finder.open);
	neap_map_fini(&finder.live);
	return ok ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "no memory for the lives of a trace's allocations");
}

void neap_lives_fini(struct neap_lives *lives)
{
	free(lives->early);
	free(lives->resized);
	free(lives->freed);
	free(lives->freed_stacks);
	free(lives->tails);
	neap_map_fini(&lives->far_freed);
	neap_map_fini(&lives->far_end);
	neap_map_fini(&lives->stacks);
	*lives = (struct neap_lives){0};
}

/* --- visiting ----------------------------------------------------------------------------------------------------
 */

struct neap_life_cursor neap_lives_begin(const struct neap_lives *lives, size_t first)
{
	struct neap_life_cursor cursor = {.lives = lives, .next = first};
	if (lives->count > lives->before) {
		cursor.events = neap_trace_events(lives->trace, lives->device, 0);
		cursor.first_event = lives->trace->devices[lives->device].first_event;
	}
	return cursor;
}

/* Sets when the life that began with `begin` was freed, and when it ended. */
static void unpack_ends(const struct neap_lives *lives, size_t number, struct neap_life *life)
{
	uint32_t freed = lives->freed[number];
	unsigned tail = lives->tails[number] & TAIL;
	life->freed = freed == NEVER ? NEAP_LIFE_AFTER : life->begin + freed;
	if (freed == FAR)
		neap_map_get(&lives->far_freed, number, &life->freed);
	life->end = tail == TAIL_NEVER ? NEAP_LIFE_AFTER : life->freed + tail;
	if (tail == TAIL_FAR)
		neap_map_get(&lives->far_end, number, &life->end);
}

bool neap_lives_next(struct neap_life_cursor *cursor, struct neap_life *ret_life)
{
	const struct neap_lives *lives = cursor->lives;
	struct neap_trace_event event;
	uint64_t stack;
	if (cursor->next < lives->before) {
		*ret_life = lives->early[cursor->next++];
		return true;
	}
	if (cursor->next >= lives->count || !neap_trace_find(&cursor->events, 1u << NEAP_TRACE_ALLOC, &event))
		return false;
	size_t number = cursor->next++ - lives->before;
	*ret_life = (struct neap_life){.address = event.address,
				       .size = event.size,
				       .begin = cursor->events.next - 1 - cursor->first_event,
				       .stack = event.stack,
				       .freed_stack = lives->freed_stacks ? lives->freed_stacks[number] : 0,
				       .stream = event.stream,
				       .paired = lives->tails[number] & PAIRED};
	unpack_ends(lives, number, ret_life);
	if (!event.stack && neap_map_get(&lives->stacks, number, &stack))
		ret_life->stack = (uint32_t)stack;
	return true;
}

void neap_lives_pair(struct neap_lives *lives, size_t number)
{
	if (number < lives->before)
		lives->early[number].paired = true;
	else
		lives->tails[number - lives->before] |= PAIRED;
}
