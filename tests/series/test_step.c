/* The step: every row of the table in step.h, and walks through whole series. */
#include "series/step.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#define ENDED(n)                                                                                                     \
	{                                                                                                            \
		.attempts = n, .ended = true                                                                         \
	}

static void test_table(void **state)
{
	(void)state;
	static const struct {
		struct neap_step_experiment experiments[3];
		size_t count;
		enum neap_step_found found;
		struct neap_step next;
	} rows[] = {
		/* nothing started */
		{{{0}, {0}}, 2, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 0, 1}},
		/* without an open attempt, `found` is ignored */
		{{{0}, {0}}, 2, NEAP_STEP_FOUND_RESULT, {NEAP_STEP_START, 0, 1}},
		{{{0}, {0}}, 2, NEAP_STEP_FOUND_LOCK, {NEAP_STEP_START, 0, 1}},
		/* ended: the next */
		{{ENDED(1), {0}}, 2, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 1, 1}},
		{{ENDED(3), ENDED(1), {0}}, 3, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 2, 1}},
		/* all ended */
		{{ENDED(1), ENDED(2)}, 2, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_FINISH, 2, 0}},
		/* an open attempt */
		{{ENDED(1), {1, 0, true, false}}, 2, NEAP_STEP_FOUND_LOCK, {NEAP_STEP_WAIT, 1, 1}},
		{{ENDED(1), {1, 0, true, false}}, 2, NEAP_STEP_FOUND_RESULT, {NEAP_STEP_TAKE, 1, 1}},
		{{ENDED(1), {1, 0, true, false}}, 2, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_LOSE, 1, 1}},
		{{ENDED(1), {1, 0, true, false}}, 2, NEAP_STEP_FOUND_ENDED, {NEAP_STEP_TAKE, 1, 1}},
		{{ENDED(1), {1, 0, true, false}}, 2, NEAP_STEP_FOUND_UNBEGUN, {NEAP_STEP_SKIP, 1, 1}},
		/* lost attempts count, canceled ones do not */
		{{{1, 1, false, false}}, 1, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 0, 2}},
		{{{2, 2, false, false}}, 1, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 0, 3}},
		{{{3, 3, false, false}}, 1, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_GIVE_UP, 0, 3}},
		{{{9, 2, false, false}}, 1, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_START, 0, 10}},
		/* the last of the lost is first journaled as such */
		{{{3, 2, true, false}}, 1, NEAP_STEP_FOUND_NOTHING, {NEAP_STEP_LOSE, 0, 3}},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_step step = neap_step_next(rows[i].experiments, rows[i].count, rows[i].found, 3);
		if (step.kind != rows[i].next.kind || step.experiment != rows[i].next.experiment ||
		    step.attempt != rows[i].next.attempt)
			fail_msg("row %zu: got %d of %zu, attempt %u", i, (int)step.kind, step.experiment,
				 step.attempt);
	}
}

static void test_beside(void **state)
{
	(void)state;
	static const struct {
		struct neap_step_experiment experiments[4];
		size_t parallel;
		struct neap_step next;
	} rows[] = {
		{{{0}, {0}, {0}, {0}}, 2, {NEAP_STEP_START, 0, 1}},
		{{{1, 0, true, false}, {0}, {0}, {0}}, 2, {NEAP_STEP_START, 1, 1}},
		{{{1, 0, true, false}, {1, 0, true, false}, {0}, {0}}, 2, {NEAP_STEP_WAIT, 4, 0}},
		{{{1, 0, true, false}, {1, 0, true, false}, {0}, {0}}, 3, {NEAP_STEP_START, 2, 1}},
		/* one ended in between; the first is retried */
		{{{1, 0, false, false}, {1, 0, true, false}, {0}, {0}}, 2, {NEAP_STEP_START, 0, 2}},
		{{ENDED(1), ENDED(1), {3, 3, false, false}, {1, 0, true, false}}, 2, {NEAP_STEP_GIVE_UP, 2, 3}},
		/* only open ones are left */
		{{ENDED(1), {1, 0, true, false}, ENDED(1), ENDED(1)}, 2, {NEAP_STEP_WAIT, 4, 0}},
		{{ENDED(1), ENDED(1), ENDED(1), ENDED(1)}, 2, {NEAP_STEP_FINISH, 4, 0}},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_step step = neap_step_beside(rows[i].experiments, 4, rows[i].parallel, 3);
		if (step.kind != rows[i].next.kind || step.experiment != rows[i].next.experiment ||
		    step.attempt != rows[i].next.attempt)
			fail_msg("row %zu: got %d of %zu, attempt %u", i, (int)step.kind, step.experiment,
				 step.attempt);
	}
}

/* Random states: a series always ends, and each experiment ends exactly once. */
static void test_walks(void **state)
{
	(void)state;
	unsigned seed = 20261121;
	print_message("seed %u\n", seed);
	for (int walk = 0; walk < 200; walk++) {
		struct neap_step_experiment experiments[5] = {{0}};
		unsigned ends[5] = {0}, steps = 0;
		for (;; steps++) {
			assert_true(steps < 1000);
			enum neap_step_found found = (enum neap_step_found)(rand_r(&seed) % 5);
			struct neap_step step = neap_step_next(experiments, 5, found, 3);
			if (step.kind == NEAP_STEP_FINISH)
				break;
			struct neap_step_experiment *experiment = &experiments[step.experiment];
			switch (step.kind) {
			case NEAP_STEP_START:
				assert_false(experiment->open);
				assert_int_equal(step.attempt, experiment->attempts + 1);
				experiment->attempts++;
				experiment->open = true;
				break;
			case NEAP_STEP_WAIT:
				assert_int_equal(found, NEAP_STEP_FOUND_LOCK);
				break;
			case NEAP_STEP_SKIP:
				assert_int_equal(found, NEAP_STEP_FOUND_UNBEGUN);
				experiment->open = false;
				break;
			case NEAP_STEP_LOSE:
				assert_int_equal(found, NEAP_STEP_FOUND_NOTHING);
				experiment->open = false;
				experiment->lost++;
				break;
			default:
				experiment->open = false;
				experiment->ended = true;
				ends[step.experiment]++;
			}
		}
		for (int i = 0; i < 5; i++) {
			assert_int_equal(ends[i], 1);
			assert_true(experiments[i].lost <= 3);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_beside),
					   cmocka_unit_test(test_walks)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
