/* replay/start.c: undoes a recording event by event, from its end.
 *
 *   undo alloc            its block is free, and joins its free neighbours
 *   undo free_completed   a block is cut out of a free one, its free pending
 *   undo free_requested   it is live
 *   undo segment_alloc    the segment, by then one free block, is gone;   segment_free: it is back
 *   undo segment_map      a range of free bytes has no memory;            segment_unmap: it has
 *
 * Free neighbours are always joined, so that the blocks found are the allocator's own. The pieces are blocks of the
 * model's segments, kept in one set by address. Events that do not fit are counted and skipped.
 */
#include "replay/start.h"
#include "base/error.h"
#include "replay/torch_internal.h"

#include <stdlib.h>

#define CHUNK_EVENTS 64

struct undo {
	const struct neap_trace *trace;
	size_t device;
	const struct neap_torch_settings *settings;
	const struct neap_start_facts *facts;
	struct torch arena; /* only its blocks and segments are used */
	struct set pieces;  /* every block, by address */
	struct pool kinds[2];
	uint64_t end, odd;
};

/* Returns the piece that contains `address`; NULL: none does. */
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

/* Whether any piece has one of these addresses. */
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

/* Cuts [address, address + size) out of `block`, which contains it, as a piece of its own. NULL: starved. */
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

/* Whether the pool of this piece never splits blocks. */
static bool is_whole(const struct undo *undo, const struct block *piece)
{
	uint32_t pool = undo->facts->pool_of[piece->segment->stream];
	return pool && undo->facts->traits && undo->facts->traits[pool].whole;
}

/* Returns the bytes of the block that was at `address` in this free piece, for a request of `requested` bytes. */
static uint64_t block_bytes(const struct undo *undo, const struct block *piece, uint64_t address, uint64_t requested)
{
	uint64_t left = piece->address + piece->size - address;
	uint64_t size = requested < LARGEST_REQUEST ? neap_torch_round(undo->settings, requested) : left;
	if (size >= left)
		return left;
	if (is_whole(undo, piece)) { /* the whole segment, or the pages that were mapped for it */
		uint64_t pages = piece->pool->small ? SMALL_SEGMENT : undo->settings->large_segment_bytes;
		uint64_t mapped = (size + pages - 1) / pages * pages;
		return piece->segment->expandable && mapped < left ? mapped : left;
	}
	bool whole = size >= undo->settings->max_split_bytes || left - size <= SMALL_REQUEST;
	return !piece->pool->small && !piece->segment->expandable && whole ? left : size;
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

/* Free blocks of a plain large segment are above 1 MiB. So a smaller rest in front of `block` belongs to the block
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

/* Makes guessed blocks larger, by `extra`. */
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

/* Gives memory to a range of an expandable segment, or takes it away. */
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

/* Makes one segment for each range: all its addresses, nothing mapped yet. */
static void make_ranges(struct undo *undo, const struct neap_start_ranges *ranges)
{
	undo->odd += ranges->odd;
	for (size_t i = 0; i < ranges->count && !undo->arena.starved; i++) {
		const struct neap_start_range *range = &ranges->items[i];
		struct segment *segment =
			segment_add(undo, range->low, range->size, range->stream, range->large, true);
		if (segment && range->high > undo->end)
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

/* Makes the blocks of a segment, as they were at the end, in the piece that spans it. In older layouts blocks have no
 * addresses: they follow one another. */
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

/* Gives the segments in order of their addresses. */
static enum neap_status give(struct undo *undo, struct neap_start *start, struct neap_error *err)
{
	size_t left = 1;
	for (const struct segment *segment = undo->arena.first_segment; segment; segment = segment->next)
		left++;
	start->segments = calloc(left, sizeof *start->segments);
	if (!start->segments)
		return neap_fail(err, NEAP_ENOMEM, "the start of a recording: this machine is out of memory");
	for (struct block *block = set_first(&undo->pieces); block; block = set_after(&undo->pieces, block)) {
		if (block->segment->first != block)
			continue;
		/* An expandable segment without memory did not exist yet. */
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
			    .facts = facts,
			    .pieces = {.by_address = true},
			    .kinds = {{.small = false}, {.small = true}}};
	const struct neap_trace_device *from = &trace->devices[device];
	struct neap_start_ranges ranges = {0};
	enum neap_status status = neap_start_ranges_find(trace, device, settings, device_bytes, &ranges, err);
	if (status)
		return status;
	make_ranges(&undo, &ranges);
	free(ranges.items);
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
