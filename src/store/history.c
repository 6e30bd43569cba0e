/* store/history.c: see history.h.
 *
 * One table, one row a run. The column `result` holds all of struct neap_result as JSON (store/result.h; in SQL:
 * json_extract(result, '$.advice')), with a thinned memory curve; the whole curve stays in the run's folder. Queries
 * choose runs by the other columns, which a list shows without the result. store/history_file.c has the file and its
 * schema.
 */
#include "store/history_internal.h"

#include "base/buffer.h"
#include "base/error.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps one sample of each group of neighbours: the one with the most reserved bytes, or at equal ones the most
 * allocated bytes. So peaks survive. `ret_points` has room for NEAP_HISTORY_SAMPLES. */
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
	struct neap_result copy = *result; /* the result still owns the strings */
	copy.samples = calloc(NEAP_HISTORY_SAMPLES, sizeof *copy.samples);
	if (!copy.samples)
		return neap_fail(err, NEAP_ENOMEM, "writing the history: out of memory");
	copy.sample_count = thin(result, copy.samples);
	enum neap_status status = neap_result_format("the history", &copy, text, err);
	free(copy.samples);
	return status;
}

enum neap_status neap_history_put(struct neap_history *history, const char *series, const char *key,
				  const struct neap_result *result, struct neap_error *err)
{
	static const char sql[] =
		"INSERT OR REPLACE INTO runs (series, experiment_key, result, run_id, name, outcome, ended_wall_ns) "
		"SELECT ?1, ?2, ?3, json_extract(?3, '$.run_id'), json_extract(?3, '$.name'), json_extract(?3, "
		"'$.outcome'), json_extract(?3, '$.ended_wall_ns')";
	if (!result->run_id || !*result->run_id)
		return neap_fail(err, NEAP_EINVAL, "a run without an id cannot go into the history");
	struct neap_buffer text = {0};
	sqlite3_stmt *statement = NULL;
	enum neap_status status = format_result(result, &text, err);
	if (!status && (sqlite3_prepare_v2(history->database, sql, -1, &statement, NULL) != SQLITE_OK ||
			sqlite3_bind_text(statement, 1, series, -1, SQLITE_STATIC) != SQLITE_OK ||
			sqlite3_bind_text(statement, 2, key, -1, SQLITE_STATIC) != SQLITE_OK ||
			sqlite3_bind_text(statement, 3, neap_buffer_string(&text), -1, SQLITE_STATIC) != SQLITE_OK ||
			sqlite3_step(statement) != SQLITE_DONE))
		status = neap_history_fail(history->database, "writing", history->path, err);
	sqlite3_finalize(statement);
	neap_buffer_fini(&text);
	return status;
}

/* Reads one number about the runs of an experiment. Error: NEAP_ENOENT: there is none. */
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
			   "SELECT nullif(max(max(json_extract(result, '$.peak_device_bytes'), "
			   "json_extract(result, '$.peak_reserved_bytes'))), 0) FROM runs "
			   "WHERE series = ? AND name = ? AND experiment_key = ? AND outcome = 'ok'",
			   series, experiment, key, ret_bytes, err);
}

enum neap_status neap_history_duration(struct neap_history *history, const char *series, const char *experiment,
				       const char *key, uint64_t *ret_ns, struct neap_error *err)
{
	return read_number(history,
			   "SELECT (SELECT json_extract(result, '$.duration_ns') FROM runs WHERE series = ? AND name "
			   "= ? AND experiment_key = ? AND outcome = 'ok' ORDER BY ended_wall_ns DESC LIMIT 1)",
			   series, experiment, key, ret_ns, err);
}

/* Writes " WHERE ..." for the filter; bind_filter binds the values in the same order. */
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
			code = sqlite3_bind_int64(statement, ++at,
						  times[i] > INT64_MAX ? INT64_MAX : (sqlite3_int64)times[i]);
	return code;
}

/* Prepares "VERB WHERE ...", with the filter's values bound. */
static enum neap_status choose(struct neap_history *history, const char *verb, const char *order,
			       const struct neap_history_filter *filter, sqlite3_stmt **ret_statement,
			       struct neap_error *err)
{
	struct neap_buffer sql = {0};
	neap_buffer_text(&sql, verb);
	write_where(&sql, filter);
	neap_buffer_text(&sql, order);
	enum neap_status status = neap_buffer_status(&sql, err);
	if (!status && (sqlite3_prepare_v2(history->database, sql.data, -1, ret_statement, NULL) != SQLITE_OK ||
			bind_filter(*ret_statement, filter) != SQLITE_OK))
		status = neap_history_fail(history->database, "reading", history->path, err);
	neap_buffer_fini(&sql);
	return status;
}

/* The columns that `find` asks for: the result, or what a list shows of it. */
static const char whole_columns[] = "SELECT series, experiment_key, result FROM runs";
static const char listed_columns[] =
	"SELECT series, run_id, name, rung, outcome, ended_wall_ns, duration_ns, peak_bytes, steps, id FROM runs "
	"INDEXED BY runs_listed";

static bool take_text(sqlite3_stmt *statement, int column, char **field)
{
	const char *text = (const char *)sqlite3_column_text(statement, column);
	if (!text || sqlite3_column_type(statement, column) != SQLITE_TEXT)
		return false;
	return !strcmp(text, *field) || !neap_result_set(field, text, NULL); /* most are the last row's */
}

static bool take_number(sqlite3_stmt *statement, int column, uint64_t *field)
{
	sqlite3_int64 number = sqlite3_column_int64(statement, column);
	*field = (uint64_t)number;
	return sqlite3_column_type(statement, column) == SQLITE_INTEGER && number >= 0;
}

