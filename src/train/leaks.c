/* train/leaks.c: the leak watch. Tests the steps' low-water marks, forecasts the step at which memory will end, and
 * acts before it.
 *
 *   steps --low marks--> leak test, every 20 steps (at first every 5): found twice in a row
 *                                                                                |
 *                                                             forecast: memory ends at low .. step .. high
 *                                                                                |
 *   warn, clear by force, or restart  <--  step + margin >= low, and the run needs more steps than that
 *
 * Every test makes a new forecast, or drops it if there is no leak any more. The watch acts once for one forecast:
 * the effect of clearing shows in later steps, from which the watch starts again. */
#include "train/session_internal.h"

#include "base/log.h"
#include "base/units.h"
#include "neap/attach.h"
#include "train/leak.h"

#include <math.h>
#include <stdio.h>

/* A steep leak ends memory soon, so while few steps are known, they are tested more often than the caller asked. */
#define EARLY_STEPS 60
#define EARLY_EVERY 5

static uint64_t step_after(const struct neap_train *train, uint64_t steps)
{
	return steps > UINT64_MAX - train->steps ? UINT64_MAX : train->steps + steps;
}

/* "step 310", "step 300 to 320"; without an end if memory may never end at the lowest slope. */
static void describe_end(const struct neap_forecast *forecast, char text[NEAP_REASON_CAPACITY])
{
	int length = snprintf(text, NEAP_REASON_CAPACITY, "step %llu", (unsigned long long)forecast->step);

	if (forecast->high_step == UINT64_MAX)
		snprintf(text + length, NEAP_REASON_CAPACITY - (size_t)length, " (%llu at the earliest, 99 %%)",
			 (unsigned long long)forecast->low_step);
	else if (forecast->low_step != forecast->high_step)
		snprintf(text + length, NEAP_REASON_CAPACITY - (size_t)length, " (%llu to %llu, 99 %%)",
			 (unsigned long long)forecast->low_step, (unsigned long long)forecast->high_step);
}

static void report_leak(struct neap_train *train, const struct neap_leak *leak)
{
	unsigned long long total = train->options.total_steps;
	char size[NEAP_UNITS_CAPACITY], end[NEAP_REASON_CAPACITY], last[NEAP_REASON_CAPACITY + 60];

	describe_end(&train->forecast, end);
	if (total && train->forecast.step >= total)
		snprintf(last, sizeof last, "enough memory is left for all %llu steps", total);
	else if (total)
		snprintf(last, sizeof last, "memory will end at %s of %llu", end, total);
	else
		snprintf(last, sizeof last, "memory will end at %s", end);
	/* Truncated, not rounded: 99.999 % is not 100 %. */
	double percent = floor(leak->confidence * 10000) / 100;
	neap_log(train->options.log, NEAP_LOG_WARNING,
		 "%s: memory grows by %s per step (confidence %.2f %%, over %zu steps up to step %llu): %s",
		 train->name, neap_size_format((uint64_t)leak->bytes_per_step, size), percent, leak->steps,
		 (unsigned long long)train->steps, last);
	neap_emit_leak(train->alloc,
		       (struct neap_event_leak){.bytes_per_step = (uint64_t)leak->bytes_per_step,
						.confidence_permille = (uint64_t)(leak->confidence * 1000)});
	train->summary.leak_bytes_per_step = leak->bytes_per_step;
	train->summary.leak_confidence = leak->confidence;
}

/* The step after which the headroom of `headroom_bytes` is used up; UINT64_MAX: never. */
static uint64_t end_after(const struct neap_train *train, uint64_t headroom_bytes, double bytes_per_step)
{
	double steps = bytes_per_step > 0 ? (double)headroom_bytes / bytes_per_step : INFINITY;

	return steps < 9e18 ? step_after(train, (uint64_t)steps) : UINT64_MAX;
}

/* Makes a forecast of a leak. Memory ends when a tooth no longer fits above the rising floor: at the earliest with
 * the highest tooth and slope, at the latest with the lowest tooth and slope. The last free bytes may lie in pieces,
 * each too small for one more step's leak, so the earliest possible end is one step's leak earlier.
 * `headroom_bytes`: the bytes above the newest low-water mark. */
static void forecast(struct neap_train *train, const struct neap_leak *leak, uint64_t headroom_bytes)
{
	struct neap_forecast *forecast = &train->forecast;
	uint64_t lowest = UINT64_MAX, highest = 0;

	for (uint64_t i = 1; i <= leak->steps && i <= LOW_MARKS; i++) {
		uint64_t tooth = train->teeth[(train->low_count - i) % LOW_MARKS];
		lowest = tooth < lowest ? tooth : lowest;
		highest = tooth > highest ? tooth : highest;
	}
	uint64_t least = headroom_bytes > highest ? headroom_bytes - highest : 0;
	uint64_t in_pieces = (uint64_t)fmin(leak->high_bytes_per_step, 0x1p62);
	uint64_t whole = least > in_pieces ? least - in_pieces : 0;
	uint64_t most = headroom_bytes > lowest ? headroom_bytes - lowest : 0;
	*forecast = (struct neap_forecast){.known = true,
					   .low_step = end_after(train, whole, leak->high_bytes_per_step),
					   .step = end_after(train, least, leak->bytes_per_step),
					   .high_step = end_after(train, most, leak->low_bytes_per_step),
					   .bytes_per_step = (uint64_t)leak->bytes_per_step};
	train->summary.memory_ends_low_step = forecast->low_step;
	train->summary.memory_ends_step = forecast->step;
	train->summary.memory_ends_high_step = forecast->high_step;
	neap_emit_forecast(train->alloc, (struct neap_event_forecast){.step = forecast->step,
								      .low_step = forecast->low_step,
								      .high_step = forecast->high_step});
}

