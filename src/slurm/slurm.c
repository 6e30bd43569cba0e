/* slurm/slurm.c: see slurm.h. */
#include "slurm/internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "series/series_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The pause between calls of squeue while we wait: short at first, then longer, to spare the controller. */
#define PAUSE_LEAST_NS (500 * NEAP_NS_PER_MS)
#define PAUSE_MOST_NS  (30 * NEAP_NS_PER_S)
#define SLICE_NS       (50 * NEAP_NS_PER_MS)

static bool is_interrupted(const struct neap_slurm *slurm)
{
	const volatile sig_atomic_t *interrupts = slurm->options->series.interrupts;
	return interrupts && *interrupts;
}

/* Without `resume`, only reports on an unfinished series. */
static enum neap_status open_folder(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	struct neap_series_options options = slurm->options->series;
	enum neap_status status = neap_series_folder_open(series->spec, &options, series->summary->folder,
							  &series->journal, &series->state, err);
	if (status != NEAP_EBUSY || options.resume)
		return status;
	options.resume = true;
	return neap_series_folder_open(series->spec, &options, series->summary->folder, &series->journal,
				       &series->state, err);
}

static enum neap_status check_local(const struct neap_slurm *slurm, struct neap_error *err)
{
	const struct neap_series *series = &slurm->series;
	for (size_t i = 0; i < series->state.count; i++)
		if (series->state.experiments[i].open && !series->state.submitted)
			return neap_fail(err, NEAP_EBUSY,
					 "'%.60s' of the series in %.100s was started on this machine and has not "
					 "ended: continue with --resume, without --slurm",
					 series->spec->experiments[i].name, series->summary->folder);
	return NEAP_OK;
}

static bool all_ended(const struct neap_series_state *state)
{
	for (size_t i = 0; i < state->count; i++)
		if (!state->experiments[i].ended)
			return false;
	return true;
}

static size_t count_ready(const struct neap_slurm *slurm)
{
	size_t ready = 0;
	for (size_t i = 0; i < slurm->series.state.count; i++)
		ready += neap_slurm_is_ready(slurm, i);
	return ready;
}

static enum neap_status pause_a_while(const struct neap_slurm *slurm, uint64_t began_ns, struct neap_error *err)
{
	uint64_t pause_ns = (neap_series_now(&slurm->series) - began_ns) / 8;
	if (pause_ns < PAUSE_LEAST_NS)
		pause_ns = PAUSE_LEAST_NS;
	if (pause_ns > PAUSE_MOST_NS)
		pause_ns = PAUSE_MOST_NS;
	for (uint64_t ns = 0; ns < pause_ns && !is_interrupted(slurm); ns += SLICE_NS)
		neap_clock_sleep(neap_clock_system(), SLICE_NS);
	return is_interrupted(slurm) ? neap_fail(err, NEAP_ECANCELED, "interrupted: the jobs continue in Slurm")
				     : NEAP_OK;
}

/* Gathers, submits and, if asked to, waits. */
static enum neap_status go_on(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	const struct neap_slurm_options *options = slurm->options;
	bool submits = !series->state.begun || options->series.resume || options->wait;
	uint64_t began_ns = neap_series_now(&slurm->series);
	enum neap_status status = NEAP_OK;
	for (;;) {
		status = neap_slurm_gather(slurm, err);
		if (!status && submits && count_ready(slurm))
			status = neap_slurm_submit(slurm, err);
		if (status)
			return status;
		if (all_ended(&series->state))
			return neap_series_finish(series, err);
		slurm->first_check = false;
		slurm->summary->waiting = count_ready(slurm);
		if (!options->wait || !(slurm->summary->running + slurm->summary->pending))
			return NEAP_OK;
		status = pause_a_while(slurm, began_ns, err);
		if (status)
			return status;
	}
}

static enum neap_status begin(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	enum neap_status status = neap_series_state_init(&series->state, series->spec, err);
	if (!status)
		status = open_folder(slurm, err);
	if (!status)
		status = check_local(slurm, err);
	if (!status && series->state.edited)
		status = neap_fail(
			err, NEAP_EPARSE,
			"the series file has changed since the series in %.100s began: restore it to resume "
			"with --slurm, resume without, or begin a new series with --folder DIR",
			series->summary->folder);
	if (status)
		return status;
	slurm->folder = realpath(series->summary->folder, NULL);
	slurm->checked = calloc(series->spec->count, sizeof *slurm->checked);
	if (!slurm->folder || !slurm->checked)
		return neap_fail(err, NEAP_ENOMEM, "going on with a series: out of memory");
	if (neap_journal_dropped(series->journal))
		neap_series_report_line(series, "cut a torn record of %zu bytes off the journal in %s",
					neap_journal_dropped(series->journal), series->summary->folder);
	return NEAP_OK;
}

enum neap_status neap_slurm_run(const struct neap_spec *spec, const struct neap_slurm_options *options,
				struct neap_slurm_summary *ret_summary, struct neap_error *err)
{
	struct neap_error local;
	*ret_summary = (struct neap_slurm_summary){0};
	struct neap_slurm slurm = {
		.series = {.spec = spec, .options = &options->series, .summary = &ret_summary->series},
		.options = options,
		.summary = ret_summary,
		.first_check = true,
	};
	if (!err)
		err = &local;
	enum neap_status status = begin(&slurm, err);
	if (!status) {
		neap_series_open_history(&slurm.series);
		status = slurm.series.state.finished ? neap_series_finish(&slurm.series, err) : go_on(&slurm, err);
		neap_series_count_ends(&slurm.series);
		ret_summary->begun = slurm.series.state.begun;
	}
	neap_history_close(slurm.series.history);
	neap_journal_close(slurm.series.journal);
	neap_series_state_fini(&slurm.series.state);
	free(slurm.folder);
	free(slurm.checked);
	free(slurm.listed);
	return status;
}

void neap_slurm_summary_fini(struct neap_slurm_summary *summary) { neap_series_summary_fini(&summary->series); }

enum neap_status neap_slurm_plan_first(const struct neap_spec *spec, const struct neap_slurm_options *options,
				       struct neap_slurm_plan *ret_plan, char folder[4096], struct neap_error *err)
{
	char name[4096];
	bool *wanted = calloc(spec->count, sizeof *wanted);
	if (!wanted)
		return neap_fail(err, NEAP_ENOMEM, "planning job arrays: out of memory");
	memset(wanted, true, spec->count * sizeof *wanted);
	enum neap_status status = neap_series_folder_name(spec, &options->series, name, err);
	if (!status)
		status = neap_slurm_plan_make(spec, wanted, neap_slurm_ask_max_array(), ret_plan, err);
	if (!status) {
		char here[4096] = "";
		bool relative = *name != '/' && getcwd(here, sizeof here) && strlen(here) + strlen(name) + 2 < 4096;
		snprintf(folder, 4096, "%s%s%s", here, relative ? "/" : "", name);
	}
	free(wanted);
	return status;
}
