/* The history: each run is stored once; a damaged file is set aside, a file of an unknown version is left alone. */
#include "store/history.h"

#include "base/file.h"
#include "support/test.h"

#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[TEST_FOLDER_CAPACITY];
static char path[128];

static int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "history"))
		return -1;
	snprintf(path, sizeof path, "%s/history.db", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
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
	if (neap_history_put(history, "nightly", "k1", &result, &err))
		fail_msg("%s", err.message);
	neap_result_fini(&result);
}

struct seen {
	size_t count;
	char ids[8][32];
	size_t stop_after;
};

static bool see(void *context, struct neap_history_run *run)
{
	struct seen *seen = context;
	const struct neap_result *result = run->result;
	assert_string_equal(run->series, "nightly");
	assert_string_equal(run->key, "k1");
	assert_string_equal(result->rung, "micro_batch 64 -> 16; it's");
	assert_int_equal(result->exit_status, 137);
	assert_int_equal(result->retries, 2);
	assert_true(result->drained);
	assert_false(result->attached);
	assert_true(isnan(result->last_loss));
	assert_true(result->leak_bytes_per_step == -1.5);
	assert_int_equal(result->headroom_bytes, INT64_MAX); /* more than JSON can hold */
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
	put(history, "r1", "a", NEAP_OUTCOME_OK, 200, 10); /* a resumed series stores it again */
	neap_history_close(history);
	history = open_history();
	struct seen seen = {0};
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.ids[0], "r2/failed");
	assert_string_equal(seen.ids[1], "r3/oom");
	assert_string_equal(seen.ids[2], "r1/ok");
	seen = (struct seen){0};
	const struct neap_history_filter fields = {.depth = NEAP_HISTORY_FIELDS};
	assert_int_equal(neap_history_find(history, &fields, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.ids[0], "r2/failed");
	assert_string_equal(seen.ids[2], "r1/ok");
	seen = (struct seen){.stop_after = 1};
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 1);
	neap_history_close(history);
}

