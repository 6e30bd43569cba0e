/* analyze/timeline.c: computes each event's change from the lives, and adds the changes up as the events pass. Sizes
 * come from the lives and not from FREE_* events, whose sizes a hostile file may make up: a level is a sum of sizes
 * and never wraps.
 *
 * Nearly every event changes a level by its own size, or not at all, which takes two bits for each level:
 *
 *   NONE   PLUS: by the event's size   MINUS: the same, down   ODD: as `odd` has it for this event
 */
#include "analyze/timeline.h"
#include "analyze/saturate.h"

#include "base/array.h"
#include "base/error.h"

#include <stdlib.h>

enum { NONE, PLUS, MINUS, ODD };
#define REQUESTED 0
#define ROUNDED   2

static bool grows(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_ALLOC || kind == NEAP_TRACE_SEGMENT_MAP; }
static bool shrinks(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_FREE || kind == NEAP_TRACE_SEGMENT_UNMAP; }

/* Finds the bytes reserved before the first event: the final state with all events undone. If the file has no final
 * state: the least that keeps the total from going below zero. */
static void find_start(struct neap_timeline *timeline)
{
	const struct neap_trace_device *device = &timeline->trace->devices[timeline->device];
	struct neap_trace_cursor cursor = neap_trace_events(timeline->trace, timeline->device, 0);
	struct neap_trace_event event;
	uint64_t grown = 0, shrunk = 0, missing = 0, final = 0;

	while (neap_trace_find(&cursor, NEAP_TRACE_GROWTHS | NEAP_TRACE_RELEASES, &event)) {
		if (grows(event.kind))
			grown += event.size;
		if (shrinks(event.kind))
			shrunk += event.size;
		timeline->reserved_known = true;
		if (neap_less(shrunk, grown) > missing)
			missing = shrunk - grown;
	}
	for (size_t i = 0; i < device->segment_count; i++)
		final += timeline->trace->segments[device->first_segment + i].size;
	timeline->reserved_known |= device->segment_count > 0;
	timeline->start.reserved = device->segment_count > 0 ? neap_less(final + shrunk, grown) : missing;
}

static unsigned change_of(const struct neap_timeline *timeline, uint64_t event, unsigned level)
{
	return timeline->changes[event / 2] >> (4 * (event % 2) + level) & 3u;
}

/* Notes that an event changes a level. A second change of the same level makes the event odd. */
static void set_change(struct neap_timeline *timeline, uint64_t event, unsigned level, unsigned change)
{
	unsigned shift = 4 * (unsigned)(event % 2) + level;
	timeline->changes[event / 2] |= (uint8_t)((change_of(timeline, event, level) ? ODD : change) << shift);
}

static int64_t rounded_size(const struct neap_timeline *timeline, uint64_t size)
{
	uint64_t rounded = neap_torch_round(&timeline->settings, size);
	return rounded > INT64_MAX ? INT64_MAX : (int64_t)rounded;
}

static void mark_changes(struct neap_timeline *timeline, const struct neap_lives *lives)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		if (life.begin == NEAP_LIFE_BEFORE) {
			timeline->start.requested += life.size;
			timeline->start.rounded += (uint64_t)rounded_size(timeline, life.size);
		} else {
			set_change(timeline, life.begin, REQUESTED, PLUS);
			set_change(timeline, life.begin, ROUNDED, PLUS);
		}
		if (life.end != NEAP_LIFE_AFTER)
			set_change(timeline, life.end, REQUESTED, MINUS);
		if (life.freed != NEAP_LIFE_AFTER)
			set_change(timeline, life.freed, ROUNDED, MINUS);
	}
	for (size_t i = 0; i < lives->resized_count; i++) {
		set_change(timeline, lives->resized[i], REQUESTED, ODD);
		set_change(timeline, lives->resized[i], ROUNDED, ODD);
	}
}

static bool add_odd(struct neap_timeline *timeline, uint64_t event, unsigned level, int64_t bytes)
{
	if (change_of(timeline, event, level) != ODD)
		return true;
	if (!neap_array_grow(&timeline->odd, timeline->odd_count, sizeof *timeline->odd))
		return false;
	timeline->odd[timeline->odd_count++] = (struct neap_timeline_change){
		.event = event,
		.requested = level == REQUESTED ? bytes : 0,
		.rounded = level == ROUNDED ? bytes : 0,
	};
	return true;
}

static bool collect_odd(struct neap_timeline *timeline, const struct neap_lives *lives)
{
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	bool ok = true;
	while (ok && neap_lives_next(&cursor, &life)) {
		int64_t size = (int64_t)life.size, rounded = rounded_size(timeline, life.size);
		if (life.begin != NEAP_LIFE_BEFORE)
			ok = add_odd(timeline, life.begin, REQUESTED, size) &&
			     add_odd(timeline, life.begin, ROUNDED, rounded);
		if (life.end != NEAP_LIFE_AFTER)
			ok = ok && add_odd(timeline, life.end, REQUESTED, -size);
		if (life.freed != NEAP_LIFE_AFTER)
			ok = ok && add_odd(timeline, life.freed, ROUNDED, -rounded);
	}
	return ok;
}

