/* The line of progress: what it says, and how it is cut. */
#include "series/series_progress.h"

#include "support/test.h"

#include <math.h>
#include <string.h>

#define SECOND 1000000000ull

static void expect(const struct neap_series_progress *progress, size_t width, const char *expected)
{
	char text[512] = "untouched";
	neap_series_progress_format(progress, width, text, sizeof text);
	assert_string_equal(text, expected);
}

static const struct neap_progress_run bare = {.loss = (double)NAN, .limit_bytes = UINT64_MAX, .left_ns = UINT64_MAX};

static void test_one(void **state)
{
	(void)state;
	struct neap_series_progress progress = {.count = 12, .ended = 2};
	expect(&progress, 79, ""); /* nothing runs */
	progress.running_count = 1;
	progress.running[0] = bare;
	progress.running[0].name = "plain";
	progress.running[0].number = 3;
	progress.running[0].elapsed_ns = 59 * SECOND + 999999999;
	expect(&progress, 79, "[3/12] plain: 59 s");
	progress.running[0].step = 120;
	progress.running[0].loss = 2.31456;
	progress.running[0].used_bytes = 3ull << 30;
	expect(&progress, 79, "[3/12] plain: 59 s, step 120, loss 2.315, 3.00 GiB");
	progress.running[0].limit_bytes = 80ull << 30;
	progress.running[0].left_ns = 125 * SECOND;
	expect(&progress, 99, "[3/12] plain: 59 s, about 2 m 05 s left, step 120, loss 2.315, 3.00 GiB of 80.0 GiB");
	expect(&progress, 40, "[3/12] plain: 59 s, about 2 m 05 s le...");
	expect(&progress, 19, ""); /* there was nothing to read */
}

static void test_several(void **state)
{
	(void)state;
	struct neap_series_progress progress = {.count = 3, .running_count = 2};
	progress.running[0] = progress.running[1] = bare;
	progress.running[0].name = "a";
	progress.running[0].number = 1;
	progress.running[1].name = "b";
	progress.running[1].number = 3;
	progress.running[1].step = 7;
	expect(&progress, 79, "[1/3] a: 0 s | [3/3] b: 0 s, step 7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_several)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
