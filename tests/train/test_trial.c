/* Trials over the simulator: a clean one returns to the baseline, a leaking one names exactly what it left, in
 * bounded memory, whatever the driver does. */
#include "neap/trial.h"
#include "session_test.h"

static uint64_t take_as(const char *tag, size_t bytes, void *stream)
{
	const char *before = neap_tag_set(tag);
	uint64_t address = take(&world, bytes, stream);
	neap_tag_set(before);
	return address;
}

static size_t line_of(const char *text)
{
	for (size_t i = 0; i < lines.count; i++)
		if (!strcmp(lines.text[i], text))
			return i;
	for (size_t i = 0; i < lines.count; i++)
		print_message("%s\n", lines.text[i]);
	fail_msg("no line: %s", text);
	return 0;
}

static void test_clean_trial(void **state)
{
	struct neap_trial trial;
	struct neap_trial_result result;
	uint64_t kept = take_as("parameters", 3 * NEAP_MIB, NULL);

	(void)state;
	for (int i = 0; i < 3; i++) {
		neap_trial_begin(&trial, world.alloc, &sink, "lr=0.1");
		give(&world, take_as("activations", 100 * NEAP_MIB, NULL));
		give(&world, take_as("activations", 1000, NULL));
		neap_trial_end(&trial, &result);
		assert_int_equal(result.allocations, 2);
		assert_int_equal(result.survivor_count, 0);
		assert_int_equal(result.tag_count + result.listed_count, 0);
		assert_int_equal(result.baseline_bytes, 3 * NEAP_MIB);
		assert_int_equal(result.baseline_freed_bytes, 0);
		assert_int_equal(result.allocated_bytes, 3 * NEAP_MIB);
		assert_int_equal(result.reserved_bytes, 4 * NEAP_MIB);
		assert_int_equal(result.cleanup_freed_bytes, 102 * NEAP_MIB);
		assert_true(result.back_to_baseline);
	}
	line_of("trial lr=0.1: back to the baseline: 3.00 MiB allocated, 4.00 MiB reserved");
	assert_non_null(event_find(&world.events, NEAP_EVENT_SCOPE_BEGIN, 2));
	assert_non_null(event_find(&world.events, NEAP_EVENT_SCOPE_END, 2));
	/* it has ended already: nothing is done */
	size_t count = lines.count;
	neap_trial_end(&trial, &result);
	assert_int_equal(lines.count, count);
	assert_int_equal(result.allocations, 0);
	assert_false(result.back_to_baseline);
	give(&world, kept);
}

static void test_survivors_are_named(void **state)
{
	struct neap_trial trial;
	struct neap_trial_result result;
	char text[256];
	void *stream = stream_new(&world);
	uint64_t before = take_as("activations", 8 * NEAP_MIB, NULL), freed = take(&world, 2 * NEAP_MIB, NULL);

	(void)state;
	give(&world, take(&world, 30 * NEAP_MIB, NULL)); /* cached when the trial begins: not the trial's */
	neap_trial_begin(&trial, world.alloc, &sink, "lr=0.2");
	assert_int_equal(metric(&world, NEAP_METRIC_RESERVED_BYTES), 10 * NEAP_MIB);
	give(&world, take_as("activations", 4 * NEAP_MIB, NULL));
	uint64_t a = take_as("activations", 3 * NEAP_MIB, stream);
	give(&world, freed);
	uint64_t b = take_as("batch", 4 * NEAP_MIB - 100, NULL);
	uint64_t c = take_as("activations", 5 * NEAP_MIB, NULL);
	uint64_t d = take(&world, 512, NULL);
	neap_trial_end(&trial, &result);

	assert_int_equal(result.allocations, 5);
	assert_int_equal(result.survivor_count, 4);
	assert_int_equal(result.survivor_bytes, 12 * NEAP_MIB + 512);
	assert_int_equal(result.listed_count, 4);
	assert_int_equal(result.listed[0].address, c);
	assert_int_equal(result.listed[0].number, 4);
	assert_int_equal(result.listed[1].address, b);
	assert_int_equal(result.listed[1].requested_bytes, 4 * NEAP_MIB - 100);
	assert_string_equal(result.listed[1].tag, "batch");
	assert_int_equal(result.listed[2].address, a);
	assert_ptr_equal(result.listed[2].stream, stream);
	assert_int_equal(result.listed[2].number, 2);
	assert_int_equal(result.listed[3].address, d);
	assert_int_equal(result.tag_count, 3);
	assert_string_equal(result.tags[0].tag, "activations");
	assert_int_equal(result.tags[0].bytes, 8 * NEAP_MIB);
	assert_int_equal(result.tags[0].blocks, 2);
	assert_string_equal(result.tags[2].tag, "");
	assert_int_equal(result.baseline_bytes, 10 * NEAP_MIB);
	assert_int_equal(result.baseline_freed_bytes, 2 * NEAP_MIB);
	assert_int_equal(result.allocated_bytes, 20 * NEAP_MIB + 512);
	assert_false(result.back_to_baseline);

	size_t at =
		line_of("trial lr=0.2: 4 allocations survive, 12.0 MiB: 8.00 MiB activations, 4.00 MiB batch, 512 B "
			"untagged");
	assert_int_equal(lines.level[at], NEAP_LOG_WARNING);
	snprintf(text, sizeof text, "trial lr=0.2:   5.00 MiB activations at 0x%llx, stream 0x0, allocation 4 of 5",
		 (unsigned long long)c);
	line_of(text);
	line_of("trial lr=0.2: it freed 2.00 MiB that were there before it");
	give(&world, a);
	give(&world, b);
	give(&world, c);
	give(&world, d);
	give(&world, before);
	neap_empty_cache(world.alloc, NULL, NULL);
	world.cuda->cuStreamDestroy(stream);
}

