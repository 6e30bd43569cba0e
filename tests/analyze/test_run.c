/* One recording in numbers: facts, fluctuation and its cause, the curve. */
#include "analyze/run.h"
#include "recording.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>

/* A run of `steps`; each has `ticks` micro-batches that rise from 100 to 300 MiB in four blocks and fall again. */
static struct recording make_run(uint64_t steps, uint64_t ticks)
{
	struct recording recording = recording_begin();

	recording_split(&recording, 8, ticks);
	for (uint64_t step = 1; step <= steps; step++) {
		for (uint64_t tick = 0; tick < ticks; tick++) {
			for (uint64_t level = 100; level <= 300; level += 50)
				recording_level(&recording, level * NEAP_MIB, 320 * NEAP_MIB);
			for (uint64_t level = 250; level >= 100; level -= 50)
				recording_level(&recording, level * NEAP_MIB, 320 * NEAP_MIB);
		}
		recording_step(&recording, step, 100 * NEAP_MIB, 300 * NEAP_MIB, (uint32_t)ticks);
	}
	return recording;
}

static void test_process(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.process.role, NEAP_PROCESS_PLAIN);
	assert_true(facts.process.rank == UINT64_MAX && facts.process.parent == UINT64_MAX);
	assert_string_equal(facts.process.devices, "");
	static const char *const devices[] = {"GPU-1", "", "GPU-2", "GPU-1", "with space", "GPU-3"};
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		recording_add(&recording,
			      (struct neap_event){
				      .kind = NEAP_EVENT_PROCESS,
				      .process = {.device_uuid = recording_name(&recording, devices[i]),
						  .role = i == 5 ? NEAP_PROCESS_RANK : (uint32_t)i, /* hostile, too */
						  .rank = i,
						  .local_rank = 1,
						  .ranks = 8,
						  .parent = 99}});
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.process.role, NEAP_PROCESS_RANK);
	assert_int_equal(facts.process.rank, 5);
	assert_int_equal(facts.process.local_rank, 1);
	assert_int_equal(facts.process.ranks, 8);
	assert_int_equal(facts.process.parent, 99);
	assert_string_equal(facts.process.devices, "GPU-1 GPU-2 GPU-3");
	for (int i = 0; i < 20; i++) { /* more than there is room for */
		char name[40];
		snprintf(name, sizeof name, "GPU-%08d-123456789-123456789-12", i % 100);
		recording_add(&recording,
			      (struct neap_event){
				      .kind = NEAP_EVENT_PROCESS,
				      .process = {.device_uuid = recording_name(&recording, name), .role = 77}});
	}
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.process.role, NEAP_PROCESS_PLAIN);
	assert_int_equal(strlen(facts.process.devices), 17 + 4 * 36);
	recording_end(&recording);
}

/* If the ring has lost the allocations behind the page's peaks, the peaks still count, but are no level of the
 * curve. */
static void test_page(void **state)
{
	struct recording recording = recording_begin();
	struct neap_curve_point points[8];
	struct neap_run_facts facts;

	(void)state;
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_PAGE, .page = {.context_bytes = 9 * NEAP_MIB}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_ALLOC,
						      .allocation = {.held = {NEAP_MIB, 2 * NEAP_MIB}}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_PAGE,
						      .page = {.context_bytes = 9 * NEAP_MIB,
							       .peak_allocated_bytes = 30 * NEAP_MIB,
							       .peak_reserved_bytes = 40 * NEAP_MIB}});
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.peak_allocated_bytes, 30 * NEAP_MIB);
	assert_int_equal(facts.peak_reserved_bytes, 40 * NEAP_MIB);
	assert_int_equal(neap_run_curve(&recording.record, points, 8), 1);
	assert_int_equal(points[0].allocated_bytes, NEAP_MIB);
	recording_end(&recording);
}

/* A forecast is valid until a step beyond it was done: after a rung, or a restart in place, memory ends later or
 * never.
 */
