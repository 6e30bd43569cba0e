/* store/history.c: see history.h.
 *
 * One table, one row a run, one column for each number and text by which runs are chosen, by the list `fields` below:
 * so the file can be asked with plain SQL. The column `result` holds all of struct neap_result as JSON
 * (store/result.h; in SQL: json_extract(result, '$.advice')), with a thinned memory curve; the whole curve stays in
 * the run's folder. The file itself, and its schema: store/history_file.c.
 */
#include "store/history_internal.h"

#include "base/buffer.h"
#include "base/error.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, U64, U32, INT, BOOL, REAL, OUTCOME };

#define FIELD(kind, name)                                                                                            \
	{                                                                                                            \
#name, kind, offsetof(struct neap_result, name)                                                      \
	}
static const struct field {
	const char *column;
	enum kind kind;
	size_t offset;
} fields[] = {
	FIELD(TEXT, run_id),
	FIELD(TEXT, name),
	FIELD(TEXT, command),
	FIELD(TEXT, parameters),
	FIELD(TEXT, device_name),
	FIELD(TEXT, device_uuid),
	FIELD(TEXT, backend),
	FIELD(OUTCOME, outcome),
	FIELD(TEXT, evidence),
	FIELD(INT, exit_status),
	FIELD(U64, started_wall_ns),
	FIELD(U64, ended_wall_ns),
	FIELD(U64, duration_ns),
	FIELD(U64, device_total_bytes),
	FIELD(BOOL, attached),
	FIELD(U64, peak_allocated_bytes),
	FIELD(U64, peak_reserved_bytes),
	FIELD(U64, peak_device_bytes),
	FIELD(U64, headroom_bytes),
	FIELD(U64, waited_ns),
	FIELD(U64, drain_ns),
	FIELD(BOOL, drained),
	FIELD(TEXT, drain_note),
	FIELD(U32, retries),
	FIELD(U32, ooms),
	FIELD(U32, rungs),
	FIELD(TEXT, rung),
	FIELD(U64, steps),
	FIELD(REAL, last_loss),
	FIELD(TEXT, leak_verdict),
	FIELD(REAL, leak_bytes_per_step),
	FIELD(REAL, leak_confidence),
	FIELD(TEXT, fluctuation),
	FIELD(TEXT, cleanup),
	FIELD(TEXT, oom_card),
};
#define FIELDS (sizeof fields / sizeof *fields)

/* --- one row -----------------------------------------------------------------------------------------------------
 */

static sqlite3_int64 clamp(uint64_t value) { return value > INT64_MAX ? INT64_MAX : (sqlite3_int64)value; }

static int bind(sqlite3_stmt *statement, int at, const struct field *field, const struct neap_result *result)
{
	const char *base = (const char *)result + field->offset;
	const char *text;
	switch (field->kind) {
	case TEXT:
		text = *(char *const *)base;
		return sqlite3_bind_text(statement, at, text ? text : "", -1, SQLITE_STATIC);
	case U64:
		return sqlite3_bind_int64(statement, at, clamp(*(const uint64_t *)base));
	case U32:
		return sqlite3_bind_int64(statement, at, *(const uint32_t *)base);
	case INT:
		return sqlite3_bind_int64(statement, at, *(const int *)base);
	case BOOL:
		return sqlite3_bind_int64(statement, at, *(const bool *)base);
	case REAL: /* SQLite stores NaN as NULL */
		return sqlite3_bind_double(statement, at, *(const double *)base);
	case OUTCOME:
		return sqlite3_bind_text(statement, at, neap_outcome_name(*(const enum neap_outcome *)base), -1,
					 SQLITE_STATIC);
	}
	return SQLITE_MISUSE;
}

static enum neap_outcome outcome_named(const char *name)
{
	for (int i = 0; i < NEAP_OUTCOME_COUNT; i++)
		if (!strcmp(neap_outcome_name((enum neap_outcome)i), name))
			return (enum neap_outcome)i;
	return NEAP_OUTCOME_FAILED;
}