/* A list reads the fields only: it also shows a run with a damaged curve, which no reader of whole runs accepts. */
static void test_fields_alone(void **state)
{
	(void)state;
	static const char damage[] = "UPDATE runs SET result = replace(result, '\": [', '\": [7')"; /* its lists */
	struct neap_history *history = open_history();
	struct seen seen = {0};
	sqlite3 *database = NULL;
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	assert_int_equal(sqlite3_exec(database, damage, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(database);
	const struct neap_history_filter fields = {.depth = NEAP_HISTORY_FIELDS}, whole = {0};
	assert_int_equal(neap_history_find(history, &fields, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 1);
	assert_int_equal(neap_history_find(history, &whole, see, &seen, NULL), NEAP_EPARSE);
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
	put(history, "r5", "c", NEAP_OUTCOME_OK, 0, 30); /* unknown is not a measurement */
	put(history, "r6", "d", NEAP_OUTCOME_OK, 64, 30);
	assert_int_equal(neap_history_peak(history, "nightly", "a", "k1", &bytes, &err), NEAP_OK);
	assert_int_equal(bytes, 300);
	assert_int_equal(neap_history_peak(history, "nightly", "d", "k1", &bytes, &err), NEAP_OK);
	assert_int_equal(bytes, 1000); /* as reserved: the samples missed it */
	bytes = 300;
	assert_int_equal(neap_history_peak(history, "nightly", "b", "k1", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(neap_history_peak(history, "nightly", "c", "k1", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(neap_history_peak(history, "other", "a", "k1", &bytes, &err), NEAP_ENOENT);
	assert_int_equal(neap_history_peak(history, "nightly", "a", "k2", &bytes, &err),
			 NEAP_ENOENT); /* edited since */
	assert_int_equal(bytes, 300);
	neap_history_close(history);
}

static size_t count_found(struct neap_history *history, struct neap_history_filter filter)
{
	struct seen seen = {0};
	struct neap_error err = {0};
	uint64_t count = 77;
	if (neap_history_find(history, &filter, see, &seen, &err) ||
	    neap_history_count(history, &filter, &count, &err))
		fail_msg("%s", err.message);
	assert_true(filter.limit ? count >= seen.count : count == seen.count);
	return seen.count;
}

static void test_filter_and_prune(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	uint64_t count = 7;
	put(history, "r1-a", "alpha", NEAP_OUTCOME_OK, 100, 10);
	put(history, "r1-b", "beta", NEAP_OUTCOME_OOM, 100, 20);
	put(history, "r2", "alpha beta", NEAP_OUTCOME_OK, 100, 30);
	assert_int_equal(count_found(history, (struct neap_history_filter){0}), 3);
	assert_int_equal(count_found(history, (struct neap_history_filter){.name = "alpha"}), 1);
	assert_int_equal(count_found(history, (struct neap_history_filter){.name = "alpha*"}), 2);
	assert_int_equal(count_found(history, (struct neap_history_filter){.name = "' OR 1 --"}), 0);
	assert_int_equal(count_found(history, (struct neap_history_filter){.series = "night*", .outcome = "oom"}), 1);
	assert_int_equal(count_found(history, (struct neap_history_filter){.series = ""}), 0);
	assert_int_equal(count_found(history, (struct neap_history_filter){.run = "r1"}), 2);
	assert_int_equal(count_found(history, (struct neap_history_filter){.run = "r_"}), 0);
	assert_int_equal(count_found(history, (struct neap_history_filter){.since_wall_ns = 20}), 2);
	assert_int_equal(count_found(history, (struct neap_history_filter){.since_wall_ns = 10, .until_wall_ns = 20}),
			 1);
	assert_int_equal(count_found(history, (struct neap_history_filter){.limit = 2}), 2);
	assert_int_equal(
		neap_history_prune(history, &(struct neap_history_filter){.until_wall_ns = 10}, &count, NULL),
		NEAP_OK);
	assert_int_equal(count, 0);
	assert_int_equal(
		neap_history_prune(history, &(struct neap_history_filter){.until_wall_ns = 30}, &count, NULL),
		NEAP_OK);
	assert_int_equal(count, 2);
	assert_int_equal(count_found(history, (struct neap_history_filter){0}), 1);
	neap_history_close(history);
}

struct whole {
	size_t count, samples, marks;
	uint64_t highest;
};

static bool see_whole(void *context, struct neap_history_run *run)
{
	struct whole *whole = context;
	whole->count++;
	whole->samples = run->result->sample_count;
	whole->marks = run->result->mark_count;
	for (size_t i = 0; i < run->result->sample_count; i++)
		if (run->result->samples[i].reserved_bytes > whole->highest)
			whole->highest = run->result->samples[i].reserved_bytes;
	assert_string_equal(run->result->advice, "in the JSON alone");
	assert_string_equal(run->result->marks[0].name, "saved");
	return true;
}

/* Samples, thinned so that the peak stays, and marks. Also bytes that are not UTF-8, and figures beyond JSON. */
static void test_whole(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	struct neap_result result = {0};
	struct whole whole = {0};
	struct neap_error err = {0};
	enum { SAMPLES = 1999 };
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.run_id, "r1", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.name, "caf\xe9", NULL), NEAP_OK);
	assert_int_equal(neap_result_set(&result.advice, "in the JSON alone", NULL), NEAP_OK);
	result.headroom_bytes = UINT64_MAX;
	result.leak_bytes_per_step = INFINITY;
	result.samples = calloc(SAMPLES, sizeof *result.samples);
	result.marks = calloc(1, sizeof *result.marks);
	assert_true(result.samples && result.marks);
	for (size_t i = 0; i < SAMPLES; i++)
		result.samples[i] = (struct neap_result_sample){i, 1, i == 777 ? 99 : 5, UINT64_MAX};
	result.sample_count = SAMPLES;
	result.marks[0] = (struct neap_result_mark){3, 4, "saved"};
	result.mark_count = 1;
	if (neap_history_put(history, "", "", &result, &err))
		fail_msg("%s", err.message);
	assert_int_equal(result.sample_count, SAMPLES);
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, see_whole, &whole, NULL),
			 NEAP_OK);
	assert_int_equal(whole.count, 1);
	assert_true(whole.samples <= NEAP_HISTORY_SAMPLES && whole.samples > NEAP_HISTORY_SAMPLES / 2);
	assert_int_equal(whole.marks, 1);
	assert_int_equal(whole.highest, 99);
	neap_result_fini(&result);
	neap_history_close(history);
}

/* Readable during another process's write and after its crash: the committed rows are there. */
static void test_read_while_written(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	sqlite3 *writer = NULL;
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	assert_int_equal(sqlite3_open(path, &writer), SQLITE_OK);
	assert_int_equal(sqlite3_exec(writer, "BEGIN IMMEDIATE; UPDATE runs SET name = 'half'", 0, 0, 0), SQLITE_OK);
	struct neap_history *reader = open_history();
	assert_int_equal(count_found(reader, (struct neap_history_filter){.name = "a"}), 1);
	assert_int_equal(count_found(reader, (struct neap_history_filter){.name = "half"}), 0);
	neap_history_close(reader);
	assert_int_equal(sqlite3_exec(writer, "COMMIT", 0, 0, 0), SQLITE_OK);
	assert_int_equal(count_found(history, (struct neap_history_filter){.name = "half"}), 1);
	sqlite3_close(writer);
	neap_history_close(history);
}

static void test_no_id(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	struct neap_result result = {0};
	struct neap_error err = {0};
	assert_int_equal(neap_result_init(&result, NULL), NEAP_OK);
	assert_int_equal(neap_history_put(history, "nightly", "k1", &result, &err), NEAP_EINVAL);
	neap_result_fini(&result);
	neap_history_close(history);
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
	struct seen seen = {0};
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, see, &seen, NULL), NEAP_OK);
	assert_int_equal(seen.count, 1);
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

static int ask_number(const char *sql)
{
	sqlite3 *database = NULL;
	sqlite3_stmt *statement = NULL;
	assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(database, sql, -1, &statement, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
	int number = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(database);
	return number;
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
	struct seen seen = {0};
	struct neap_history *history = open_history();
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	neap_history_close(history);
	damage_unseen();
	assert_int_equal(neap_history_open(path, &history, note, NULL), NEAP_OK);
	assert_string_equal(note, ""); /* it was not read completely */
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, see, &seen, &err), NEAP_EIO);
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

/* A visitor may keep a result. */
static bool take_result(void *context, struct neap_history_run *run)
{
	*(struct neap_result *)context = *run->result;
	*run->result = (struct neap_result){0};
	return false;
}

static void test_taken(void **state)
{
	(void)state;
	struct neap_history *history = open_history();
	struct neap_result result = {0};
	put(history, "r1", "a", NEAP_OUTCOME_OK, 100, 10);
	assert_int_equal(neap_history_find(history, &(struct neap_history_filter){0}, take_result, &result, NULL),
			 NEAP_OK);
	neap_history_close(history);
	assert_string_equal(result.run_id, "r1");
	neap_result_fini(&result);
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

/* Several processes open and write one new file at once. */
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
					status = neap_history_put(history, "nightly", "k1", &result, NULL);
			}
			_exit(status);
		}
	}
	for (int i = 0; i < 4; i++) {
		int status = -1;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(ask_number("SELECT count(*) FROM runs"), 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_put_and_each, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fields_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_peak, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_filter_and_prune, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_whole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_read_while_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_id, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_together, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_damaged_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_checked_daily, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_earlier, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_newer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nowhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_together, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
