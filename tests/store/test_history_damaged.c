/* The history's file: a damaged one is set aside, an earlier version's too, a later version's is left alone. */
#include "history_test.h"

#include "base/file.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool count_run(void *context, struct neap_history_run *run)
{
	assert_string_equal(run->result->run_id, "r1");
	++*(size_t *)context;
	return true;
}

static void test_damaged(void **state)
{
	(void)state;
	static const char nonsense[] =
		"this is not a database, however often it is read, whatever its name may promise";
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
	snprintf(command, sizeof command, "grep -q 'not a database' %s/history.db.damaged-*", folder);
	assert_int_equal(system(command), 0); /* nothing lost */
	history = open_history();
	size_t seen = 0;
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, count_run, &seen, NULL),
			 NEAP_OK);
	assert_int_equal(seen, 1);
	neap_history_close(history);
}

/* Opens the history and stores one run, as soon as `go` is closed. */
static void begin_writer(pid_t *child, int number, const int go[2])
{
	*child = fork();
	assert_int_not_equal(*child, -1);
	if (*child)
		return;
	struct neap_history *history = NULL;
	struct neap_result result = {0};
	char id[16], byte;
	close(go[1]);
	if (read(go[0], &byte, 1) || neap_history_open(path, &history, NULL, NULL))
		_exit(1);
	snprintf(id, sizeof id, "w%d", number);
	if (neap_result_init(&result, NULL) || neap_result_set(&result.run_id, id, NULL) ||
	    neap_history_put(history, "nightly", "k1", &result, NULL))
		_exit(2);
	neap_history_close(history);
	_exit(0);
}

/* Several processes find it damaged at once: one sets it aside, and all rows stored in the new one stay. */
static void test_damaged_together(void **state)
{
	(void)state;
	static const char nonsense[] =
		"this is not a database, however often it is read, whatever its name may promise";
	enum { WRITERS = 4, ROUNDS = 3 };
	char command[256];
	for (int round = 0; round < ROUNDS; round++) {
		pid_t children[WRITERS];
		int go[2], failed = 0;
		snprintf(command, sizeof command, "rm -f %s/*", folder);
		assert_int_equal(system(command), 0);
		assert_int_equal(neap_file_write(path, nonsense, sizeof nonsense, NULL), NEAP_OK);
		assert_int_equal(pipe(go), 0);
		for (int i = 0; i < WRITERS; i++)
			begin_writer(&children[i], i, go);
		close(go[0]);
		close(go[1]);
		for (int i = 0; i < WRITERS; i++) {
			int status = -1;
			assert_int_equal(waitpid(children[i], &status, 0), children[i]);
			failed += status != 0;
		}
		assert_int_equal(failed, 0);
		assert_int_equal(ask_number("SELECT count(*) FROM runs"), WRITERS);
		snprintf(command, sizeof command, "test $(ls %s/history.db.damaged-* | wc -l) = 1", folder);
		assert_int_equal(system(command), 0);
	}
}

/* Three within a second: none is overwritten. */
static void test_damaged_again(void **state)
{
	(void)state;
	char text[64], command[300];
	for (int i = 0; i < 3; i++) {
		struct neap_history *history = NULL;
		snprintf(text, sizeof text, "number %d is not a database, whatever its name may promise", i);
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

/* Overwrites the second page, the table's root; the file keeps its times. */
static void damage_unseen(void)
{
	struct stat info;
	assert_int_equal(stat(path, &info), 0);
	FILE *file = fopen(path, "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, 4096, SEEK_SET), 0);
	for (int i = 0; i < 4096; i++)
		fputc(0xff, file);
	assert_int_equal(fclose(file), 0);
	const struct timespec times[] = {info.st_atim, info.st_mtim};
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The whole file is read at most once a day, if it is as neap left it; and again after a query has found damage. */
static void test_checked_daily(void **state)
{
	(void)state;
	char note[512] = "", stamp[300], text[128], rest[64] = "";
	unsigned long long checked_ns = 0;
	struct neap_error err = {0};
	size_t seen = 0;
	struct neap_history *history = open_history();
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	damage_unseen();
	assert_int_equal(neap_history_open(path, &history, note, NULL), NEAP_OK);
	assert_string_equal(note, ""); /* it was not read completely */
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, count_run, &seen, &err),
			 NEAP_EIO);
	neap_history_close(history);
	assert_int_equal(neap_history_open(path, &history, note, NULL), NEAP_OK);
	assert_non_null(strstr(note, "was damaged")); /* now damage was suspected */
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	damage_unseen();
	/* a day later */
	snprintf(stamp, sizeof stamp, "%s.checked", path);
	FILE *file = fopen(stamp, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu %63[^\n]", &checked_ns, rest), 2);
	fclose(file);
	snprintf(text, sizeof text, "%llu %s\n", checked_ns - 86401ull * 1000000000ull, rest);
	assert_int_equal(neap_file_write(stamp, text, strlen(text), NULL), NEAP_OK);
	assert_int_equal(neap_history_open(path, &history, note, NULL), NEAP_OK);
	assert_non_null(strstr(note, "was damaged"));
	neap_history_close(history);
}

/* The file of an earlier neap is set aside unchanged, and not read. */
static void test_earlier(void **state)
{
	(void)state;
	sqlite3 *database = NULL;
	struct neap_history *history = NULL;
	struct neap_error err = {0};
	char note[512] = "", begin[512], command[256];
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	assert_int_equal(sqlite3_exec(database,
				      "CREATE TABLE runs (run_id); INSERT INTO runs VALUES ('an old run'); "
				      "PRAGMA user_version = 2",
				      0, 0, 0),
			 SQLITE_OK);
	assert_int_equal(sqlite3_close(database), SQLITE_OK);
	if (neap_history_open(path, &history, note, &err))
		fail_msg("%s", err.message);
	snprintf(begin, sizeof begin, "the history %s is of an earlier version of neap: set aside as %s.earlier-",
		 path, path);
	assert_int_equal(strncmp(note, begin, strlen(begin)), 0);
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	assert_int_equal(ask_number("SELECT count(*) FROM runs WHERE run_id = 'r1'"), 1);
	assert_int_equal(ask_number("PRAGMA user_version"), 4);
	snprintf(command, sizeof command, "grep -q 'an old run' %s/history.db.earlier-*", folder);
	assert_int_equal(system(command), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_together, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_checked_daily, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_earlier, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_newer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nowhere, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
