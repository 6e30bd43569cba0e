/* What the session does before memory ends: thresholds, and leaks, over the simulator. */
#include "neap/attach.h"
#include "session_test.h"

/* A step whose activations take 2 MiB a sample. */
static void step(struct neap_train *train)
{
	struct neap_train_settings settings;

	neap_train_settings(train, &settings);
	for (uint64_t i = 0; i < settings.split.accumulate; i++) {
		give(&world, take(&world, settings.split.micro_batch * 2 * NEAP_MIB, NULL));
		neap_train_tick(train);
	}
	neap_train_step(train, 1);
}

static void steps(struct neap_train *train, int count)
{
	while (count-- > 0)
		step(train);
}

/* Another process's memory on the device. */
static CUdeviceptr neighbour(uint64_t bytes)
{
	CUdeviceptr address = 0;

	assert_int_equal(world.cuda->cuMemAlloc(&address, bytes), CUDA_SUCCESS);
	return address;
}

static uint64_t micro_batch(const struct neap_train *train)
{
	struct neap_train_settings settings;

	neap_train_settings(train, &settings);
	return settings.split.micro_batch;
}

/* A ladder at its end is reported once, when it gets there. */
static void test_no_rung_left(void **state)
{
	(void)state;
	struct neap_train *train = begin((struct neap_train_options){
		.split = {.micro_batch = 4}, .host = {.warn_bytes = 1ull << 62, .degrade_bytes = 1ull << 61}});
	for (int i = 0; i < 60 && micro_batch(train) > 1; i++) {
		assert_int_equal(lines_with("no rung of the ladder is left"), 0);
		steps(train, 1);
	}
	assert_int_equal(micro_batch(train), 1);
	steps(train, 60);
	assert_int_equal(lines_with("no rung of the ladder is left"), 1);
	neap_train_end(train, NULL);
}

/* Row 6: memory that the next step allocates again was not worth freeing, and is not counted twice. */
static void test_taken_again(void **state)
{
	struct neap_train_summary summary;

	(void)state;
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 1},
								     .cleanup_points = 1u << NEAP_CLEANUP_EVERY_STEP |
										       1u << NEAP_CLEANUP_END});
	for (int i = 0; i < 8; i++) {
		give(&world, take(&world, 32 * NEAP_MIB, NULL));
		neap_train_tick(train);
		neap_train_step(train, 1);
	}
	neap_train_end(train, &summary);
	assert_int_equal(
		lines_with("the last 3 cleanups gave back memory, 32.0 MiB the last time, that was allocated again "
			   "at once; they only slow training: "),
		1);
	assert_int_equal(lines_with("Leave out cleanup_points EVERY_STEP"), 1);
	assert_int_equal(summary.cleanups, 9);
	assert_int_equal(summary.cleanup_freed_bytes, 32 * NEAP_MIB);
	assert_int_equal(lines_with("9 cleanups gave back 32.0 MiB (and 224 MiB that were allocated again) in "), 1);
}

/* What a restart left is used if the ladder could have led there from the requested settings; otherwise it is not
 * believed.
 */
