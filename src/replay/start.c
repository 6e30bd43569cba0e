/* replay/start.c: the end of a recording, undone event by event.
 *
 *   undo alloc            its block is free, and joins its free neighbours
 *   undo free_completed   a block is cut out of a free one, its free pending
 *   undo free_requested   it is live
 *   undo segment_alloc    the segment, by then one free block, is gone;   segment_free: it is back
 *   undo segment_map      a range of free bytes has no memory;            segment_unmap: it has
 *
 * Free neighbours are always joined, so that the blocks found are the allocator's own. The pieces are kept in one
 * set by address, with the model's own blocks and segments. What does not fit is counted and passed over.
 *
 * A snapshot lists what is mapped of an expandable segment, range by range. Ranges of one stream and kind are taken
 * to lie in one reservation of addresses, that begins with the lowest of them.
 */
#include "replay/start.h"
#include "base/array.h"
#include "base/error.h"
#include "replay/torch_internal.h"

#include <stdlib.h>

#define CHUNK_EVENTS  64
#define RANGES_MAX    1024          /* a pair for every stream: no process has as many */
#define SMALL_REACH   (64ull << 20) /* small segments that give ten pages back lie near other small ones */
#define LARGEST_REACH (1ull << 40)  /* the addresses of a device of 900 GiB */

/* A reservation of addresses: what an expandable segment was before the snapshot cut it up. */
struct range {
	uint64_t low, high;
	uint16_t stream; /* index in the trace's streams */
	bool large;
	struct segment *segment;
};

struct undo {
	const struct neap_trace *trace;
	size_t device;
	const struct neap_torch_settings *settings;
	uint64_t device_bytes;
	const struct neap_start_facts *facts;
	struct torch arena; /* only its blocks and segments are used */
	struct set pieces;  /* every block, by address */
	struct pool kinds[2];
	struct range *ranges;
	size_t range_count;
	bool has_ranges; /* segments grow or shrink in the trace */
	uint64_t reach;  /* no reservation is larger */
	uint64_t end, odd;
};

/* The last piece that begins at or below `address`. */
static struct block *piece_at(const struct undo *undo, uint64_t address)
{
	struct block *best = NULL;
	for (struct block *node = undo->pieces.root; node;) {
		if (node->address <= address) {
			best = node;
			node = node->right;
		} else {
			node = node->left;
		}
	}
	return best && address - best->address < best->size ? best : NULL;
}

/* Whether any piece lies within; NULL: none. */
static bool occupied(const struct undo *undo, uint64_t address, uint64_t size)
{
	struct block key = {.address = address};
	struct block *next = set_after(&undo->pieces, &key);
	return piece_at(undo, address) || (next && next->address - address < size);
}

static bool is_free(const struct block *block) { return block->mapped && !block->allocated && !block->events; }
static bool alike(const struct block *a, const struct block *b)
{
	return a->mapped == b->mapped && (!a->mapped || (is_free(a) && is_free(b)));
}

static struct block *piece_new(struct undo *undo, struct segment *segment, struct pool *kind, uint64_t address,
			       uint64_t size)
{
	struct block *block = block_new(&undo->arena, segment, kind, 0, address, size);
	if (block)
		set_insert(&undo->pieces, block);
	return block;
}

static void piece_drop(struct undo *undo, struct block *block)
{
	set_remove(&undo->pieces, block);
	if (block->prev)
		block->prev->next = block->next;
	else
		block->segment->first = block->next;
	if (block->next)
		block->next->prev = block->prev;
	block_drop(&undo->arena, block);
}

/* Joins a free or unmapped piece with neighbours of its kind. */
static void join(struct undo *undo, struct block *block)
{
	struct block *next = block->next, *prev = block->prev;
	if (next && alike(block, next)) {
		block->size += next->size;
		piece_drop(undo, next);
	}
	if (prev && alike(block, prev)) {
		prev->size += block->size;
		piece_drop(undo, block);
	}
}

/* Cuts [address, address + size) out of `block`, which holds it all, into a piece of its own. NULL: starved. */
static struct block *carve(struct undo *undo, struct block *block, uint64_t address, uint64_t size)
{
	uint64_t before = address - block->address, after = block->size - before - size;
	if (after) {
		struct block *rest = piece_new(undo, block->segment, block->pool, address + size, after);
		if (!rest)
			return NULL;
		rest->mapped = block->mapped;
		block_link(rest, block, block->next);
		block->size -= after;
	}
	if (!before)
		return block;
	struct block *piece = piece_new(undo, block->segment, block->pool, address, size);
	if (!piece)
		return NULL;
	piece->mapped = block->mapped;
	block_link(piece, block, block->next);
	block->size = before;
	return piece;
}

