/* run/supervise.h with a clock that runs fast: limits of hours end a command at once. */
#include "run/supervise.h"

#include "support/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static char folder[TEST_FOLDER_CAPACITY];

static int set_up(void **state)
{
	(void)state;
	return make_folder(folder, "supervise");
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

/* An hour in each 3.6 ms. */
static uint64_t fast(void *context)
{
	static uint64_t begun_ns;
	uint64_t now_ns = neap_clock_now(neap_clock_system());

	(void)context;
	begun_ns = begun_ns ? begun_ns : now_ns;
	return 1 + (now_ns - begun_ns) * 1000000;
}

static const struct neap_clock fast_clock = {.now = fast};

static struct neap_result run(struct neap_supervise_options options)
{
	struct neap_supervise *supervise = NULL;
	struct neap_result result = {0};
	struct neap_error err = {0};

	options.folder = folder;
	options.clock = &fast_clock;
	if (neap_supervise_begin(&options, &supervise, &err) || neap_supervise_run(supervise, &result, &err))
		fail_msg("%s", err.message);
	neap_supervise_end(supervise);
	return result;
}

static void test_time_limit(void **state)
{
	static char *const command[] = {"sleep", "600", NULL};
	uint64_t hour_ns = 3600 * NEAP_NS_PER_S;

	(void)state;
	struct neap_result result = run((struct neap_supervise_options){
		.command = command, .limits = {.at = {[NEAP_LIMIT_TIME] = 10 * hour_ns}, .grace_ns = hour_ns}});
	assert_int_equal(result.outcome, NEAP_OUTCOME_TIMEOUT);
	assert_true(result.duration_ns >= 10 * hour_ns);
	neap_result_fini(&result);
}

/* It ignores SIGTERM: the grace is over, too. */
static void test_grace(void **state)
{
	static char *const command[] = {"sleep", "600", NULL};
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	uint64_t hour_ns = 3600 * NEAP_NS_PER_S;

	(void)state;
	sigaction(SIGTERM, &ignore, &before); /* the command inherits it: it has no moment without */
	struct neap_result result = run((struct neap_supervise_options){
		.command = command, .limits = {.at = {[NEAP_LIMIT_TIME] = 10 * hour_ns}, .grace_ns = 5 * hour_ns}});
	sigaction(SIGTERM, &before, NULL);
	assert_int_equal(result.outcome, NEAP_OUTCOME_TIMEOUT);
	assert_true(result.duration_ns >= 15 * hour_ns);
	neap_result_fini(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_time_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grace, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