static void test_settings_of_before_a_restart(void **state)
{
	static const struct {
		const char *left;
		uint64_t micro_batch;
		uint32_t rungs;
	} cases[] = {
		{"1.15.4.1.16.60", 15, 16},
		{"1.60.1.1.4.60", 60, 4},
		{"1.60.1.1.0.60", 60, 0},
		{"1.8.8.1.0.60", 8, 0},   /* 8 x 4 + 7 x 4 */
		{"1.23.9.1.0.60", 20, 0}, /* no split, but 20 x 3 is the same batch in parts of at most 23 */
		{"1.15.5.1.0.75", 60, 0}, /* another effective batch */
		{"1.15.4.2.0.60", 60, 0},
		{"1.120.0.1.0.60", 60, 0},
		{"1.0.60.1.0.60", 60, 0},
		{"1.15.4.1.8.60", 60, 0}, /* a rung that is not offered */
		{"1.15.4.1.2.60", 60, 0},
		{"1.15.4.1.4294967312.60", 60, 0},
		{"0.15.4.1.0.60", 60, 0},
		{"1", 60, 0},
		{"1.4611686018427387919.4.1.0.0", 60, 0}, /* 60 modulo 2^64 */
	};
	const uint32_t offered =
		1u << NEAP_RUNG_SPLIT | 1u << NEAP_RUNG_EFFICIENT_ATTENTION | 1u << NEAP_RUNG_CHECKPOINTING;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char entry[96];
		struct neap_train_settings now;
		snprintf(entry, sizeof entry, "%d.%s", (int)getpid(), cases[i].left);
		setenv("NEAP_RESTARTS", entry, 1);
		struct neap_train *train =
			begin((struct neap_train_options){.split = {.micro_batch = 60}, .rungs_offered = offered});
		neap_train_settings(train, &now);
		if (now.split.micro_batch != cases[i].micro_batch || now.rungs != cases[i].rungs ||
		    neap_split_batch(&now.split) != 60)
			fail_msg("%s: micro-batch %d, rungs 0x%x", cases[i].left, (int)now.split.micro_batch,
				 now.rungs);
		neap_train_end(train, NULL);
	}
	/* Requested rungs stay, whatever was in force before. */
	char entry[96];
	struct neap_train_settings now;
	snprintf(entry, sizeof entry, "%d.1.15.4.1.0.60", (int)getpid());
	setenv("NEAP_RESTARTS", entry, 1);
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 60},
								     .rungs_offered = offered,
								     .rungs_active = 1u << NEAP_RUNG_CHECKPOINTING});
	neap_train_settings(train, &now);
	assert_int_equal(now.rungs, 1u << NEAP_RUNG_CHECKPOINTING);
	neap_train_end(train, NULL);
	unsetenv("NEAP_RESTARTS");
	assert_int_equal(lines_with("going on with what was in force before the restart"), 4);
}

/* 248 MiB for us: 120 at the peak of a step with micro-batch 60. */
static void test_degrades_then_stops(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){
		.split = {.micro_batch = 60}, .device = {100 * NEAP_MIB, 40 * NEAP_MIB, 10 * NEAP_MIB}});
	const char *reason = NULL;

	(void)state;
	steps(train, 20); /* 128 left */
	assert_int_equal(events_of(NEAP_EVENT_LEVEL, 1), 0);
	CUdeviceptr first = neighbour(96 * NEAP_MIB); /* 32 left: one dip */
	step(train);
	assert_int_equal(lines_with("training: device memory below 100 MiB (32.0 MiB left at the peak of step 21)"),
			 1);
	world.cuda->cuMemFree(first);
	step(train);
	assert_int_equal(micro_batch(train), 60);

	first = neighbour(96 * NEAP_MIB);
	steps(train, 2);
	assert_int_equal(micro_batch(train), 30); /* 92 left */
	assert_int_equal(
		lines_with("device memory below 40.0 MiB (32.0 MiB left at the peak of step 24): cleaning up"), 1);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_LOW), 1);
	assert_int_equal(events_of(NEAP_EVENT_RUNG, NEAP_RUNG_SPLIT), 1);
	CUdeviceptr second = neighbour(90 * NEAP_MIB); /* 2 left, and rungs to take: one in ten steps */
	steps(train, 10);
	assert_int_equal(micro_batch(train), 15); /* 32 left */
	steps(train, 10);
	assert_int_equal(micro_batch(train), 8); /* 46 left */
	steps(train, 20);
	assert_int_equal(micro_batch(train), 8);
	assert_int_equal(neap_train_request(train, &reason), NEAP_TRAIN_GO_ON);
	assert_string_equal(reason, "");
	CUdeviceptr third = neighbour(38 * NEAP_MIB); /* 8 left */
	steps(train, 2);
	assert_int_equal(micro_batch(train), 4); /* 16 left */
	steps(train, 9);
	assert_int_equal(micro_batch(train), 2); /* 20 left */
	steps(train, 9);
	assert_int_equal(micro_batch(train), 1);       /* 22 left */
	CUdeviceptr fourth = neighbour(14 * NEAP_MIB); /* 8 left again, and no rung */
	steps(train, 8);
	assert_int_equal(neap_train_request(train, NULL), NEAP_TRAIN_GO_ON);
	step(train);
	assert_int_equal(neap_train_request(train, &reason), NEAP_TRAIN_STOP);
	assert_string_equal(reason, "device memory below 10.0 MiB (8.00 MiB left at the peak of step 93)");
	assert_int_equal(events_of(NEAP_EVENT_REQUEST, NEAP_TRAIN_STOP), 1);
	const struct neap_event *request = event_find(&world.events, NEAP_EVENT_REQUEST, 0);
	assert_string_equal(world.events.names[request->request.name], "device memory");
	assert_true(request->request.left_bytes == 8 * NEAP_MIB && request->request.threshold_bytes == 10 * NEAP_MIB);
	steps(train, 5); /* a loop that does not react: the request stays, and is delivered once */
	assert_int_equal(events_of(NEAP_EVENT_REQUEST, NEAP_TRAIN_STOP), 1);
	assert_int_equal(lines_with("asking the loop to save a checkpoint and end"), 1);
	struct neap_train_summary summary;
	neap_train_end(train, &summary);
	assert_int_equal(summary.request, NEAP_TRAIN_STOP);
	assert_int_equal(summary.rungs, 6);
	world.cuda->cuMemFree(first);
	world.cuda->cuMemFree(second);
	world.cuda->cuMemFree(third);
	world.cuda->cuMemFree(fourth);
}

