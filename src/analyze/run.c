/* The figures of one recording. The journal covers the whole run: steps with their peak and lowest bytes, cleanups,
 * OOMs, rungs. The allocation ring has every rise and fall, but only those of the run's end if it has wrapped.
 *
 *   time      |---- steps only (journal) ----|---- every allocation ----|
 *                                             ^ first event the ring still has
 */
#include "analyze/run.h"

#include "analyze/lanes.h"
#include "analyze/rhythm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_BACK  4096 /* how many allocations of other devices it passes, at most */
#define FLAT_SHARE 20   /* an amplitude below a twentieth of the peak does not count as fluctuation */

static void raise_to(uint64_t *value, uint64_t candidate)
{
	if (candidate > *value)
		*value = candidate;
}

static void take_held(struct neap_run_facts *facts, const struct neap_event *event)
{
	const struct neap_event_held *held = neap_event_as_held(event);

	if (!held)
		return;
	raise_to(&facts->peak_allocated_bytes, held->allocated_bytes);
	raise_to(&facts->peak_reserved_bytes, held->reserved_bytes);
}

static void take_settings(struct neap_run_facts *facts, struct neap_split split, uint32_t rungs)
{
	rungs &= NEAP_RUNGS_SWITCHED;
	if (!facts->first_split.micro_batch) {
		facts->first_split = split;
		facts->first_rungs = rungs;
	}
	facts->last_split = split;
	facts->last_rungs = rungs;
}

static void take_process(struct neap_run_process *process, const struct neap_record *record,
			 const struct neap_event_process *event)
{
	const char *device = neap_record_name(record, event->device_uuid);
	size_t length = strlen(process->devices), capacity = sizeof process->devices - length;

	process->role = event->role < NEAP_PROCESS_ROLES ? (enum neap_process_role)event->role : NEAP_PROCESS_PLAIN;
	process->rank = event->rank;
	process->local_rank = event->local_rank;
	process->ranks = event->ranks;
	process->parent = event->parent;
	if (*device && !strchr(device, ' ') && !strstr(process->devices, device) &&
	    strlen(device) + (length > 0) < capacity)
		snprintf(process->devices + length, capacity, "%s%s", length ? " " : "", device);
}

static void take_rung(struct neap_run_facts *facts, const struct neap_event *event, bool main)
{
	const struct neap_event_rung *rung = neap_event_as_rung(event);

	if (rung->rung == NEAP_RUNG_STOP)
		return;
	facts->rungs++;
	if (!main)
		return;
	if (!facts->first_split.micro_batch) /* the journal has lost the beginning */
		take_settings(facts,
			      (struct neap_split){.micro_batch = rung->micro_batch_before,
						  .accumulate = rung->accumulate_before,
						  .ranks = 1},
			      rung->settings.rungs & ~(UINT32_C(1) << (rung->rung & 31)));
	take_settings(facts, neap_record_split(event, facts->last_split.ranks), rung->settings.rungs);
}

