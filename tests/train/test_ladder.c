/* The ladder keeps the effective batch size, for every batch, down to micro-batch 1, and takes each offered rung
 * once. The parts of a batch have nearly equal sizes and contain each sample once. */
#include "neap/train.h"

#include "support/test.h"

enum { SPLIT = 1u << NEAP_RUNG_SPLIT };

/* The parts of a batch of `samples`: one after another, the larger ones first, none above the micro-batch. */
static void check_parts(const struct neap_split *split, uint64_t samples)
{
	uint64_t next = 0, parts = neap_split_parts(split, samples), smallest = samples / parts;
	double weights = 0;

	for (uint64_t i = 0; i < parts; i++) {
		struct neap_part part = neap_split_part(split, samples, i);
		assert_int_equal(part.first, next);
		assert_int_equal(part.samples, smallest + (i < samples % parts));
		assert_true(part.samples <= split->micro_batch);
		assert_true(part.weight == (double)part.samples / (double)samples);
		weights += part.weight;
		next += part.samples;
	}
	assert_int_equal(next, samples);
	assert_true(weights > 1 - 1e-9 && weights < 1 + 1e-9);
	assert_int_equal(neap_split_part(split, samples, parts).samples, 0);
}

static void test_every_batch(void **state)
{
	(void)state;
	for (uint64_t micro_batch = 1; micro_batch <= 2000; micro_batch++) {
		struct neap_train_settings now = {.split = {.micro_batch = micro_batch, .accumulate = 3, .ranks = 2}};
		enum neap_rung rung;
		int rungs = 0;
		for (;;) {
			struct neap_train_settings before = now;
			rung = neap_ladder_next(&before, SPLIT, &now);
			assert_int_equal(neap_split_batch(&now.split), micro_batch * 3);
			assert_int_equal(now.split.ranks, 2);
			assert_int_equal(now.rungs, 0);
			if (rung != NEAP_RUNG_SPLIT)
				break;
			assert_int_equal(now.split.micro_batch, (before.split.micro_batch + 1) / 2);
			assert_int_equal(neap_split_parts(&now.split, now.split.batch), now.split.accumulate);
			assert_int_equal(neap_split_part(&now.split, now.split.batch, 0).samples,
					 now.split.micro_batch);
			if (micro_batch % 7 == 0)
				check_parts(&now.split, now.split.batch);
			assert_true(++rungs <= 11); /* 2^10 < 2000 < 2^11 */
		}
		assert_int_equal(rung, NEAP_RUNG_STOP);
		assert_int_equal(now.split.micro_batch, 1);
	}
}

static void test_unequal_parts(void **state)
{
	struct neap_train_settings now = {.split = {.micro_batch = 257, .accumulate = 2, .ranks = 1}};
	static const uint64_t expected[] = {129, 129, 128, 128};
	char text[NEAP_SPLIT_ROOM];

	(void)state;
	assert_string_equal(neap_split_unequal(&now.split, "(", ")", text), "");
	assert_int_equal(neap_ladder_next(&now, SPLIT, &now), NEAP_RUNG_SPLIT);
	assert_int_equal(now.split.micro_batch, 129);
	assert_int_equal(now.split.accumulate, 4);
	assert_int_equal(now.split.batch, 514);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(neap_split_part(&now.split, 514, i).samples, expected[i]);
	assert_string_equal(neap_split_unequal(&now.split, " (", ")", text), " (2 x 129 + 2 x 128)");
	/* The last batch of an epoch, of any size. */
	for (uint64_t samples = 1; samples <= 514; samples++)
		check_parts(&now.split, samples);
	assert_int_equal(neap_split_parts(&now.split, 100), 1);
	assert_int_equal(neap_split_part(&now.split, 130, 0).samples, 65);
	assert_int_equal(neap_split_parts(&now.split, 0), 0);
	assert_int_equal(neap_split_part(&now.split, 0, 0).samples, 0);
}

static void test_settle(void **state)
{
	static const struct {
		struct neap_split given, expected;
	} cases[] = {
		{{8, 0, 0, 0}, {8, 1, 1, 8}},
		{{8, 4, 2, 0}, {8, 4, 2, 32}},
		{{7, 0, 0, 10}, {5, 2, 1, 10}},
		{{7, 9, 0, 10}, {5, 2, 1, 10}},
		{{16, 0, 0, 10}, {10, 1, 1, 10}},
		{{1, 0, 0, 3}, {1, 3, 1, 3}},
		{{0, 0, 0, 10}, {0, 1, 1, 10}},
		{{0, 0, 0, 0}, {0, 1, 1, 0}},
		{{6, 1ull << 63, 1, 0}, {6, 1ull << 63, 1, 0}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct neap_split split = cases[i].given;
		for (int again = 0; again < 2; again++) { /* a settled question stays settled */
			neap_split_settle(&split);
			assert_memory_equal(&split, &cases[i].expected, sizeof split);
		}
	}
	assert_true(neap_split_batch(&cases[8].given) == UINT64_MAX);
}

static void test_edges(void **state)
{
	struct neap_train_settings now = {.split = {.micro_batch = 6, .accumulate = UINT64_MAX / 2 + 1, .ranks = 1}},
				   next = {0};

	(void)state;
	assert_int_equal(neap_ladder_next(&now, SPLIT, &next), NEAP_RUNG_STOP); /* the batch is not a number */
	assert_int_equal(next.split.micro_batch, 6);
	now = (struct neap_train_settings){0};
	assert_int_equal(neap_ladder_next(&now, SPLIT, &next), NEAP_RUNG_STOP);
	now = (struct neap_train_settings){.split = {.micro_batch = 64, .accumulate = 1, .ranks = 1}};
	assert_int_equal(neap_ladder_next(&now, 0, &next), NEAP_RUNG_STOP);     /* not offered */
	assert_int_equal(neap_ladder_next(&now, SPLIT, &now), NEAP_RUNG_SPLIT); /* in place */
	assert_int_equal(now.split.micro_batch, 32);
	assert_int_equal(now.split.accumulate, 2);
}

/* For every set of rungs offered and in force: each offered rung comes once, in order, and no other does. */
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
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_batch), cmocka_unit_test(test_unequal_parts),
					   cmocka_unit_test(test_settle),      cmocka_unit_test(test_edges),
					   cmocka_unit_test(test_every_offer), cmocka_unit_test(test_names)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
