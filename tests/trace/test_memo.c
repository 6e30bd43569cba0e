/* The memo of a pickle against an array that remembers everything, beyond its low numbers and for many pages. */
#include "trace/memo.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS (NEAP_MEMO_LOW + 60000)

static void assert_same(const struct neap_memo *memo, const uint64_t *shadow, uint64_t number)
{
	const uint64_t *entry = neap_memo_get(memo, number);

	assert_int_equal(entry ? *entry : 0, shadow[number]);
}

static void test_shadow(void **state)
{
	uint64_t *shadow = calloc(NUMBERS + 200, sizeof *shadow), seed = 9;
	struct neap_memo memo = {0};
	unsigned kept = 0;

	(void)state;
	assert_non_null(shadow);
	while (memo.next < NUMBERS) {
		uint64_t number = memo.next + (next_random(&seed) % 50 ? 0 : next_random(&seed) % 150), lately;
		if (next_random(&seed) % 2) {
			shadow[number] = next_random(&seed) >> 1 | 1;
			assert_int_equal(neap_memo_put(&memo, number, shadow[number]), NEAP_MEMO_DONE);
		} else {
			assert_int_equal(neap_memo_skip(&memo, number), NEAP_MEMO_DONE);
		}
		assert_int_equal(memo.next, number + 1);
		lately = number - next_random(&seed) % (number < 100 ? number + 1 : 100);
		if (next_random(&seed) % 3 == 0) {
			if (neap_memo_forget(&memo, lately))
				shadow[lately] = 0;
			else
				kept += shadow[lately] != 0;
		} else if (shadow[lately]) {
			shadow[lately]++;
			assert_int_equal(neap_memo_put(&memo, lately, shadow[lately]), NEAP_MEMO_DONE);
		} else {
			assert_int_equal(neap_memo_put(&memo, lately, 1), NEAP_MEMO_ORDER);
			assert_int_equal(neap_memo_skip(&memo, lately), NEAP_MEMO_ORDER);
		}
		for (int i = 0; i < 3; i++)
			assert_same(&memo, shadow, next_random(&seed) % (number + 1));
	}
	for (uint64_t number = 0; number < memo.next; number++)
		assert_same(&memo, shadow, number);
	assert_null(neap_memo_get(&memo, memo.next));
	assert_true(kept < 5000); /* most are forgotten */
	neap_memo_fini(&memo);
	free(shadow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shadow)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