/* Takes the journal's events. `main`: the settings and losses of the event's device stand for the run. */
static void take_journal(struct neap_run_facts *facts, const struct neap_record *record,
			 const struct neap_event *event, bool main)
{
	switch (event->kind) {
	case NEAP_EVENT_STEP:
		raise_to(&facts->peak_allocated_bytes, event->step.peak_bytes);
		/* The step shows that the forecast was wrong. */
		if (main && event->step.number > facts->memory_ends_high_step)
			facts->memory_ends_step = facts->memory_ends_low_step = facts->memory_ends_high_step = 0;
		break;
	case NEAP_EVENT_OOM:
		facts->ooms++;
		break;
	case NEAP_EVENT_SPLIT:
		if (!main)
			break;
		take_settings(facts, neap_record_split(event, facts->last_split.ranks), event->split.settings.rungs);
		facts->layers = event->split.layers;
		break;
	case NEAP_EVENT_RUNG:
		take_rung(facts, event, main);
		break;
	case NEAP_EVENT_CLEANUP:
		facts->cleanups++;
		facts->cleanup_ns += event->cleanup.ns;
		break;
	case NEAP_EVENT_RESTART:
		facts->restarts = event->restart.count;
		break;
	case NEAP_EVENT_PROCESS:
		take_process(&facts->process, record, &event->process);
		break;
	case NEAP_EVENT_PAGE:
		raise_to(&facts->peak_allocated_bytes, event->page.peak_allocated_bytes);
		raise_to(&facts->peak_reserved_bytes, event->page.peak_reserved_bytes);
		break;
	case NEAP_EVENT_FORECAST:
		facts->memory_ends_step = event->forecast.step;
		facts->memory_ends_low_step = event->forecast.low_step;
		facts->memory_ends_high_step = event->forecast.high_step;
		break;
	case NEAP_EVENT_METRIC:
		if (main && !strcmp(neap_record_name(record, event->metric.name), "loss"))
			facts->last_loss = event->metric.value;
		break;
	default:
		break;
	}
}

static int by_value(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static enum neap_fluctuation_cause cause_of(uint64_t amplitude, uint64_t peak, double teeth, double ticks,
					    uint64_t rhythm)
{
	if (amplitude == 0 || amplitude < peak / FLAT_SHARE)
		return NEAP_FLUCTUATION_NONE;
	if (rhythm > 1)
		return NEAP_FLUCTUATION_ACCUMULATION;
	if (teeth >= 1.5)
		return ticks >= 1.5 && teeth >= ticks / 2 ? NEAP_FLUCTUATION_ACCUMULATION : NEAP_FLUCTUATION_OTHER;
	return teeth >= 0.5 ? NEAP_FLUCTUATION_STEP : NEAP_FLUCTUATION_OTHER;
}

/* The steps of one lane. */
struct track {
	const struct neap_record *record;
	const struct neap_lanes *lanes;
	size_t lane;
	uint64_t *scratch; /* an array with two numbers for each event of the journal */
};

static bool is_step(const struct track *track, size_t i) { return track->lanes->of[i] == track->lane; }

static const struct neap_event_step *step_at(const struct track *track, size_t i)
{
	return is_step(track, i) ? neap_event_as_step(&track->record->journal[i]) : NULL;
}

static uint16_t device_of(const struct track *track) { return track->lanes->items[track->lane].device; }

static uint64_t level_after(const struct neap_event *event)
{
	const struct neap_event_held *held = neap_event_as_held(event);

	return held ? held->allocated_bytes : 0;
}

/* Counts, in the allocations between two instants, rises of at least `swing` that are followed by an equal fall. */
static uint64_t count_teeth(const struct track *track, size_t *cursor, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t swing)
{
	const struct neap_record *record = track->record;
	uint16_t device = device_of(track);
	uint64_t low = UINT64_MAX, high = 0, teeth = 0;
	bool rising = false;

	while (*cursor < record->allocation_count && record->allocations[*cursor].time_ns < begin_ns)
		(*cursor)++;
	/* Find the level with which the step begins. */
	for (size_t i = *cursor; i > 0 && *cursor - i < LOOK_BACK && low == UINT64_MAX; i--)
		if (record->allocations[i - 1].device == device)
			low = level_after(&record->allocations[i - 1]);
	for (; *cursor < record->allocation_count && record->allocations[*cursor].time_ns <= end_ns; (*cursor)++) {
		if (record->allocations[*cursor].device != device)
			continue;
		uint64_t level = level_after(&record->allocations[*cursor]);
		low = level < low ? level : low;
		high = level > high ? level : high;
		if (!rising && level - low >= swing) {
			rising = true;
			high = level;
		} else if (rising && high - level >= swing) {
			rising = false;
			low = level;
			teeth++;
		}
	}
	return teeth;
}

static void find_fluctuation(struct neap_run_facts *facts, const struct track *track)
{
	const struct neap_record *record = track->record;
	uint64_t first_ns = record->allocation_count ? record->allocations[0].time_ns : UINT64_MAX;
	uint64_t previous_ns = record->journal_count ? record->journal[0].time_ns : 0;
	uint64_t *scratch = track->scratch;
	uint64_t teeth = 0, seen = 0, ticks = 0;
	size_t count = 0, cursor = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event_step *step = step_at(track, i);
		if (step)
			scratch[count++] =
				step->peak_bytes > step->lowest_bytes ? step->peak_bytes - step->lowest_bytes : 0;
	}
	if (count == 0)
		return;
	qsort(scratch, count, sizeof *scratch, by_value);
	uint64_t amplitude = scratch[count / 2], swing = amplitude / 2 ? amplitude / 2 : 1;
	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		const struct neap_event_step *step = step_at(track, i);
		if (!step)
			continue;
		if (previous_ns >= first_ns || !record->allocations_lost) { /* the whole step is in the ring */
			teeth += count_teeth(track, &cursor, previous_ns, event->time_ns, swing);
			ticks += step->micro_batches;
			seen++;
		}
		previous_ns = event->time_ns;
	}
	facts->fluctuation.amplitude_bytes = amplitude;
	facts->fluctuation.teeth_per_step = seen ? (double)teeth / (double)seen : 0;
	/* If there is a session, it has reported how many micro-batches a step has. */
	uint64_t rhythm = facts->last_split.micro_batch ? 1 : neap_rhythm_recorded(record, track->lanes, track->lane);
	facts->fluctuation.cause = cause_of(amplitude, facts->peak_allocated_bytes, facts->fluctuation.teeth_per_step,
					    seen ? (double)ticks / (double)seen : 0, rhythm);
}

