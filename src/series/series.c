/* series/series.c: see series.h. Each kind of step has one function; the loop gets the next step and takes it. */
#include "series/series.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "run/supervise.h"
#include "series/series_folder.h"
#include "series/series_internal.h"
#include "store/json.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_NS (250 * NEAP_NS_PER_MS)

void neap_series_report_line(const struct neap_series *series, const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (series->options->line)
		series->options->line(series->options->line_context, text);
}

/* Prints a supervisor's line, with its experiment's name if others run too. */
static void report_line(void *context, const char *text)
{
	const struct neap_running *running = context;
	const struct neap_spec *spec = running->series->spec;
	if (spec->parallel > 1)
		neap_series_report_line(running->series, "%s: %s", spec->experiments[running->of].name, text);
	else
		neap_series_report_line(running->series, "%s", text);
}

void neap_series_show(struct neap_running *running) { neap_attempt_show(&running->attempt, report_line, running); }

sig_atomic_t neap_series_interrupts(const struct neap_series *series)
{
	return series->options->interrupts ? *series->options->interrupts : 0;
}

enum neap_status neap_series_append(struct neap_series *series, json_t *entry, struct neap_error *err)
{
	if (!entry)
		return neap_fail(err, NEAP_ENOMEM, "writing the series journal: out of memory");
	neap_json_set(entry, "wall_ns", json_integer((json_int_t)neap_wall_ns()));
	enum neap_status status = series->journal_torn ? neap_fail(err, NEAP_EIO, "the journal's end is torn")
						       : neap_journal_append(series->journal, entry, err);
	series->journal_torn = series->journal_torn || status;
	if (!status)
		status = neap_series_state_apply(&series->state, series->spec, entry, err);
	json_decref(entry);
	return status;
}

void neap_series_keep(struct neap_series *series, const struct neap_result *result)
{
	struct neap_error err = {0};
	char key[NEAP_EXPERIMENT_KEY_CAPACITY] = "";
	size_t at = neap_spec_find(series->spec, result->name);
	if (at < series->spec->count)
		neap_experiment_key(&series->spec->experiments[at], key);
	if (!series->history || !neap_history_put(series->history, series->spec->name, key, result, &err))
		return;
	neap_series_report_line(series, "%s", err.message);
	series->history_behind = true;
}

/* Sets `now` to this step's attempt. If the attempt is not in `running` yet, adds it. */
static enum neap_status turn_to(struct neap_series *series, struct neap_step step, struct neap_error *err)
{
	struct neap_running *free_one = NULL;
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++) {
		series->now = &series->running[i];
		if (series->now->of == step.experiment)
			return NEAP_OK;
		if (series->now->of == series->spec->count)
			free_one = series->now;
	}
	if (!free_one) /* the journal has more open attempts than a file allows */
		return neap_fail(err, NEAP_EPARSE, "more than %d attempts are under way", NEAP_SPEC_PARALLEL);
	series->now = free_one;
	enum neap_status status =
		neap_attempt_init(&free_one->attempt, series->summary->folder,
				  series->spec->experiments[step.experiment].name, step.attempt, err);
	free_one->series = series;
	free_one->placed = free_one->announced = free_one->asked = false;
	free_one->usual_ns = 0;
	free_one->cancels = 0;
	if (!status)
		free_one->of = step.experiment;
	return status;
}

/* Reads the needs and device of an attempt that started before a kill from the journal. */
static void recall_place(struct neap_series *series, struct neap_running *running)
{
	const struct neap_series_end *end = &series->state.ends[running->of];
	if (running->placed || !*end->needs || neap_needs_parse(end->needs, &running->needs, NULL))
		return;
	running->device = NEAP_PACKING_ANY;
	if (running->needs.kind != NEAP_NEEDS_NONE) {
		if (*end->device)
			running->device = neap_series_headroom_find(&series->headroom, end->device);
		if (running->device >= series->headroom.count)
			return; /* its device is unknown, so experiments that need memory wait for its end */
	}
	running->placed = true;
}

