#include "history_test.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>

char folder[TEST_FOLDER_CAPACITY];
char path[128];

int set_up(void **state)
{
	(void)state;
	if (make_folder(folder, "history"))
		return -1;
	snprintf(path, sizeof path, "%s/history.db", folder);
	return 0;
}

int tear_down(void **state)
{
	(void)state;
	return remove_folder(folder);
}

struct neap_history *open_history(void)
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

void put(struct neap_history *history, const char *id, const char *name, enum neap_outcome outcome,
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

int ask_number(const char *sql)
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