/* Whether low-water marks before this event cannot be compared with later ones. Other settings have other marks, and
 * a cleanup for a leak lowers them. */
static bool floor_changes(const struct neap_event *event)
{
	return event->kind == NEAP_EVENT_RUNG || event->kind == NEAP_EVENT_SPLIT ||
	       (event->kind == NEAP_EVENT_CLEANUP && event->cleanup.reason == NEAP_CLEANUP_LEAK);
}

/* The low-water marks of one training, and the numbers of their steps. */
struct floor {
	uint64_t *low, *numbers;
	size_t count;
	size_t begin;                  /* where the marks since the last change of the floor begin */
	size_t longest, longest_begin; /* the longest earlier stretch without a change */
	uint64_t peak;                 /* of the last step */
};

static void change_floor(struct floor *floor)
{
	if (floor->count - floor->begin >= floor->longest) {
		floor->longest = floor->count - floor->begin;
		floor->longest_begin = floor->begin;
	}
	floor->begin = floor->count;
}

static struct neap_leak test_stretch(const struct floor *floor, size_t begin, size_t count, uint64_t left)
{
	struct neap_leak leak;

	neap_leak_test_numbered(floor->low + begin, floor->numbers + begin, count, left, &leak);
	return leak;
}

/* Tests the marks since the floor last changed. If these are too few (rungs were taken as memory ended), tests those
 * of the longest stretch without a change. */
static struct neap_leak test_floor(const struct floor *floor, bool restarted, uint64_t device_total_bytes)
{
	uint64_t left = !device_total_bytes                ? UINT64_MAX
			: device_total_bytes > floor->peak ? device_total_bytes - floor->peak
							   : 0;
	struct neap_leak leak = test_stretch(floor, floor->begin, floor->count - floor->begin, left);

	if (leak.verdict == NEAP_LEAK_TOO_SHORT && floor->longest > floor->count - floor->begin) {
		struct neap_leak earlier = test_stretch(floor, floor->longest_begin, floor->longest, left);
		/* A rung does not end a leak; but an earlier floor that was level proves nothing about this one. */
		if (restarted || earlier.verdict == NEAP_LEAK_FOUND)
			leak = earlier;
	}
	return leak;
}

