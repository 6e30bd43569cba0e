/* analyze/timeline.c: computes each event's change from the lives, and adds the changes up as the events pass. Sizes
 * come from the lives and not from FREE_* events, whose sizes a hostile file may make up: a level is a sum of sizes
 * and never wraps. */
#include "analyze/timeline.h"
#include "analyze/saturate.h"

#include "base/error.h"

#include <stdlib.h>

static bool grows(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_ALLOC || kind == NEAP_TRACE_SEGMENT_MAP; }
static bool shrinks(uint8_t kind) { return kind == NEAP_TRACE_SEGMENT_FREE || kind == NEAP_TRACE_SEGMENT_UNMAP; }

/* Bytes reserved before the first event: the final state with the events undone. If the file has no final state: the
 * fewest that keep the total from going below zero. */
static void find_start(struct neap_timeline *timeline)
{
	const struct neap_trace_device *device = &timeline->trace->devices[timeline->device];
	struct neap_trace_cursor cursor = neap_trace_events(timeline->trace, timeline->device, 0);
	struct neap_trace_event event;
	uint64_t grown = 0, shrunk = 0, missing = 0, final = 0;

	while (neap_trace_next(&cursor, &event)) {
		if (grows(event.kind))
			grown += event.size;
		if (shrinks(event.kind))
			shrunk += event.size;
		timeline->reserved_known |= grows(event.kind) || shrinks(event.kind);
		if (neap_less(shrunk, grown) > missing)
			missing = shrunk - grown;
	}
	for (size_t i = 0; i < device->segment_count; i++)
		final += timeline->trace->segments[device->first_segment + i].size;
	timeline->reserved_known |= device->segment_count > 0;
	timeline->start.reserved = device->segment_count > 0 ? neap_less(final + shrunk, grown) : missing;
}

enum neap_status neap_timeline_make(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
				    const struct neap_torch_settings *settings, struct neap_timeline *ret_timeline,
				    struct neap_error *err)
{
	struct neap_timeline timeline = {.trace = trace,
					 .device = device,
					 .count = trace->devices[device].event_count,
					 .start.event = NEAP_LIFE_BEFORE};
	timeline.requested = calloc(timeline.count + 1, sizeof(int64_t));
	timeline.rounded = calloc(timeline.count + 1, sizeof(int64_t));
	if (!timeline.requested || !timeline.rounded) {
		neap_timeline_fini(&timeline);
		return neap_fail(err, NEAP_ENOMEM, "no memory for the levels of a trace");
	}
	for (size_t i = 0; i < lives->count; i++) {
		const struct neap_life *life = &lives->items[i];
		uint64_t block = neap_torch_round(settings, life->size);
		int64_t size = (int64_t)life->size, rounded = block > INT64_MAX ? INT64_MAX : (int64_t)block;
		if (life->begin == NEAP_LIFE_BEFORE) {
			timeline.start.requested += life->size;
			timeline.start.rounded += (uint64_t)rounded;
		} else {
			timeline.requested[life->begin] += size;
			timeline.rounded[life->begin] += rounded;
		}
		if (life->end != NEAP_LIFE_AFTER)
			timeline.requested[life->end] -= size;
		if (life->freed != NEAP_LIFE_AFTER)
			timeline.rounded[life->freed] -= rounded;
	}
	find_start(&timeline);
	*ret_timeline = timeline;
	return NEAP_OK;
}

void neap_timeline_fini(struct neap_timeline *timeline)
{
	free(timeline->requested);
	free(timeline->rounded);
	*timeline = (struct neap_timeline){0};
}

struct neap_timeline_cursor neap_timeline_begin(const struct neap_timeline *timeline)
{
	return (struct neap_timeline_cursor){.timeline = timeline,
					     .events = neap_trace_events(timeline->trace, timeline->device, 0),
					     .now = timeline->start};
}

bool neap_timeline_next(struct neap_timeline_cursor *cursor)
{
	const struct neap_timeline *timeline = cursor->timeline;
	uint64_t index = cursor->now.event + 1; /* from NEAP_LIFE_BEFORE: 0 */
	if (index >= timeline->count || !neap_trace_next(&cursor->events, &cursor->event))
		return false;
	cursor->now.event = index;
	cursor->now.requested += (uint64_t)timeline->requested[index];
	cursor->now.rounded += (uint64_t)timeline->rounded[index];
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
