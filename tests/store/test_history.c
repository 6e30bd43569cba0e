/* The history: each run is stored once, and lists, filters and readers find it. */
#include "history_test.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
		cmocka_unit_test_setup_teardown(test_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_together, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