/* Finds a device for the experiment beside those that run. False: there is none yet. */
static bool find_place(struct neap_series *series, const struct neap_experiment *experiment,
		       const struct neap_needs *needs, size_t *ret_device)
{
	struct neap_series_headroom *headroom = &series->headroom;
	struct neap_packing_device devices[NEAP_ROOM_DEVICES];
	size_t only = NEAP_PACKING_ANY;
	*ret_device = NEAP_PACKING_ANY;
	if (series->spec->parallel == 1 || needs->kind == NEAP_NEEDS_NONE || !headroom->count)
		return true;
	memcpy(devices, headroom->devices, sizeof devices);
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++) {
		struct neap_running *running = &series->running[i];
		if (running->of == series->spec->count)
			continue;
		recall_place(series, running);
		if (!running->placed)
			return false;
		if (running->device != NEAP_PACKING_ANY)
			neap_packing_add(&devices[running->device], &running->needs);
	}
	if (experiment->device && (only = neap_series_headroom_find(headroom, experiment->device)) == headroom->count)
		return true; /* its supervisor reports that the device is missing */
	size_t chosen = neap_packing_choose(devices, headroom->count, needs, only);
	*ret_device = chosen < headroom->count ? chosen : NEAP_PACKING_ANY;
	return chosen < headroom->count;
}

/* Starts an experiment's attempt. *ret_started is false if no device is free for it yet. */
static enum neap_status start(struct neap_series *series, struct neap_step step, bool *ret_started,
			      struct neap_error *err)
{
	struct neap_experiment experiment = series->spec->experiments[step.experiment];
	char run_id[NEAP_RUN_ID_CAPACITY], needs[NEAP_UNITS_CAPACITY], words[64], on[64] = "";
	const char *uuid = "";
	struct neap_needs parsed = {0};
	size_t device;
	neap_series_needs(series, &series->spec->experiments[step.experiment], needs, words);
	enum neap_status status = neap_needs_parse(needs, &parsed, err);
	*ret_started = !status && find_place(series, &experiment, &parsed, &device);
	if (!*ret_started)
		return status;
	status = turn_to(series, step, err);
	if (!status)
		status = neap_attempt_claim(&series->now->attempt, err);
	/* The attempt exists, but its start record was lost: journal the start again, then adopt the attempt. */
	bool adopt = status == NEAP_EBUSY || status == NEAP_EEXIST;
	if (status && !adopt)
		return status;
	neap_run_id_make(run_id);
	if (device != NEAP_PACKING_ANY) {
		uuid = experiment.device = series->headroom.uuids[device];
		snprintf(on, sizeof on, ", on %s", uuid);
	}
	/* the device of an adopted attempt is unknown */
	status = neap_series_append(
		series,
		neap_series_record_start(&experiment, step.attempt, run_id, adopt ? "" : needs, adopt ? "" : uuid),
		err);
	if (status || adopt)
		return status;
	series->now->placed = true;
	series->now->needs = parsed;
	series->now->device = device;
	neap_series_report_line(series, "[%zu/%zu] %s: attempt %u, needs %s%s", step.experiment + 1,
				series->spec->count, experiment.name, step.attempt, words, on);
	return neap_attempt_start(&series->now->attempt, series->options->program, &experiment, needs, run_id,
				  series->options->quiet, err);
}

/* Asks running experiments to end, once per interrupt from the user. */
static void pass_interrupts_on(struct neap_series *series)
{
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++) {
		struct neap_running *running = &series->running[i];
		if (running->of == series->spec->count || running->cancels >= neap_series_interrupts(series) ||
		    neap_attempt_cancel(&running->attempt, NULL))
			continue;
		running->cancels++;
		neap_series_report_line(series, "interrupted: ending %s",
					series->spec->experiments[running->of].name);
	}
}

/* Sleeps for a while, or until the first running experiment ends. */
static void wait_a_while(struct neap_series *series)
{
	int timeout_ms = NEAP_SERIES_SAMPLE_MS;
	uint64_t now_ns = neap_series_now(series);
	pass_interrupts_on(series);
	if (series->options->progress && now_ns - series->progress_ns >= PROGRESS_NS) {
		series->progress_ns = now_ns;
		neap_series_progress_show(series);
	}
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++) {
		struct neap_running *running = &series->running[i];
		if (running->of == series->spec->count)
			continue;
		neap_attempt_sleep(&running->attempt, timeout_ms);
		neap_series_show(running);
		timeout_ms = 0;
	}
}