/* Returns the worse of two trainings in a row: the steeper leak; if neither leaks, the later one that was long
 * enough. */
static struct neap_leak worse_of(const struct neap_leak *before, const struct neap_leak *now)
{
	if (before->verdict != NEAP_LEAK_FOUND)
		return now->verdict == NEAP_LEAK_TOO_SHORT && before->verdict == NEAP_LEAK_CLEAN ? *before : *now;
	return now->verdict == NEAP_LEAK_FOUND && now->bytes_per_step > before->bytes_per_step ? *now : *before;
}

static struct neap_leak leak_of(const struct track *track, bool restarted, uint64_t device_total_bytes)
{
	const struct neap_record *record = track->record;
	struct floor floor = {.low = track->scratch, .numbers = track->scratch + record->journal_count};
	struct neap_leak leak = {.verdict = NEAP_LEAK_TOO_SHORT, .steps_until_full = UINT64_MAX};

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		if (floor_changes(event) && event->device == device_of(track))
			change_floor(&floor);
		if (!is_step(track, i))
			continue;
		if (floor.count > 0 && event->step.number <= floor.numbers[floor.count - 1]) {
			struct neap_leak ended = test_floor(&floor, restarted, device_total_bytes);
			leak = worse_of(&leak, &ended);
			floor = (struct floor){.low = floor.low, .numbers = floor.numbers};
		}
		floor.numbers[floor.count] = event->step.number;
		floor.low[floor.count++] = event->step.lowest_bytes;
		floor.peak = event->step.peak_bytes;
	}
	struct neap_leak last = test_floor(&floor, restarted, device_total_bytes);
	return worse_of(&leak, &last);
}

/* Finds the steepest leak of any lane; if none leaks, takes the main lane's figures. */
static void find_leak(struct neap_run_facts *facts, struct track track, uint64_t device_total_bytes)
{
	bool found = false;

	for (track.lane = 0; track.lane < track.lanes->count; track.lane++) {
		struct neap_leak leak = leak_of(&track, facts->restarts, device_total_bytes);
		bool leaks = leak.verdict == NEAP_LEAK_FOUND;
		if (leaks ? !found || leak.bytes_per_step > facts->leak.bytes_per_step
			  : !found && track.lane == track.lanes->main)
			facts->leak = leak;
		found |= leaks;
	}
}

#define DEVICES_KEPT 256 /* ordinals within a process; bytes freed on higher ones may be counted twice */

/* Counts the bytes that cleanups freed. Bytes that the process had reserved again by the device's next cleanup count
 * once. */
static void count_freed(struct neap_run_facts *facts, const struct neap_record *record)
{
	const struct neap_event_cleanup *before[DEVICES_KEPT] = {NULL}; /* the device's last cleanup */

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event_cleanup *cleanup = neap_event_as_cleanup(&record->journal[i]);
		uint16_t device = record->journal[i].device;
		if (!cleanup)
			continue;
		facts->cleanup_freed_bytes += cleanup->freed_bytes;
		if (device >= DEVICES_KEPT)
			continue;
		const struct neap_event_cleanup *last = before[device];
		uint64_t left = cleanup->held.reserved_bytes;
		before[device] = cleanup;
		if (!last || left > UINT64_MAX - cleanup->freed_bytes)
			continue;
		uint64_t level = left + cleanup->freed_bytes;
		uint64_t again = level > last->held.reserved_bytes ? level - last->held.reserved_bytes : 0;
		again = again < last->freed_bytes ? again : last->freed_bytes;
		facts->cleanup_freed_bytes -= again;
		facts->cleanup_retaken_bytes += again;
	}
}

static const char *steps_are(const struct neap_record *record, const struct neap_event_step *step)
{
	static const char *const kinds[] = {NEAP_STEP_BATCH, NEAP_STEP_FORWARD};
	const char *name = neap_record_name(record, step->name);

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(name, kinds[i]))
			return kinds[i];
	return NULL;
}

