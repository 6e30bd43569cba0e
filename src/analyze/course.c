/* See the header. One pass over the timeline; a step's figures are complete at its end. */
#include "analyze/course.h"

#include "analyze/rhythm.h"
#include "analyze/saturate.h"
#include "base/error.h"
#include "trace/record.h"

#include <stdlib.h>

#define NEWEST      32 /* the newest steps, whose rhythm is searched for */
#define WHOLE_SHARE 16 /* a whole step has at least this share of the events that most steps have */

/* One kind of level, over all whole steps. */
struct level {
	uint64_t now, high, low; /* of this step */
	double over_time, over_events;
	uint64_t *swings;
};

struct walk {
	const struct neap_timeline *timeline;
	const struct neap_steps *steps;
	size_t skipped; /* steps at the beginning that warm up */
	uint64_t whole_events;
	struct level allocated, reserved;
	double time_us, events;
	uint64_t driver_calls, updates;
	uint64_t *rhythms; /* room for NEWEST */
	size_t whole, rhythm_count;
	struct neap_beat *beats; /* of this step */
	size_t beat_count;
};

static int by_value(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

static uint64_t median(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return count ? values[count / 2] : 0;
}

static uint64_t begin_of(const struct neap_steps *steps, size_t step)
{
	if (step > 0)
		return steps->ends[step - 1];
	return steps->first_begin != UINT64_MAX ? steps->first_begin : 0;
}

static uint64_t events_of(const struct neap_steps *steps, size_t step)
{
	return neap_less(steps->ends[step], begin_of(steps, step));
}

/* Returns the least number of events of a whole step: a sixteenth of the number in the steps that have most of all
 * events. `events`: an array with an element for each step. */
static uint64_t find_whole_events(const struct neap_timeline *timeline, const struct neap_steps *steps,
				  uint64_t *events)
{
	uint64_t all = 0, smaller = 0;
	size_t at = 0;

	if (!timeline->trace->partial)
		return 0;
	for (size_t i = 0; i < steps->count; i++)
		all = neap_plus(all, events[i] = events_of(steps, i));
	qsort(events, steps->count, sizeof *events, by_value);
	while (at + 1 < steps->count && (smaller = neap_plus(smaller, events[at])) <= all / 2)
		at++;
	return steps->count ? events[at] / WHOLE_SHARE + 1 : 0;
}

static bool is_whole(const struct walk *walk, size_t step)
{
	return step >= walk->skipped && neap_steps_updates(walk->steps, step) > 0 &&
	       events_of(walk->steps, step) >= walk->whole_events;
}

static void begin_level(struct level *level) { level->high = level->low = level->now; }

static void move_level(struct level *level, uint64_t bytes, double time_us, bool whole)
{
	if (whole) {
		level->over_time += (double)level->now * time_us;
		level->over_events += (double)bytes;
	}
	level->now = bytes;
	level->high = bytes > level->high ? bytes : level->high;
	level->low = bytes < level->low ? bytes : level->low;
}

static void begin_step(struct walk *walk)
{
	begin_level(&walk->allocated);
	begin_level(&walk->reserved);
	walk->beat_count = 0;
}

static void end_step(struct walk *walk, size_t step, uint64_t requested)
{
	if (is_whole(walk, step)) {
		uint64_t updates = neap_steps_updates(walk->steps, step);
		walk->allocated.swings[walk->whole] = walk->allocated.high - walk->allocated.low;
		walk->reserved.swings[walk->whole++] = walk->reserved.high - walk->reserved.low;
		walk->updates = neap_plus(walk->updates, updates);
		if (updates == 1 && step + NEWEST >= walk->steps->count)
			walk->rhythms[walk->rhythm_count++] =
				neap_rhythm_find(walk->beats, walk->beat_count, requested);
	}
	begin_step(walk);
}

static void take_event(struct walk *walk, const struct neap_trace_event *event, uint64_t requested_before,
		       const struct neap_trace_levels *now, double time_us, bool whole)
{
	bool driver = event->kind >= NEAP_TRACE_SEGMENT_ALLOC && event->kind <= NEAP_TRACE_SEGMENT_UNMAP;

	move_level(&walk->allocated, now->rounded, time_us, whole);
	move_level(&walk->reserved, now->reserved, time_us, whole);
	if (event->kind == NEAP_TRACE_ALLOC && walk->beat_count <= NEAP_RHYTHM_BEATS)
		walk->beats[walk->beat_count++] = (struct neap_beat){event->size, requested_before};
	if (!whole)
		return;
	walk->driver_calls += driver;
	walk->time_us += time_us;
	walk->events++;
}

static void visit(struct walk *walk)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(walk->timeline);
	const struct neap_steps *steps = walk->steps;
	struct neap_trace_levels before = cursor.now;
	size_t step = 0;

	while (step < steps->count && neap_timeline_next(&cursor)) {
		for (; step < steps->count && steps->ends[step] <= cursor.now.event; step++)
			end_step(walk, step, before.requested);
		if (step == steps->count)
			break;
		bool inside = cursor.now.event >= begin_of(steps, step);
		/* The step begins after its first event, and there was no memory before it. */
		if (cursor.now.event == 0) {
			walk->allocated.now = cursor.now.rounded;
			walk->reserved.now = cursor.now.reserved;
		}
		bool timed = before.time_us && cursor.now.time_us > before.time_us;
		if (cursor.now.event == begin_of(steps, 0))
			begin_step(walk);
		take_event(walk, &cursor.event, before.requested, &cursor.now,
			   timed ? (double)(cursor.now.time_us - before.time_us) : 0, inside && is_whole(walk, step));
		before = cursor.now;
	}
	for (; step < steps->count; step++) /* these steps end after the last event */
		end_step(walk, step, before.requested);
}

