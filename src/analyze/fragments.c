/* analyze/fragments.c: examines segments at one instant, block by block. It computes the sums, because those in a
 * file may be wrong. */
#include "analyze/fragments.h"
#include "analyze/state_at.h"
#include "base/array.h"
#include "base/error.h"
#include "base/map.h"
#include "replay/replay.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_PAGE    (2ull << 20)
#define SMALL_REQUEST (1ull << 20)

struct finder {
	const struct neap_trace *trace;
	const struct neap_lives *lives;
	const struct neap_sites *sites;
	const struct neap_trace_block *blocks;
	struct neap_map live;     /* the address of each live block -> its index in `living` */
	struct neap_life *living; /* the lives of these blocks */
	struct neap_fragments *found;
	const struct neap_trace_event *request; /* NULL: none */
	uint64_t small_request;
	uint64_t large_page; /* of expandable segments */
};

/* Returns how many bytes of a free range in an expandable segment are in pages that are wholly free. */
static uint64_t whole_pages(const struct finder *finder, const struct neap_trace_segment *segment, uint64_t offset,
			    uint64_t size)
{
	uint64_t page = segment->large ? finder->large_page : SMALL_PAGE;
	uint64_t first = (offset + page - 1) / page * page, end = (offset + size) / page * page;
	return end > first ? end - first : 0;
}

static void add_pin(struct finder *finder, struct neap_pinned_segment *segment, const struct neap_trace_block *block)
{
	struct neap_life life = {.begin = NEAP_LIFE_BEFORE, .size = block->size};
	uint64_t index = 0;

	if (neap_map_get(&finder->live, block->address, &index))
		life = finder->living[index];
	else
		life.stack = block->stack;
	uint64_t key = neap_holder_key(finder->sites, &life);
	struct neap_holder *pins = segment->pins;
	size_t at = 0;
	while (at < segment->pin_count && ((uint64_t)pins[at].kind << 32 | pins[at].frame) != key)
		at++;
	if (at == NEAP_FRAGMENT_PINS) /* more than are reported: a larger one replaces the smallest */
		at = pins[NEAP_FRAGMENT_PINS - 1].bytes < block->size ? NEAP_FRAGMENT_PINS - 1 : at;
	if (at == NEAP_FRAGMENT_PINS)
		return;
	if (at == segment->pin_count || ((uint64_t)pins[at].kind << 32 | pins[at].frame) != key) {
		segment->pin_count += at == segment->pin_count;
		pins[at] = (struct neap_holder){.kind = (enum neap_holder_kind)(key >> 32), .frame = (uint32_t)key};
	}
	pins[at].bytes += block->size;
	pins[at].blocks++;
	for (; at > 0 && pins[at].bytes > pins[at - 1].bytes; at--) {
		struct neap_holder other = pins[at];
		pins[at] = pins[at - 1];
		pins[at - 1] = other;
	}
}

static void keep(struct neap_fragments *found, const struct neap_pinned_segment *segment)
{
	size_t at = found->worst_count;
	while (at > 0 && found->worst[at - 1].pinned < segment->pinned)
		at--;
	if (at == NEAP_FRAGMENT_SEGMENTS)
		return;
	if (found->worst_count < NEAP_FRAGMENT_SEGMENTS)
		found->worst_count++;
	memmove(&found->worst[at + 1], &found->worst[at], (found->worst_count - 1 - at) * sizeof found->worst[0]);
	found->worst[at] = *segment;
}

/* Finds free memory for the request. Blocks serve only their own stream and pool, and small requests have other
 * blocks than large ones. */
static void find_request(struct finder *finder, const struct neap_trace_segment *from, uint64_t largest,
			 uint64_t free)
{
	const struct neap_trace_event *request = finder->request;
	struct neap_fragments *found = finder->found;
	const uint64_t *pool = finder->trace->streams[from->stream].pool;

	if (from->stream == request->stream && from->large == (request->size > finder->small_request)) {
		found->usable_free = largest > found->usable_free ? largest : found->usable_free;
		found->usable_bytes += free;
	} else if (largest > found->elsewhere_free) {
		found->elsewhere_free = largest;
		found->elsewhere_other_size = from->stream == request->stream;
	}
	if (from->stream != request->stream && (pool[0] || pool[1]))
		found->pools_free += free;
}

