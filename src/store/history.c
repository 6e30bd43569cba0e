/* store/history.c: see history.h.
 *
 * One table, one row a run. The column `result` holds all of struct neap_result as JSON (store/result.h; in SQL:
 * json_extract(result, '$.advice')), with a thinned memory curve; the whole curve stays in the run's folder. Queries
 * choose runs by the other columns. store/history_file.c has the file and its schema.
 */
#include "store/history_internal.h"

#include "base/buffer.h"
#include "base/error.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Prepares "VERB runs WHERE ...", with the filter's values bound. */
static enum neap_status choose(struct neap_history *history, const char *verb, const char *order,
			       const struct neap_history_filter *filter, sqlite3_stmt **ret_statement,
			       struct neap_error *err)
{
	struct neap_buffer sql = {0};
	neap_buffer_format(&sql, "%s FROM runs", verb);
	write_where(&sql, filter);
	neap_buffer_text(&sql, order);
	enum neap_status status = neap_buffer_status(&sql, err);
	if (!status && (sqlite3_prepare_v2(history->database, sql.data, -1, ret_statement, NULL) != SQLITE_OK ||
			bind_filter(*ret_statement, filter) != SQLITE_OK))
		status = neap_history_fail(history->database, "reading", history->path, err);
	neap_buffer_fini(&sql);
	return status;
}

/* Reads the statement's current row and passes it to `visit`. `fields`: a result for the fields alone; NULL: `visit`
 * needs the lists too. */
static enum neap_status visit_row(sqlite3_stmt *statement, struct neap_result *fields,
				  bool (*visit)(void *context, struct neap_history_run *run), void *context,
				  bool *ret_more, struct neap_error *err)
{
	const char *series = (const char *)sqlite3_column_text(statement, 0);
	const char *key = (const char *)sqlite3_column_text(statement, 1);
	const char *json = (const char *)sqlite3_column_text(statement, 2);
	struct neap_buffer text = {0};
	struct neap_result result = {0};
	struct neap_history_run run = {series, key, &result};
	if (!series || !key || !json)
		return neap_fail(err, NEAP_ENOMEM, "reading the history: out of memory");
	if (fields && neap_result_read_lines(json, fields)) {
		run.result = fields;
		*ret_more = visit(context, &run);
		return NEAP_OK;
	}
	neap_buffer_text(&text, json);
	enum neap_status status = neap_buffer_status(&text, err);
	if (!status)
		status = neap_result_parse("the history", &text, &result, err);
	neap_buffer_fini(&text);
	if (!status)
		*ret_more = visit(context, &run);
	neap_result_fini(&result);
	return status;
}

enum neap_status neap_history_find(struct neap_history *history, const struct neap_history_filter *filter,
				   bool (*visit)(void *context, struct neap_history_run *run), void *context,
				   struct neap_error *err)
{
	sqlite3_stmt *statement = NULL;
	struct neap_result fields = {0};
	bool more = true;
	int code = SQLITE_DONE;
	enum neap_status status = filter->fields_only ? neap_result_init(&fields, err) : NEAP_OK;
	if (!status)
		status = choose(history, "SELECT series, experiment_key, result",
				" ORDER BY ended_wall_ns DESC, id DESC", filter, &statement, err);
	for (uint64_t left = filter->limit ? filter->limit : UINT64_MAX; !status && more && left > 0; left--) {
		if ((code = sqlite3_step(statement)) != SQLITE_ROW)
			break;
		status = visit_row(statement, filter->fields_only ? &fields : NULL, visit, context, &more, err);
	}
	if (!status && code != SQLITE_ROW && code != SQLITE_DONE)
		status = neap_history_fail(history->database, "reading", history->path, err);
	sqlite3_finalize(statement);
	neap_result_fini(&fields);
	return status;
}

enum neap_status neap_history_count(struct neap_history *history, const struct neap_history_filter *filter,
				    uint64_t *ret_count, struct neap_error *err)
{
	sqlite3_stmt *statement = NULL;
	enum neap_status status = choose(history, "SELECT count(*)", "", filter, &statement, err);
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
	enum neap_status status = choose(history, "DELETE", "", filter, &statement, err);
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