/* A cache that fills looks like a leak for a while, so two tests in a row must find the leak. */
static void test_for_leak(struct neap_train *train)
{
	size_t count = train->low_count < LOW_MARKS ? (size_t)train->low_count : LOW_MARKS;
	uint64_t in_order[LOW_MARKS];
	struct neap_leak leak;

	if (count == 0)
		return;
	for (size_t i = 0; i < count; i++)
		in_order[i] = train->low_marks[(train->low_count - count + i) % LOW_MARKS];
	uint64_t headroom_bytes = neap_session_headroom(train, in_order[count - 1]);
	if (headroom_bytes == NEAP_LEFT_UNKNOWN)
		return;
	neap_leak_test(in_order, count, headroom_bytes, &leak);
	bool found = leak.verdict == NEAP_LEAK_FOUND;
	if (found && train->leak_suspected) {
		forecast(train, &leak, headroom_bytes);
		if (!train->leak_reported)
			report_leak(train, &leak);
		train->leak_reported = true;
	} else {
		train->forecast.known = false;
	}
	train->leak_suspected = found;
}

void neap_session_forget_leak(struct neap_train *train)
{
	train->low_count = 0;
	train->leak_suspected = train->leak_acted = false;
	train->forecast.known = false;
}

static void clear_by_force(struct neap_train *train, const char *end)
{
	char claimed[NEAP_UNITS_CAPACITY], size[NEAP_UNITS_CAPACITY];
	struct neap_memory before, after;
	uint64_t lowest, highest;

	neap_log(train->options.log, NEAP_LOG_WARNING, "%s: memory will end at %s: clearing by force", train->name,
		 end);
	neap_memory_read(train->alloc, &before);
	uint64_t released = neap_attach_release(true);
	neap_memory_read(train->alloc, &after);
	uint64_t gave =
		before.allocated_bytes > after.allocated_bytes ? before.allocated_bytes - after.allocated_bytes : 0;
	neap_session_cleanup(train, NEAP_CLEANUP_LEAK);
	uint64_t per_step = train->forecast.bytes_per_step ? train->forecast.bytes_per_step : 1;
	neap_log(train->options.log, NEAP_LOG_WARNING,
		 "%s: the program says that it released %s; %s less are allocated: room for %llu more steps%s",
		 train->name, neap_size_format(released, claimed), neap_size_format(gave, size),
		 (unsigned long long)(gave / per_step),
		 gave ? "" : " (what drops memory is registered with neap_attach_on_clear)");
	neap_session_forget_leak(train);
	neap_take_extremes(train->alloc, &lowest, &highest); /* the next step's extremes begin here */
}

/* Acts at the last boundary between steps before memory may end. */
static void prevent(struct neap_train *train)
{
	const struct neap_forecast *forecast = &train->forecast;
	char end[NEAP_REASON_CAPACITY], reason[NEAP_REASON_CAPACITY];

	describe_end(forecast, end);
	train->leak_acted = true;
	switch (train->options.on_leak) {
	case NEAP_ON_LEAK_WARN:
		neap_log(train->options.log, NEAP_LOG_WARNING, "%s: memory will end at %s; this is step %llu",
			 train->name, end, (unsigned long long)train->steps);
		break;
	case NEAP_ON_LEAK_CLEAR:
		clear_by_force(train, end);
		break;
	case NEAP_ON_LEAK_RESTART:
		snprintf(reason, sizeof reason, "memory leaks and will end at %.100s", end);
		neap_session_request(train, "leak", reason,
				     (struct neap_event_request){.request = NEAP_TRAIN_RESTART,
								 .low_step = forecast->low_step,
								 .high_step = forecast->high_step});
		break;
	}
}

void neap_session_watch_leak(struct neap_train *train)
{
	uint64_t total = train->options.total_steps;

	uint64_t every = train->options.leak_watch_every_steps;
	if (train->low_count <= EARLY_STEPS && every > EARLY_EVERY)
		every = EARLY_EVERY;
	if (train->steps % every == 0)
		test_for_leak(train);
	if (!train->forecast.known || train->leak_acted || train->request != NEAP_TRAIN_GO_ON)
		return;
	uint64_t earliest = train->forecast.low_step;
	if ((!total || earliest < total) && step_after(train, train->options.leak_margin_steps) >= earliest)
		prevent(train);
}
