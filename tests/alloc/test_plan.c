/* The plan by itself: what it learns, what it expects, when it gives up. Streams are names here. */
#include "alloc/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LEAST 1000

static const char one, other;

/* A step of four blocks: two that live at the same time, one that outlives the step, and a small one. ret_expected:
 * whether the plan expected each; ret_offsets: where it goes. */
static enum neap_plan_advice step(struct neap_plan *plan, uint64_t middle, bool ret_expected[4],
				  uint64_t ret_offsets[4], uint64_t *ret_bytes)
{
	const uint64_t sizes[4] = {4000, middle, 2000, 500};
	const void *streams[4] = {&one, &other, &one, &one};
	for (int i = 0; i < 4; i++) {
		ret_expected[i] = neap_plan_expects(plan, sizes[i], streams[i], &ret_offsets[i]);
		neap_plan_note(plan, sizes[i], streams[i], 100 + (uint64_t)i);
		if (i == 1)
			neap_plan_note_free(plan, 100);
	}
	neap_plan_note_free(plan, 101);
	neap_plan_note_free(plan, 103);
	return neap_plan_step(plan, ret_bytes);
}

static void assert_expected(const bool expected[4], int count)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(expected[i], i < count);
}

static struct neap_plan *learned(void)
{
	struct neap_plan *plan = neap_plan_create(LEAST);
	bool expected[4];
	uint64_t offsets[4], bytes = 0;
	assert_non_null(plan);
	assert_true(neap_plan_watches(plan));
	assert_int_equal(step(plan, 3000, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_expected(expected, 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_START);
	assert_int_equal(bytes, 7001);
	return plan;
}

static void test_serves(void **state)
{
	struct neap_plan *plan = learned();
	bool expected[4];
	uint64_t offsets[4], bytes;
	(void)state;
	neap_plan_start(plan);
	for (int i = 0; i < 3; i++) {
		/* The third block outlives the step, the last one is small. */
		assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
		assert_expected(expected, 2);
		assert_true(offsets[0] + 4000 <= offsets[1] || offsets[1] + 3001 <= offsets[0]);
		assert_true(offsets[0] + 4000 <= 7001 && offsets[1] + 3001 <= 7001);
	}
	neap_plan_destroy(plan);
}

static void test_surprise(void **state)
{
	struct neap_plan *plan = learned();
	bool expected[4];
	uint64_t offsets[4], bytes;
	(void)state;
	neap_plan_start(plan);
	assert_int_equal(step(plan, 3002, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_expected(expected, 1);
	assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_expected(expected, 2);
	/* More than expected, fewer, another stream. */
	assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_true(neap_plan_expects(plan, 4000, &one, &offsets[0]));
	assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	assert_false(neap_plan_expects(plan, 4000, &other, &offsets[0]));
	assert_false(neap_plan_expects(plan, 4000, &one, &offsets[0]));
	assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	assert_int_equal(step(plan, 3001, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_false(neap_plan_expects(plan, 1, &one, &offsets[0]));
	assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	neap_plan_destroy(plan);
}

static void test_gives_up(void **state)
{
	struct neap_plan *plan = learned();
	bool expected[4];
	uint64_t offsets[4], bytes;
	(void)state;
	neap_plan_start(plan);
	for (int i = 0; i < 3; i++)
		assert_int_equal(step(plan, 9000, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
	assert_int_equal(step(plan, 9000, expected, offsets, &bytes), NEAP_PLAN_STOP);
	/* It waits for one step, the next time for two. */
	for (unsigned wait = 1; wait <= 4; wait *= 2) {
		for (unsigned i = 0; i < wait; i++) {
			assert_false(neap_plan_watches(plan));
			assert_int_equal(step(plan, 9000, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
			assert_expected(expected, 0);
		}
		assert_true(neap_plan_watches(plan));
		assert_int_equal(step(plan, 9000, expected, offsets, &bytes), NEAP_PLAN_GO_ON);
		assert_int_equal(step(plan, 9000, expected, offsets, &bytes), NEAP_PLAN_START);
		assert_int_equal(bytes, 13000);
		neap_plan_stop(plan);
	}
	neap_plan_destroy(plan);
}

/* The same requests, freed in another order. */
static void test_other_lives(void **state)
{
	struct neap_plan *plan = neap_plan_create(LEAST);
	uint64_t bytes = 0;
	(void)state;
	for (uint64_t i = 0; i < 6; i++) {
		neap_plan_note(plan, 2000, &one, 1);
		neap_plan_note(plan, 2000, &one, 2);
		neap_plan_note_free(plan, 1 + i % 2);
		neap_plan_note_free(plan, 2 - i % 2);
		assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	}
	/* Steps without a request are no steps, and without a block to plan there is no plan. */
	assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	for (int i = 0; i < 3; i++) {
		neap_plan_note(plan, 2000, &one, 1);
		assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	}
	neap_plan_destroy(plan);
	neap_plan_destroy(NULL);
}

/* Watching costs speed: a program whose steps never repeat, or which marks none, is left alone. */
static void test_never_repeats(void **state)
{
	struct neap_plan *plan = neap_plan_create(LEAST);
	uint64_t bytes = 0;
	unsigned watched = 0;
	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		watched += neap_plan_watches(plan);
		neap_plan_note(plan, 2000 + i, &one, 1);
		assert_int_equal(neap_plan_step(plan, &bytes), NEAP_PLAN_GO_ON);
	}
	assert_in_range(watched, 8, 100);
	neap_plan_destroy(plan);
	plan = neap_plan_create(LEAST);
	for (uint64_t i = 0; i < 200000; i++)
		neap_plan_note(plan, 2000, &one, i);
	assert_false(neap_plan_watches(plan));
	neap_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serves),        cmocka_unit_test(test_surprise),
		cmocka_unit_test(test_gives_up),      cmocka_unit_test(test_other_lives),
		cmocka_unit_test(test_never_repeats),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
