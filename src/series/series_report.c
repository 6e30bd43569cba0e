/* series/series_report.c: collects all results at the end of a series and writes the page.
 *
 * Everything here comes from the journal and the runs' folders, so it can be repeated after a kill with the same
 * outcome.
 */
#include "series/series_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "report/columns.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum neap_status neap_series_make_result(struct neap_series *series, size_t at, const char *why,
					 struct neap_result *ret_result, struct neap_error *err)
{
	const struct neap_experiment *experiment = &series->spec->experiments[at];
	char *command = neap_argv_join(&experiment->command), *params = neap_argv_join(&experiment->params);
	enum neap_status status = neap_result_init(ret_result, err);
	if (!status && (!command || !params))
		status = neap_fail(err, NEAP_ENOMEM, "reporting a series: out of memory");
	if (!status)
		status = neap_result_set(&ret_result->name, experiment->name, err);
	if (!status)
		status = neap_result_set(&ret_result->command, command, err);
	if (!status)
		status = neap_result_set(&ret_result->parameters, params, err);
	if (!status)
		status = neap_result_set(&ret_result->run_id, series->state.ends[at].run_id, err);
	if (!status)
		status = neap_result_set(&ret_result->evidence, why, err);
	char folder[4096];
	snprintf(folder, sizeof folder, "%.3800s/runs/%s-%u", series->summary->folder, experiment->name,
		 series->state.experiments[at].attempts);
	if (!status && series->state.experiments[at].attempts)
		status = neap_result_set(&ret_result->folder, folder, err);
	ret_result->outcome = series->state.ends[at].outcome;
	ret_result->exit_status = series->state.ends[at].exit_status;
	free(command);
	free(params);
	return status;
}

static enum neap_status read_result(struct neap_series *series, size_t at, struct neap_result *ret_result,
				    struct neap_error *err)
{
	char path[4096], why[128];
	uint32_t number = series->state.experiments[at].attempts;
	if (series->state.ends[at].outcome == NEAP_OUTCOME_LOST) {
		snprintf(why, sizeof why,
			 "%u attempts, and each time the supervisor was killed before it had a result",
			 series->state.experiments[at].lost);
		return neap_series_make_result(series, at, why, ret_result, err);
	}
	if (series->state.ends[at].left_out)
		return neap_series_make_result(series, at, "not run: --only-failed left it out", ret_result, err);
	snprintf(path, sizeof path, "%.3800s/runs/%s-%u/result.json", series->summary->folder,
		 series->spec->experiments[at].name, number);
	enum neap_status status = neap_result_read(path, ret_result, err);
	if (status == NEAP_ENOENT || status == NEAP_EPARSE) {
		neap_series_report_line(series, "%s: its result cannot be read any more: %s",
					series->spec->experiments[at].name, err->message);
		status = neap_series_make_result(
			series, at, "its result file is missing or damaged; from the journal", ret_result, err);
	}
	return status;
}

static enum neap_status write_page(struct neap_series *series, struct neap_error *err)
{
	struct neap_series_summary *summary = series->summary;
	struct neap_buffer page = {0};
	if (neap_path_join(summary->report, sizeof summary->report, summary->folder, "report.html"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", summary->folder);
	neap_report_page(&page, series->spec->name, summary->results, summary->count, summary->comparisons,
			 summary->comparison_count);
	enum neap_status status = neap_buffer_status(&page, err);
	if (!status)
		status = neap_file_write(summary->report, neap_buffer_string(&page), page.length, err);
	neap_buffer_fini(&page);
	return status;
}

enum neap_status neap_series_report(struct neap_series *series, struct neap_error *err)
{
	struct neap_series_summary *summary = series->summary;
	summary->results = calloc(series->spec->count, sizeof *summary->results);
	if (!summary->results)
		return neap_fail(err, NEAP_ENOMEM, "reporting a series: out of memory");
	for (size_t i = 0; i < series->spec->count; i++) {
		enum neap_status status = read_result(series, i, &summary->results[i], err);
		summary->count = i + 1;
		if (status)
			return status;
		if (series->history_behind && *summary->results[i].run_id)
			neap_series_keep(series, &summary->results[i]);
	}
	enum neap_status status = neap_series_compare(series, err);
	return status ? status : write_page(series, err);
}

void neap_series_summary_fini(struct neap_series_summary *summary)
{
	for (size_t i = 0; i < summary->count; i++)
		neap_result_fini(&summary->results[i]);
	free(summary->results);
	free(summary->comparisons);
	summary->results = NULL;
	summary->comparisons = NULL;
	summary->count = summary->comparison_count = 0;
}

enum neap_status neap_spec_parameter_names(const struct neap_spec *spec, struct neap_argv *ret_names)
{
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < spec->count; i++)
		for (size_t k = 0; k < spec->experiments[i].params.count && !status; k++) {
			const char *param = spec->experiments[i].params.items[k];
			char name[NEAP_REPORT_TITLE * 2];
			size_t at = 0;
			snprintf(name, sizeof name, "%.*s", (int)strcspn(param, "="), param);
			while (at < ret_names->count && strcmp(ret_names->items[at], name))
				at++;
			if (at == ret_names->count)
				status = neap_argv_add(ret_names, name);
		}
	return status;
}
