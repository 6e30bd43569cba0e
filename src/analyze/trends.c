/* analyze/trends.c: one pass finds each step's levels, one counts the teeth; the lives that span the ends of steps
 * show which holders grow. */
#include "analyze/trends.h"

#include "analyze/saturate.h"
#include "base/array.h"
#include "base/error.h"
#include "base/map.h"
#include "trace/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD_MIN 0.05
/* How many holders are tested for a trend: those that grew most after the first third of the steps. */
#define CANDIDATES 16

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

/* Finds the levels of each step. If the beginning of the first step is known, its levels start there, because making
 * the model is not a part of it. */
static void find_levels(const struct neap_timeline *timeline, const struct neap_steps *steps,
			struct neap_trends *trends)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	uint64_t begin = steps->first_begin != UINT64_MAX ? steps->first_begin : 0;
	size_t step = 0;

	for (size_t i = 0; i < steps->count; i++)
		trends->levels[i].low = UINT64_MAX;
	while (neap_timeline_next(&cursor)) {
		while (step < steps->count && steps->ends[step] <= cursor.now.event)
			step++;
		if (step == steps->count)
			break;
		struct neap_step_levels *levels = &trends->levels[step];
		if (cursor.now.event < begin)
			continue;
		if (cursor.now.requested >= levels->high) {
			levels->high = cursor.now.requested;
			levels->high_event = cursor.now.event;
		}
		if (cursor.now.requested < levels->low) {
			levels->low = cursor.now.requested;
			levels->low_event = cursor.now.event;
		}
	}
	for (size_t i = 0; i < steps->count; i++)
		/* No event is in it: its levels are those of the step before. */
		if (trends->levels[i].low == UINT64_MAX)
			trends->levels[i] = i > 0 ? trends->levels[i - 1] : (struct neap_step_levels){0};
}

/* If a recording has lost events inside a step, only its journal has the step's peak. *ret_whole: the number of steps
 * whose events come within 5 % of the peak; these count as whole. */
static void take_recorded_peaks(const struct neap_timeline *timeline, struct neap_trends *trends, size_t *ret_whole)
{
	const struct neap_record *record = timeline->trace->record;
	size_t left = trends->steps, whole = 0;

	for (size_t i = record->journal_count; i-- > 0 && left > 0;) {
		const struct neap_event *event = &record->journal[i];
		const struct neap_event_step *step = neap_event_as_step(event);
		if (!step || event->device != timeline->device)
			continue;
		struct neap_step_levels *levels = &trends->levels[--left];
		whole += levels->high >= step->peak_bytes - step->peak_bytes / 20;
		if (step->peak_bytes > levels->high)
			levels->high = step->peak_bytes;
	}
	*ret_whole = whole;
}

/* Counts how often the level falls and rises by half the amplitude, for each step. */
static double count_teeth(const struct neap_timeline *timeline, const struct neap_steps *steps, uint64_t half)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	uint64_t begin = steps->first_begin != UINT64_MAX ? steps->first_begin : 0;
	uint64_t extreme = 0, teeth = 0;
	bool rising = true;

	if (!half)
		return 0;
	while (neap_timeline_next(&cursor) && cursor.now.event < steps->ends[steps->count - 1]) {
		uint64_t level = cursor.now.requested;
		if (cursor.now.event < begin)
			continue;
		if (rising ? level >= extreme : level <= extreme) {
			extreme = level;
		} else if (rising ? extreme - level >= half : level - extreme >= half) {
			teeth += rising;
			rising = !rising;
			extreme = level;
		}
	}
	return (double)teeth / (double)steps->count;
}

#define GAPS 1024 /* steps; emptyings further apart have no period here */

struct emptyings {
	uint64_t count;
	size_t last_step;
	uint64_t gaps[GAPS],
		gap_count; /* in steps, from one to the next; of several in one step only the first counts */
};

static void add_emptying(struct emptyings *found, const struct neap_steps *steps, uint64_t event)
{
	size_t step = neap_steps_before(steps, event), gap = step - found->last_step;

	if (found->count++ > 0 && gap > 0) {
		found->gaps[gap < GAPS ? gap : 0]++;
		found->gap_count++;
	}
	found->last_step = step;
}