/* The process's limit counts, the cache does not count as used, and a driver that does not answer is no reason. */
static void test_limit_and_unknown(void **state)
{
	struct neap_train *train = begin(
		(struct neap_train_options){.split = {.micro_batch = 10}, .device = {.stop_bytes = 8 * NEAP_MIB}});

	(void)state;
	give(&world, take(&world, 200 * NEAP_MIB, NULL)); /* all of it cached */
	step(train);
	steps(train, 3);
	assert_int_equal(neap_train_request(train, NULL), NEAP_TRAIN_GO_ON);
	assert_int_equal(neap_set_fraction(world.alloc, 24.0 / 256, NULL), NEAP_OK); /* 4 left */
	world.sim->fault("cuMemGetInfo_v2", 0, 0, CUDA_ERROR_UNKNOWN);
	steps(train, 5);
	assert_int_equal(neap_train_request(train, NULL), NEAP_TRAIN_GO_ON);
	world.sim->fault(NULL, 0, 0, 0);
	steps(train, 2);
	assert_int_equal(neap_train_request(train, NULL), NEAP_TRAIN_STOP);
	neap_train_end(train, NULL);
}

static void test_host(void **state)
{
	const char *reason = NULL;
	struct neap_train *train = begin((struct neap_train_options){
		.split = {.micro_batch = 4}, .host = {.degrade_bytes = UINT64_MAX / 2, .stop_bytes = 1}});

	(void)state;
	steps(train, 2);
	assert_int_equal(micro_batch(train), 2);
	assert_int_equal(lines_with("training: host memory below 8.00 EiB ("), 1);
	steps(train, 30);
	assert_int_equal(micro_batch(train), 1);
	assert_int_equal(lines_with(": no rung of the ladder is left"), 1);
	assert_int_equal(neap_train_request(train, NULL), NEAP_TRAIN_GO_ON);
	neap_train_end(train, NULL);

	train = begin((struct neap_train_options){
		.split = {.micro_batch = 4}, .host = {.stop_bytes = 2}, .host_limit_bytes = NEAP_MIB});
	steps(train, 2); /* a process takes more than 1 MiB */
	assert_int_equal(neap_train_request(train, &reason), NEAP_TRAIN_STOP);
	assert_string_equal(reason, "host memory below 2 B (0 B left at the end of step 2)");
	neap_train_end(train, NULL);
}

