/* The session over the simulator: its exact lines, its schedule, the ladder, the leak watch, and what its recording
 * shows afterwards. */
#include "analyze/oom.h"
#include "analyze/run.h"
#include "session_test.h"

#include <math.h>

static bool every_stream(void *context, void *stream)
{
	(void)context;
	(void)stream;
	return true;
}

static void test_clear_lines(void **state)
{
	uint64_t freed = 0;

	(void)state;
	uint64_t kept = take(&world, 20 * NEAP_MIB, NULL);
	give(&world, take(&world, 100 * NEAP_MIB, NULL));
	assert_int_equal(neap_clear(world.alloc, &sink, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 100 * NEAP_MIB);
	assert_int_equal(lines.count, 8);
	assert_string_equal(lines.text[0], "Cleaning up CUDA memory...");
	assert_string_equal(lines.text[1], "Clearing CUDA cache...");
	assert_string_equal(lines.text[2], "CUDA memory stats after cleanup: allocated=0.02GB, max_allocated=0.12GB, "
					   "reserved=0.02GB, max_reserved=0.12GB");
	assert_string_equal(lines.text[3], "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	assert_string_equal(lines.text[4], "NVIDIA-SMI report:");
	assert_string_equal(lines.text[5], "memory.used [MiB], memory.free [MiB]");
	assert_string_equal(lines.text[6], "28, 228");
	assert_memory_equal(lines.text[7], "Cleanup gave back 100 MiB in ", 29);
	const struct neap_event *event = event_find(&world.events, NEAP_EVENT_CLEANUP, 0);
	assert_non_null(event);
	assert_int_equal(event->cleanup.freed_bytes, 100 * NEAP_MIB);
	assert_int_equal(event->cleanup.reason, NEAP_CLEANUP_REQUEST);
	assert_true(event->cleanup.ns > 0);
	assert_int_equal(neap_clear(world.alloc, NULL, NULL, NULL), NEAP_OK); /* silent */
	assert_int_equal(lines.count, 8);
	give(&world, kept);
}

/* A failure is reported, and is not counted as a cleanup. */
static void test_clear_fails(void **state)
{
	uint64_t freed = 77;
	struct neap_error err = {0};

	(void)state;
	give(&world, take(&world, 32 * NEAP_MIB, NULL));
	world.sim->fault("cuMemGetInfo_v2", 0, 0, CUDA_ERROR_UNKNOWN);
	assert_int_equal(neap_clear(world.alloc, &sink, &freed, &err), NEAP_OK);
	world.sim->fault(NULL, 0, 0, 0);
	assert_int_equal(freed, 32 * NEAP_MIB);
	assert_int_equal(lines_with("NVIDIA-SMI report:"), 1); /* it is NVML that is asked */
	assert_int_equal(lines_with("Cleanup gave back 32.0 MiB in "), 1);

	/* During a graph capture nothing may be given back. */
	lines.count = 0;
	freed = 77;
	assert_int_equal(neap_pool_begin(world.alloc, 1, 2, every_stream, NULL, &err), NEAP_OK);
	assert_int_equal(neap_clear(world.alloc, &sink, &freed, &err), NEAP_ESTATE);
	assert_int_equal(neap_pool_end(world.alloc, 1, 2), NEAP_OK);
	assert_int_equal(freed, 77);
	assert_int_equal(lines.count, 3);
	assert_memory_equal(lines.text[2], "The cache was not emptied: ", 27);
	assert_int_equal(lines.level[2], NEAP_LOG_WARNING);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, UINT64_MAX), 1);
	neap_pool_release(world.alloc, 1, 2);
}

/* Two epochs of six steps of two ticks, a save at the end of each. */
static void run_schedule(struct neap_train_options options, struct neap_train_summary *ret_summary)
{
	struct neap_train *train = begin(options);

	neap_train_mark(train, NEAP_MARK_MODEL_READY, 0);
	for (uint64_t epoch = 1; epoch <= 2; epoch++) {
		for (int step = 0; step < 6; step++) {
			neap_train_tick(train);
			neap_train_tick(train);
			neap_train_step(train, NAN);
		}
		neap_train_mark(train, NEAP_MARK_SAVED, epoch * 6);
		neap_train_mark(train, NEAP_MARK_EPOCH_END, epoch);
	}
	neap_train_end(train, ret_summary);
}