static struct neap_course_levels conclude(const struct walk *walk, const struct level *level)
{
	double mean = walk->time_us > 0  ? level->over_time / walk->time_us
		      : walk->events > 0 ? level->over_events / walk->events
					 : (double)level->now;
	return (struct neap_course_levels){median(level->swings, walk->whole), neap_to_bytes(mean)};
}

/* Returns the time of an update, from the times at which the steps end. `times`: an array with an element for each
 * step. */
static uint64_t find_step_ns(const struct neap_steps *steps, uint64_t *times)
{
	size_t count = 0;

	for (size_t i = 1; i < steps->count; i++) {
		uint64_t updates = neap_steps_updates(steps, i);
		if (updates > 0 && steps->times_us[i - 1] && steps->times_us[i] > steps->times_us[i - 1])
			times[count++] = (steps->times_us[i] - steps->times_us[i - 1]) * 1000 / updates;
	}
	return median(times, count);
}

enum neap_status neap_course_find(const struct neap_timeline *timeline, const struct neap_steps *steps,
				  struct neap_course *ret_course, struct neap_error *err)
{
	struct walk walk = {.timeline = timeline, .steps = steps, .skipped = steps->count >= 3};
	uint64_t *values = calloc(2 * steps->count + NEWEST + 1, sizeof *values);
	struct neap_course course = {0};
	enum neap_status status = NEAP_OK;

	walk.beats = malloc((NEAP_RHYTHM_BEATS + 1) * sizeof *walk.beats);
	if (!values || !walk.beats) {
		status = neap_fail(err, NEAP_ENOMEM, "no memory for the steps of a trace");
		goto out;
	}
	course.step_ns = find_step_ns(steps, values);
	walk.allocated = (struct level){.now = timeline->start.rounded, .swings = values};
	walk.reserved = (struct level){.now = timeline->start.reserved, .swings = values + steps->count};
	walk.rhythms = values + 2 * steps->count;
	walk.whole_events = find_whole_events(timeline, steps, values);
	visit(&walk);
	course.whole = walk.whole;
	if (walk.whole > 0) {
		course.allocated = conclude(&walk, &walk.allocated);
		course.driver_calls = walk.driver_calls;
		course.updates = walk.updates;
		course.micro_batches = walk.rhythm_count ? (size_t)median(walk.rhythms, walk.rhythm_count) : 1;
	}
	if (walk.whole > 0 && timeline->reserved_known)
		course.reserved = conclude(&walk, &walk.reserved);
	*ret_course = course;
out:
	free(values);
	free(walk.beats);
	return status;
}

uint64_t neap_course_headroom(const struct neap_timeline *timeline)
{
	const struct neap_record *record = timeline->trace->record;
	uint64_t room_bytes = UINT64_MAX;

	for (size_t i = 0; record && i < record->journal_count; i++) {
		const struct neap_event_room *room = neap_event_as_room(&record->journal[i]);
		if (room && record->journal[i].device == timeline->device && room->room_bytes < room_bytes)
			room_bytes = room->room_bytes;
	}
	return room_bytes;
}
