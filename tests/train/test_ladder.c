/* The ladder keeps the effective batch size, for every micro-batch, down to one. */
#include "neap/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_every_micro_batch(void **state)
{
	(void)state;
	for (uint64_t micro_batch = 1; micro_batch <= 10000; micro_batch++) {
		struct neap_split split = {.micro_batch = micro_batch, .accumulate = 3, .ranks = 2};
		enum neap_rung rung;
		int rungs = 0;
		for (;;) {
			struct neap_split before = split;
			rung = neap_ladder_next(&before, &split);
			assert_int_equal(split.micro_batch * split.accumulate, micro_batch * 3);
			assert_int_equal(split.ranks, 2);
			if (rung != NEAP_RUNG_SPLIT)
				break;
			assert_true(split.micro_batch < before.micro_batch);
			uint64_t divisor = before.micro_batch / split.micro_batch;
			for (uint64_t smaller = 2; smaller < divisor; smaller++)
				assert_true(before.micro_batch % smaller != 0);
			assert_true(++rungs <= 14); /* 2^13 < 10^4 < 2^14 */
		}
		assert_int_equal(rung, NEAP_RUNG_STOP);
		assert_int_equal(split.micro_batch, 1);
	}
}

static void test_edges(void **state)
{
	struct neap_split split = {.micro_batch = 6, .accumulate = UINT64_MAX / 2 + 1, .ranks = 1}, next = {0};

	(void)state;
	assert_int_equal(neap_ladder_next(&split, &next), NEAP_RUNG_STOP); /* accumulation would not fit */
	assert_int_equal(next.micro_batch, 6);
	split = (struct neap_split){0};
	assert_int_equal(neap_ladder_next(&split, &next), NEAP_RUNG_STOP);
	split = (struct neap_split){.micro_batch = 64, .accumulate = 1, .ranks = 1};
	assert_int_equal(neap_ladder_next(&split, &split), NEAP_RUNG_SPLIT); /* in place */
	assert_int_equal(split.micro_batch, 32);
	assert_int_equal(split.accumulate, 2);
	split.micro_batch = 9;
	assert_int_equal(neap_ladder_next(&split, &split), NEAP_RUNG_SPLIT);
	assert_int_equal(split.micro_batch, 3);
	assert_int_equal(split.accumulate, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_micro_batch), cmocka_unit_test(test_edges)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