static struct segment *segment_add(struct undo *undo, uint64_t address, uint64_t size, uint16_t stream, bool large,
				   bool expandable)
{
	if (!size || size > LARGEST_REQUEST || address > (1ull << 62) || occupied(undo, address, size)) {
		undo->odd++;
		return NULL;
	}
	struct segment *segment = segment_new(&undo->arena, address, size, expandable);
	if (!segment)
		return NULL;
	segment->stream = stream;
	segment->first = piece_new(undo, segment, &undo->kinds[!large], address, size);
	if (segment->first)
		segment->first->mapped = !expandable;
	if (address + size > undo->end && !expandable)
		undo->end = address + size;
	return segment;
}

/* Whether the pool of this piece gives out whole blocks alone. */
static bool is_whole(const struct undo *undo, const struct block *piece)
{
	uint32_t pool = undo->facts->pool_of[piece->segment->stream];
	return pool && undo->facts->traits && undo->facts->traits[pool].whole;
}

/* The bytes of a block of `requested` bytes that began at `address` in the free piece. */
static uint64_t block_bytes(const struct undo *undo, const struct block *piece, uint64_t address, uint64_t requested)
{
	uint64_t room = piece->address + piece->size - address;
	uint64_t size = requested < LARGEST_REQUEST ? neap_torch_round(undo->settings, requested) : room;
	if (size >= room)
		return room;
	if (is_whole(undo, piece)) { /* the segment, or the pages that were mapped for it */
		uint64_t pages = piece->pool->small ? SMALL_SEGMENT : undo->settings->large_segment_bytes;
		uint64_t mapped = (size + pages - 1) / pages * pages;
		return piece->segment->expandable && mapped < room ? mapped : room;
	}
	bool whole = size >= undo->settings->max_split_bytes || room - size <= SMALL_REQUEST;
	return !piece->pool->small && !piece->segment->expandable && whole ? room : size;
}

static void undo_alloc(struct undo *undo, const struct neap_trace_event *event)
{
	struct block *block = piece_at(undo, event->address);
	if (!block || block->address != event->address || !(block->allocated || block->events)) {
		undo->odd++;
		return;
	}
	block->allocated = false;
	block->events = 0;
	join(undo, block);
}

/* Free blocks of a plain large segment are above 1 MiB: a smaller rest in front of `block` belongs to what lies
 * before it, whose size was a guess. */
static void give_rest_back(struct undo *undo, struct block *block)
{
	struct block *rest = block->prev, *owner = rest ? rest->prev : NULL;
	if (!owner || !is_free(rest) || rest->size > SMALL_REQUEST || block->pool->small ||
	    block->segment->expandable)
		return;
	owner->size += rest->size;
	owner->guessed = false;
	piece_drop(undo, rest);
}

static void undo_completion(struct undo *undo, const struct neap_trace_event *event)
{
	struct block *piece = piece_at(undo, event->address);
	if (!piece || !is_free(piece)) {
		undo->odd++;
		return;
	}
	struct block *block =
		carve(undo, piece, event->address, block_bytes(undo, piece, event->address, event->size));
	if (!block)
		return;
	block->events = 1;
	block->requested = event->size;
	block->guessed = !block->pool->small && !block->segment->expandable && block->next && is_free(block->next);
	give_rest_back(undo, block);
}

/* Moves the end of guessed blocks. */
static void add_extra(struct undo *undo, const struct neap_map *extra)
{
	const struct neap_map_slot *slot;
	for (size_t cursor = 0; (slot = neap_map_next(extra, &cursor));) {
		struct block *block = piece_at(undo, slot->key), *next = block ? block->next : NULL;
		if (!block || block->address != slot->key || !block->guessed || !next || !is_free(next) ||
		    next->size <= slot->value)
			continue;
		set_remove(&undo->pieces, next);
		next->address += slot->value;
		next->size -= slot->value;
		set_insert(&undo->pieces, next);
		block->size += slot->value;
	}
}

static void undo_free(struct undo *undo, const struct neap_trace_event *event)
{
	struct block *block = piece_at(undo, event->address);
	if (!block || block->address != event->address || !block->events) {
		undo->odd++;
		return;
	}
	block->events = 0;
	block->allocated = true;
}

static void undo_segment_alloc(struct undo *undo, const struct neap_trace_event *event)
{
	struct block *block = piece_at(undo, event->address);
	if (!block || !is_free(block) || block_is_split(block) || block->segment->expandable) {
		undo->odd++;
		return;
	}
	struct segment *segment = block->segment;
	piece_drop(undo, block);
	segment_drop(&undo->arena, segment);
}