static void test_forecast(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	recording_split(&recording, 8, 1);
	recording_step(&recording, 1, 0, NEAP_MIB, 1);
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_FORECAST,
						      .forecast = {.step = 5, .low_step = 4, .high_step = 6}});
	for (uint64_t step = 2; step <= 7; step++) {
		recording_step(&recording, step, 0, NEAP_MIB, 1);
		neap_run_facts(&recording.record, 0, &facts);
		assert_int_equal(facts.memory_ends_step, step <= 6 ? 5 : 0);
		assert_int_equal(facts.memory_ends_low_step, step <= 6 ? 4 : 0);
		assert_int_equal(facts.memory_ends_high_step, step <= 6 ? 6 : 0);
	}
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_FORECAST,
					  .forecast = {.step = 9, .low_step = 9, .high_step = UINT64_MAX}});
	recording_step(&recording, 12, 0, NEAP_MIB, 1);
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.memory_ends_step, 9);
	recording_end(&recording);
}

static void test_facts(void **state)
{
	struct recording recording = make_run(30, 4);
	struct neap_run_facts facts;

	(void)state;
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_METRIC,
					  .metric = {.name = recording_name(&recording, "loss"), .value = 1.25}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_METRIC,
						      .metric = {.name = recording_name(&recording, "other")}});
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_CLEANUP, .cleanup = {.freed_bytes = 70, .ns = 9}});
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_CLEANUP, .cleanup = {.freed_bytes = 30, .ns = 1}});
	recording_oom(&recording, &(struct recorded_oom){.request = 1, .reserved = 321, .others = 1 << 20});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.micro_batch = 4, .accumulate = 8},
							       .rung = NEAP_RUNG_SPLIT,
							       .micro_batch_before = 8,
							       .accumulate_before = 4}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
						      .rung = {.settings = {.rungs = 1u << NEAP_RUNG_CHECKPOINTING,
									    .micro_batch = 4,
									    .accumulate = 8},
							       .rung = NEAP_RUNG_CHECKPOINTING,
							       .micro_batch_before = 4,
							       .accumulate_before = 8}});
	recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG, .rung = {.rung = NEAP_RUNG_STOP}});
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.steps, 30);
	assert_int_equal(facts.ticks, 120);
	assert_int_equal(facts.ooms, 1);
	assert_int_equal(facts.rungs, 2);
	assert_int_equal(facts.first_rungs, 0);
	assert_int_equal(facts.last_rungs, 1u << NEAP_RUNG_CHECKPOINTING);
	assert_int_equal(facts.cleanups, 2);
	assert_int_equal(facts.cleanup_freed_bytes, 70); /* the second one freed what was allocated since the first */
	assert_int_equal(facts.cleanup_retaken_bytes, 30);
	assert_int_equal(facts.cleanup_ns, 10);
	assert_int_equal(facts.peak_allocated_bytes, 300 * NEAP_MIB);
	assert_int_equal(facts.peak_reserved_bytes, 321 * NEAP_MIB); /* without what others hold */
	assert_int_equal(facts.first_split.micro_batch, 8);
	assert_int_equal(facts.last_split.micro_batch, 4);
	assert_int_equal(facts.last_split.accumulate, 8);
	assert_int_equal(facts.last_split.ranks, 1);
	assert_true(facts.last_loss == 1.25);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_TOO_SHORT); /* since the split changed */
	recording_end(&recording);

	recording = recording_begin();
	neap_run_facts(&recording.record, 0, &facts);
	assert_true(isnan(facts.last_loss));
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_NONE);
	recording_end(&recording);
}

/* Allocates, or (below 0) frees, this many MiB. */
static void move_level(struct recording *recording, uint64_t *mib, int64_t by)
{
	uint64_t bytes = (uint64_t)(by < 0 ? -by : by) * NEAP_MIB;
	enum neap_event_kind kind = by < 0 ? NEAP_EVENT_FREE_REQUESTED : NEAP_EVENT_ALLOC;

	*mib += (uint64_t)by;
	recording_add(recording, neap_event_of_allocation(
					 kind, 0,
					 (struct neap_event_allocation){.held = {*mib * NEAP_MIB, 2000 * NEAP_MIB},
									.requested_bytes = bytes,
									.bytes = bytes}));
}

/* A program without a session whose gradients are larger than its activations: levels rise once a step, whatever its
 * micro-batches. */
static enum neap_fluctuation_cause cause_without_session(int micro_batches)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;
	uint64_t mib = 0;

	move_level(&recording, &mib, 300);
	for (uint64_t step = 1; step <= 25; step++) {
		for (int i = 0; i < micro_batches; i++) {
			for (int64_t layer = 1; layer <= 4; layer++)
				move_level(&recording, &mib, 10 * layer);
			move_level(&recording, &mib, 300);
			move_level(&recording, &mib, i == 0 ? -100 : -400); /* the gradients of the first one stay */
		}
		move_level(&recording, &mib, -300);
		recording_step(&recording, step, 300 * NEAP_MIB, (micro_batches > 1 ? 1000 : 700) * NEAP_MIB, 1);
	}
	neap_run_facts(&recording.record, 0, &facts);
	recording_end(&recording);
	return facts.fluctuation.cause;
}

