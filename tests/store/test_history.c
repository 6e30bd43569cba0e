/* The history: what is put is there again, once; a damaged file is set aside, an unknown version is left alone. */
#include "store/history.h"

#include "base/file.h"

#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static char path[128];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/neap-test-history-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/history.db", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", folder);
	return system(command);
}

static struct neap_history *open_history(void)
{
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	char note[512] = "x";
	enum neap_status status = neap_history_open(path, &history, note, &err);
	if (status)
		fail_msg("%s", err.message);
	assert_string_equal(note, "");
	return history;
}

static void put(struct neap_history *history, const char *id, const char *name, enum neap_outcome outcome,
		uint64_t peak_bytes, uint64_t ended)
{
	struct neap_result result = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.run_id, id, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.name, name, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.rung, "micro_batch 64 -> 16; it's", NULL), NEAP_OK);
	result.outcome = outcome;
	result.peak_device_bytes = peak_bytes;
	result.peak_reserved_bytes = peak_bytes == 64 ? 1000 : 0;
	result.ended_wall_ns = ended;
	result.headroom_bytes = UINT64_MAX;
	result.exit_status = 137;
	result.drained = true;
	result.retries = 2;
	result.last_loss = NAN;
	result.leak_bytes_per_step = -1.5;
	if (neap_history_put(history, "nightly", &result, &err))
		fail_msg("%s", err.message);
	neap_result_fini(&result);
}

struct seen {
	size_t count;
	char ids[8][32];
	size_t stop_after;
};

static bool see(void *context, const char *series, const struct neap_result *result)
{
	struct seen *seen = context;
	assert_string_equal(series, "nightly");
	assert_string_equal(result->rung, "micro_batch 64 -> 16; it's");
	assert_int_equal(result->exit_status, 137);
	assert_int_equal(result->retries, 2);
	assert_true(result->drained);
	assert_false(result->attached);
	assert_true(isnan(result->last_loss));
	assert_true(result->leak_bytes_per_step == -1.5);
	assert_int_equal(result->headroom_bytes, INT64_MAX); /* more than SQLite can hold */
	snprintf(seen->ids[seen->count++], 32, "%s/%s", result->run_id, neap_outcome_name(result->outcome));
	return seen->count != seen->stop_after;
}