/* Counts the steps of the main lane. */
static void count_steps(struct neap_run_facts *facts, const struct track *track)
{
	facts->steps = track->lanes->items[track->lane].steps;
	for (size_t i = 0; i < track->record->journal_count; i++)
		if (is_step(track, i)) {
			const struct neap_event_step *step = &track->record->journal[i].step;
			facts->ticks += step->micro_batches;
			facts->steps_are = steps_are(track->record, step);
		}
}

void neap_run_facts(const struct neap_record *record, uint64_t device_total_bytes, struct neap_run_facts *ret_facts)
{
	struct neap_run_facts facts = {
		.last_loss = NAN,
		.process = {NEAP_PROCESS_PLAIN, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, ""}};
	struct neap_lanes lanes = {0};
	uint64_t *scratch = calloc(2 * (record->journal_count + 1), sizeof *scratch);

	/* Without enough host memory, report no leak, as for a short run. */
	bool known = scratch && neap_lanes_find(record, &lanes, NULL) == NEAP_OK && lanes.count > 0;
	for (size_t i = 0; i < record->allocation_count; i++)
		take_held(&facts, &record->allocations[i]);
	for (size_t i = 0; i < record->journal_count; i++) {
		take_held(&facts, &record->journal[i]);
		take_journal(&facts, record, &record->journal[i],
			     !known || record->journal[i].device == lanes.items[lanes.main].device);
	}
	count_freed(&facts, record);
	facts.leak = (struct neap_leak){.verdict = NEAP_LEAK_TOO_SHORT, .steps_until_full = UINT64_MAX};
	if (known) {
		struct track track = {record, &lanes, lanes.main, scratch};
		count_steps(&facts, &track);
		find_fluctuation(&facts, &track);
		find_leak(&facts, track, device_total_bytes);
	}
	neap_lanes_fini(&lanes);
	free(scratch);
	*ret_facts = facts;
}

const struct neap_event_request *neap_run_request(const struct neap_record *record)
{
	const struct neap_event *request = NULL;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		bool went_on = request && event->kind == NEAP_EVENT_STEP && event->device == request->device;
		if (event->kind == NEAP_EVENT_REQUEST)
			request = event;
		else if (went_on || event->kind == NEAP_EVENT_RESTART)
			request = NULL;
	}
	return request ? neap_event_as_request(request) : NULL;
}

/* The curve. `take` gets its points one by one, in order of time. */
struct curve {
	const struct neap_record *record;
	uint16_t device;
	uint64_t first_ns;
	void (*take)(struct curve *curve, const struct neap_curve_point *point);
	struct neap_curve_point *points;
	size_t count, capacity;
	uint64_t span_ns; /* of all points */
	/* While thinning: the current stretch of time, and its extremes. */
	uint64_t stretch;
	bool open;
	struct neap_curve_point lowest, highest;
};

static void give(struct curve *curve, uint64_t time_ns, uint64_t allocated, uint64_t reserved)
{
	struct neap_curve_point point = {time_ns - curve->first_ns, allocated, reserved};

	curve->take(curve, &point);
}

static void give_held(struct curve *curve, const struct neap_event *event)
{
	const struct neap_event_held *held = neap_event_as_held(event);

	if (held)
		give(curve, event->time_ns, held->allocated_bytes, held->reserved_bytes);
}

/* Passes the allocations from index `next` up to an instant on to `take`. Returns the next index. */
static size_t give_allocations(struct curve *curve, size_t next, uint64_t until_ns)
{
	const struct neap_record *record = curve->record;

	for (; next < record->allocation_count && record->allocations[next].time_ns <= until_ns; next++) {
		const struct neap_event *event = &record->allocations[next];
		if (event->device == curve->device)
			give_held(curve, event);
	}
	return next;
}