/* Returns the gap that four of five gaps have; 0: there is none, or there are too few gaps. */
static size_t period_of(const struct emptyings *found)
{
	for (size_t gap = 1; gap < GAPS && found->gap_count >= 2; gap++)
		if (found->gaps[gap] >= found->gap_count - found->gap_count / 5)
			return gap;
	return 0;
}

/* Finds when the cache was emptied. Releases right before a growth do not count, because there a request found the
 * device full. If the device's size is known, it is checked that the device was too full for the request. */
static void find_emptied(const struct neap_timeline *timeline, const struct neap_steps *steps,
			 struct neap_trends *trends)
{
	struct neap_trace_cursor cursor = neap_trace_events(timeline->trace, timeline->device, 0);
	struct emptyings recorded = {0}, seen = {0};
	struct neap_trace_event event;
	uint64_t began = 0, room_bytes = neap_course_headroom(timeline), reserved = timeline->start.reserved,
		 most = 0;
	bool releasing = false;

	for (uint64_t at = 0; neap_trace_next(&cursor, &event); at++) {
		bool grows = event.kind == NEAP_TRACE_SEGMENT_ALLOC || event.kind == NEAP_TRACE_SEGMENT_MAP;
		if (event.kind == NEAP_TRACE_EMPTY_CACHE)
			add_emptying(&recorded, steps, at);
		if (event.kind == NEAP_TRACE_SEGMENT_FREE || event.kind == NEAP_TRACE_SEGMENT_UNMAP) {
			began = releasing ? began : at;
			most = releasing ? most : reserved;
			releasing = true;
			reserved = neap_less(reserved, event.size);
		} else if (releasing && event.kind != NEAP_TRACE_FREE_COMPLETED) {
			bool full = room_bytes == UINT64_MAX || neap_plus(most, event.size) > room_bytes;
			bool retried = event.kind == NEAP_TRACE_OOM || (grows && full);
			trends->retries += retried;
			if (!retried)
				add_emptying(&seen, steps, began);
			releasing = false;
		}
		reserved += grows ? event.size : 0;
	}
	if (releasing)
		add_emptying(&seen, steps, began);
	const struct emptyings *found = recorded.count ? &recorded : &seen;
	trends->emptied = found->count;
	trends->emptied_period = period_of(found);
}

/* The holders that grow */

struct growth {
	uint64_t key;
	int64_t bytes;
};