/* Of a range of an expandable segment: gives it memory, or takes it. */
static void set_mapped(struct undo *undo, const struct neap_trace_event *event, bool mapped)
{
	struct block *piece = piece_at(undo, event->address);
	if (!piece || piece->mapped == mapped || (!mapped && !is_free(piece)) || !piece->segment->expandable ||
	    piece->size - (event->address - piece->address) < event->size || !event->size) {
		undo->odd++;
		return;
	}
	struct block *block = carve(undo, piece, event->address, event->size);
	if (!block)
		return;
	block->mapped = mapped;
	join(undo, block);
}

static void undo_event(struct undo *undo, const struct neap_trace_event *event)
{
	switch (event->kind) {
	case NEAP_TRACE_ALLOC:
		undo_alloc(undo, event);
		break;
	case NEAP_TRACE_FREE_COMPLETED:
		undo_completion(undo, event);
		break;
	case NEAP_TRACE_FREE_REQUESTED:
		undo_free(undo, event);
		break;
	case NEAP_TRACE_SEGMENT_ALLOC:
		undo_segment_alloc(undo, event);
		break;
	case NEAP_TRACE_SEGMENT_FREE:
		segment_add(undo, event->address, event->size, event->stream, event->size != SMALL_SEGMENT, false);
		break;
	case NEAP_TRACE_SEGMENT_MAP:
		set_mapped(undo, event, false);
		break;
	case NEAP_TRACE_SEGMENT_UNMAP:
		set_mapped(undo, event, true);
		break;
	default:
		break;
	}
}

static void undo_events(struct undo *undo)
{
	struct neap_trace_event events[CHUNK_EVENTS];
	uint64_t left = undo->trace->devices[undo->device].event_count;
	while (left && !undo->arena.starved) {
		uint64_t first = (left - 1) / CHUNK_EVENTS * CHUNK_EVENTS;
		struct neap_trace_cursor cursor = neap_trace_events(undo->trace, undo->device, first);
		size_t count = 0;
		while (count < left - first && neap_trace_next(&cursor, &events[count]))
			count++;
		while (count && !undo->arena.starved)
			undo_event(undo, &events[--count]);
		left = first;
	}
}

static uint64_t page_of(const struct undo *undo, bool large)
{
	return large ? undo->settings->large_segment_bytes : SMALL_SEGMENT;
}

/* The bytes of addresses of one reservation. */
static uint64_t reservation(const struct undo *undo, uint64_t device_bytes, bool large)
{
	uint64_t page = page_of(undo, large);
	return (neap_torch_reserve(undo->settings, device_bytes) + page - 1) / page * page;
}

/* Whether one reservation can hold both the range and this. */
static bool in_reach(const struct undo *undo, const struct range *range, uint64_t address, uint64_t size)
{
	uint64_t low = address < range->low ? address : range->low;
	uint64_t high = address + size > range->high ? address + size : range->high;
	return high - low <= (undo->device_bytes ? reservation(undo, undo->device_bytes, range->large) : undo->reach);
}

/* Extends the range of this stream and kind that is within reach, or begins one. */
static void range_cover(struct undo *undo, uint64_t address, uint64_t size, uint16_t stream, bool large)
{
	if (!size || size > LARGEST_REQUEST || address > (1ull << 62))
		return;
	for (struct range *range = undo->ranges; range < undo->ranges + undo->range_count; range++) {
		if (range->stream != stream || range->large != large || !in_reach(undo, range, address, size))
			continue;
		range->low = address < range->low ? address : range->low;
		range->high = address + size > range->high ? address + size : range->high;
		return;
	}
	if (undo->range_count == RANGES_MAX) {
		undo->odd++;
		return;
	}
	if (!neap_array_grow(&undo->ranges, undo->range_count, sizeof *undo->ranges)) {
		undo->arena.starved = true;
		return;
	}
	undo->ranges[undo->range_count++] =
		(struct range){.low = address, .high = address + size, .stream = stream, .large = large};
}

static uint64_t distance(const struct range *range, uint64_t address)
{
	return address < range->low ? range->low - address : address >= range->high ? address - range->high : 0;
}

/* Small segments grow by 2 MiB at a time, large ones by a multiple of 20 or what large_segment_size_mb says. What is
 * given back of small ones may be as much: then it lies near what is known of them. */