static void each_point(struct curve *curve)
{
	const struct neap_record *record = curve->record;
	uint64_t ring_ns = record->allocation_count ? record->allocations[0].time_ns : UINT64_MAX;
	uint64_t previous_ns = curve->first_ns;
	size_t next = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		const struct neap_event *event = &record->journal[i];
		next = give_allocations(curve, next, event->time_ns);
		if (event->device != curve->device)
			continue;
		const struct neap_event_step *step = neap_event_as_step(event);
		/* The time of a step's peak is not known, so draw it in the middle of the step. */
		if (step && record->allocations_lost && previous_ns < ring_ns) {
			uint64_t middle = previous_ns + (event->time_ns - previous_ns) / 2;
			uint64_t reserved = step->held.reserved_bytes, peak = step->peak_bytes;
			if (middle < ring_ns && event->time_ns < ring_ns) {
				give(curve, middle, peak, reserved > peak ? reserved : peak);
				give(curve, event->time_ns, step->lowest_bytes, reserved);
			}
		}
		if (step)
			previous_ns = event->time_ns;
		give_held(curve, event);
	}
	give_allocations(curve, next, UINT64_MAX);
}

/* Returns the device whose allocated bytes rose highest. */
static uint16_t highest_device(const struct neap_record *record)
{
	uint64_t highest = 0;
	uint16_t device = 0;

	for (size_t i = 0; i < record->allocation_count + record->journal_count; i++) {
		const struct neap_event *event = i < record->allocation_count
							 ? &record->allocations[i]
							 : &record->journal[i - record->allocation_count];
		uint64_t level = level_after(event);
		if (event->kind == NEAP_EVENT_STEP)
			raise_to(&level, event->step.peak_bytes);
		if (level > highest || (i == 0 && level == highest)) {
			highest = level;
			device = event->device;
		}
	}
	return device;
}

static void count_point(struct curve *curve, const struct neap_curve_point *point)
{
	curve->count++;
	raise_to(&curve->span_ns, point->time_ns);
}

static void keep_point(struct curve *curve, const struct neap_curve_point *point)
{
	if (curve->count < curve->capacity)
		curve->points[curve->count++] = *point;
}

static void close_stretch(struct curve *curve)
{
	bool low_first = curve->lowest.time_ns <= curve->highest.time_ns;

	if (!curve->open)
		return;
	keep_point(curve, low_first ? &curve->lowest : &curve->highest);
	if (curve->lowest.time_ns != curve->highest.time_ns ||
	    curve->lowest.allocated_bytes != curve->highest.allocated_bytes)
		keep_point(curve, low_first ? &curve->highest : &curve->lowest);
	curve->open = false;
}

/* Keeps the lowest and the highest point of each of capacity / 2 equal stretches of time. */
static void thin_point(struct curve *curve, const struct neap_curve_point *point)
{
	uint64_t stretches = curve->capacity / 2;
	uint64_t stretch = (uint64_t)((double)point->time_ns / ((double)curve->span_ns + 1) * (double)stretches);

	if (curve->open && stretch != curve->stretch)
		close_stretch(curve);
	if (!curve->open) {
		curve->open = true;
		curve->stretch = stretch;
		curve->lowest = curve->highest = *point;
		return;
	}
	if (point->allocated_bytes < curve->lowest.allocated_bytes)
		curve->lowest = *point;
	if (point->allocated_bytes > curve->highest.allocated_bytes)
		curve->highest = *point;
}

size_t neap_run_curve(const struct neap_record *record, struct neap_curve_point *ret_points, size_t capacity)
{
	struct curve curve = {.record = record, .take = count_point, .points = ret_points, .capacity = capacity};

	if (capacity < 2)
		return 0;
	curve.device = highest_device(record);
	curve.first_ns = record->journal_count ? record->journal[0].time_ns : UINT64_MAX;
	if (record->allocation_count && record->allocations[0].time_ns < curve.first_ns)
		curve.first_ns = record->allocations[0].time_ns;
	each_point(&curve);
	curve.take = curve.count <= capacity ? keep_point : thin_point;
	curve.count = 0;
	each_point(&curve);
	close_stretch(&curve);
	return curve.count;
}
