/* analyze/state_at.c: keeps ranges of reserved addresses, sorted and without overlap, then lays blocks into them. A
 * hostile file may map a range twice, or allocate outside of any segment. So a range that begins in a mapped one is
 * ignored, a range that extends into a mapped one is cut, and blocks outside of segments are omitted. */
#include "analyze/state_at.h"

#include "base/array.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_SEGMENT (2ull << 20)
#define BLOCK_BYTES   512ull

struct ranges {
	struct neap_trace_segment *items;
	size_t count;
};

static uint64_t end_of(const struct neap_trace_segment *segment) { return segment->address + segment->size; }

/* Returns the index of the first range that ends above `address`. */
static size_t find(const struct ranges *ranges, uint64_t address)
{
	size_t low = 0, high = ranges->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (end_of(&ranges->items[middle]) > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool insert(struct ranges *ranges, size_t at, const struct neap_trace_segment *item)
{
	if (!neap_array_grow(&ranges->items, ranges->count, sizeof *item))
		return false;
	memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count - at) * sizeof *item);
	ranges->items[at] = *item;
	ranges->count++;
	return true;
}

static void drop(struct ranges *ranges, size_t at)
{
	memmove(&ranges->items[at], &ranges->items[at + 1], (--ranges->count - at) * sizeof ranges->items[0]);
}

static bool add(struct ranges *ranges, struct neap_trace_segment item)
{
	size_t at = find(ranges, item.address);
	struct neap_trace_segment *next = at < ranges->count ? &ranges->items[at] : NULL;
	if (item.size == 0 || item.size > UINT64_MAX - item.address || (next && next->address <= item.address))
		return true;
	if (next && next->address < end_of(&item))
		item.size = next->address - item.address;
	/* Pages of one range are one segment. */
	struct neap_trace_segment *before = at > 0 ? &ranges->items[at - 1] : NULL;
	bool joins = item.expandable && before && before->expandable && before->stream == item.stream &&
		     before->large == item.large && end_of(before) == item.address;
	if (!joins && !insert(ranges, at, &item))
		return false;
	if (joins) {
		before->size += item.size;
		at--;
	}
	struct neap_trace_segment *joined = &ranges->items[at];
	next = at + 1 < ranges->count ? &ranges->items[at + 1] : NULL;
	if (joined->expandable && next && next->expandable && next->stream == joined->stream &&
	    next->large == joined->large && end_of(joined) == next->address) {
		joined->size += next->size;
		drop(ranges, at + 1);
	}
	return true;
}

static bool take_away(struct ranges *ranges, uint64_t address, uint64_t size)
{
	uint64_t end = size > UINT64_MAX - address ? UINT64_MAX : address + size;
	for (size_t at = find(ranges, address); at < ranges->count && ranges->items[at].address < end;) {
		struct neap_trace_segment rest = ranges->items[at], *item = &ranges->items[at];
		bool left = item->address<address, right = end_of(item)> end;
		if (right) {
			rest.size = end_of(item) - end;
			rest.address = end;
		}
		if (left)
			item->size = address - item->address;
		else if (right)
			*item = rest;
		else
			drop(ranges, at);
		if (left && right)
			return insert(ranges, at + 1, &rest);
		at += left || right;
	}
	return true;
}

static bool grows(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_ALLOC || kind == NEAP_TRACE_SEGMENT_MAP; }
static bool shrinks(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_FREE || kind == NEAP_TRACE_SEGMENT_UNMAP; }

/* Applies an event of a segment. The pages of neap's allocator count as small in either class. */
static bool apply(struct ranges *ranges, const struct neap_trace *trace, const struct neap_trace_event *event,
		  bool undo)
{
	if (grows(event->kind) == undo)
		return take_away(ranges, event->address, event->size);
	return add(ranges, (struct neap_trace_segment){.address = event->address,
						       .size = event->size,
						       .stream = event->stream,
						       .device = event->device,
						       .large = trace->torch && event->size > SMALL_SEGMENT,
						       .expandable = event->kind == NEAP_TRACE_SEGMENT_MAP ||
								     event->kind == NEAP_TRACE_SEGMENT_UNMAP});
}