static void report_waiting(struct neap_series *series, struct neap_step step)
{
	if (series->now->attempt.child || series->now->attempt.exit_code >= 0 || series->now->announced)
		return;
	series->now->announced = true;
	neap_series_report_line(series, "[%zu/%zu] %s: attempt %u is still running, waiting for it",
				step.experiment + 1, series->spec->count,
				series->spec->experiments[step.experiment].name, step.attempt);
}

enum neap_status neap_series_finish(struct neap_series *series, struct neap_error *err)
{
	enum neap_status status = neap_series_report(series, err);
	bool left_out = false;
	for (size_t i = 0; i < series->state.count; i++)
		left_out |= series->state.ends[i].left_out;
	if (!status && !series->state.finished && !left_out)
		status = neap_series_append(series, neap_series_record_finish(), err);
	return status;
}

/* Checks the open attempts. *ret_moved: one has ended. */
static enum neap_status check_open(struct neap_series *series, bool *ret_moved, struct neap_error *err)
{
	const struct neap_step_experiment *experiments = series->state.experiments;
	size_t count = series->spec->count;
	enum neap_status status = NEAP_OK;
	for (size_t at = 0; !status && (at = neap_step_open(experiments, count, at)) < count; at++) {
		enum neap_step_found found = NEAP_STEP_FOUND_NOTHING;
		struct neap_step step = {NEAP_STEP_WAIT, at, experiments[at].attempts};
		status = turn_to(series, step, err);
		if (!status)
			status = neap_attempt_find(&series->now->attempt, &found, err);
		if (status)
			return status;
		step.kind = neap_step_of_open(found);
		if (step.kind == NEAP_STEP_WAIT)
			report_waiting(series, step);
		else if (found == NEAP_STEP_FOUND_ENDED)
			status = neap_series_take_ended(series, step, err);
		else if (step.kind == NEAP_STEP_TAKE)
			status = neap_series_take(series, step, err);
		else
			status = neap_series_lose(series, step, step.kind == NEAP_STEP_LOSE, err);
		*ret_moved = *ret_moved || step.kind != NEAP_STEP_WAIT;
	}
	return status;
}

static enum neap_status run_steps(struct neap_series *series, struct neap_error *err)
{
	const struct neap_step_experiment *experiments = series->state.experiments;
	size_t count = series->spec->count;
	for (;;) {
		bool moved = false;
		enum neap_status status = check_open(series, &moved, err);
		if (status)
			return status;
		if (moved)
			continue;
		struct neap_step step =
			neap_step_beside(experiments, count, series->spec->parallel, NEAP_SERIES_LOST_LIMIT);
		if (step.kind == NEAP_STEP_FINISH)
			return neap_series_finish(series, err);
		if (step.kind == NEAP_STEP_GIVE_UP) {
			status = neap_series_give_up(series, step, err);
			moved = true;
		} else if (step.kind == NEAP_STEP_START && !neap_series_interrupts(series)) {
			status = start(series, step, &moved, err);
		} else if (neap_step_open(experiments, count, 0) == count) {
			return neap_fail(err, NEAP_ECANCELED, "interrupted");
		}
		if (status)
			return status;
		if (!moved)
			wait_a_while(series);
	}
}

static size_t count_children(const struct neap_series *series)
{
	size_t count = 0;
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++)
		count += series->running[i].of < series->spec->count && series->running[i].attempt.child;
	return count;
}

/* Called when the series ends early: waits for our supervisors, and takes their results while they can be journaled.
 * Drops errors: they repeat the earlier one. */