static enum neap_status take(sqlite3_stmt *statement, int at, const struct field *field, struct neap_result *result,
			     struct neap_error *err)
{
	char *base = (char *)result + field->offset;
	const char *text = (const char *)sqlite3_column_text(statement, at);
	sqlite3_int64 number = sqlite3_column_int64(statement, at);
	uint64_t natural = number < 0 ? 0 : (uint64_t)number;
	switch (field->kind) {
	case TEXT:
		return neap_result_set((char **)base, text ? text : "", err);
	case U64:
		*(uint64_t *)base = natural;
		break;
	case U32:
		*(uint32_t *)base = natural > UINT32_MAX ? UINT32_MAX : (uint32_t)natural;
		break;
	case INT:
		*(int *)base = number < INT32_MIN ? INT32_MIN : number > INT32_MAX ? INT32_MAX : (int)number;
		break;
	case BOOL:
		*(bool *)base = number != 0;
		break;
	case REAL:
		*(double *)base = sqlite3_column_type(statement, at) == SQLITE_NULL
					  ? (double)NAN
					  : sqlite3_column_double(statement, at);
		break;
	case OUTCOME:
		*(enum neap_outcome *)base = outcome_named(text ? text : "");
		break;
	}
	return NEAP_OK;
}

/* "a, b, c" or "?, ?, ?" for every field. */
static void list_fields(struct neap_buffer *sql, bool marks)
{
	for (size_t i = 0; i < FIELDS; i++)
		neap_buffer_format(sql, "%s%s", i ? ", " : "", marks ? "?" : fields[i].column);
}

/* Of each group of neighbours the one with the most device bytes, or reserved ones: peaks survive. `ret_points` has
 * room for NEAP_HISTORY_SAMPLES. */
static size_t thin(const struct neap_result *result, struct neap_result_sample *ret_points)
{
	size_t each = (result->sample_count + NEAP_HISTORY_SAMPLES - 1) / NEAP_HISTORY_SAMPLES, count = 0;
	for (size_t i = 0; i < result->sample_count; i += each) {
		const struct neap_result_sample *best = &result->samples[i];
		for (size_t k = i + 1; k < i + each && k < result->sample_count; k++)
			if (result->samples[k].reserved_bytes > best->reserved_bytes ||
			    (result->samples[k].reserved_bytes == best->reserved_bytes &&
			     result->samples[k].allocated_bytes > best->allocated_bytes))
				best = &result->samples[k];
		ret_points[count++] = *best;
	}
	return count;
}

static enum neap_status format_result(const struct neap_result *result, struct neap_buffer *text,
				      struct neap_error *err)
{
	struct neap_result copy = *result; /* its strings stay the result's */
	struct neap_result_sample *points = calloc(NEAP_HISTORY_SAMPLES, sizeof *points);
	if (!points)
		return neap_fail(err, NEAP_ENOMEM, "writing the history: out of memory");
	copy.samples = points;
	copy.sample_count = thin(result, points);
	/* Columns have the same limits as JSON. */
	for (size_t i = 0; i < FIELDS; i++) {
		char *base = (char *)&copy + fields[i].offset;
		if (fields[i].kind == U64 && *(uint64_t *)base > INT64_MAX)
			*(uint64_t *)base = INT64_MAX;
	}
	enum neap_status status = neap_result_format("the history", &copy, text, err);
	free(points);
	return status;
}

