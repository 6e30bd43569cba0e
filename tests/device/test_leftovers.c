/* A table: which holder of device memory is a leftover. */
#include "device/leftovers.h"

#include "support/test.h"

static void test_decide(void **state)
{
	static const struct {
		struct neap_leftover_facts facts;
		const char *own_run;
		enum neap_leftover expected;
	} cases[] = {
		/* A process of a neap run that is over. */
		{{.seen = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_ENDED},
		{{.seen = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_OVER}, NULL, NEAP_LEFTOVER_ENDED},
		{{.seen = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_OVER}, "", NEAP_LEFTOVER_ENDED},
		/* A process of a run that continues: another run, or a sibling in our series. */
		{{.seen = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_GOES_ON}, "b", NEAP_LEFTOVER_NONE},
		/* A process of our own run, whatever its lock says. */
		{{.seen = true, .uid = 7, .run_id = "b", .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_NONE},
		{{.seen = true, .uid = 7, .run_id = "b", .run = NEAP_RUN_UNKNOWN}, "b", NEAP_LEFTOVER_NONE},
		/* This process, its parent, its child. */
		{{.seen = true, .related = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_OVER},
		 "b",
		 NEAP_LEFTOVER_NONE},
		{{.seen = true, .related = true, .uid = 0}, "b", NEAP_LEFTOVER_NONE},
		/* Not neap's, or unknown. */
		{{.seen = true, .uid = 7}, "b", NEAP_LEFTOVER_NAMED},
		{{.seen = true, .uid = 7, .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_NAMED},
		{{.seen = true, .uid = 7, .run_id = "a", .run = NEAP_RUN_UNKNOWN}, "b", NEAP_LEFTOVER_NAMED},
		/* Another user's, even with our run's ID; root is no exception. */
		{{.seen = true, .uid = 8, .run_id = "a", .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_COUNTED},
		{{.seen = true, .uid = 0, .run_id = "b", .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_COUNTED},
		/* Of a namespace that we cannot see. */
		{{.uid = 7, .run_id = "a", .run = NEAP_RUN_OVER}, "b", NEAP_LEFTOVER_COUNTED},
		{{0}, NULL, NEAP_LEFTOVER_COUNTED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (neap_leftover_decide(&cases[i].facts, 7, cases[i].own_run) != cases[i].expected)
			fail_msg("case %zu", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_decide)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