static void test_rhythm(void **state)
{
	(void)state;
	assert_int_equal(cause_without_session(1), NEAP_FLUCTUATION_STEP);
	assert_int_equal(cause_without_session(2), NEAP_FLUCTUATION_ACCUMULATION);
	assert_int_equal(cause_without_session(6), NEAP_FLUCTUATION_ACCUMULATION);
}

static void test_fluctuation(void **state)
{
	struct neap_run_facts facts;
	struct recording recording = make_run(25, 4);

	(void)state;
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_ACCUMULATION);
	assert_true(facts.fluctuation.teeth_per_step == 4);
	assert_int_equal(facts.fluctuation.amplitude_bytes, 200 * NEAP_MIB);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_CLEAN);
	/* The ring has wrapped: the steps that it still holds whole show the same. */
	recording.record.allocations_lost = 500;
	memmove(recording.record.allocations, recording.record.allocations + 500,
		(recording.record.allocation_count -= 500) * sizeof *recording.record.allocations);
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_ACCUMULATION);
	assert_true(facts.fluctuation.teeth_per_step == 4);
	recording_end(&recording);

	recording = make_run(25, 1);
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_STEP);
	assert_true(facts.fluctuation.teeth_per_step == 1);
	/* The same teeth, four a step, but the steps had one micro-batch: something else causes them. */
	recording_end(&recording);
	recording = make_run(25, 4);
	for (size_t i = 0; i < recording.record.journal_count; i++)
		recording.record.journal[i].step.micro_batches = 1; /* all are steps */
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_OTHER);
	recording_end(&recording);

	recording = recording_begin(); /* 4 % of the peak */
	for (uint64_t step = 1; step <= 25; step++)
		recording_step(&recording, step, 960 * NEAP_MIB, 1000 * NEAP_MIB, 1);
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_NONE);
	recording_end(&recording);
}

static void test_leak(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (uint64_t step = 1; step <= 50; step++)
		recording_step(&recording, step, (100 + step) * NEAP_MIB, (300 + step) * NEAP_MIB, 1);
	neap_run_facts(&recording.record, 450 * NEAP_MIB, &facts);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_FOUND);
	assert_true(fabs(facts.leak.bytes_per_step - (double)NEAP_MIB) < 1);
	assert_int_equal(facts.leak.steps_until_full, 100); /* 450 less the last step's peak of 350 */
	recording_end(&recording);
}

/* Programs without sessions: steps whose numbers restart at 1 belong to another training, with its own floor. */
static void test_trainings_in_one_process(void **state)
{
	static const uint64_t leaks[] = {0, 32, 0}; /* MiB a step */
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (size_t training = 0; training < 3; training++)
		for (uint64_t step = training < 2 ? 1 : 2; step <= 60;
		     step += 1 + step % 2) /* finally a joined mark */
			recording_step(&recording, step, (1000 * (3 - training) + leaks[training] * step) * NEAP_MIB,
				       NEAP_GIB, 1);
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_FOUND);
	assert_true(fabs(facts.leak.bytes_per_step - 32.0 * NEAP_MIB) < 1);
	assert_int_equal(facts.steps, 59 + 59 + 58);
	for (size_t i = 0; i < recording.record.journal_count; i++)
		recording.record.journal[i].step.lowest_bytes =
			(i < 60 ? i / 30 : 2) * NEAP_GIB; /* each begins higher */
	neap_run_facts(&recording.record, 0, &facts);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_CLEAN);
	recording_end(&recording);
}

static void assert_curve(const struct neap_curve_point *points, size_t count)
{
	for (size_t i = 1; i < count; i++)
		assert_true(points[i].time_ns >= points[i - 1].time_ns);
}