static int by_event(const void *left, const void *right)
{
	const struct neap_timeline_change *a = left, *b = right;
	return a->event < b->event ? -1 : a->event > b->event;
}

static bool has_odd(const struct neap_lives *lives) { return lives->odd > 0 || lives->resized_count > 0; }

enum neap_status neap_timeline_make(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
				    const struct neap_torch_settings *settings, struct neap_timeline *ret_timeline,
				    struct neap_error *err)
{
	struct neap_timeline timeline = {.trace = trace,
					 .device = device,
					 .count = trace->devices[device].event_count,
					 .settings = *settings,
					 .start.event = NEAP_LIFE_BEFORE};
	timeline.changes = calloc(timeline.count / 2 + 1, 1);
	if (timeline.changes)
		mark_changes(&timeline, lives);
	if (!timeline.changes || (has_odd(lives) && !collect_odd(&timeline, lives))) {
		neap_timeline_fini(&timeline);
		return neap_fail(err, NEAP_ENOMEM, "no memory for the levels of a trace");
	}
	if (timeline.odd_count > 0)
		qsort(timeline.odd, timeline.odd_count, sizeof *timeline.odd, by_event);
	find_start(&timeline);
	*ret_timeline = timeline;
	return NEAP_OK;
}

void neap_timeline_fini(struct neap_timeline *timeline)
{
	free(timeline->changes);
	free(timeline->odd);
	*timeline = (struct neap_timeline){0};
}

struct neap_timeline_cursor neap_timeline_begin(const struct neap_timeline *timeline)
{
	return (struct neap_timeline_cursor){.timeline = timeline,
					     .events = neap_trace_events(timeline->trace, timeline->device, 0),
					     .now = timeline->start};
}

static void apply(struct neap_timeline_cursor *cursor, unsigned requested, unsigned rounded)
{
	const struct neap_timeline *timeline = cursor->timeline;
	struct neap_trace_levels *now = &cursor->now;
	uint64_t size = cursor->event.size;
	if (requested == PLUS)
		now->requested += size;
	else if (requested == MINUS)
		now->requested -= size;
	if (rounded == PLUS)
		now->rounded += (uint64_t)rounded_size(timeline, size);
	else if (rounded == MINUS)
		now->rounded -= (uint64_t)rounded_size(timeline, size);
	for (; cursor->odd < timeline->odd_count && timeline->odd[cursor->odd].event == now->event; cursor->odd++) {
		now->requested += (uint64_t)timeline->odd[cursor->odd].requested;
		now->rounded += (uint64_t)timeline->odd[cursor->odd].rounded;
	}
}

bool neap_timeline_next(struct neap_timeline_cursor *cursor)
{
	const struct neap_timeline *timeline = cursor->timeline;
	uint64_t index = cursor->now.event + 1; /* from NEAP_LIFE_BEFORE: 0 */
	if (index >= timeline->count || !neap_trace_next(&cursor->events, &cursor->event))
		return false;
	cursor->now.event = index;
	unsigned change = timeline->changes[index / 2] >> 4 * (index % 2) & 15u;
	if (change)
		apply(cursor, change >> REQUESTED & 3u, change >> ROUNDED);
	cursor->now.time_us = cursor->event.time_us;
	if (grows(cursor->event.kind))
		cursor->now.reserved += cursor->event.size;
	else if (shrinks(cursor->event.kind))
		cursor->now.reserved = neap_less(cursor->now.reserved, cursor->event.size);
	return true;
}

void neap_profile_take(const struct neap_timeline *timeline, uint64_t from, uint64_t to,
		       struct neap_profile *ret_profile)
{
	struct neap_profile profile = {.from = from, .to = to < timeline->count ? to : timeline->count};
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	const struct neap_trace_levels *now = &cursor.now;
	uint64_t counted = 0;
	double used = 0;
	bool more = true;

	while (more && (now->event == NEAP_LIFE_BEFORE ? 0 : now->event + 1) < from)
		more = neap_timeline_next(&cursor);
	profile.start = profile.requested_peak = profile.rounded_peak = profile.reserved_peak = *now;
	while (more && (now->event == NEAP_LIFE_BEFORE ? 0 : now->event + 1) < profile.to) {
		more = neap_timeline_next(&cursor);
		if (!more)
			break;
		profile.kinds[cursor.event.kind & 15]++;
		if (!profile.first_time_us)
			profile.first_time_us = now->time_us;
		profile.last_time_us = now->time_us ? now->time_us : profile.last_time_us;
		if (now->requested > profile.requested_peak.requested)
			profile.requested_peak = *now;
		if (now->rounded > profile.rounded_peak.rounded)
			profile.rounded_peak = *now;
		if (now->reserved > profile.reserved_peak.reserved)
			profile.reserved_peak = *now;
		if (now->reserved > 0) {
			used += (double)now->requested / (double)now->reserved;
			counted++;
		}
	}
	profile.end = *now;
	if (counted > 0)
		profile.utilization = used / (double)counted;
	*ret_profile = profile;
}