static void range_find(struct undo *undo, const struct neap_trace_event *event)
{
	const struct neap_trace_stream *streams = undo->trace->streams;
	bool large = event->size % page_of(undo, true) == 0;
	const struct range *best = NULL;
	for (const struct range *range = undo->ranges; range < undo->ranges + undo->range_count; range++) {
		uint64_t away = distance(range, event->address);
		bool near = in_reach(undo, range, event->address, event->size) &&
			    (range->large || !large || away < SMALL_REACH);
		if (streams[range->stream].handle == streams[event->stream].handle && near &&
		    (range->large ? large : !large || event->kind == NEAP_TRACE_SEGMENT_UNMAP) &&
		    (!best || away < distance(best, event->address)))
			best = range;
	}
	range_cover(undo, event->address, event->size, best ? best->stream : event->stream,
		    best ? best->large : large);
}

/* What grew says of which kind it is; what was given back may lie in a range that only growth tells of: it comes
 * last. */
static void find_ranges(struct undo *undo)
{
	const struct neap_trace *trace = undo->trace;
	const struct neap_trace_device *device = &trace->devices[undo->device];
	undo->range_count = 0;
	for (size_t i = 0; i < device->segment_count; i++) {
		const struct neap_trace_segment *segment = &trace->segments[device->first_segment + i];
		if (segment->expandable)
			range_cover(undo, segment->address, segment->size, segment->stream, segment->large);
	}
	for (size_t pass = 0; pass < 2; pass++) {
		struct neap_trace_cursor cursor = neap_trace_events(trace, undo->device, 0);
		struct neap_trace_event event;
		while (undo->has_ranges && !undo->arena.starved && neap_trace_next(&cursor, &event))
			if (event.kind == (pass ? NEAP_TRACE_SEGMENT_UNMAP : NEAP_TRACE_SEGMENT_MAP))
				range_find(undo, &event);
	}
}

static bool has_ranges(const struct undo *undo)
{
	struct neap_trace_cursor cursor = neap_trace_events(undo->trace, undo->device, 0);
	struct neap_trace_event event;
	bool found = false;
	while (!found && neap_trace_next(&cursor, &event))
		found = event.kind == NEAP_TRACE_SEGMENT_MAP || event.kind == NEAP_TRACE_SEGMENT_UNMAP;
	return found;
}

/* How far apart two addresses of one reservation can be: its size, where the device's is known. Where it is not, no
 * reservation is larger than the distance between two of them. */
static void find_reach(struct undo *undo)
{
	undo->reach = LARGEST_REACH;
	if (undo->device_bytes)
		return;
	find_ranges(undo);
	uint64_t reach = undo->reach;
	for (size_t i = 0; i < undo->range_count; i++)
		for (size_t j = 0; j < undo->range_count; j++)
			if (undo->ranges[j].low > undo->ranges[i].low &&
			    undo->ranges[j].low - undo->ranges[i].low < reach)
				reach = undo->ranges[j].low - undo->ranges[i].low;
	undo->reach = reach;
}

/* One segment per range: its whole addresses, nothing mapped yet. */
static void make_ranges(struct undo *undo)
{
	uint64_t device = undo->device_bytes ? undo->device_bytes : UNBOUNDED;
	for (size_t i = 0; i < undo->range_count && !undo->arena.starved; i++) {
		struct range *range = &undo->ranges[i];
		uint64_t page = page_of(undo, range->large), size = range->high - range->low;
		uint64_t room = reservation(undo, device, range->large);
		/* Another range or segment that is known to begin before that is the limit. */
		for (size_t j = 0; j < undo->range_count; j++)
			if (undo->ranges[j].low >= range->high && undo->ranges[j].low - range->low < room)
				room = undo->ranges[j].low - range->low;
		room = room / page * page;
		if (room > size)
			size = room;
		size = (size + page - 1) / page * page;
		range->segment = segment_add(undo, range->low, size, range->stream, range->large, true);
		if (range->segment && range->high > undo->end)
			undo->end = range->high;
	}
}

static void load_block(struct undo *undo, struct block *piece, uint64_t address, const struct neap_trace_block *from)
{
	struct block *block = carve(undo, piece, address, from->size);
	if (!block)
		return;
	block->mapped = true;
	block->requested = from->requested;
	block->allocated = from->state == NEAP_TRACE_BLOCK_LIVE;
	block->events = from->state == NEAP_TRACE_BLOCK_PENDING;
	if (is_free(block))
		join(undo, block);
}

/* The blocks of a segment at the end, into the piece that spans it. Older layouts have no addresses of blocks: they
 * follow one another. */