static void test_curve(void **state)
{
	static struct neap_curve_point points[20000];
	struct recording recording = make_run(100, 4);
	uint64_t highest = 0, lowest = UINT64_MAX;

	(void)state;
	/* Everything fits: every event is a point. */
	size_t count = neap_run_curve(&recording.record, points, 20000);
	assert_int_equal(count, recording.record.allocation_count + recording.record.journal_count);
	assert_int_equal(points[0].time_ns, 0);
	assert_curve(points, count);
	/* It does not fit: extremes are kept, but there is one tooth too many to keep them all. */
	recording.record.allocations[1777].held.allocated_bytes = 999 * NEAP_MIB;
	recording.record.allocations[2345].held.allocated_bytes = 1;
	count = neap_run_curve(&recording.record, points, 100);
	assert_true(count > 90 && count <= 100);
	assert_curve(points, count);
	for (size_t i = 0; i < count; i++) {
		highest = points[i].allocated_bytes > highest ? points[i].allocated_bytes : highest;
		lowest = i > 0 && points[i].allocated_bytes < lowest ? points[i].allocated_bytes : lowest;
	}
	assert_int_equal(highest, 999 * NEAP_MIB);
	assert_true(lowest <= 1);
	assert_int_equal(neap_run_curve(&recording.record, points, 1), 0);
	assert_int_equal(neap_run_curve(&recording.record, points, 0), 0);
	recording_end(&recording);

	/* The ring has wrapped: for the time before it, each step gives its peak and its lowest. */
	recording = make_run(10, 1);
	recording.record.allocations_lost = 45;
	memmove(recording.record.allocations, recording.record.allocations + 45,
		(recording.record.allocation_count -= 45) * sizeof *recording.record.allocations);
	count = neap_run_curve(&recording.record, points, 1000);
	assert_curve(points, count);
	assert_int_equal(count, 45 + 11 + 2 * 5); /* ring, journal, five steps before the ring */
	assert_int_equal(points[1].allocated_bytes, 300 * NEAP_MIB);
	assert_int_equal(points[2].allocated_bytes, 100 * NEAP_MIB);
	recording_end(&recording);
}

static double slope_of(const struct recording *recording, struct neap_run_facts *facts)
{
	neap_run_facts(&recording->record, NEAP_GIB, facts);
	return facts->leak.verdict == NEAP_LEAK_FOUND ? facts->leak.bytes_per_step : 0;
}

/* The same bytes, given back again and again, are counted once. */
static void test_taken_again(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (int i = 0; i < 9; i++)
		for (uint16_t device = 0; device < 2; device++) {
			recording_add(&recording,
				      (struct neap_event){
					      .kind = NEAP_EVENT_CLEANUP,
					      .cleanup = {.held = {.reserved_bytes =
									   (uint64_t)(device ? 200 - 12 * i : 20) *
									   NEAP_MIB},
							  .freed_bytes = 12 * NEAP_MIB}});
			recording_on(&recording, device);
		}
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.cleanups, 18);
	assert_int_equal(facts.cleanup_freed_bytes, (12 + 9 * 12) * NEAP_MIB); /* the second device's were lost */
	assert_int_equal(facts.cleanup_retaken_bytes, 8 * 12 * NEAP_MIB);
	recording_end(&recording);
}

/* Two devices train side by side and only one leaks: its steps are counted once, and its slope is complete. */
static void test_two_devices(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (uint16_t device = 0; device < 2; device++) {
		recording_split(&recording, device ? 4 : 8, 1);
		recording_on(&recording, device);
	}
	for (uint64_t step = 1; step <= 120; step++)
		for (uint16_t device = 0; device < 2; device++) {
			uint64_t low = device ? (10 + step) * NEAP_MIB : 400 * NEAP_MIB;
			recording_step(&recording, step, low, low + 50 * NEAP_MIB, 1);
			recording_on(&recording, device);
			if (step == 100 && !device) /* a rung of this device is none of the leaking one's */
				recording_add(&recording, (struct neap_event){.kind = NEAP_EVENT_RUNG,
									      .rung = {.settings = {.micro_batch = 4,
												    .accumulate = 2},
										       .rung = NEAP_RUNG_SPLIT}});
		}
	assert_true(fabs(slope_of(&recording, &facts) - (double)NEAP_MIB) < 0.01 * (double)NEAP_MIB);
	assert_int_equal(facts.leak.steps + facts.leak.warm_up_steps, 120);
	assert_int_equal(facts.steps, 120);
	assert_int_equal(facts.ticks, 120);
	assert_int_equal(facts.first_split.micro_batch, 8); /* the first of equals, not the last that was recorded */
	assert_int_equal(facts.peak_allocated_bytes, 450 * NEAP_MIB);
	assert_int_equal(facts.fluctuation.amplitude_bytes, 50 * NEAP_MIB);
	assert_int_equal(facts.rungs, 1);
	recording_end(&recording);
}