static void test_schedule(void **state)
{
	static const struct {
		struct neap_train_options options;
		size_t count[NEAP_CLEANUP_REQUEST + 1]; /* by reason */
	} cases[] = {
		{{0}, {0}},
		{{.clear_memory_on_start = true}, {[NEAP_CLEANUP_START] = 1}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_START}, {[NEAP_CLEANUP_START] = 1}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_END}, {[NEAP_CLEANUP_END] = 1}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_FAILURE}, {0}}, /* it did not fail */
		{{.cleanup_points = 1u << NEAP_CLEANUP_SAVED}, {[NEAP_CLEANUP_SAVED] = 2}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_EPOCH}, {[NEAP_CLEANUP_EPOCH] = 2}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_EVERY_STEP}, {[NEAP_CLEANUP_EVERY_STEP] = 12}},
		{{.cleanup_every_steps = 5}, {[NEAP_CLEANUP_PERIODIC] = 2}},
		{{.cleanup_every_epochs = 2}, {[NEAP_CLEANUP_PERIODIC] = 1}},
		{{.cleanup_every_ticks = 7}, {[NEAP_CLEANUP_PERIODIC] = 3}},
		{{.cleanup_points = 1u << NEAP_CLEANUP_PERIODIC, .cleanup_every_ticks = 24},
		 {[NEAP_CLEANUP_PERIODIC] = 1}},
		/* Two reasons at one moment: one cleanup. */
		{{.cleanup_points = 1u << NEAP_CLEANUP_EPOCH, .cleanup_every_epochs = 1}, {[NEAP_CLEANUP_EPOCH] = 2}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_train_summary summary;
		size_t all = 0;
		world.events.count = 0;
		lines.count = 0;
		run_schedule(cases[i].options, &summary);
		for (int reason = 0; reason <= NEAP_CLEANUP_REQUEST; reason++) {
			if (events_of(NEAP_EVENT_CLEANUP, (uint64_t)reason) != cases[i].count[reason])
				fail_msg("case %zu, reason %d", i, reason);
			all += cases[i].count[reason];
		}
		assert_int_equal(summary.cleanups, all);
		assert_int_equal(lines_with("Cleaning up CUDA memory..."), all);
		assert_int_equal(lines_with("they only slow training"), all >= 3 ? 1 : 0); /* nothing was cached */
		assert_int_equal(summary.steps, 12);
		assert_int_equal(summary.ticks, 24);
	}
}

/* The line begins with `text`, and ends with the host's bytes and their change. Returns the change in GB. */
static double assert_mark(size_t line, const char *begin)
{
	double host, change;
	int end = 0;

	assert_memory_equal(lines.text[line], begin, strlen(begin));
	assert_int_equal(sscanf(lines.text[line] + strlen(begin), "%lf GB (\u0394%lf GB)%n", &host, &change, &end),
			 2);
	assert_int_equal(lines.text[line][strlen(begin) + (size_t)end], '\0');
	return change;
}

