/* Which ends of pages together make a block (src/alloc/views). The test makes up the runs of free bytes. */
#include "alloc/views/views.h"
#include "support/test.h"

#define PAGE (2 * MIB)

/* Free bytes, from and to in KiB. */
struct run {
	uint64_t from, to;
};

static struct neap_stitch stitch(const struct run *runs, size_t count, uint64_t bytes)
{
	struct neap_free_run free_runs[8] = {0};
	struct neap_space space = {.page_bytes = PAGE, .runs = free_runs, .count = count};
	struct neap_stitch made = {0};
	for (size_t i = 0; i < count; i++) {
		struct neap_free_run *run = &free_runs[i];
		run->start = runs[i].from * KIB;
		run->end = runs[i].to * KIB;
		run->pages_start = round_up(run->start, PAGE);
		uint64_t end = round_down(run->end, PAGE);
		run->pages = end > run->pages_start ? (end - run->pages_start) / PAGE : 0;
		space.pages += run->pages;
	}
	if (!neap_space_stitch(&space, bytes, 0, &made))
		fail_msg("%llu bytes cannot be had", (unsigned long long)bytes);
	assert_int_equal(made.suffix_bytes + made.whole_pages * PAGE + made.prefix_bytes, bytes);
	return made;
}

/* Choose the pair that exceeds the request least. The suffix is used completely; the rest stays in the prefix. */
static void least_excess(void **state)
{
	static const struct run runs[] = {
		{3072, 4096},
		{5496, 6144},
		{8192, 9216},
		{12288, 12788}, /* suffixes of 1024, 648; prefixes of 1024, 500 */
	};
	(void)state;
	struct neap_stitch made = stitch(runs, COUNT(runs), 1124 * KIB);
	assert_int_equal(made.suffix_page, 4096 * KIB);
	assert_int_equal(made.suffix_bytes, 648 * KIB);
	assert_int_equal(made.prefix_page, 12288 * KIB);
	assert_int_equal(made.prefix_bytes, 476 * KIB);
}

/* The bytes by which a pair exceeds the request are lost. If they are many, a page is cut, and its rest becomes a new
 * end. */
static void page_is_cut(void **state)
{
	static const struct run runs[] = {{3072, 4096}, {8192, 9216}, {16384, 18432}};
	(void)state;
	struct neap_stitch made = stitch(runs, COUNT(runs), 1500 * KIB);
	assert_int_equal(made.suffix_page, 2048 * KIB);
	assert_int_equal(made.suffix_bytes, 1024 * KIB);
	assert_int_equal(made.prefix_page, 0); /* a whole page, not chosen yet */
	assert_int_equal(made.whole_pages, 0);
	made = stitch(runs, COUNT(runs), 1950 * KIB);
	assert_int_equal(made.prefix_page, 8192 * KIB);
	assert_int_equal(made.prefix_bytes, 926 * KIB);
}

/* A pair that saves a whole page is better than a pair that exceeds the request less. */
static void page_is_saved(void **state)
{
	static const struct run runs[] = {{2148, 4096}, {8192, 9216}, {16384, 18432}};
	(void)state;
	struct neap_stitch made = stitch(runs, COUNT(runs), 2048 * KIB + 800 * KIB);
	assert_int_equal(made.whole_pages, 0);
	assert_int_equal(made.suffix_bytes, 1948 * KIB);
	assert_int_equal(made.prefix_bytes, 900 * KIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(least_excess),
		cmocka_unit_test(page_is_cut),
		cmocka_unit_test(page_is_saved),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