static void examine_segment(struct finder *finder, const struct neap_trace_segment *from)
{
	struct neap_fragments *found = finder->found;
	struct neap_pinned_segment segment = {.address = from->address,
					      .size = from->size,
					      .stream = from->stream,
					      .large = from->large,
					      .expandable = from->expandable};
	uint64_t free = 0, whole = 0, offset = 0;

	for (size_t i = 0; i < from->block_count; i++) {
		const struct neap_trace_block *block = &finder->blocks[from->first_block + i];
		if (block->state == NEAP_TRACE_BLOCK_FREE) {
			free += block->size;
			whole += from->expandable ? whole_pages(finder, from, offset, block->size) : 0;
			segment.largest_free =
				block->size > segment.largest_free ? block->size : segment.largest_free;
		} else {
			segment.live_bytes += block->size;
			segment.live_blocks++;
			add_pin(finder, &segment, block);
		}
		offset += block->size;
	}
	if (!from->expandable && segment.live_blocks == 0)
		whole = free;
	segment.pinned = free - whole;
	if (finder->request)
		find_request(finder, from, segment.largest_free, free);
	found->segments++;
	found->reserved += from->size;
	found->live += segment.live_bytes;
	found->releasable += whole;
	found->pinned += segment.pinned;
	found->pinned_segments += segment.pinned > 0;
	if (segment.largest_free > found->largest_free)
		found->largest_free = segment.largest_free;
	if (segment.pinned > 0)
		keep(found, &segment);
}

static bool examine_all(struct finder *finder, const struct neap_trace_segment *segments, size_t count,
			uint64_t event)
{
	const struct neap_lives *lives = finder->lives;
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	size_t living = 0;
	bool ok = true;

	while (ok && neap_lives_next(&cursor, &life)) {
		if (event == NEAP_LIFE_AFTER ? life.end != NEAP_LIFE_AFTER : !neap_life_at(&life, event))
			continue;
		ok = neap_array_grow(&finder->living, living, sizeof *finder->living) &&
		     neap_map_put(&finder->live, life.address, living);
		if (ok)
			finder->living[living++] = life;
	}
	for (size_t i = 0; ok && i < count; i++)
		examine_segment(finder, &segments[i]);
	free(finder->living);
	finder->living = NULL;
	neap_map_fini(&finder->live);
	return ok;
}

/* Whether no memory changed after `event`: then the file's final state is also the state at that instant. */
static bool is_end(const struct neap_trace *trace, size_t device, uint64_t event)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, event + 1);
	struct neap_trace_event next;

	while (neap_trace_next(&cursor, &next))
		if (next.kind != NEAP_TRACE_OOM && next.kind != NEAP_TRACE_SNAPSHOT_TAKEN)
			return false;
	return true;
}

uint64_t neap_fragments_small_request(const struct neap_trace *trace)
{
	return trace->source == NEAP_TRACE_RECORDING && trace->torch ? SMALL_PAGE : SMALL_REQUEST;
}

enum neap_status neap_fragments_find(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
				     const struct neap_sites *sites, uint64_t event,
				     const struct neap_trace_event *request, struct neap_fragments *ret_fragments,
				     struct neap_error *err)
{
	const struct neap_trace_device *info = &trace->devices[device];
	struct neap_fragments found = {.known = info->segment_count > 0, .event = event};
	struct finder finder = {.trace = trace,
				.lives = lives,
				.sites = sites,
				.found = &found,
				.blocks = trace->blocks,
				.request = request,
				.small_request = neap_fragments_small_request(trace)};
	struct neap_state state = {0};
	struct neap_torch_settings settings;
	bool ok = true;

	neap_replay_settings(trace, &settings);
	finder.large_page = settings.large_segment_bytes;

	if (found.known && (event == NEAP_LIFE_AFTER || is_end(trace, device, event))) {
		ok = examine_all(&finder, trace->segments + info->first_segment, info->segment_count,
				 NEAP_LIFE_AFTER);
	} else if (event != NEAP_LIFE_AFTER) {
		enum neap_status status = neap_state_at(trace, device, lives, event, &state, &found.known, err);
		if (status)
			return status;
		finder.blocks = state.blocks;
		ok = examine_all(&finder, state.segments, state.segment_count, event);
		neap_state_fini(&state);
	}
	if (!ok)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the segments of a trace");
	*ret_fragments = found;
	return NEAP_OK;
}
