/* report/pieces.c: finds the pieces in one pass. The list of the pieces that are reserved now is in order of address,
 * and they never overlap.
 *
 *   reserved      |--- a ---|      |------ b ------|
 *   unmap                       |---------|
 *   gives                       ^^^ there before   |-b-| stays (begun as b was), the part in between ends
 */
#include "report/pieces.h"

#include "base/array.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct list {
	struct neap_piece *items;
	size_t count;
};

struct finder {
	struct list open, closed;
	uint64_t left_out;
	bool failed;
};

static struct neap_piece *make_room(struct finder *finder, struct list *list, size_t at)
{
	if (!neap_array_grow(&list->items, list->count, sizeof *list->items)) {
		finder->failed = true;
		return NULL;
	}
	memmove(&list->items[at + 1], &list->items[at], (list->count - at) * sizeof list->items[0]);
	list->count++;
	return &list->items[at];
}

static void close_piece(struct finder *finder, struct neap_piece piece, uint64_t end)
{
	struct neap_piece *closed = make_room(finder, &finder->closed, finder->closed.count);
	if (closed) {
		*closed = piece;
		closed->end = end;
	}
}

/* Index of the first open piece that ends above `address`. */
static size_t first_above(const struct finder *finder, uint64_t address)
{
	size_t low = 0, high = finder->open.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct neap_piece *piece = &finder->open.items[middle];
		if (piece->address + piece->size > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Ends, at event `at`, the open pieces in `range`. If none is open and `before` is set, a piece was there from before
 * the first event until `at`. */
static void end_range(struct finder *finder, const struct neap_piece *range, uint64_t at, bool before)
{
	uint64_t low = range->address, end = low + range->size;
	size_t index = first_above(finder, low);

	while (low < end && !finder->failed) {
		struct neap_piece *open = index < finder->open.count ? &finder->open.items[index] : NULL;
		if (!open || open->address > low) { /* nothing is open up to here */
			struct neap_piece part = *range;
			part.address = low;
			part.size = (open && open->address < end ? open->address : end) - low;
			part.begin = NEAP_LIFE_BEFORE;
			if (before)
				close_piece(finder, part, at);
			low += part.size;
			continue;
		}
		struct neap_piece whole = *open, part = whole;
		uint64_t whole_end = whole.address + whole.size, part_end = whole_end < end ? whole_end : end;
		part.address = low;
		part.size = part_end - low;
		close_piece(finder, part, at);
		if (whole.address < low) { /* the part below stays */
			open->size = low - whole.address;
			index++;
		} else {
			memmove(open, open + 1, (finder->open.count - index - 1) * sizeof *open);
			finder->open.count--;
		}
		if (whole_end > end) { /* and so does the part above */
			open = make_room(finder, &finder->open, index);
			if (open) {
				*open = whole;
				open->address = end;
				open->size = whole_end - end;
			}
		}
		low = part_end;
	}
}

static void begin_piece(struct finder *finder, const struct neap_piece *piece)
{
	if (finder->open.count >= NEAP_PIECES_AT_ONCE) {
		finder->left_out++;
		return;
	}
	struct neap_piece *open = make_room(finder, &finder->open, first_above(finder, piece->address));
	if (open)
		*open = *piece;
}

static uint64_t within(uint64_t address, uint64_t size)
{
	return size > UINT64_MAX - address ? UINT64_MAX - address : size;
}

static void see_event(struct finder *finder, const struct neap_trace_event *event, uint64_t at)
{
	struct neap_piece piece = {.address = event->address,
				   .size = within(event->address, event->size),
				   .begin = at,
				   .end = NEAP_LIFE_AFTER,
				   .stack = event->stack,
				   .stream = event->stream,
				   .expandable = event->kind == NEAP_TRACE_SEGMENT_MAP ||
						 event->kind == NEAP_TRACE_SEGMENT_UNMAP};
	if (piece.size == 0)
		return;
	if (event->kind == NEAP_TRACE_SEGMENT_ALLOC || event->kind == NEAP_TRACE_SEGMENT_MAP) {
		end_range(finder, &piece, at, false); /* if a piece was open there, the file is odd */
		begin_piece(finder, &piece);
	} else if (event->kind == NEAP_TRACE_SEGMENT_FREE || event->kind == NEAP_TRACE_SEGMENT_UNMAP) {
		piece.stack = 0; /* the event has the stack of the release, not of the allocation */
		end_range(finder, &piece, at, true);
	}
}

/* Adds the parts of a final segment that no event made: they were there before the first event. */
static void see_final(struct finder *finder, const struct neap_trace_segment *segment)
{
	uint64_t low = segment->address, end = low + within(low, segment->size);

	while (low < end && !finder->failed) {
		size_t index = first_above(finder, low);
		const struct neap_piece *open = index < finder->open.count ? &finder->open.items[index] : NULL;
		if (open && open->address <= low) {
			low = open->address + open->size;
			continue;
		}
		struct neap_piece piece = {.address = low,
					   .size = (open && open->address < end ? open->address : end) - low,
					   .begin = NEAP_LIFE_BEFORE,
					   .end = NEAP_LIFE_AFTER,
					   .stack = segment->stack,
					   .stream = segment->stream,
					   .expandable = segment->expandable};
		begin_piece(finder, &piece);
		low += piece.size;
	}
}

enum neap_status neap_pieces_find(const struct neap_trace *trace, size_t device, struct neap_pieces *ret_pieces,
				  struct neap_error *err)
{
	const struct neap_trace_device *info = &trace->devices[device];
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	struct finder finder = {0};

	for (uint64_t at = 0; !finder.failed && neap_trace_next(&cursor, &event); at++)
		see_event(&finder, &event, at);
	for (size_t i = 0; !finder.failed && i < info->segment_count; i++)
		see_final(&finder, &trace->segments[info->first_segment + i]);
	for (size_t i = 0; !finder.failed && i < finder.open.count; i++)
		close_piece(&finder, finder.open.items[i], NEAP_LIFE_AFTER);
	free(finder.open.items);
	if (finder.failed) {
		free(finder.closed.items);
		return neap_fail(err, NEAP_ENOMEM, "no memory for the segments of a trace");
	}
	*ret_pieces = (struct neap_pieces){finder.closed.items, finder.closed.count, finder.left_out};
	return NEAP_OK;
}

void neap_pieces_fini(struct neap_pieces *pieces)
{
	free(pieces->items);
	*pieces = (struct neap_pieces){0};
}
