/* The promise of neap series: killed at any write of its journal, and resumed, it runs every experiment exactly once.
 *
 * 50 kills at random journal writes and 10 just after a supervisor was started, each in a series of stub experiments
 * that note that they ran. When a series ends, it is checked and the next one started, until the kills are done. The
 * seed is printed; NEAP_TEST_SEED sets it.
 */
#include "series_test.h"

#include "store/history.h"

#include <time.h>
#include <unistd.h>

#define EXPERIMENTS 12
#define KILLS       50
#define FORK_KILLS  10

static unsigned seed;
static unsigned canceled;

static unsigned below(unsigned limit) { return (unsigned)rand_r(&seed) % limit; }

static bool count_row(void *context, struct neap_history_run *run)
{
	unsigned *rows = context;
	assert_string_equal(run->series, "stubs");
	assert_int_equal(run->result->outcome, NEAP_OUTCOME_OK);
	++*rows;
	return true;
}

/* Every experiment has one end and ran once; nothing is lost, for no supervisor was killed. */
static void check_series(const char *folder)
{
	json_t *records = series_records(folder);
	for (int i = 0; i < EXPERIMENTS; i++) {
		char name[32], ran[96];
		snprintf(name, sizeof name, "e-i=%d", i);
		snprintf(ran, sizeof ran, "%s/ran/%d", folder, i);
		unsigned ends = series_count(records, "end", name), losses = series_count(records, "lost", name);
		unsigned starts = series_count(records, "start", name);
		unsigned unbegun = series_count(records, "cancel", name);
		if (ends != 1 || series_lines(ran) != 1 || losses || starts != 1 + unbegun)
			fail_msg("%s: %s: %u ends, %u starts, %u lost, %u that never began, ran %u times", folder,
				 name, ends, starts, losses, unbegun, series_lines(ran));
		canceled += unbegun;
	}
	json_decref(records);
}

static void test_killed(void **state)
{
	(void)state;
	static const char *const modes[] = {"before", "torn", "written", "synced"};
	unsigned kills[5] = {0}, killed = 0, fork_killed = 0, number = 0, ended = 0;
	const char *given = getenv("NEAP_TEST_SEED");
	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL) ^ (unsigned)getpid();
	print_message("seed %u\n", seed);
	while (killed < KILLS || fork_killed < FORK_KILLS) {
		char folder[32], file[48], order[64], text[512];
		snprintf(folder, sizeof folder, "series%u", ++number);
		snprintf(file, sizeof file, "%s.yaml", folder);
		snprintf(text, sizeof text,
			 "name: stubs\nexperiments:\n- name: e\n  needs: none\n"
			 "  command: [sh, -c, 'mkdir -p %s/ran && echo x >> %s/ran/{i}']\n"
			 "  grid: {i: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n",
			 folder, folder);
		series_write(file, text);
		int code = 128 + 9;
		while (code == 128 + 9) {
			bool at_fork = fork_killed < FORK_KILLS && (killed == KILLS || !below(6));
			unsigned mode = at_fork ? 4 : below(4);
			snprintf(order, sizeof order, "%s:%u:%u", at_fork ? "fork" : modes[mode],
				 at_fork ? 1 + below(2) : 1 + below(6), below(1000));
			bool enough = !at_fork && killed == KILLS;
			unlink("err");
			code = SERIES(enough ? NULL : order, file, "--resume", "--quiet", "--folder", folder);
			if (code == 128 + 9) {
				kills[mode]++;
				killed += !at_fork;
				fork_killed += at_fork;
			}
		}
		if (code != 0) {
			char *said = series_read("err");
			fail_msg("%s, order %s: exit %d\n%s", folder, order, code, said);
		}
		check_series(folder);
		ended += EXPERIMENTS;
	}
	print_message("%u kills at journal writes (%u before, %u torn, %u written, %u synced), %u after a start; %u "
		      "series, "
		      "%u experiments, %u attempts that never began\n",
		      killed, kills[0], kills[1], kills[2], kills[3], kills[4], number, ended, canceled);
	assert_int_equal(killed, KILLS);
	/* The history has each run once. */
	struct neap_history *history = NULL;
	unsigned rows = 0;
	assert_int_equal(neap_history_open("neap/history.db", &history, NULL, NULL), NEAP_OK);
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, count_row, &rows, NULL),
			 NEAP_OK);
	neap_history_close(history);
	assert_int_equal(rows, ended);
}

/* Every journal write of one short series, in every mode, so that nothing depends on chance. */
static void test_each_write(void **state)
{
	(void)state;
	static const char *const modes[] = {"before", "torn", "written", "synced", "full"};
	unsigned tried = 0;
	for (size_t mode = 0; mode < 5; mode++)
		for (unsigned n = 1; n <= 4; n++) { /* series, start, end, finish */
			char folder[32], file[48], order[64], text[256], ran[64];
			snprintf(folder, sizeof folder, "each%u", ++tried);
			snprintf(file, sizeof file, "%s.yaml", folder);
			snprintf(ran, sizeof ran, "%s/ran", folder);
			snprintf(order, sizeof order, "%s:%u:%u", modes[mode], n, 7 * n);
			snprintf(text, sizeof text,
				 "name: one\nexperiments:\n- {name: e, needs: none, command: [sh, -c, 'echo x >> "
				 "%s']}\n",
				 ran);
			series_write(file, text);
			unlink("err");
			int code = SERIES(order, file, "--quiet", "--folder", folder);
			char *said = series_read("err");
			if (code != (mode == 4 ? 74 : 128 + 9))
				fail_msg("%s: exit %d\n%s", order, code, said);
			if (mode == 4 && (!strstr(said, "No space left on device") || !strstr(said, "--resume")))
				fail_msg("%s: said %s", order, said);
			free(said);
			code = SERIES(NULL, file, "--resume", "--quiet", "--folder", folder);
			json_t *records = series_records(folder);
			if (code || series_count(records, "end", "e") != 1 || series_lines(ran) != 1) {
				said = series_read("err");
				fail_msg("%s: resumed with exit %d\n%s", order, code, said);
			}
			json_decref(records);
		}
	print_message("a series of one: killed, or the disk full, at %u instants of its journal's 4 writes\n", tried);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_killed, series_setup, series_teardown),
		cmocka_unit_test_setup_teardown(test_each_write, series_setup, series_teardown),
	};
	if (series_arguments(argc, argv))
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
