/* The page of two traces: its answer. */

#include "../trace/made_trace.h"
#include "report/compared.h"
#include "support/test.h"

static struct neap_trace *a_trace(uint64_t mib)
{
	struct maker maker;

	begin(&maker);
	put_event(&maker, (struct neap_trace_event){
				  .address = 1ull << 32, .size = mib * MIB, .kind = NEAP_TRACE_SEGMENT_ALLOC});
	put_event(&maker,
		  (struct neap_trace_event){.address = 1ull << 32, .size = mib * MIB, .kind = NEAP_TRACE_ALLOC});
	return finish(&maker);
}

/* The answer of a page that compares two: A's failure, B's leak and the times of a step. */
static void check_answer(struct neap_compared *compared, bool failed, double leaked, uint64_t before_ns,
			 uint64_t after_ns, const char *expected)
{
	struct neap_buffer page = {0};
	struct neap_analysis *a = &compared->before.analysis, *b = &compared->after.analysis;

	a->has_oom = failed;
	a->trends.course.step_ns = before_ns;
	b->trends.leak.verdict = leaked > 0 ? NEAP_LEAK_FOUND : NEAP_LEAK_TOO_SHORT;
	b->trends.leak.bytes_per_step = leaked;
	b->trends.course.step_ns = after_ns;
	assert_int_equal(neap_compared_page(&page, compared, NULL), NEAP_OK);
	if (!strstr(neap_buffer_string(&page), expected))
		fail_msg("no '%s' in:\n%.400s", expected, strstr(page.data, "<main>"));
	neap_buffer_fini(&page);
}

/* A lower peak alone is no good news. */
static void bad_news_of_a_comparison(void **state)
{
	(void)state;
	struct neap_trace *large = a_trace(512), *small = a_trace(256);
	struct neap_compared compared = {.before = {.path = "a", .trace = large},
					 .after = {.path = "b", .trace = small}};
	struct neap_analysis_options how = {.device = 0};

	assert_int_equal(neap_analyze(large, &how, &compared.before.analysis, NULL), NEAP_OK);
	assert_int_equal(neap_analyze(small, &how, &compared.after.analysis, NULL), NEAP_OK);
	check_answer(&compared, false, 0, 100, 109,
		     "<section class=\"answer good\">\n<h2>B peaks 256 MiB lower than A: "
		     "256 MiB instead of 512 MiB reserved</h2>\n</section>");
	check_answer(&compared, false, 0, 20000000, 30000000,
		     "<section class=\"answer warn\">\n<h2>B peaks 256 MiB lower than A: 256 MiB instead of 512 MiB "
		     "reserved</h2>\n<p>Each step takes 30.0 ms in B, 20.0 ms in A (+50 %).</p>\n</section>");
	small->origin = (struct neap_trace_origin){.gpu = "NVIDIA <A100>", .simulated = true};
	/* The simulator's times are no news. */
	check_answer(
		&compared, false, 0, 20000000, 30000000,
		"reserved</h2>\n</section>\n<div class=\"columns\">\n<div class=\"card\"><h3>A: at most 512 MiB");
	check_answer(&compared, false, 0, 20000000, 30000000,
		     "<span class=\"quiet\">b, on NVIDIA &lt;A100&gt; (simulated)</span>");
	check_answer(&compared, false, 0, 0, 0, "<title>a and b - neap compare</title>");
	small->origin = (struct neap_trace_origin){0};
	check_answer(&compared, true, 2048, 20000000, 30000000,
		     "<p>Each step takes 30.0 ms in B, 20.0 ms in A (+50 %). A ran out of memory. B leaks 2.00 KiB a "
		     "step.</p>\n");
	neap_compared_fini(&compared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bad_news_of_a_comparison)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