enum neap_status neap_history_put(struct neap_history *history, const char *series, const char *key,
				  const struct neap_result *result, struct neap_error *err)
{
	if (!result->run_id || !*result->run_id)
		return neap_fail(err, NEAP_EINVAL, "a run without an id cannot go into the history");
	struct neap_buffer sql = {0}, text = {0};
	sqlite3_stmt *statement = NULL;
	neap_buffer_text(&sql, "INSERT OR REPLACE INTO runs (series, experiment_key, result, ");
	list_fields(&sql, false);
	neap_buffer_text(&sql, ") VALUES (?, ?, ?, ");
	list_fields(&sql, true);
	neap_buffer_text(&sql, ")");
	enum neap_status status = neap_buffer_status(&sql, err);
	if (!status && (status = format_result(result, &text, err)) == NEAP_EINVAL) {
		neap_buffer_clear(&text); /* a figure that JSON cannot hold: keep only the columns */
		status = NEAP_OK;
	}
	if (status)
		goto out;
	int code = sqlite3_prepare_v2(history->database, sql.data, -1, &statement, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_bind_text(statement, 1, series, -1, SQLITE_STATIC);
	if (code == SQLITE_OK)
		code = sqlite3_bind_text(statement, 2, key, -1, SQLITE_STATIC);
	if (code == SQLITE_OK)
		code = sqlite3_bind_text(statement, 3, neap_buffer_string(&text), -1, SQLITE_STATIC);
	for (size_t i = 0; i < FIELDS && code == SQLITE_OK; i++)
		code = bind(statement, (int)i + 4, &fields[i], result);
	if (code != SQLITE_OK || sqlite3_step(statement) != SQLITE_DONE)
		status = neap_history_fail(history->database, "writing", history->path, err);
out:
	sqlite3_finalize(statement);
	neap_buffer_fini(&sql);
	neap_buffer_fini(&text);
	return status;
}

/* One number about the runs of an experiment; none: NEAP_ENOENT. */
static enum neap_status read_number(struct neap_history *history, const char *sql, const char *series,
				    const char *experiment, const char *key, uint64_t *ret_number,
				    struct neap_error *err)
{
	const char *const words[] = {series, experiment, key};
	sqlite3_stmt *statement = NULL;
	enum neap_status status = NEAP_OK;
	int code = sqlite3_prepare_v2(history->database, sql, -1, &statement, NULL);
	for (int i = 0; i < 3 && code == SQLITE_OK; i++)
		code = sqlite3_bind_text(statement, i + 1, words[i], -1, SQLITE_STATIC);
	if (code != SQLITE_OK || sqlite3_step(statement) != SQLITE_ROW)
		status = neap_history_fail(history->database, "reading", history->path, err);
	else if (sqlite3_column_type(statement, 0) == SQLITE_NULL)
		status = neap_fail(err, NEAP_ENOENT, "no successful run of '%.80s' in the history", experiment);
	else
		*ret_number = (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return status;
}

enum neap_status neap_history_peak(struct neap_history *history, const char *series, const char *experiment,
				   const char *key, uint64_t *ret_bytes, struct neap_error *err)
{
	return read_number(history,
			   "SELECT max(max(peak_device_bytes, peak_reserved_bytes)) AS peak FROM runs "
			   "WHERE series = ? AND name = ? AND experiment_key = ? AND outcome = 'ok' AND "
			   "max(peak_device_bytes, peak_reserved_bytes) > 0",
			   series, experiment, key, ret_bytes, err);
}

enum neap_status neap_history_duration(struct neap_history *history, const char *series, const char *experiment,
				       const char *key, uint64_t *ret_ns, struct neap_error *err)
{
	return read_number(
		history,
		"SELECT (SELECT duration_ns FROM runs WHERE series = ? AND name = ? AND experiment_key = ? AND "
		"outcome = 'ok' ORDER BY ended_wall_ns DESC LIMIT 1)",
		series, experiment, key, ret_ns, err);
}

/* --- choosing ----------------------------------------------------------------------------------------------------
 */

/* " WHERE ..." for the filter; bind_filter gives its values in the same order. */
static void write_where(struct neap_buffer *sql, const struct neap_history_filter *filter)
{
	neap_buffer_text(sql, " WHERE 1");
	if (filter->series)
		neap_buffer_text(sql, " AND series GLOB ?");
	if (filter->name)
		neap_buffer_text(sql, " AND name GLOB ?");
	if (filter->outcome)
		neap_buffer_text(sql, " AND outcome = ?");
	if (filter->run)
		neap_buffer_text(sql, " AND substr(run_id, 1, length(?)) = ?");
	if (filter->since_wall_ns)
		neap_buffer_text(sql, " AND ended_wall_ns >= ?");
	if (filter->until_wall_ns)
		neap_buffer_text(sql, " AND ended_wall_ns < ?");
}

static int bind_filter(sqlite3_stmt *statement, const struct neap_history_filter *filter)
{
	const char *const words[] = {filter->series, filter->name, filter->outcome, filter->run, filter->run};
	const uint64_t times[] = {filter->since_wall_ns, filter->until_wall_ns};
	int code = SQLITE_OK, at = 0;
	for (size_t i = 0; i < sizeof words / sizeof *words && code == SQLITE_OK; i++)
		if (words[i])
			code = sqlite3_bind_text(statement, ++at, words[i], -1, SQLITE_STATIC);
	for (size_t i = 0; i < 2 && code == SQLITE_OK; i++)
		if (times[i])
			code = sqlite3_bind_int64(statement, ++at, clamp(times[i]));
	return code;
}

/* Reads the whole result from its JSON. *ret_taken false: this row has no readable JSON (it is of an earlier
 * version). Errors: NEAP_ENOMEM. */
static enum neap_status take_whole(sqlite3_stmt *statement, struct neap_result *result, bool *ret_taken,
				   struct neap_error *err)
{
	const char *json = (const char *)sqlite3_column_text(statement, 2);
	struct neap_buffer text = {0};
	struct neap_result whole;
	*ret_taken = false;
	if (!json)
		return neap_fail(err, NEAP_ENOMEM, "reading the history: out of memory");
	if (!*json)
		return NEAP_OK;
	neap_buffer_text(&text, json);
	enum neap_status status = neap_buffer_status(&text, err);
	if (!status)
		status = neap_result_parse("the history", &text, &whole, err);
	neap_buffer_fini(&text);
	*ret_taken = !status;
	if (!status) {
		neap_result_fini(result);
		*result = whole;
	}
	return status == NEAP_ENOMEM ? status : NEAP_OK;
}

/* Reads the row the statement stands at and shows it. */
static enum neap_status visit_row(sqlite3_stmt *statement, bool whole,
				  bool (*visit)(void *context, const struct neap_history_run *run), void *context,
				  bool *ret_more, struct neap_error *err)
{
	struct neap_result result = {0};
	bool taken = false;
	enum neap_status status = neap_result_init(&result, err);
	if (!status && whole)
		status = take_whole(statement, &result, &taken, err);
	if (!status && !taken)
		for (size_t i = 0; i < FIELDS && !status; i++)
			status = take(statement, (int)i + 3, &fields[i], &result, err);
	const char *series = (const char *)sqlite3_column_text(statement, 0);
	const char *key = (const char *)sqlite3_column_text(statement, 1);
	struct neap_history_run run = {series ? series : "", key ? key : "", &result};
	if (!status)
		*ret_more = visit(context, &run);
	neap_result_fini(&result);
	return status;
}

enum neap_status neap_history_find(struct neap_history *history, const struct neap_history_filter *filter,
				   bool (*visit)(void *context, const struct neap_history_run *run), void *context,
				   struct neap_error *err)
{
	struct neap_buffer sql = {0};
	sqlite3_stmt *statement = NULL;
	bool more = true;
	int code = SQLITE_OK;
	neap_buffer_format(&sql, "SELECT series, experiment_key, %s, ", filter->whole ? "result" : "''");
	list_fields(&sql, false);
	neap_buffer_text(&sql, " FROM runs");
	write_where(&sql, filter);
	neap_buffer_text(&sql, " ORDER BY ended_wall_ns DESC, id DESC");
	if (filter->limit)
		neap_buffer_format(&sql, " LIMIT %lld", (long long)clamp(filter->limit));
	enum neap_status status = neap_buffer_status(&sql, err);
	if (status)
		goto out;
	code = sqlite3_prepare_v2(history->database, sql.data, -1, &statement, NULL);
	if (code != SQLITE_OK || (code = bind_filter(statement, filter)) != SQLITE_OK) {
		status = neap_history_fail(history->database, "reading", history->path, err);
		goto out;
	}
	while (!status && more && (code = sqlite3_step(statement)) == SQLITE_ROW)
		status = visit_row(statement, filter->whole, visit, context, &more, err);
	if (!status && more && code != SQLITE_DONE)
		status = neap_history_fail(history->database, "reading", history->path, err);
out:
	sqlite3_finalize(statement);
	neap_buffer_fini(&sql);
	return status;
}

enum neap_status neap_history_prune(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err)
{
	struct neap_buffer sql = {0};
	sqlite3_stmt *statement = NULL;
	neap_buffer_text(&sql, "DELETE FROM runs");
	write_where(&sql, filter);
	enum neap_status status = neap_buffer_status(&sql, err);
	if (!status && (sqlite3_prepare_v2(history->database, sql.data, -1, &statement, NULL) != SQLITE_OK ||
			bind_filter(statement, filter) != SQLITE_OK || sqlite3_step(statement) != SQLITE_DONE))
		status = neap_history_fail(history->database, "pruning", history->path, err);
	uint64_t count = status ? 0 : (uint64_t)sqlite3_changes(history->database);
	sqlite3_finalize(statement);
	neap_buffer_fini(&sql);
	if (status)
		return status;
	*ret_count = count;
	if (count && sqlite3_exec(history->database, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);", NULL, NULL, NULL) !=
			     SQLITE_OK)
		return neap_history_fail(history->database, "giving back the space of", history->path, err);
	return NEAP_OK;
}