/* Without an event for a session's start, steps with the same numbers still belong to two devices. */
static void test_devices_unannounced(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (uint64_t step = 1; step <= 40; step++)
		for (uint16_t device = 0; device < 2; device++) {
			recording_step(&recording, step, 10 * NEAP_MIB, 200 * NEAP_MIB, 1);
			recording_on(&recording, device);
		}
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.steps, 40);
	recording_end(&recording);
}

/* Two sessions on one device, step by step: each has its own steps. */
static void test_two_sessions(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	recording_split(&recording, 8, 1);
	recording_split(&recording, 8, 1);
	for (uint64_t step = 1; step <= 120; step++)
		for (int session = 0; session < 2; session++)
			recording_step(&recording, step, (10 + step) * NEAP_MIB, 200 * NEAP_MIB, 1);
	assert_true(fabs(slope_of(&recording, &facts) - (double)NEAP_MIB) < 0.01 * (double)NEAP_MIB);
	assert_int_equal(facts.steps, 120);
	recording_end(&recording);
}

/* Sessions one after another, such as trials: they add up, even if one did not record its end. */
static void test_sessions_in_turn(void **state)
{
	struct recording recording = recording_begin();
	struct neap_run_facts facts;

	(void)state;
	for (int session = 0; session < 3; session++) {
		recording_split(&recording, 8, 1);
		for (uint64_t step = 1; step <= 40; step++)
			recording_step(&recording, step, 10 * NEAP_MIB, 200 * NEAP_MIB, 1);
	}
	assert_true(slope_of(&recording, &facts) == 0);
	assert_int_equal(facts.steps, 120);
	/* A longer session passes the step number at which the earlier ones ended. */
	recording_split(&recording, 8, 1);
	for (uint64_t step = 1; step <= 60; step++)
		recording_step(&recording, step, 10 * NEAP_MIB, 200 * NEAP_MIB, 1);
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.steps, 180);
	/* A session that continues from a checkpoint. */
	recording_split(&recording, 8, 1);
	for (uint64_t step = 1001; step <= 1020; step++)
		recording_step(&recording, step, 10 * NEAP_MIB, 200 * NEAP_MIB, 1);
	neap_run_facts(&recording.record, NEAP_GIB, &facts);
	assert_int_equal(facts.steps, 200);
	recording_end(&recording);
}

/* The curve belongs to one device, and so does the request. */
static void test_devices_apart(void **state)
{
	struct recording recording = recording_begin();
	struct neap_curve_point points[64];

	(void)state;
	for (uint64_t i = 1; i <= 10; i++)
		for (uint16_t device = 0; device < 2; device++) {
			recording_level(&recording, (device ? 100 + i : i) * NEAP_MIB, 200 * NEAP_MIB);
			recording_on(&recording, device);
		}
	size_t count = neap_run_curve(&recording.record, points, 64);
	assert_int_equal(count, 10);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(points[i].allocated_bytes, (101 + i) * NEAP_MIB);
	recording_add(&recording,
		      (struct neap_event){.kind = NEAP_EVENT_REQUEST, .request = {.request = NEAP_TRAIN_STOP}});
	recording_on(&recording, 1);
	recording_step(&recording, 1, 1, 2, 1);
	assert_non_null(neap_run_request(&recording.record));
	recording_step(&recording, 1, 1, 2, 1);
	recording_on(&recording, 1);
	assert_null(neap_run_request(&recording.record));
	recording_end(&recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_devices),   cmocka_unit_test(test_devices_unannounced),
		cmocka_unit_test(test_two_sessions),  cmocka_unit_test(test_sessions_in_turn),
		cmocka_unit_test(test_devices_apart), cmocka_unit_test(test_taken_again),
		cmocka_unit_test(test_process),       cmocka_unit_test(test_page),
		cmocka_unit_test(test_forecast),      cmocka_unit_test(test_facts),
		cmocka_unit_test(test_fluctuation),   cmocka_unit_test(test_rhythm),
		cmocka_unit_test(test_leak),          cmocka_unit_test(test_trainings_in_one_process),
		cmocka_unit_test(test_curve)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