static void test_marks_and_steps(void **state)
{

	(void)state;
	give(&world, take(&world, 200 * NEAP_MIB, NULL)); /* before the session: not step 1's */
	neap_clear(world.alloc, NULL, NULL, NULL);
	struct neap_train *train = begin((struct neap_train_options){.name = "charlm", .mark_every_steps = 2});
	uint64_t model = take(&world, 16 * NEAP_MIB, NULL);
	char *held = malloc(256 << 20);
	assert_non_null(held);
	memset(held, 1, 256 << 20);
	neap_train_mark(train, NEAP_MARK_MODEL_READY, 0);
	free(held);
	for (int step = 1; step <= 3; step++) {
		uint64_t activations = take(&world, (uint64_t)step * 32 * NEAP_MIB, NULL);
		neap_train_tick(train);
		give(&world, activations);
		neap_train_step(train, step == 2 ? NAN : 4.5 - step);
	}
	neap_train_metric(train, "accuracy", 0.75);
	neap_train_end(train, NULL);
	assert_mark(0, "charlm: start: GPU memory: 0.0 GB allocated, 0.0 GB cached (\u0394+0.0 GB, \u0394+0.0 GB); "
		       "host memory: ");
	assert_true(assert_mark(1, "charlm: model on device: GPU memory: 0.0 GB allocated, 0.0 GB cached (\u0394+0.0 "
				   "GB, \u0394+0.0 GB); host memory: ") >= 0.2);
	assert_mark(2, "charlm: step 2: GPU memory: 0.0 GB allocated, 0.1 GB cached (\u0394+0.0 GB, \u0394+0.1 GB); "
		       "host memory: ");
	assert_mark(3, "charlm: end 3: GPU memory: 0.0 GB allocated, 0.1 GB cached (\u0394+0.0 GB, \u0394+0.0 GB); "
		       "host memory: ");
	const struct neap_event *split = event_find(&world.events, NEAP_EVENT_SPLIT, 0);
	assert_int_equal(split->split.settings.micro_batch, 8);
	assert_int_equal(split->split.settings.accumulate, 1);
	assert_int_equal(split->split.ranks, 1);
	for (size_t i = 0; i < 3; i++) {
		const struct neap_event_step *step =
			neap_event_as_step(event_find(&world.events, NEAP_EVENT_STEP, i));
		assert_int_equal(step->number, i + 1);
		assert_int_equal(step->peak_bytes, (16 + 32 * (i + 1)) * NEAP_MIB);
		/* step 1 includes the model's creation */
		assert_int_equal(step->lowest_bytes, i == 0 ? 0 : 16 * NEAP_MIB);
		assert_int_equal(step->micro_batches, 1);
	}
	assert_int_equal(events_of(NEAP_EVENT_METRIC, UINT64_MAX), 3); /* no loss in step 2 */
	const struct neap_event *metric_event = event_find(&world.events, NEAP_EVENT_METRIC, 1);
	assert_true(metric_event->metric.value == 1.5);
	assert_string_equal(world.events.names[metric_event->metric.name], "loss");
	assert_int_equal(events_of(NEAP_EVENT_MARK, UINT64_MAX), 4);
	give(&world, model);
}

/* One step whose activations take 2 MiB a sample. */
static enum neap_status try_step(struct neap_train *train, struct neap_error *err)
{
	struct neap_train_settings now;

	neap_train_settings(train, &now);
	const char *before = neap_tag_set("activations");
	for (uint64_t i = 0; i < now.split.accumulate; i++) {
		uint64_t address = 0;
		enum neap_status status =
			neap_malloc(world.alloc, now.split.micro_batch * 2 * NEAP_MIB, NULL, &address, err);
		if (status) {
			neap_tag_set(before);
			return status;
		}
		neap_free(world.alloc, address);
		neap_train_tick(train);
	}
	neap_tag_set(before);
	neap_train_step(train, 1);
	return NEAP_OK;
}

static void test_recover(void **state)
{
	struct neap_train *train =
		begin((struct neap_train_options){.split = {.micro_batch = 384, .accumulate = 1, .ranks = 3}});
	struct neap_train_summary summary;
	struct neap_error err = {0};
	struct neap_train_settings now;
	int tries = 0;

	(void)state;
	/* 768 MiB on a device of 256, then 384, then 192. */
	while (try_step(train, &err) == NEAP_EOOM) {
		assert_int_equal(neap_train_recover(train, &err), NEAP_OK);
		assert_true(++tries < 5);
	}
	neap_train_settings(train, &now);
	assert_int_equal(tries, 2);
	assert_int_equal(now.split.micro_batch, 96);
	assert_int_equal(now.split.accumulate, 4);
	assert_int_equal(now.split.ranks, 3);
	assert_int_equal(
		lines_with("training: out of GPU memory in step 1, micro-batch 1 of 1, with micro-batch 384 x "
			   "accumulation 1 x ranks 3"),
		1);
	assert_int_equal(
		lines_with("training: going on with micro-batch 192 -> 96, accumulation 2 -> 4 (effective batch "
			   "stays 1152)"),
		1);
	assert_int_equal(events_of(NEAP_EVENT_RUNG, NEAP_RUNG_SPLIT), 2);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_OOM), 2);
	assert_int_equal(events_of(NEAP_EVENT_OOM, UINT64_MAX), 2);
	const struct neap_event *rung = event_find(&world.events, NEAP_EVENT_RUNG, 1);
	assert_int_equal(rung->rung.settings.micro_batch, 96);
	assert_int_equal(rung->rung.settings.accumulate, 4);
	assert_int_equal(rung->rung.micro_batch_before, 192);
	assert_int_equal(rung->rung.accumulate_before, 2);
	const struct neap_event *step = event_find(&world.events, NEAP_EVENT_STEP, 0);
	assert_int_equal(step->step.micro_batches, 4);
	neap_train_end(train, &summary);
	assert_int_equal(summary.ooms, 2);
	assert_int_equal(summary.rungs, 2);
	assert_int_equal(summary.cleanups, 2);
	assert_int_equal(summary.split.micro_batch, 96);
	assert_int_equal(summary.peak_allocated_bytes, 192 * NEAP_MIB);
	assert_int_equal(lines_with("by tag, now and at its peak"), 2);
}

