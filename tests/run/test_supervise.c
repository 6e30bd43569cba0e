/* run/supervise.h with a clock that runs fast: limits of hours end a command at once. Also a start that fails. */
#include "run/supervise.h"

#include "run/run_stage.h"

#include "support/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Each 3.6 ms count as an hour. */
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

/* The command ignores SIGTERM until the grace period is over, too. */
static void test_grace(void **state)
{
	static char *const command[] = {"sleep", "600", NULL};
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	uint64_t hour_ns = 3600 * NEAP_NS_PER_S;

	(void)state;
	sigaction(SIGTERM, &ignore, &before); /* the command inherits this: it never runs without it */
	struct neap_result result = run((struct neap_supervise_options){
		.command = command, .limits = {.at = {[NEAP_LIMIT_TIME] = 10 * hour_ns}, .grace_ns = 5 * hour_ns}});
	sigaction(SIGTERM, &before, NULL);
	assert_int_equal(result.outcome, NEAP_OUTCOME_TIMEOUT);
	assert_true(result.duration_ns >= 15 * hour_ns);
	neap_result_fini(&result);
}

/* Its turn has come, but its log has become a folder. */
static enum neap_status spoil(void *log_path, struct neap_monitor *monitor, struct neap_turn_answer *ret_answer,
			      struct neap_error *err)
{
	(void)monitor, (void)err;
	assert_int_equal(unlink(log_path), 0);
	assert_int_equal(mkdir(log_path, 0755), 0);
	*ret_answer = (struct neap_turn_answer){.found = NEAP_ROOM_NOW};
	return NEAP_OK;
}

/* The first start fails before a command runs: the folder says so, and a later run there succeeds. */
static void test_start_fails(void **state)
{
	static char *const command[] = {"true", NULL};
	char path[TEST_FOLDER_CAPACITY + 16];
	snprintf(path, sizeof path, "%s/stderr.log", folder);
	const struct neap_turn turn = {.ask = spoil, .context = path, .fd = -1};
	struct neap_supervise_options options = {.command = command,
						 .folder = folder,
						 .log_files = true,
						 .turn = &turn,
						 .needs.kind = NEAP_NEEDS_DEVICE};
	struct neap_supervise *supervise = NULL;
	struct neap_result result = {0};
	(void)state;
	assert_int_equal(neap_supervise_begin(&options, &supervise, NULL), NEAP_OK);
	assert_int_not_equal(neap_supervise_run(supervise, &result, NULL), NEAP_OK);
	neap_supervise_end(supervise);
	assert_int_equal(neap_run_stage_read(folder), NEAP_STAGE_UNBEGUN);
	assert_int_equal(rmdir(path), 0);
	result = run((struct neap_supervise_options){.command = command, .log_files = true});
	assert_int_equal(result.outcome, NEAP_OUTCOME_OK);
	neap_result_fini(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_time_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grace, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_start_fails, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