/* Undoes the events of segments after `event`, from the last one back. */
static bool undo_events(const struct neap_trace *trace, size_t device, uint64_t event, struct ranges *ranges)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, event + 1);
	struct neap_trace_event *later = NULL, next;
	size_t count = 0;
	bool ok = true;
	while (ok && neap_trace_next(&cursor, &next)) {
		if (!grows(next.kind) && !shrinks(next.kind))
			continue;
		ok = neap_array_grow(&later, count, sizeof *later);
		if (ok)
			later[count++] = next;
	}
	while (ok && count > 0)
		ok = apply(ranges, trace, &later[--count], true);
	free(later);
	return ok;
}

static bool find_segments(const struct neap_trace *trace, size_t device, uint64_t event, struct ranges *ranges,
			  bool *ret_known)
{
	const struct neap_trace_device *info = &trace->devices[device];
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event next;
	bool ok = true;

	*ret_known = info->segment_count > 0;
	for (size_t i = 0; ok && i < info->segment_count; i++)
		ok = add(ranges, trace->segments[info->first_segment + i]);
	if (info->segment_count > 0)
		return ok && undo_events(trace, device, event, ranges);
	if (trace->source != NEAP_TRACE_RECORDING || info->lost)
		return ok;
	for (uint64_t at = 0; ok && at <= event && neap_trace_next(&cursor, &next); at++) {
		if (!grows(next.kind) && !shrinks(next.kind))
			continue;
		*ret_known = true;
		ok = apply(ranges, trace, &next, false);
	}
	return ok;
}

static int by_address(const void *left, const void *right)
{
	const struct neap_trace_block *a = left, *b = right;
	return a->address < b->address ? -1 : a->address > b->address;
}

static uint64_t rounded(uint64_t bytes)
{
	return bytes > UINT64_MAX / 2 ? bytes : (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static void push(struct neap_state *state, struct neap_trace_segment *segment, struct neap_trace_block block)
{
	state->blocks[state->block_count++] = block;
	segment->block_count++;
}

/* Lays live blocks into the segments, and free ones between them. `live` is sorted. */
static void lay_out(struct neap_state *state, const struct neap_trace_block *live, size_t count)
{
	size_t next = 0;
	for (size_t i = 0; i < state->segment_count; i++) {
		struct neap_trace_segment *segment = &state->segments[i];
		uint64_t at = segment->address, end = end_of(segment);
		segment->first_block = state->block_count;
		segment->block_count = 0;
		while (next < count && live[next].address < at)
			next++;
		for (; next < count && live[next].address < end; next++) {
			struct neap_trace_block block = live[next];
			if (block.address < at) /* it overlaps the block before: the file is odd */
				continue;
			if (block.address > at)
				push(state, segment,
				     (struct neap_trace_block){.address = at,
							       .size = block.address - at,
							       .state = NEAP_TRACE_BLOCK_FREE});
			block.size = block.size > end - block.address ? end - block.address : block.size;
			push(state, segment, block);
			at = block.address + block.size;
		}
		if (at < end)
			push(state, segment,
			     (struct neap_trace_block){
				     .address = at, .size = end - at, .state = NEAP_TRACE_BLOCK_FREE});
	}
}

enum neap_status neap_state_at(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
			       uint64_t event, struct neap_state *ret_state, bool *ret_known, struct neap_error *err)
{
	struct neap_trace_block *live = calloc(lives->count + 1, sizeof *live);
	struct ranges ranges = {0};
	struct neap_state state = {0};
	bool known = false, ok = live && find_segments(trace, device, event, &ranges, &known);
	size_t count = 0;

	state.segments = ranges.items;
	if (ok && known) {
		struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
		struct neap_life life;
		while (neap_lives_next(&cursor, &life)) {
			if (neap_life_at(&life, event))
				live[count++] = (struct neap_trace_block){.address = life.address,
									  .size = rounded(life.size),
									  .requested = life.size,
									  .stack = life.stack,
									  .state = NEAP_TRACE_BLOCK_LIVE};
		}
		qsort(live, count, sizeof *live, by_address);
		state.segment_count = ranges.count;
		state.blocks = calloc(2 * count + ranges.count + 1, sizeof *state.blocks);
		ok = state.blocks != NULL;
	}
	if (ok && known)
		lay_out(&state, live, count);
	free(live);
	if (!ok || !known)
		neap_state_fini(&state);
	if (!ok)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the segments of a trace");
	*ret_state = state;
	*ret_known = known;
	return NEAP_OK;
}

void neap_state_fini(struct neap_state *state)
{
	free(state->segments);
	free(state->blocks);
	*state = (struct neap_state){0};
}
