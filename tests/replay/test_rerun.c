/* Replay through the allocator on a counted device: pages, classes, the cache that goes before "out of memory". */

#include "base/units.h"
#include "replay/paper.h"
#include "replay/rerun.h"
#include "support/test.h"

static struct neap_rerun_result play(struct neap_rerun rerun)
{
	struct neap_rerun_result result;
	struct neap_error err = {0};

	rerun.passes = rerun.passes ? rerun.passes : 1;
	rerun.slot_count = 16;
	if (neap_rerun(&rerun, &result, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return result;
}

/* The smallest memory, in pages of 2 MiB, in which it completes. */
static uint64_t pages_needed(struct neap_rerun rerun)
{
	for (uint64_t pages = 1; pages < 100; pages++) {
		rerun.room_bytes = pages * 2 * NEAP_MIB;
		if (play(rerun).fits)
			return pages;
	}
	return 0;
}

static void test_pages_and_classes(void **state)
{
	/* 3 MiB and 1 KiB: the large arena takes two pages, the small one takes a page of its own or, if there is
	 * none, the end of the large arena's second page */
	const struct neap_rerun_op base[] = {{0, 0, 3 * NEAP_MIB}, {1, 0, 1024}};
	struct neap_rerun rerun = {
		.base = base, .base_count = 2, .room_bytes = 100 * NEAP_MIB, .page_bytes = 2 * NEAP_MIB};

	(void)state;
	struct neap_rerun_result result = play(rerun);
	assert_true(result.fits);
	assert_int_equal(result.peak_reserved_bytes, 6 * NEAP_MIB);
	assert_int_equal(result.peak_allocated_bytes, 3 * NEAP_MIB + 1024);
	assert_int_equal(result.flushes, 0);
	assert_int_equal(pages_needed(rerun), 2);
	/* without virtual memory the device serves the same in plain segments */
	rerun.page_bytes = 0;
	result = play(rerun);
	assert_true(result.fits);
	assert_int_equal(result.peak_reserved_bytes, 6 * NEAP_MIB);
	assert_int_equal(pages_needed(rerun), 2);
}

static void test_out_of_memory_is_a_result(void **state)
{
	const struct neap_rerun_op step[] = {{0, 0, 5 * NEAP_MIB}, {1, 0, 4 * NEAP_MIB}, {0, 0, 0}, {1, 0, 0}};
	struct neap_rerun rerun = {.step = step, .step_count = 4, .passes = 3, .page_bytes = 2 * NEAP_MIB};

	(void)state;
	assert_int_equal(pages_needed(rerun), 5); /* 9 MiB in one piece: five pages */
	rerun.room_bytes = 8 * NEAP_MIB;
	struct neap_rerun_result result = play(rerun);
	assert_false(result.fits);
	assert_int_equal(result.peak_allocated_bytes, 5 * NEAP_MIB);
	rerun.room_bytes = 0;
	assert_false(play(rerun).fits);
}

static void test_cache_goes_first(void **state)
{
	/* Memory that the other stream has cached is moved, or given back, before a request fails. */
	const struct neap_rerun_op step[] = {{0, 1, 8 * NEAP_MIB}, {0, 0, 0}, {1, 2, 8 * NEAP_MIB}, {1, 0, 0}};
	struct neap_rerun rerun = {
		.step = step, .step_count = 4, .passes = 2, .room_bytes = 8 * NEAP_MIB, .page_bytes = 2 * NEAP_MIB};

	(void)state;
	struct neap_rerun_result result = play(rerun);
	assert_true(result.fits);
	assert_int_equal(result.peak_reserved_bytes, 8 * NEAP_MIB);
	assert_int_equal(result.flushes, 0);
	rerun.room_bytes = 16 * NEAP_MIB;
	result = play(rerun);
	assert_int_equal(result.flushes, 0);
	assert_int_equal(result.peak_reserved_bytes, 16 * NEAP_MIB);
	rerun.page_bytes = 0; /* plain memory cannot move, and also counts as given back */
	rerun.room_bytes = 8 * NEAP_MIB;
	result = play(rerun);
	assert_true(result.fits);
	assert_int_equal(result.flushes, 3);
}

static void test_slots(void **state)
{
	/* A slot that is in use is freed first: passes do not add up. */
	const struct neap_rerun_op step[] = {{3, 0, 6 * NEAP_MIB}, {4, 0, 0}};
	const struct neap_rerun_op bad[] = {{16, 0, 1}};
	struct neap_rerun rerun = {
		.step = step, .step_count = 2, .passes = 50, .room_bytes = 6 * NEAP_MIB, .page_bytes = 2 * NEAP_MIB};
	struct neap_rerun_result result = {.flushes = 77};
	struct neap_error err = {0};

	(void)state;
	assert_true(play(rerun).fits);
	rerun.step = bad;
	rerun.step_count = 1;
	rerun.slot_count = 16;
	assert_int_equal(neap_rerun(&rerun, &result, &err), NEAP_EINVAL);
	assert_int_equal(result.flushes, 77);
}

static void test_one_per_thread(void **state)
{
	struct neap_paper one, two;
	struct neap_error err = {0};
	uint64_t free_bytes, total_bytes;

	(void)state;
	assert_int_equal(neap_paper_open(&one, 10 * NEAP_MIB, 2 * NEAP_MIB, &err), NEAP_OK);
	assert_int_equal(neap_paper_open(&two, 10 * NEAP_MIB, 2 * NEAP_MIB, &err), NEAP_EBUSY);
	assert_int_equal(neap_device_memory(one.device, &free_bytes, &total_bytes, &err), NEAP_OK);
	assert_int_equal(free_bytes, 10 * NEAP_MIB);
	neap_paper_close(&one);
	assert_int_equal(neap_paper_open(&two, 10 * NEAP_MIB, 2 * NEAP_MIB, &err), NEAP_OK);
	neap_paper_close(&two);
	neap_paper_close(&two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_and_classes), cmocka_unit_test(test_out_of_memory_is_a_result),
		cmocka_unit_test(test_cache_goes_first),  cmocka_unit_test(test_slots),
		cmocka_unit_test(test_one_per_thread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