static void test_put_and_each(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	put(history, "r2", "a", NEAP_OUTCOME_FAILED, 900, 30);
	put(history, "r3", "b", NEAP_OUTCOME_OOM, 50, 20);
	put(history, "r1", "a", NEAP_OUTCOME_OK, 200, 10); /* a resumed series puts it again */
	neap_history_close(history);
	history = open_history();
	struct seen seen = {0};
	assert_int_equal(neap_history_each(history, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.ids[0], "r2/failed");
	assert_string_equal(seen.ids[1], "r3/oom");
	assert_string_equal(seen.ids[2], "r1/ok");
	seen = (struct seen){.stop_after = 1};
	assert_int_equal(neap_history_each(history, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 1);
	neap_history_close(history);
}

static void test_peak(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	struct neap_error err = {0};
	uint64_t bytes = 7;
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	put(history, "r2", "a", NEAP_OUTCOME_OK, 300, 20);
	put(history, "r3", "a", NEAP_OUTCOME_FAILED, 900, 30);
	put(history, "r4", "b", NEAP_OUTCOME_FAILED, 900, 30);
	put(history, "r5", "c", NEAP_OUTCOME_OK, 0, 30); /* unknown is no measurement */
	put(history, "r6", "d", NEAP_OUTCOME_OK, 64, 30);
	assert_int_equal(neap_history_peak(history, "nightly", "a", &bytes, &err), NEAP_OK);
	assert_int_equal(bytes, 300);
	assert_int_equal(neap_history_peak(history, "nightly", "d", &bytes, &err), NEAP_OK);
	assert_int_equal(bytes, 1000); /* as reserved: the sampling missed it */
	bytes = 300;
	assert_int_equal(neap_history_peak(history, "nightly", "b", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(neap_history_peak(history, "nightly", "c", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(neap_history_peak(history, "other", "a", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(bytes, 300);
	neap_history_close(history);
}

static void test_no_id(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	struct neap_result result = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_history_put(history, "nightly", &result, &err), NEAP_EINVAL);
	neap_result_fini(&result);
	neap_history_close(history);
}

static void test_damaged(void **state)
{
	(void)state;
	static const char nonsense[] = "this is no database, however often it is read, whatever its name may promise";
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	char note[512] = "", begin[512], command[256];
	assert_int_equal(neap_file_write(path, nonsense, sizeof nonsense, NULL), NEAP_OK);
	if (neap_history_open(path, &history, note, &err))
		fail_msg("%s", err.message);
	snprintf(begin, sizeof begin, "the history %s was damaged: set aside as %s.damaged-", path, path);
	assert_int_equal(strncmp(note, begin, strlen(begin)), 0);
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	snprintf(command, sizeof command, "grep -q 'no database' %s/history.db.damaged-*", folder);
	assert_int_equal(system(command), 0); /* nothing lost */
	history = open_history();
	struct seen seen = {0};
	assert_int_equal(neap_history_each(history, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 1);
	neap_history_close(history);
}

/* Three within a second: none is written over. */
static void test_damaged_again(void **state)
{
	(void)state;
	char text[64], command[300];
	for (int i = 0; i < 3; i++) {
		struct neap_history *history = NULL;
		snprintf(text, sizeof text, "number %d is no database, whatever its name may promise", i);
		assert_int_equal(neap_file_write(path, text, strlen(text), NULL), NEAP_OK);
		assert_int_equal(neap_history_open(path, &history, NULL, NULL), NEAP_OK);
		neap_history_close(history);
	}
	snprintf(command, sizeof command,
		 "test $(cat %s/history.db.damaged-* | grep -o 'number .' | sort -u | wc -l) = 3", folder);
	assert_int_equal(system(command), 0);
}

static void test_damaged_inside(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	char note[512] = "";
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	FILE *file = fopen(path, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, 4096, SEEK_SET), 0); /* the second page: the table's root */
	for (int i = 0; i < 4096; i++)
		fputc(0xff, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(neap_history_open(path, &history, note, NULL), NEAP_OK);
	assert_non_null(strstr(note, "was damaged"));
	neap_history_close(history);
}

static void test_newer(void **state)
{
	(void)state;
	sqlite3 *database = NULL;
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	assert_int_equal(sqlite3_exec(database, "CREATE TABLE future (x); PRAGMA user_version = 99", 0, 0, 0),
			 SQLITE_OK);
	assert_int_equal(sqlite3_close(database), SQLITE_OK);
	assert_int_equal(neap_history_open(path, &history, NULL, &err), NEAP_ENOTSUP);
	assert_non_null(strstr(err.message, "schema version 99"));
	assert_null(history);
}

static void test_nowhere(void **state)
{
	(void)state;
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	assert_int_not_equal(neap_history_open("/nonexistent/history.db", &history, NULL, &err), NEAP_OK);
	assert_non_null(strstr(err.message, "/nonexistent/history.db"));
}

/* Several processes open, migrate and write one new file at once. */
static void test_together(void **state)
{
	(void)state;
	pid_t children[4];
	for (int i = 0; i < 4; i++) {
		children[i] = fork();
		assert_int_not_equal(children[i], -1);
		if (!children[i]) {
			struct neap_history *history = NULL;
			struct neap_result result = {0};
			char id[16];
			enum neap_status status = neap_history_open(path, &history, NULL, NULL);
			if (!status)
				status = neap_result_init(&result, NULL);
			for (int run = 0; run < 5 && !status; run++) {
				snprintf(id, sizeof id, "%d-%d", i, run);
				status = neap_result_set(&result.run_id, id, NULL);
				if (!status)
					status = neap_history_put(history, "nightly", &result, NULL);
			}
			_exit(status);
		}
	}
	for (int i = 0; i < 4; i++) {
		int status = -1;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	sqlite3 *database = NULL;
	sqlite3_stmt *count = NULL;
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(database, "SELECT count(*) FROM runs", -1, &count, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(count), SQLITE_ROW);
	assert_int_equal(sqlite3_column_int(count, 0), 20);
	sqlite3_finalize(count);
	sqlite3_close(database);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_put_and_each, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_peak, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_no_id, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_damaged, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_damaged_again, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_damaged_inside, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_newer, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_nowhere, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_together, make_folder, remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