static int by_growth(const void *left, const void *right)
{
	const struct growth *a = left, *b = right;
	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Finds the indices [from, to) of the steps at whose end the life holds its bytes. */
static void steps_of(const struct neap_steps *steps, const struct neap_life *life, size_t *ret_from, size_t *ret_to)
{
	*ret_from = life->begin == NEAP_LIFE_BEFORE ? 0 : neap_steps_before(steps, life->begin);
	*ret_to = life->end == NEAP_LIFE_AFTER ? steps->count : neap_steps_before(steps, life->end);
}

/* Whether a block counts as growth: it must stay beyond the next step's end. A batch that was read ahead, or a buffer
 * that lives for a step, would be noise. So the last step's end does not count. */
static bool stays(size_t from, size_t to) { return to >= from + 2; }

/* Finds the keys that keep more at the end of the last step but one than after a third of the steps; the most
 * first. */
static bool find_growth(const struct neap_lives *lives, const struct neap_sites *sites,
			const struct neap_steps *steps, struct growth **ret_growths, size_t *ret_count)
{
	struct neap_map map = {0};
	struct growth *growths = NULL;
	size_t count = 0, from, to, early = steps->count / 3, late = steps->count - 2;
	bool ok = true;

	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life life;
	while (ok && neap_lives_next(&cursor, &life)) {
		uint64_t key = neap_holder_key(sites, &life), index = 0;
		steps_of(steps, &life, &from, &to);
		bool at_early = from <= early && early < to, at_late = from <= late && late < to;
		if (at_early == at_late || !stays(from, to))
			continue;
		if (!neap_map_get(&map, key, &index)) {
			ok = neap_array_grow(&growths, count, sizeof *growths) && neap_map_put(&map, key, count);
			if (!ok)
				break;
			index = count;
			growths[count++] = (struct growth){.key = key};
		}
		growths[index].bytes =
			(int64_t)((uint64_t)growths[index].bytes + (at_late ? life.size : 0 - life.size));
	}
	neap_map_fini(&map);
	if (count > 0)
		qsort(growths, count, sizeof *growths, by_growth);
	*ret_growths = growths;
	*ret_count = count;
	return ok;
}

static void test_growth(const struct neap_lives *lives, const struct neap_sites *sites,
			const struct neap_steps *steps, uint64_t key, uint64_t *series,
			struct neap_growing *ret_growing)
{
	struct neap_growing growing = {.holder.kind = (enum neap_holder_kind)(key >> 32),
				       .holder.frame = (uint32_t)key};
	size_t from, to;

	memset(series, 0, (steps->count + 1) * sizeof *series);
	struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
	struct neap_life next;
	while (neap_lives_next(&cursor, &next)) {
		const struct neap_life *life = &next;
		if (neap_holder_key(sites, life) != key)
			continue;
		steps_of(steps, life, &from, &to);
		if (stays(from, to)) {
			series[from] += life->size;
			series[to] -= life->size;
		}
		if (from < to && to == steps->count) {
			growing.holder.bytes += life->size;
			growing.holder.blocks++;
			growing.holder.largest =
				life->size > growing.holder.largest ? life->size : growing.holder.largest;
		}
	}
	for (size_t i = 1; i < steps->count; i++)
		series[i] += series[i - 1];
	neap_leak_test_numbered(series, steps->numbers, steps->count - 1, UINT64_MAX, &growing.leak);
	*ret_growing = growing;
}

static bool find_growing(const struct neap_lives *lives, const struct neap_sites *sites,
			 const struct neap_steps *steps, struct neap_trends *trends)
{
	struct growth *growths = NULL;
	size_t count = 0;
	uint64_t *series = malloc((steps->count + 1) * sizeof *series);
	bool ok = series && find_growth(lives, sites, steps, &growths, &count);

	for (size_t i = 0; ok && i < count && i < CANDIDATES && growths[i].bytes > 0; i++) {
		struct neap_growing growing;
		size_t at = trends->growing_count;
		test_growth(lives, sites, steps, growths[i].key, series, &growing);
		if (growing.leak.verdict != NEAP_LEAK_FOUND)
			continue;
		while (at > 0 && trends->growing[at - 1].leak.bytes_per_step < growing.leak.bytes_per_step)
			at--;
		if (at == NEAP_GROWING)
			continue;
		if (trends->growing_count < NEAP_GROWING)
			trends->growing_count++;
		memmove(&trends->growing[at + 1], &trends->growing[at],
			(trends->growing_count - 1 - at) * sizeof trends->growing[0]);
		trends->growing[at] = growing;
	}
	free(growths);
	free(series);
	return ok;
}

enum neap_status neap_trends_grower(const struct neap_lives *lives, const struct neap_sites *sites,
				    const struct neap_steps *steps, struct neap_growing *ret_growing,
				    struct neap_error *err)
{
	struct neap_trends trends = {0};

	if (steps->count >= 3 && !find_growing(lives, sites, steps, &trends))
		return neap_fail(err, NEAP_ENOMEM, "no memory for the trends of a trace");
	*ret_growing = trends.growing[0];
	return NEAP_OK;
}

/* Fluctuation */

static bool speaks_of_evaluation(const char *name)
{
	return strstr(name, "eval") || strstr(name, "Eval") || strstr(name, "valid") || strstr(name, "Valid");
}

/* Finds the steps that have a mark of evaluation, or lie in such a range. */
static void find_evaluated(const struct neap_timeline *timeline, const struct neap_steps *steps, bool *evaluated)
{
	const struct neap_trace *trace = timeline->trace;
	const struct neap_trace_device *device = &trace->devices[timeline->device];
	size_t since = 0;

	for (size_t i = 0; i < device->mark_count; i++) {
		const struct neap_trace_mark *mark = &trace->marks[device->first_mark + i];
		size_t step = neap_steps_before(steps, mark->event);
		if (mark->kind == NEAP_TRACE_STEP || !speaks_of_evaluation(neap_trace_text(trace, mark->name)))
			continue;
		if (mark->kind != NEAP_TRACE_END)
			since = step;
		else if (mark->event > 0) /* the range ends before that event */
			step = neap_steps_before(steps, mark->event - 1);
		for (size_t j = since; j <= step && j < steps->count; j++)
			evaluated[j] = true;
		since = step; /* marks are in order, so no step is visited for each of them */
	}
}

/* Whether the steps with evaluation make the peaks differ: without them the peaks hardly differ. */
static bool by_evaluation(const struct neap_timeline *timeline, const struct neap_steps *steps, const double *peaks,
			  size_t skipped, double spread)
{
	bool *evaluated = calloc(steps->count, sizeof *evaluated);
	double highest = 0, lowest = INFINITY;
	size_t without = 0;

	if (!evaluated)
		return false;
	find_evaluated(timeline, steps, evaluated);
	for (size_t i = skipped; i < steps->count; i++) {
		if (evaluated[i])
			continue;
		without++;
		highest = fmax(highest, peaks[i - skipped]);
		lowest = fmin(lowest, peaks[i - skipped]);
	}
	without = without < steps->count - skipped ? without : 0;
	free(evaluated);
	return without > 0 && highest - lowest < spread / 2;
}

/* Whether the lowest levels rise more often than they fall, and differ by at least half as much as the peaks. */
static bool by_cleanup(const struct neap_step_levels *levels, size_t count, double spread)
{
	uint64_t highest = 0, lowest = UINT64_MAX;
	size_t rises = 0, falls = 0;

	for (size_t i = 0; i < count; i++) {
		highest = levels[i].low > highest ? levels[i].low : highest;
		lowest = levels[i].low < lowest ? levels[i].low : lowest;
		rises += i > 0 && levels[i].low > levels[i - 1].low;
		falls += i > 0 && levels[i].low < levels[i - 1].low;
	}
	return falls > 0 && rises > falls && (double)(highest - lowest) >= spread / 2;
}

/* Returns the smallest lag at which the peaks, minus their median, agree with nine tenths of their own power. */
static size_t find_period(const double *peaks, size_t count, double middle)
{
	for (size_t lag = 2; lag <= count / 3; lag++) {
		double power = 0, agreement = 0;
		for (size_t i = lag; i < count; i++) {
			double now = peaks[i] - middle, then = peaks[i - lag] - middle;
			power += now * now + then * then;
			agreement += 2 * now * then;
		}
		if (power > 0 && agreement >= 0.9 * power)
			return lag;
	}
	return 0;
}

/* Finds how the steps' peaks differ, apart from a leak. `values`: an array with an element for each step. */
static void compare_steps(const struct neap_step_levels *levels, size_t count, double *peaks, uint64_t *values,
			  struct neap_trends *trends, double *ret_differ)
{
	double slope = trends->leak.verdict == NEAP_LEAK_FOUND ? trends->leak.bytes_per_step : 0;
	double highest = 0, lowest = 0;

	for (size_t i = 0; i < count; i++) {
		peaks[i] = (double)levels[i].high - slope * (double)i;
		peaks[i] = peaks[i] > 0 ? peaks[i] : 0;
		values[i] = (uint64_t)peaks[i];
		highest = i == 0 || peaks[i] > highest ? peaks[i] : highest;
		lowest = i == 0 || peaks[i] < lowest ? peaks[i] : lowest;
	}
	*ret_differ = highest - lowest;
	double middle = (double)median(values, count);
	trends->spread = middle > 0 ? (highest - lowest) / middle : 0;
	if (trends->spread >= SPREAD_MIN)
		trends->period = find_period(peaks, count, middle);
}

/* Finds how memory swings. `whole`: how many steps have all their events. */
static bool find_swing(const struct neap_timeline *timeline, const struct neap_steps *steps, size_t whole,
		       struct neap_trends *trends)
{
	size_t skipped = steps->count >= 3 ? 1 : 0, count = steps->count - skipped; /* the first step warms up */
	const struct neap_step_levels *levels = trends->levels + skipped;
	uint64_t *values = malloc(count * sizeof *values);
	double *peaks = malloc(count * sizeof *peaks);
	double differ = 0;
	size_t highest = 0;
	bool ok = values && peaks;

	for (size_t i = 0; ok && i < count; i++) {
		values[i] = levels[i].high - levels[i].low;
		highest = levels[i].high > levels[highest].high ? i : highest;
	}
	if (ok) {
		trends->amplitude_bytes = median(values, count);
		compare_steps(levels, count, peaks, values, trends, &differ);
		trends->highest_bytes = levels[highest].high;
		trends->peak_event = levels[highest].high_event;
		trends->trough_event = levels[highest].low_event;
		trends->teeth_per_step = count_teeth(timeline, steps, trends->amplitude_bytes / 2);
		if (whole > 0) /* only whole steps have teeth */
			trends->teeth_per_step *= (double)steps->count / (double)whole;
	}
	if (ok && trends->spread >= SPREAD_MIN)
		trends->swing = by_evaluation(timeline, steps, peaks, skipped, differ) ? NEAP_SWING_EVALUATION
				: !trends->period                                      ? NEAP_SWING_VARIABLE
				: by_cleanup(levels, count, differ)                    ? NEAP_SWING_CLEANUP
										       : NEAP_SWING_PERIODIC;
	else if (trends->amplitude_bytes * 20 < trends->highest_bytes)
		trends->swing = NEAP_SWING_NONE;
	else if (trends->teeth_per_step >= 1.5 || trends->course.micro_batches > 1)
		trends->swing = NEAP_SWING_ACCUMULATION;
	else
		trends->swing = NEAP_SWING_STEP;
	free(values);
	free(peaks);
	return ok;
}

enum neap_status neap_trends_find(const struct neap_timeline *timeline, const struct neap_lives *lives,
				  const struct neap_sites *sites, const struct neap_steps *steps,
				  struct neap_trends *ret_trends, struct neap_error *err)
{
	struct neap_trends trends = {.steps = steps->count};
	struct neap_steps training = neap_steps_longest(steps);
	size_t whole = steps->count;
	bool ok = true;

	find_emptied(timeline, steps, &trends);
	enum neap_status status = neap_course_find(timeline, steps, &trends.course, err);
	if (status)
		return status;
	if (steps->count > 0) {
		trends.levels = calloc(steps->count, sizeof *trends.levels);
		uint64_t *lows = malloc(steps->count * sizeof *lows);
		ok = trends.levels && lows;
		if (ok) {
			find_levels(timeline, steps, &trends);
			if (timeline->trace->partial && timeline->trace->record)
				take_recorded_peaks(timeline, &trends, &whole);
			for (size_t i = 0; i < training.count; i++)
				lows[i] = trends.levels[(training.ends - steps->ends) + (ptrdiff_t)i].low;
			neap_leak_test_numbered(lows, training.numbers, training.count, UINT64_MAX, &trends.leak);
			ok = find_swing(timeline, steps, whole, &trends);
		}
		free(lows);
		if (ok && trends.leak.verdict == NEAP_LEAK_FOUND)
			ok = find_growing(lives, sites, &training, &trends);
	}
	if (!ok) {
		neap_trends_fini(&trends);
		return neap_fail(err, NEAP_ENOMEM, "no memory for the trends of a trace");
	}
	*ret_trends = trends;
	return NEAP_OK;
}

void neap_trends_fini(struct neap_trends *trends)
{
	free(trends->levels);
	*trends = (struct neap_trends){0};
}