/* A step of 5 samples in 3 + 2: the events show it to readers that ask what a micro-batch took. */
static void test_unequal_parts(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 5}});
	struct neap_train_settings now;

	(void)state;
	assert_int_equal(event_find(&world.events, NEAP_EVENT_SPLIT, 0)->split.settings.smaller_parts, 0);
	assert_int_equal(neap_train_recover(train, NULL), NEAP_OK);
	assert_int_equal(
		lines_with("training: going on with micro-batch 5 -> 3, accumulation 1 -> 2 (effective batch "
			   "stays 5: 1 x 3 + 1 x 2)"),
		1);
	assert_int_equal(event_find(&world.events, NEAP_EVENT_RUNG, 0)->rung.settings.smaller_parts, 1);
	neap_train_settings(train, &now);
	assert_int_equal(now.split.batch, 5);
	for (size_t step = 0; step < 2; step++) {
		assert_int_equal(events_of(NEAP_EVENT_SMALLER_PARTS, UINT64_MAX), step);
		neap_train_tick(train); /* the part of 3 */
		assert_int_equal(events_of(NEAP_EVENT_SMALLER_PARTS, UINT64_MAX), step + 1);
		neap_train_tick(train);
		neap_train_step(train, NAN);
	}
	assert_int_equal(events_of(NEAP_EVENT_SMALLER_PARTS, UINT64_MAX), 2);
	assert_int_equal(event_find(&world.events, NEAP_EVENT_SMALLER_PARTS, 0)->smaller_parts.count, 1);
	assert_int_equal(neap_train_recover(train, NULL), NEAP_OK);
	assert_int_equal(neap_train_recover(train, NULL), NEAP_OK);
	assert_int_equal(lines_with("with micro-batch 3 x accumulation 2 (1 x 3 + 1 x 2) x ranks 1"), 1);
	neap_train_settings(train, &now);
	assert_int_equal(now.split.micro_batch, 1);
	assert_int_equal(now.split.accumulate, 5);
	neap_train_end(train, NULL);
}

static void test_ladder_ends(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){
		.split = {.micro_batch = 2}, .cleanup_points = 1u << NEAP_CLEANUP_FAILURE | 1u << NEAP_CLEANUP_END});
	struct neap_error err = {0};

	(void)state;
	assert_int_equal(neap_train_recover(train, &err), NEAP_OK);
	assert_int_equal(neap_train_recover(train, &err), NEAP_EOOM);
	assert_int_equal(err.status, NEAP_EOOM);
	assert_non_null(strstr(err.message, "micro-batch 1 x accumulation 2: the ladder is at its end (not offered: "
					    "memory-efficient attention, mixed precision, gradient "
					    "checkpointing). A smaller model"));
	assert_int_equal(neap_train_recover(train, NULL), NEAP_EOOM); /* and stays so */
	assert_int_equal(lines_with("training: giving up: out of GPU memory in step 1"), 2);
	assert_int_equal(events_of(NEAP_EVENT_RUNG, NEAP_RUNG_STOP), 2);
	neap_train_end(train, NULL);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_FAILURE), 1);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_END), 0);

	train = begin((struct neap_train_options){.split = {.micro_batch = 2}, .no_ladder = true});
	assert_int_equal(neap_train_recover(train, &err), NEAP_EOOM);
	struct neap_train_settings now;
	neap_train_settings(train, &now);
	assert_int_equal(now.split.micro_batch, 2);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_OOM), 4);
	neap_train_end(train, NULL);
}