static void wait_for_children(struct neap_series *series)
{
	size_t children = count_children(series);
	bool takes = true;
	series->ending = true;
	if (children)
		neap_series_report_line(series, "waiting for %zu experiment%s that still run%s", children,
					children == 1 ? "" : "s", children == 1 ? "s" : "");
	while (count_children(series)) {
		bool moved = false;
		struct neap_error err = {0};
		if (takes && check_open(series, &moved, &err))
			takes = !series->journal_torn && (moved || err.status == NEAP_EINTERNAL);
		if (!moved)
			wait_a_while(series);
	}
	if (takes && children) {
		bool moved = false;
		check_open(series, &moved, NULL);
	}
}

/* Lists the devices, if several experiments share them. */
static void open_headroom(struct neap_series *series)
{
	struct neap_error err = {0};
	bool parallel = series->spec->parallel > 1;
	if ((parallel || series->options->progress) && neap_series_headroom_init(&series->headroom, &err) && parallel)
		neap_series_report_line(series, "experiments are not given devices: %s", err.message);
}

void neap_series_open_history(struct neap_series *series)
{
	char path[4096], note[512] = "";
	struct neap_error err = {0};
	if (neap_path_join(path, sizeof path, series->options->state_folder, "history.db"))
		return;
	if (neap_history_open(path, &series->history, note, &err))
		neap_series_report_line(series, "continuing without the history: %s", err.message);
	else if (*note)
		neap_series_report_line(series, "%s", note);
}

void neap_series_count_ends(struct neap_series *series)
{
	for (size_t i = 0; i < series->state.count; i++) {
		if (!series->state.experiments[i].ended)
			series->summary->left++;
		else if (!series->state.ends[i].left_out && series->state.ends[i].outcome != NEAP_OUTCOME_OK)
			series->summary->failed++;
	}
}

/* Refuses a series that is submitted to Slurm: its tasks claim experiments without a lock that would stop us. */
static enum neap_status check_submitted(const struct neap_series *series, struct neap_error *err)
{
	const struct neap_series_state *state = &series->state;
	bool all_ended = !state->edited;
	for (size_t i = 0; i < state->count; i++)
		all_ended = all_ended && state->experiments[i].ended;
	if (!state->submitted || state->finished || all_ended)
		return NEAP_OK;
	return neap_fail(err, NEAP_EBUSY,
			 "the series in %.100s was submitted to Slurm, and has not ended there: continue with "
			 "--slurm --resume",
			 series->summary->folder);
}

enum neap_status neap_series_run(const struct neap_spec *spec, const struct neap_series_options *options,
				 struct neap_series_summary *ret_summary, struct neap_error *err)
{
	*ret_summary = (struct neap_series_summary){0};
	struct neap_error local;
	struct neap_series series = {
		.spec = spec, .options = options, .summary = ret_summary, .device_of = spec->count};
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++)
		series.running[i].of = spec->count;
	if (!err)
		err = &local;
	enum neap_status status = neap_series_state_init(&series.state, spec, err);
	if (!status)
		status = neap_series_folder_open(spec, options, ret_summary->folder, &series.journal, &series.state,
						 err);
	if (status)
		goto out;
	status = check_submitted(&series, err);
	if (!status && options->resume)
		status = neap_series_edit(&series, false, err);
	if (status) {
		ret_summary->folder[0] = '\0'; /* nothing to resume here */
		goto out;
	}
	if (neap_journal_dropped(series.journal))
		neap_series_report_line(&series, "cut a torn record of %zu bytes off the journal in %s",
					neap_journal_dropped(series.journal), ret_summary->folder);
	if (!series.state.begun)
		status = neap_series_device_check(spec, err);
	if (status) {
		ret_summary->folder[0] = '\0'; /* nothing has started that could be resumed */
		goto out;
	}
	if (!series.state.begun)
		status = neap_series_append(&series, neap_series_record_begin(spec), err);
	neap_series_open_history(&series);
	open_headroom(&series);
	if (!status)
		status = neap_series_estimate(&series, err);
	if (!status)
		status = run_steps(&series, err);
	if (status)
		wait_for_children(&series);
	for (size_t i = 0; i < NEAP_SPEC_PARALLEL; i++)
		neap_series_release(&series, &series.running[i]);
	neap_series_count_ends(&series);
out:
	neap_history_close(series.history);
	neap_journal_close(series.journal);
	neap_series_state_fini(&series.state);
	return status;
}
