/* If a plan finds nothing, the report says what comes nearest. */
#include "estimate/text.h"

#include "support/test.h"

#include <string.h>

static struct sim_profile profile = {.name = "made", .gpu_name = "Made"};

static void expect(const struct neap_estimate_report *report, const char *line)
{
	struct neap_buffer out = {0};
	neap_estimate_search_text(&out, report);
	if (!strstr(neap_buffer_string(&out), line))
		fail_msg("'%s' is not in %s", line, neap_buffer_string(&out));
	neap_buffer_fini(&out);
}

static void the_nearest_is_first(void **state)
{
	(void)state;
	static struct neap_estimate_plan plan = {
		.gpus = {{.name = "made", .profile = &profile}}, .count = 1, .run_count = 1};
	const char *const changes[] = {"checkpointing=1", NULL};
	char *const parameters[] = {NULL};
	struct neap_estimate_search search = {.name = "batch", .samples = 4, .given = 1};
	struct neap_estimate_report report = {.plan = &plan, .search = &search};
	struct neap_error err;
	assert_int_equal(neap_estimate_search_ways(&search, parameters, changes, &err), NEAP_OK);
	assert_int_equal(neap_estimate_search_begin(&search, 1, &err), NEAP_OK);
	for (int64_t way = 0; way < 2; way++) {
		search.trials[way].way = (size_t)way;
		search.trials[way].point = (struct neap_estimate_point){.value = 1, .reserved_peak = 9 * MIB};
		search.trials[way].point.headroom[0] = (way - 2) * (int64_t)MIB;
	}
	search.count = 1;
	expect(&report, "Ways to train with 4 samples an update: 1 run\n");
	search.count = 2;
	expect(&report, "Ways to train with 4 samples an update: 2 runs\n");
	expect(&report,
	       "\nmade                     -            -   9.00 MiB  -1.00 MiB  checkpointing=1 (not with 1)\n");
	expect(&report, "  nothing fits there: the first comes nearest\n");
	neap_estimate_search_fini(&search);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_nearest_is_first)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