/* All the rungs, each reported; those in force from the start are not taken again. */
static void test_every_rung(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 2},
								     .rungs_offered = NEAP_RUNGS_OFFERABLE,
								     .rungs_active = 1u << NEAP_RUNG_MIXED_PRECISION,
								     .layers = 12});
	struct neap_train_settings now;
	struct neap_train_summary summary;
	struct neap_error err = {0};

	(void)state;
	const struct neap_event *settings = event_find(&world.events, NEAP_EVENT_SPLIT, 0);
	assert_int_equal(settings->split.settings.rungs, 1u << NEAP_RUNG_MIXED_PRECISION);
	assert_int_equal(settings->split.layers, 12);
	for (int rung = 0; rung < 3; rung++)
		assert_int_equal(neap_train_recover(train, &err), NEAP_OK);
	neap_train_settings(train, &now);
	assert_int_equal(now.split.micro_batch, 1);
	assert_int_equal(now.rungs, NEAP_RUNGS_SWITCHED);
	assert_int_equal(lines_with("training: going on with memory-efficient attention"), 1);
	assert_int_equal(lines_with("training: going on with gradient checkpointing"), 1);
	assert_int_equal(lines_with("training: going on with mixed precision"), 0);
	const struct neap_event *last = event_find(&world.events, NEAP_EVENT_RUNG, 2);
	assert_int_equal(last->rung.rung, NEAP_RUNG_CHECKPOINTING);
	assert_int_equal(last->rung.settings.rungs, NEAP_RUNGS_SWITCHED);
	assert_int_equal(neap_train_recover(train, &err), NEAP_EOOM);
	assert_non_null(strstr(err.message, "accumulation 2, memory-efficient attention, mixed precision, gradient "
					    "checkpointing: the ladder is at its end. A smaller model"));
	neap_train_end(train, &summary);
	assert_int_equal(summary.rungs, 3);
	assert_int_equal(summary.rungs_active, NEAP_RUNGS_SWITCHED);
}

/* Every tag that holds memory is in the log of an out-of-memory error, however many there are. */
static void test_all_tags_are_reported(void **state)
{
	static char names[NEAP_TAGS_MAX + 3][16];

	(void)state;
	take(&world, 1000, NULL);
	for (size_t i = 0; i < NEAP_TAGS_MAX + 3; i++) {
		snprintf(names[i], sizeof names[i], "tag %zu", i);
		const char *before = neap_tag_set(names[i]);
		take(&world, 1000, NULL);
		neap_tag_set(before);
	}
	struct neap_train *train = begin((struct neap_train_options){0});
	assert_int_equal(neap_train_recover(train, NULL), NEAP_OK);
	assert_int_equal(lines_with("  untagged: "), 1);
	assert_int_equal(lines_with("  tag "), NEAP_TAGS_MAX);
	assert_int_equal(lines_with("  other: 3.00 KiB in 3 blocks"), 1);
	neap_train_end(train, NULL);
}

