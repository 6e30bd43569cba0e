/* What a list of runs shows comes from columns that SQLite computes, in an index; and from the result itself where
 * these columns are not what neap writes, or where there are none. */
#include "store/history.h"

#include "support/test.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static char folder[TEST_FOLDER_CAPACITY], path[128];

static int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "listed"))
		return -1;
	snprintf(path, sizeof path, "%s/history.db", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

/* Runs SQL as another program. */
static void change(const char *sql)
{
	sqlite3 *database = NULL;
	char *message = NULL;
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	if (sqlite3_exec(database, sql, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s", message);
	sqlite3_close(database);
}

static struct neap_history *open_history(void)
{
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	char note[512] = "";
	if (neap_history_open(path, &history, note, &err))
		fail_msg("%s", err.message);
	assert_string_equal(note, "");
	return history;
}

static void put(struct neap_history *history, const char *id, uint64_t number)
{
	struct neap_result result = {0};
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.run_id, id, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.name, "it's \"a\" \xc3\xa9", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.rung, number & 1 ? "micro_batch 64 -> 16" : "", NULL), NEAP_OK);
	result.outcome = NEAP_OUTCOME_OOM;
	result.ended_wall_ns = 100 + number;
	result.duration_ns = 200 + number;
	result.steps = 300 + number;
	result.peak_device_bytes = number & 1 ? 7 : 400 + number;
	result.peak_reserved_bytes = number & 1 ? 400 + number : 7;
	assert_int_equal(neap_history_put(history, "nightly", "k1", &result, NULL), NEAP_OK);
	neap_result_fini(&result);
}

/* Checks the run that put(..., number) wrote; numbers descend from *context. */
static bool see(void *context, struct neap_history_run *run)
{
	uint64_t number = --*(uint64_t *)context;
	const struct neap_result *result = run->result;
	char id[32];
	snprintf(id, sizeof id, "r%d", (int)number);
	assert_string_equal(result->run_id, id);
	assert_string_equal(run->series, "nightly");
	assert_string_equal(result->name, "it's \"a\" \xc3\xa9");
	assert_string_equal(result->rung, number & 1 ? "micro_batch 64 -> 16" : "");
	assert_int_equal(result->outcome, NEAP_OUTCOME_OOM);
	assert_int_equal(result->ended_wall_ns, 100 + number);
	assert_int_equal(result->duration_ns, 200 + number);
	assert_int_equal(result->steps, 300 + number);
	bool device = result->peak_device_bytes > result->peak_reserved_bytes;
	assert_int_equal(device ? result->peak_device_bytes : result->peak_reserved_bytes, 400 + number);
	return true;
}

static enum neap_status list(struct neap_history *history, uint64_t count, uint64_t *ret_left)
{
	const struct neap_history_filter listed = {.depth = NEAP_HISTORY_LISTED, .series = "night*"};
	*ret_left = count;
	return neap_history_find(history, &listed, see, ret_left, NULL);
}

static void test_columns(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	uint64_t left;
	for (uint64_t i = 0; i < 4; i++)
		put(history, (const char *[]){"r0", "r1", "r2", "r3"}[i], i);
	assert_int_equal(list(history, 4, &left), NEAP_OK);
	assert_int_equal(left, 0);
	neap_history_close(history);
}

/* Columns that neap does not write: the list reads the result, and finds its error if there is one. */
static void test_odd_results(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"'no JSON'",
		"'{}'",
		"json_set(result, '$.steps', -1)",
		"json_set(result, '$.steps', '12')",
		"json_set(result, '$.duration_ns', 1.5)",
		"json_set(result, '$.peak_device_bytes', 'many')",
		"json_set(result, '$.rung', 7)",
		"json_remove(result, '$.schema', '$.steps')",
	};
	struct neap_history *history = open_history();
	char sql[256];
	uint64_t left;
	put(history, "r0", 0);
	put(history, "r1", 1);
	change("CREATE TABLE kept AS SELECT result FROM runs WHERE run_id = 'r1'");
	/* damage of its lists, which are not shown */
	change("UPDATE runs SET result = replace(result, '\": [', '\": [7') WHERE run_id = 'r1'");
	assert_int_equal(list(history, 2, &left), NEAP_OK);
	assert_int_equal(left, 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		change("UPDATE runs SET result = (SELECT result FROM kept) WHERE run_id = 'r1'");
		snprintf(sql, sizeof sql, "UPDATE runs SET result = %s WHERE run_id = 'r1'", bad[i]);
		change(sql);
		if (list(history, 2, &left) != NEAP_EPARSE)
			fail_msg("listed: %s", bad[i]);
	}
	neap_history_close(history);
}

/* The file of schema 3 gets the columns when it is opened. */
static void test_converted(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	uint64_t left;
	put(history, "r0", 0);
	put(history, "r1", 1);
	neap_history_close(history);
	change("ALTER TABLE runs RENAME TO later; DROP INDEX runs_experiment; DROP INDEX runs_ended; DROP INDEX "
	       "runs_listed;"
	       "CREATE TABLE runs (id INTEGER PRIMARY KEY, series TEXT NOT NULL, experiment_key TEXT NOT NULL,"
	       " run_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, outcome TEXT NOT NULL, ended_wall_ns INTEGER NOT "
	       "NULL, result TEXT NOT NULL);CREATE INDEX runs_experiment ON runs (series, name, outcome);"
	       "CREATE INDEX runs_ended ON runs (ended_wall_ns); INSERT INTO runs SELECT id, series, experiment_key,"
	       " run_id, name, outcome, ended_wall_ns, result FROM later; DROP TABLE later; PRAGMA user_version = 3");
	/* A column that is there already: the file is used as it is, and not set aside. */
	change("ALTER TABLE runs ADD COLUMN rung TEXT");
	history = open_history();
	assert_int_equal(list(history, 2, &left), NEAP_OK);
	assert_int_equal(left, 0);
	neap_history_close(history);
	change("ALTER TABLE runs DROP COLUMN rung");
	history = open_history();
	put(history, "r2", 2);
	assert_int_equal(list(history, 3, &left), NEAP_OK);
	assert_int_equal(left, 0);
	change("SELECT peak_bytes, duration_ns, steps, rung FROM runs INDEXED BY runs_listed ORDER BY ended_wall_ns");
	neap_history_close(history);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_columns, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_odd_results, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_converted, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
