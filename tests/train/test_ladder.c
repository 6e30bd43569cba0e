/* The ladder keeps the effective batch size, for every micro-batch, down to one, and takes each offered rung once. */
#include "neap/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SPLIT = 1u << NEAP_RUNG_SPLIT };

static void test_every_micro_batch(void **state)
{
	(void)state;
	for (uint64_t micro_batch = 1; micro_batch <= 10000; micro_batch++) {
		struct neap_train_settings now = {.split = {.micro_batch = micro_batch, .accumulate = 3, .ranks = 2}};
		enum neap_rung rung;
		int rungs = 0;
		for (;;) {
			struct neap_train_settings before = now;
			rung = neap_ladder_next(&before, SPLIT, &now);
			assert_int_equal(now.split.micro_batch * now.split.accumulate, micro_batch * 3);
			assert_int_equal(now.split.ranks, 2);
			assert_int_equal(now.rungs, 0);
			if (rung != NEAP_RUNG_SPLIT)
				break;
			assert_true(now.split.micro_batch < before.split.micro_batch);
			uint64_t divisor = before.split.micro_batch / now.split.micro_batch;
			for (uint64_t smaller = 2; smaller < divisor; smaller++)
				assert_true(before.split.micro_batch % smaller != 0);
			assert_true(++rungs <= 14); /* 2^13 < 10^4 < 2^14 */
		}
		assert_int_equal(rung, NEAP_RUNG_STOP);
		assert_int_equal(now.split.micro_batch, 1);
	}
}

static void test_edges(void **state)
{
	struct neap_train_settings now = {.split = {.micro_batch = 6, .accumulate = UINT64_MAX / 2 + 1, .ranks = 1}},
				   next = {0};

	(void)state;
	assert_int_equal(neap_ladder_next(&now, SPLIT, &next), NEAP_RUNG_STOP); /* accumulation would not fit */
	assert_int_equal(next.split.micro_batch, 6);
	now = (struct neap_train_settings){0};
	assert_int_equal(neap_ladder_next(&now, SPLIT, &next), NEAP_RUNG_STOP);
	now = (struct neap_train_settings){.split = {.micro_batch = 64, .accumulate = 1, .ranks = 1}};
	assert_int_equal(neap_ladder_next(&now, 0, &next), NEAP_RUNG_STOP);     /* not offered */
	assert_int_equal(neap_ladder_next(&now, SPLIT, &now), NEAP_RUNG_SPLIT); /* in place */
	assert_int_equal(now.split.micro_batch, 32);
	assert_int_equal(now.split.accumulate, 2);
	now.split.micro_batch = 9;
	assert_int_equal(neap_ladder_next(&now, SPLIT, &now), NEAP_RUNG_SPLIT);
	assert_int_equal(now.split.micro_batch, 3);
	assert_int_equal(now.split.accumulate, 6);
}

/* For every set of rungs offered and in force: each that is offered comes once, in order, and what is not never. */
static void test_every_offer(void **state)
{
	(void)state;
	for (uint32_t offered = 0; offered <= NEAP_RUNGS_OFFERABLE; offered++) {
		for (uint32_t active = 0; active <= NEAP_RUNGS_SWITCHED; active++) {
			struct neap_train_settings now = {{.micro_batch = 4, .accumulate = 1, .ranks = 1}, active};
			uint32_t expected = offered & NEAP_RUNGS_SWITCHED & ~active, taken = 0;
			enum neap_rung rung, last = NEAP_RUNG_NONE;
			int splits = 0;

			while ((rung = neap_ladder_next(&now, offered, &now)) != NEAP_RUNG_STOP) {
				assert_true(rung >= last);
				assert_true(offered & (1u << rung));
				if (rung == NEAP_RUNG_SPLIT) {
					splits++;
				} else {
					assert_false(taken & (1u << rung));
					taken |= 1u << rung;
				}
				last = rung;
			}
			assert_int_equal(splits, offered & SPLIT ? 2 : 0);
			assert_int_equal(taken, expected);
			assert_int_equal(now.rungs, active | expected);
		}
	}
}

static void test_names(void **state)
{
	(void)state;
	for (int rung = NEAP_RUNG_SPLIT; rung <= NEAP_RUNG_STOP; rung++)
		assert_true(neap_rung_name((enum neap_rung)rung)[0] != '\0');
	assert_string_equal(neap_rung_name(NEAP_RUNG_NONE), "");
	assert_string_equal(neap_rung_name((enum neap_rung)77), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_micro_batch), cmocka_unit_test(test_edges),
					   cmocka_unit_test(test_every_offer), cmocka_unit_test(test_names)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