static void test_refused_options(void **state)
{
	static const struct neap_train_options refused[] = {
		{0},
		{.split = {.micro_batch = 1}, .rungs_offered = 1u << NEAP_RUNG_STOP},
		{.split = {.micro_batch = 1}, .rungs_active = 1u << NEAP_RUNG_SPLIT},
		{.split = {.micro_batch = 1}, .cleanup_points = 2u << NEAP_CLEANUP_LEAK},
		{.split = {.micro_batch = 1}, .device = {.warn_bytes = 1, .degrade_bytes = 2}},
		{.split = {.micro_batch = 1}, .host = {.degrade_bytes = 1, .stop_bytes = 2}},
		{.split = {.micro_batch = 1}, .device = {.warn_bytes = 1, .stop_bytes = 2}},
		{.split = {.micro_batch = 1}, .on_leak = (enum neap_on_leak)3},
		{.split = {.micro_batch = 1}, .cleanup_points = 1u << NEAP_CLEANUP_PERIODIC},
	};

	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		struct neap_train *train = (struct neap_train *)0x1;
		struct neap_error err = {0};
		assert_int_equal(neap_train_begin(world.alloc, &refused[i], &train, &err), NEAP_EINVAL);
		assert_ptr_equal(train, (struct neap_train *)0x1);
		assert_true(err.message[0] != '\0');
	}
	struct neap_train_summary summary = {.steps = 5};
	neap_train_end(NULL, &summary);
	assert_int_equal(summary.steps, 0);
}

/* `leak` bytes stay behind after each step; the teeth of a step are far larger. */
static struct neap_train_summary run_steps(uint64_t steps, uint64_t leak, uint64_t total_steps)
{
	struct neap_train *train = begin((struct neap_train_options){.total_steps = total_steps});
	struct neap_train_summary summary;
	uint64_t model = take(&world, 32 * NEAP_MIB, NULL), left[200];
	uint64_t seed = 0x1eaf;

	for (uint64_t step = 0; step < steps; step++) {
		uint64_t batch = take(&world, (1 + random_next(&seed) % 8) * NEAP_MIB, NULL);
		give(&world, take(&world, 64 * NEAP_MIB, NULL));
		if (leak)
			left[step] = take(&world, leak, NULL);
		give(&world, batch);
		neap_train_step(train, NAN);
	}
	for (uint64_t step = 0; step < steps && leak; step++)
		give(&world, left[step]);
	give(&world, model);
	neap_train_end(train, &summary);
	return summary;
}

static void test_leak_watch(void **state)
{
	struct neap_train_summary summary = run_steps(60, NEAP_MIB, 1000);

	(void)state;
	assert_int_equal(lines_with("training: memory grows by 1.00 MiB per step (confidence 99.99 %, over "), 1);
	assert_int_equal(lines_with("memory will end at step 1"),
			 1); /* 256 - 8 - 32 - 64 and the batch, at 1 a step */
	assert_int_equal(events_of(NEAP_EVENT_LEAK, UINT64_MAX), 1);
	const struct neap_event *leak = event_find(&world.events, NEAP_EVENT_LEAK, 0);
	assert_true(fabs((double)leak->leak.bytes_per_step - (double)NEAP_MIB) < 0.02 * (double)NEAP_MIB);
	assert_true(leak->leak.confidence_permille == 999);
	assert_true(fabs(summary.leak_bytes_per_step - (double)NEAP_MIB) < 0.02 * (double)NEAP_MIB);
	assert_true(summary.leak_confidence > 0.999);

	lines.count = world.events.count = 0;
	summary = run_steps(60, 0, 1000);
	assert_int_equal(events_of(NEAP_EVENT_LEAK, UINT64_MAX), 0);
	assert_int_equal(lines_with("memory grows"), 0);
	assert_true(summary.leak_bytes_per_step == 0);

	lines.count = world.events.count = 0;
	run_steps(60, NEAP_MIB, 70); /* the run will end before memory does */
	assert_int_equal(lines_with("enough memory is left for all 70 steps"), 1);
}

static void test_scope(void **state)
{
	struct neap_scope scope;

	(void)state;
	give(&world, take(&world, 180 * NEAP_MIB, NULL)); /* an earlier peak, now cached */
	neap_clear(world.alloc, NULL, NULL, NULL);
	neap_scope_begin(&scope, world.alloc, &sink, "load model");
	uint64_t model = take(&world, 120 * NEAP_MIB, NULL);
	neap_scope_end(&scope);
	neap_scope_end(&scope); /* nothing more */
	assert_int_equal(lines.count, 2);
	assert_memory_equal(lines.text[0], "load model: Memory usage: 0.", 28);
	assert_non_null(strstr(lines.text[0], " GB (\u0394+0.0 GB)"));
	assert_string_equal(lines.text[1],
			    "GPU memory: 0.1 GB allocated, 0.0 GB cached (\u0394+0.1 GB, \u0394+0.0 GB)");
	const struct neap_event *end = event_find(&world.events, NEAP_EVENT_SCOPE_END, 0);
	assert_string_equal(world.events.names[end->scope.name], "load model");
	assert_int_equal(end->scope.peak_bytes, 120 * NEAP_MIB);
	assert_int_equal(events_of(NEAP_EVENT_SCOPE_BEGIN, UINT64_MAX), 1);
	give(&world, model);
}