/* Leaks: 1 MiB stays behind in each step. 248 MiB for us, 40 at a step's peak. */
static uint64_t left[1024];
static size_t left_count;

static uint64_t drop(void *context, bool force)
{
	uint64_t bytes = 0;

	assert_ptr_equal(context, &left_count);
	for (; force && left_count > 0; bytes += NEAP_MIB)
		give(&world, left[--left_count]);
	return bytes;
}

/* Returns how many steps were done when the request or `count` was reached; a failed allocation fails the test. */
static int leak(struct neap_train *train, int count)
{
	uint64_t seed = 0x1eaf;

	for (int done = 0; done < count; done++) {
		uint64_t batch = take(&world, (1 + random_next(&seed) % 8) * NEAP_MIB, NULL);
		give(&world, take(&world, 32 * NEAP_MIB, NULL));
		left[left_count++] = take(&world, NEAP_MIB, NULL);
		give(&world, batch);
		neap_train_step(train, 1);
		if (neap_train_request(train, NULL) != NEAP_TRAIN_GO_ON)
			return done + 1;
	}
	return count;
}

static void test_leak_warned(void **state)
{
	struct neap_train *train =
		begin((struct neap_train_options){.split = {.micro_batch = 1}, .total_steps = 500});
	struct neap_train_summary summary;

	(void)state;
	assert_int_equal(leak(train, 205), 205);
	assert_int_equal(lines_with("training: memory grows by"), 1);
	assert_int_equal(lines_with("; this is step "), 1);
	neap_train_end(train, &summary);
	/* It will not fit when 248 - 32 - (1..8) are leaked. */
	assert_true(summary.memory_ends_low_step <= 210 && summary.memory_ends_low_step > 195);
	assert_true(summary.memory_ends_high_step >= 208 && summary.memory_ends_high_step < 225);
	assert_true(summary.memory_ends_low_step <= summary.memory_ends_step);
	assert_true(summary.memory_ends_step <= summary.memory_ends_high_step);
	drop(&left_count, true);
}

/* A run that ends before memory does is left alone. */
static void test_leak_that_does_no_harm(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){
		.split = {.micro_batch = 1}, .total_steps = 190, .on_leak = NEAP_ON_LEAK_RESTART});

	(void)state;
	assert_int_equal(leak(train, 190), 190);
	assert_int_equal(lines_with("enough memory is left for all 190 steps"), 1);
	assert_int_equal(events_of(NEAP_EVENT_LEVEL, NEAP_TRAIN_RESTART), 0);
	neap_train_end(train, NULL);
	drop(&left_count, true);
}

static void test_leak_cleared(void **state)
{
	struct neap_train *train =
		begin((struct neap_train_options){.split = {.micro_batch = 1}, .on_leak = NEAP_ON_LEAK_CLEAR});
	struct neap_train_summary summary;

	(void)state;
	assert_int_equal(leak(train, 450), 450);              /* twice what the memory would last for */
	assert_int_equal(lines_with("clearing by force"), 2); /* each time the interval is as narrow as at first */
	assert_true(lines_with("training: the program says that it released 19") >= 1); /* 19x MiB */
	neap_train_end(train, &summary);
	assert_int_equal(summary.cleanups, lines_with("clearing by force"));
	drop(&left_count, true);
}