/* Takes what a list shows from the row's columns. False: the result has to be read, if only to find its error. */
static bool take_listed(sqlite3_stmt *statement, struct neap_result *result)
{
	const char *outcome = (const char *)sqlite3_column_text(statement, 4);
	return outcome && neap_outcome_named(outcome, &result->outcome) && take_text(statement, 1, &result->run_id) &&
	       take_text(statement, 2, &result->name) && take_text(statement, 3, &result->rung) &&
	       take_number(statement, 5, &result->ended_wall_ns) && take_number(statement, 6, &result->duration_ns) &&
	       take_number(statement, 7, &result->peak_device_bytes) && take_number(statement, 8, &result->steps);
}

/* How `find` reads rows, and to whom it passes them. */
struct reading {
	struct neap_history *history;
	struct neap_result *fields; /* for results without their lists; NULL: `visit` needs the lists too */
	sqlite3_stmt *one;          /* reads one row's result by its id; made when it is first needed */
	bool (*visit)(void *context, struct neap_history_run *run);
	void *context;
	bool more;
};

/* Reads a row of whole_columns. */
static enum neap_status visit_row(struct reading *reading, sqlite3_stmt *statement, struct neap_error *err)
{
	const char *series = (const char *)sqlite3_column_text(statement, 0);
	const char *key = (const char *)sqlite3_column_text(statement, 1);
	const char *json = (const char *)sqlite3_column_text(statement, 2);
	struct neap_buffer text = {0};
	struct neap_result result = {0};
	struct neap_history_run run = {series, key, &result};
	if (!series || !key || !json)
		return neap_fail(err, NEAP_ENOMEM, "reading the history: out of memory");
	if (reading->fields && neap_result_read_lines(json, reading->fields)) {
		run.result = reading->fields;
		reading->more = reading->visit(reading->context, &run);
		return NEAP_OK;
	}
	neap_buffer_text(&text, json);
	enum neap_status status = neap_buffer_status(&text, err);
	if (!status)
		status = neap_result_parse("the history", &text, &result, err);
	neap_buffer_fini(&text);
	if (!status)
		reading->more = reading->visit(reading->context, &run);
	neap_result_fini(&result);
	return status;
}

/* Reads a row of listed_columns. */
static enum neap_status visit_listed(struct reading *reading, sqlite3_stmt *statement, struct neap_error *err)
{
	sqlite3 *database = reading->history->database;
	struct neap_history_run run = {(const char *)sqlite3_column_text(statement, 0), "", reading->fields};
	if (run.series && take_listed(statement, reading->fields)) {
		reading->more = reading->visit(reading->context, &run);
		return NEAP_OK;
	}
	char sql[128];
	snprintf(sql, sizeof sql, "%s WHERE id = ?", whole_columns);
	enum neap_status status = NEAP_OK;
	if ((!reading->one && sqlite3_prepare_v2(database, sql, -1, &reading->one, NULL) != SQLITE_OK) ||
	    sqlite3_bind_int64(reading->one, 1, sqlite3_column_int64(statement, 9)) != SQLITE_OK ||
	    sqlite3_step(reading->one) != SQLITE_ROW)
		status = neap_history_fail(database, "reading", reading->history->path, err);
	if (!status)
		status = visit_row(reading, reading->one, err);
	sqlite3_reset(reading->one);
	return status;
}

enum neap_status neap_history_find(struct neap_history *history, const struct neap_history_filter *filter,
				   bool (*visit)(void *context, struct neap_history_run *run), void *context,
				   struct neap_error *err)
{
	bool listed = filter->depth == NEAP_HISTORY_LISTED && !history->unlisted;
	sqlite3_stmt *statement = NULL;
	struct neap_result fields = {0};
	struct reading reading = {.history = history, .visit = visit, .context = context, .more = true};
	int code = SQLITE_DONE;
	enum neap_status status = neap_result_init(&fields, err);
	if (filter->depth != NEAP_HISTORY_WHOLE)
		reading.fields = &fields;
	if (!status)
		status = choose(history, listed ? listed_columns : whole_columns,
				" ORDER BY ended_wall_ns DESC, id DESC", filter, &statement, err);
	for (uint64_t left = filter->limit ? filter->limit : UINT64_MAX; !status && reading.more && left > 0;
	     left--) {
		if ((code = sqlite3_step(statement)) != SQLITE_ROW)
			break;
		status = listed ? visit_listed(&reading, statement, err) : visit_row(&reading, statement, err);
	}
	if (!status && code != SQLITE_ROW && code != SQLITE_DONE)
		status = neap_history_fail(history->database, "reading", history->path, err);
	sqlite3_finalize(statement);
	sqlite3_finalize(reading.one);
	neap_result_fini(&fields);
	return status;
}

enum neap_status neap_history_count(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err)
{
	sqlite3_stmt *statement = NULL;
	enum neap_status status = choose(history, "SELECT count(*) FROM runs", "", filter, &statement, err);
	if (!status && sqlite3_step(statement) != SQLITE_ROW)
		status = neap_history_fail(history->database, "reading", history->path, err);
	if (!status)
		*ret_count = (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return status;
}

enum neap_status neap_history_prune(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err)
{
	sqlite3_stmt *statement = NULL;
	enum neap_status status = choose(history, "DELETE FROM runs", "", filter, &statement, err);
	if (!status && sqlite3_step(statement) != SQLITE_DONE)
		status = neap_history_fail(history->database, "pruning", history->path, err);
	sqlite3_finalize(statement);
	if (status)
		return status;
	*ret_count = (uint64_t)sqlite3_changes(history->database);
	if (*ret_count && sqlite3_exec(history->database, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);", NULL, NULL,
				       NULL) != SQLITE_OK)
		return neap_history_fail(history->database, "giving back the space of", history->path, err);
	return NEAP_OK;
}