static void load_segment(struct undo *undo, const struct neap_trace_segment *from)
{
	uint64_t address = from->address;
	if (!from->expandable && !segment_add(undo, address, from->size, from->stream, from->large, false))
		return;
	for (size_t i = 0; i < from->block_count && !undo->arena.starved; i++) {
		const struct neap_trace_block *block = &undo->trace->blocks[from->first_block + i];
		struct block *piece = piece_at(undo, address);
		uint64_t left = piece ? piece->size - (address - piece->address) : 0;
		bool fresh = piece && (from->expandable ? !piece->mapped && piece->segment->expandable
							: is_free(piece) && !piece->segment->expandable);
		if (!fresh || !block->size || block->size > left ||
		    address + block->size > from->address + from->size) {
			undo->odd++;
			return;
		}
		load_block(undo, piece, address, block);
		address += block->size;
	}
}

static struct neap_torch_segment *give_segment(struct undo *undo, const struct segment *segment,
					       struct neap_torch_segment *to)
{
	size_t count = 0;
	for (const struct block *block = segment->first; block; block = block->next)
		count++;
	*to = (struct neap_torch_segment){.address = segment->address,
					  .stream = undo->trace->streams[segment->stream].handle,
					  .pool = undo->facts->pool_of[segment->stream],
					  .large = !segment->first->pool->small,
					  .expandable = segment->expandable,
					  .pieces = calloc(count, sizeof *to->pieces),
					  .piece_count = count};
	if (!to->pieces)
		return NULL;
	count = 0;
	for (const struct block *block = segment->first; block; block = block->next) {
		enum neap_torch_state state = !block->mapped     ? NEAP_TORCH_UNMAPPED
					      : block->allocated ? NEAP_TORCH_LIVE
					      : block->events    ? NEAP_TORCH_PENDING
								 : NEAP_TORCH_FREE;
		to->pieces[count++] = (struct neap_torch_piece){.size = block->size,
								.requested = block->requested,
								.state = state,
								.guessed = block->guessed,
								.token = block->address};
	}
	return to;
}

/* The segments in order of their addresses. */
static enum neap_status give(struct undo *undo, struct neap_start *start, struct neap_error *err)
{
	size_t room = 1;
	for (const struct segment *segment = undo->arena.first_segment; segment; segment = segment->next)
		room++;
	start->segments = calloc(room, sizeof *start->segments);
	if (!start->segments)
		return neap_fail(err, NEAP_ENOMEM, "the start of a recording: this machine is out of memory");
	for (struct block *block = set_first(&undo->pieces); block; block = set_after(&undo->pieces, block)) {
		if (block->segment->first != block)
			continue;
		/* An expandable segment without any memory was not there. */
		if (block->segment->expandable && !block->mapped && !block->next)
			continue;
		if (!give_segment(undo, block->segment, &start->segments[start->segment_count++]))
			return neap_fail(err, NEAP_ENOMEM, "the start of a recording: this machine is out of memory");
	}
	start->end = (undo->end + (1ull << 30)) & ~((1ull << 30) - 1);
	start->odd = undo->odd;
	return NEAP_OK;
}

static void fini(struct undo *undo)
{
	while (undo->arena.first_segment)
		segment_drop(&undo->arena, undo->arena.first_segment);
	blocks_fini(&undo->arena);
	free(undo->ranges);
}

enum neap_status neap_start_make(const struct neap_trace *trace, size_t device,
				 const struct neap_torch_settings *settings, uint64_t device_bytes,
				 const struct neap_start_facts *facts, struct neap_start *ret_start,
				 struct neap_error *err)
{
	struct neap_start start = {0};
	struct undo undo = {.trace = trace,
			    .device = device,
			    .settings = settings,
			    .device_bytes = device_bytes,
			    .facts = facts,
			    .pieces = {.by_address = true},
			    .kinds = {{.small = false}, {.small = true}}};
	const struct neap_trace_device *from = &trace->devices[device];
	enum neap_status status = NEAP_OK;
	undo.has_ranges = has_ranges(&undo);
	find_reach(&undo);
	find_ranges(&undo);
	make_ranges(&undo);
	for (size_t i = 0; i < from->segment_count && !undo.arena.starved; i++)
		load_segment(&undo, &trace->segments[from->first_segment + i]);
	undo_events(&undo);
	add_extra(&undo, facts->extra);
	if (undo.arena.starved)
		status = neap_fail(err, NEAP_ENOMEM, "the start of a recording: this machine is out of memory");
	else
		status = give(&undo, &start, err);
	fini(&undo);
	if (!status)
		*ret_start = start;
	else
		neap_start_fini(&start);
	return status;
}

void neap_start_fini(struct neap_start *start)
{
	for (size_t i = 0; i < start->segment_count; i++)
		free(start->segments[i].pieces);
	free(start->segments);
	*start = (struct neap_start){0};
}