static void test_leak_restarts(void **state)
{
	struct neap_train *train = begin((struct neap_train_options){.split = {.micro_batch = 1},
								     .total_steps = 1000,
								     .on_leak = NEAP_ON_LEAK_RESTART,
								     .leak_margin_steps = 30});
	const char *reason = NULL;

	(void)state;
	neap_train_resumed(train, 100); /* the numbers are the run's */
	int done = leak(train, 400);
	assert_true(done >= 165 && done <= 185); /* 30 before the earliest end at about 205 */
	assert_int_equal(neap_train_request(train, &reason), NEAP_TRAIN_RESTART);
	assert_memory_equal(reason, "memory leaks and will end at step 3", 35);
	const struct neap_event *request = event_find(&world.events, NEAP_EVENT_REQUEST, 0);
	assert_int_equal(request->request.request, NEAP_TRAIN_RESTART);
	assert_true(request->request.low_step <= request->request.high_step &&
		    request->request.low_step > 100 + (uint64_t)done);
	struct neap_train_summary summary;
	neap_train_end(train, &summary);
	assert_int_equal(summary.steps, done);
	drop(&left_count, true);
}

/* A cleanup that frees nothing reports its cost, and which cleanup point to leave out. */
static void test_fruitless(void **state)
{
	static const struct {
		struct neap_train_options options;
		const char *leave_out;
	} cases[] = {
		{{.cleanup_every_ticks = 1}, "Leave out cleanup_every_ticks"},
		{{.cleanup_every_steps = 2}, "Leave out cleanup_every_steps"},
		{{.cleanup_every_epochs = 1}, "Leave out cleanup_every_epochs"},
		{{.cleanup_points = 1u << NEAP_CLEANUP_EVERY_STEP}, "Leave out cleanup_points EVERY_STEP"},
		{{.cleanup_points = 1u << NEAP_CLEANUP_EPOCH}, "Leave out cleanup_points EPOCH"},
		{{.cleanup_points = 1u << NEAP_CLEANUP_SAVED}, "Leave out cleanup_points SAVED"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_train_options options = cases[i].options;
		options.split.micro_batch = 1;
		lines.count = 0;
		struct neap_train *train = begin(options);
		for (uint64_t done = 1; done <= 8; done++) {
			neap_train_tick(train);
			neap_train_step(train, 1);
			neap_train_mark(train, NEAP_MARK_SAVED, done);
			neap_train_mark(train, NEAP_MARK_EPOCH_END, done);
		}
		neap_train_end(train, NULL);
		if (lines_with(cases[i].leave_out) != 1)
			fail_msg("'%s': %zu times", cases[i].leave_out, lines_with(cases[i].leave_out));
		assert_int_equal(lines_with("they only slow training: "), 1);
		assert_int_equal(lines_with(" % of the time. Leave out"), 1);
	}
	/* A cleanup whose memory stays free is worth its time. */
	lines.count = 0;
	struct neap_train *train =
		begin((struct neap_train_options){.split = {.micro_batch = 1}, .cleanup_every_steps = 1});
	uint64_t kept[8];
	for (int i = 0; i < 8; i++)
		kept[i] = take(&world, 4 * NEAP_MIB, NULL);
	for (int i = 0; i < 8; i++) {
		give(&world, kept[i]);
		neap_train_tick(train);
		neap_train_step(train, 1);
	}
	assert_int_equal(lines_with("they only slow training"), 0);
	/* A failure that the loop reports counts. */
	neap_train_end(train, NULL);
	train = begin((struct neap_train_options){
		.split = {.micro_batch = 1}, .cleanup_points = 1u << NEAP_CLEANUP_FAILURE | 1u << NEAP_CLEANUP_END});
	neap_train_mark(train, NEAP_MARK_FAILED, 0);
	world.events.count = 0;
	neap_train_end(train, NULL);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_FAILURE), 1);
	assert_int_equal(events_of(NEAP_EVENT_CLEANUP, NEAP_CLEANUP_END), 0);
}

int main(void)
{
	assert_int_equal(neap_attach_on_clear(drop, &left_count), NEAP_OK);
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_small_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(test_degrades_then_stops),
		TEST(test_limit_and_unknown),
		TEST(test_host),
		TEST(test_leak_warned),
		TEST(test_leak_that_does_no_harm),
		TEST(test_leak_cleared),
		TEST(test_leak_restarts),
		TEST(test_no_rung_left),
		TEST(test_fruitless),
		TEST(test_taken_again),
		TEST(test_settings_of_before_a_restart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