static void test_many_survivors(void **state)
{
	struct neap_trial trial;
	struct neap_trial_result result;
	uint64_t blocks[100];

	(void)state;
	neap_trial_begin(&trial, world.alloc, &sink, "many");
	for (size_t i = 0; i < 100; i++) /* sizes 1..10 KiB, ten of each */
		blocks[i] = take_as("cache", (i * 7 % 10 + 1) * 1024, NULL);
	neap_trial_end(&trial, &result);
	assert_int_equal(result.survivor_count, 100);
	assert_int_equal(result.survivor_bytes, 550 * 1024);
	assert_int_equal(result.listed_count, NEAP_TRIAL_SURVIVORS);
	for (size_t i = 0; i < NEAP_TRIAL_SURVIVORS; i++) {
		assert_int_equal(result.listed[i].bytes, i < 10 ? 10240 : 9216);
		if (i % 10)
			assert_true(result.listed[i].number > result.listed[i - 1].number);
	}
	assert_int_equal(result.tags[0].bytes, 550 * 1024);
	line_of("trial many:   and 95 more");
	for (size_t i = 0; i < 100; i++)
		give(&world, blocks[i]);
}

static void test_nested(void **state)
{
	struct neap_trial outer, inner;
	struct neap_trial_result result;

	(void)state;
	neap_trial_begin(&outer, world.alloc, NULL, "outer");
	uint64_t a = take(&world, 2 * NEAP_MIB, NULL);
	neap_trial_begin(&inner, world.alloc, NULL, "inner");
	uint64_t b = take(&world, 4 * NEAP_MIB, NULL);
	neap_trial_end(&inner, &result);
	assert_int_equal(result.survivor_bytes, 4 * NEAP_MIB);
	assert_int_equal(result.baseline_bytes, 2 * NEAP_MIB);
	neap_trial_end(&outer, &result);
	assert_int_equal(result.survivor_bytes, 6 * NEAP_MIB);
	assert_int_equal(result.allocations, 2);
	give(&world, a);
	give(&world, b);
}

/* Survivors are known without the driver; a cache that stays is reported. */
static void test_driver_fails(void **state)
{
	struct neap_trial trial;
	struct neap_trial_result result;

	(void)state;
	for (uint64_t n = 0;; n++) {
		neap_trial_begin(&trial, world.alloc, &sink, "faulty");
		uint64_t kept = take_as("batch", 2 * NEAP_MIB, NULL);
		give(&world, take(&world, 6 * NEAP_MIB, NULL));
		world.sim->fault("*", n, 1, CUDA_ERROR_UNKNOWN);
		neap_trial_end(&trial, &result);
		world.sim->fault(NULL, 0, 0, 0);
		assert_int_equal(result.survivor_count, 1);
		assert_int_equal(result.listed[0].address, kept);
		assert_string_equal(result.listed[0].tag, "batch");
		assert_false(result.back_to_baseline);
		give(&world, kept);
		world_check(&world);
		lines.count = 0;
		if (result.cleanup.status == NEAP_OK && n > 20)
			break;
		assert_true(n < 100);
		if (result.cleanup.status != NEAP_OK)
			assert_true(result.cleanup.message[0]);
	}
	/* Nothing survives, but the cache is still there: not at the baseline. */
	neap_trial_begin(&trial, world.alloc, NULL, "captured");
	give(&world, take(&world, 6 * NEAP_MIB, NULL));
	world.sim->fault("cuCtxSynchronize", 0, 1, CUDA_ERROR_UNKNOWN);
	neap_trial_end(&trial, &result);
	world.sim->fault(NULL, 0, 0, 0);
	assert_int_equal(result.cleanup.status, NEAP_EDRIVER);
	assert_int_equal(result.survivor_count, 0);
	assert_false(result.back_to_baseline);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_small_world, close_world)
	const struct CMUnitTest tests[] = {
		TEST(test_clean_trial), TEST(test_survivors_are_named), TEST(test_many_survivors),
		TEST(test_nested),      TEST(test_driver_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