/* The complete path: allocator and session into a recorder's file, and what the parent reads from it. */
static void test_recorded(void **state)
{
	char folder[] = "/tmp/neap-session-XXXXXX", path[64];
	struct neap_recorder *recorder = NULL;
	struct neap_record record;
	struct neap_run_facts facts;
	struct neap_oom_card card;
	struct neap_error err = {0};

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/record", folder);
	assert_int_equal(neap_recorder_create(path, 0, 0, &recorder, &err), NEAP_OK);
	neap_observe(world.alloc, neap_recorder_observer(recorder));
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 128}});
	const char *before = neap_tag_set("parameters");
	uint64_t model = take(&world, 40 * NEAP_MIB, NULL);
	neap_tag_set(before);
	for (int step = 0; step < 30; step++)
		while (try_step(train, &err) == NEAP_EOOM)
			assert_int_equal(neap_train_recover(train, &err), NEAP_OK);
	neap_train_end(train, NULL);
	give(&world, model);
	neap_observe(world.alloc, NULL);
	neap_recorder_destroy(recorder);

	assert_int_equal(neap_record_read(path, &record, &err), NEAP_OK);
	neap_run_facts(&record, 256 * NEAP_MIB, &facts);
	assert_int_equal(facts.steps, 30);
	assert_int_equal(facts.ticks, 60);
	assert_int_equal(facts.ooms, 1);
	assert_int_equal(facts.rungs, 1);
	assert_int_equal(facts.first_split.micro_batch, 128);
	assert_int_equal(facts.last_split.micro_batch, 64);
	assert_int_equal(facts.last_split.accumulate, 2);
	assert_int_equal(facts.peak_allocated_bytes, 168 * NEAP_MIB);
	assert_int_equal(facts.fluctuation.cause, NEAP_FLUCTUATION_ACCUMULATION);
	assert_int_equal(facts.leak.verdict, NEAP_LEAK_CLEAN);
	assert_true(facts.last_loss == 1);
	assert_int_equal(neap_oom_count(&record), 1);
	assert_int_equal(neap_oom_card(&record, 0, &card, &err), NEAP_OK);
	assert_int_equal(card.cause, NEAP_OOM_CAPACITY); /* 40 + 256 on 248: our own context is nobody else's */
	assert_int_equal(card.requested_bytes, 256 * NEAP_MIB);
	assert_int_equal(card.shortfall_bytes, 48 * NEAP_MIB);
	assert_string_equal(card.tag, "activations");
	assert_string_equal(card.tags[0].tag, "parameters");
	assert_int_equal(card.tags[0].live_bytes, 40 * NEAP_MIB);
	assert_int_equal(card.context_bytes, 8 * NEAP_MIB);
	assert_int_equal(card.fixes[0].kind, NEAP_FIX_SMALLER_MICRO_BATCH);
	assert_string_equal(card.fixes[0].text,
			    "micro-batch 128 -> 64, accumulation 1 -> 2 (effective batch stays 128)");
	assert_int_equal(card.rung_taken, NEAP_RUNG_SPLIT);
	assert_int_equal(card.split_after.micro_batch, 64);
	neap_record_fini(&record);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_small_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(test_clear_lines),     TEST(test_clear_fails), TEST(test_schedule),
		TEST(test_marks_and_steps), TEST(test_recover),     TEST(test_unequal_parts),
		TEST(test_ladder_ends),     TEST(test_every_rung),  TEST(test_all_tags_are_reported),
		TEST(test_refused_options), TEST(test_leak_watch),  TEST(test_scope),
		TEST(test_recorded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
