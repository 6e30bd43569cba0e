/* series/series_edit.c: resumes a series whose file was edited, or only its failed experiments.
 *
 *   in the journal                     in the file now         with --resume           with --only-failed
 *   -------------------------------    --------------------    --------------------    ------------------
 *   ended well                         the same                kept                    kept
 *   ended well                         another command,        run again               kept
 *                                      params or env
 *   failed                             there                   run again if the        run again
 *                                                              file was edited
 *   an attempt is running              the same                waited for              waited for
 *   an attempt is running              another one, or gone    refused                 refused
 *   has not ended                      there                   continues               left out
 *   -                                  new                     run                     left out
 *   has ended, or never began          gone                    reported                reported
 */
#include "series/series_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "series/series_folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_SHOWN 12

enum fate { FATE_KEPT, FATE_FAILED, FATE_CHANGED, FATE_LEFT, FATE_NEW, FATE_GONE, FATE_COUNT };

static const char *const fate_words[FATE_COUNT][2] = {
	[FATE_KEPT] = {"ended and is kept", "ended and are kept"},
	[FATE_FAILED] = {"failed and is run again", "failed and are run again"},
	[FATE_CHANGED] = {"has another command, params or env and is run again",
			  "have another command, params or env and are run again"},
	[FATE_LEFT] = {"has not ended and continues", "have not ended and continue"},
	[FATE_NEW] = {"is new", "are new"},
	[FATE_GONE] = {"is no longer in the file", "are no longer in the file"},
};

static bool is_changed(const struct neap_series *series, size_t at)
{
	char key[NEAP_EXPERIMENT_KEY_CAPACITY];
	neap_experiment_key(&series->spec->experiments[at], key);
	/* A journal of an earlier version has no keys, so compare the whole file. */
	if (!series->state.ends[at].key[0])
		return series->state.edited;
	return strcmp(series->state.ends[at].key, key) != 0;
}

static enum fate fate_of(const struct neap_series *series, size_t at)
{
	const struct neap_step_experiment *experiment = &series->state.experiments[at];
	bool only_failed = series->options->only_failed;
	if (!experiment->attempts)
		return FATE_NEW;
	if (experiment->ended && series->state.ends[at].outcome != NEAP_OUTCOME_OK)
		return only_failed || series->state.edited ? FATE_FAILED : FATE_KEPT;
	if (!only_failed && is_changed(series, at))
		return FATE_CHANGED;
	return experiment->ended ? FATE_KEPT : FATE_LEFT;
}

/* Fails if an attempt still runs that was started from another version of the file. */
static enum neap_status check_open(const struct neap_series *series, const char *name, uint32_t number,
				   struct neap_error *err)
{
	struct neap_attempt attempt;
	enum neap_step_found found = NEAP_STEP_FOUND_NOTHING;
	enum neap_status status = neap_attempt_init(&attempt, series->summary->folder, name, number, err);
	if (!status)
		status = neap_attempt_find(&attempt, &found, err);
	if (!status && found == NEAP_STEP_FOUND_LOCK)
		status = neap_fail(err, NEAP_EBUSY,
				   "'%.80s' still runs as the series file was before it was edited: wait for its "
				   "end, or end it ('neap kill'), and resume then",
				   name);
	return status;
}

static enum neap_status check_all_open(const struct neap_series *series, const enum fate *fates,
				       struct neap_error *err)
{
	const struct neap_series_state *state = &series->state;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < state->count && !status; i++) {
		if (!state->experiments[i].open || !is_changed(series, i))
			continue;
		/* Otherwise the end of the old attempt would count as the new one's. */
		status = check_open(series, series->spec->experiments[i].name, state->experiments[i].attempts, err);
		if (!status && fates[i] == FATE_LEFT) /* --only-failed */
			status =
				neap_fail(err, NEAP_EBUSY, "'%.80s' was edited before it had ended: --resume runs it",
					  series->spec->experiments[i].name);
	}
	for (size_t i = 0; i < state->gone_count && !status; i++)
		if (state->gone[i].open)
			status = check_open(series, state->gone[i].name, state->gone[i].attempts, err);
	return status;
}

static void add_name(struct neap_buffer *names, size_t *count, const char *name)
{
	if (++*count <= NAMES_SHOWN)
		neap_buffer_format(names, "%s%s", *count > 1 ? ", " : "", name);
}

static void report_fate(const struct neap_series *series, const enum fate *fates, enum fate fate)
{
	const struct neap_series_state *state = &series->state;
	struct neap_buffer names = {0};
	size_t count = 0;
	bool left_out = series->options->only_failed && (fate == FATE_NEW || fate == FATE_LEFT);
	for (size_t i = 0; i < state->count; i++)
		if (fates[i] == fate)
			add_name(&names, &count, series->spec->experiments[i].name);
	for (size_t i = 0; i < state->gone_count && fate == FATE_GONE; i++)
		add_name(&names, &count, state->gone[i].name);
	if (count > NAMES_SHOWN)
		neap_buffer_format(&names, " and %zu more", count - NAMES_SHOWN);
	if (count)
		neap_series_report_line(series, "  %zu %s%s: %s", count, fate_words[fate][count > 1],
					left_out ? " once it is resumed without --only-failed" : "",
					neap_buffer_string(&names));
	neap_buffer_fini(&names);
}

static size_t count_fate(const struct neap_series *series, const enum fate *fates, enum fate fate)
{
	size_t count = 0;
	for (size_t i = 0; i < series->state.count; i++)
		count += fates[i] == fate;
	return count;
}

static enum neap_status append_edit(struct neap_series *series, const enum fate *fates, struct neap_error *err)
{
	bool *again = calloc(series->state.count, sizeof *again);
	if (!again)
		return neap_fail(err, NEAP_ENOMEM, "continuing a series: out of memory");
	for (size_t i = 0; i < series->state.count; i++)
		again[i] = fates[i] == FATE_FAILED || fates[i] == FATE_CHANGED;
	enum neap_status status = neap_series_append(series, neap_series_record_edit(series->spec, again), err);
	free(again);
	return status;
}

/* Ends the leftovers of attempts whose supervisor was killed: nothing else handles these attempts any more. */
static void end_leftovers(const struct neap_series *series, const enum fate *fates)
{
	for (size_t i = 0; i < series->state.count; i++)
		if (fates[i] == FATE_CHANGED && series->state.experiments[i].open)
			neap_series_end_leftovers(series, series->state.ends[i].run_id);
}

/* Marks the experiments that this run omits. It still waits for running attempts. */
static void leave_out(struct neap_series *series, const enum fate *fates)
{
	for (size_t i = 0; i < series->state.count; i++) {
		struct neap_step_experiment *experiment = &series->state.experiments[i];
		if ((fates[i] != FATE_NEW && fates[i] != FATE_LEFT) || experiment->open)
			continue;
		experiment->ended = true;
		series->state.ends[i].outcome = NEAP_OUTCOME_CANCELED;
		series->state.ends[i].left_out = true;
	}
}

static enum neap_status decide(struct neap_series *series, enum fate *fates, bool dry_run, struct neap_error *err)
{
	const bool only_failed = series->options->only_failed;
	for (size_t i = 0; i < series->state.count; i++)
		fates[i] = fate_of(series, i);
	size_t again = count_fate(series, fates, FATE_FAILED) + count_fate(series, fates, FATE_CHANGED);
	if (!series->state.edited && !only_failed && !again && !dry_run)
		return NEAP_OK;
	enum neap_status status = check_all_open(series, fates, err);
	if (status)
		return status;
	neap_series_report_line(series, "the series in %s%s", series->summary->folder,
				series->state.edited ? ", whose file has changed since:" : ":");
	for (int fate = 0; fate < FATE_COUNT; fate++)
		report_fate(series, fates, (enum fate)fate);
	if (dry_run)
		return NEAP_OK;
	end_leftovers(series, fates);
	if (again || (series->state.edited && !only_failed))
		status = append_edit(series, fates, err);
	if (!status && only_failed)
		leave_out(series, fates);
	return status;
}

enum neap_status neap_series_edit(struct neap_series *series, bool dry_run, struct neap_error *err)
{
	if (!series->state.begun)
		return series->options->only_failed
			       ? neap_fail(err, NEAP_ENOENT,
					   "nothing of this series has run yet: start it without --only-failed")
			       : NEAP_OK;
	enum fate *fates = calloc(series->state.count, sizeof *fates);
	if (!fates)
		return neap_fail(err, NEAP_ENOMEM, "continuing a series: out of memory");
	enum neap_status status = decide(series, fates, dry_run, err);
	free(fates);
	return status;
}

enum neap_status neap_series_preview(const struct neap_spec *spec, const struct neap_series_options *options,
				     struct neap_error *err)
{
	struct neap_series_summary summary = {0};
	struct neap_series series = {.spec = spec, .options = options, .summary = &summary};
	char folder[4096], path[4200];
	enum neap_status status = neap_series_folder_name(spec, options, folder, err);
	if (!status)
		status = neap_path_join(path, sizeof path, folder, "journal");
	if (status)
		return status;
	if (access(path, F_OK)) { /* opening would create it */
		neap_series_report_line(&series, "nothing of this series has run yet");
		return NEAP_OK;
	}
	status = neap_series_state_init(&series.state, spec, err);
	if (!status)
		status = neap_series_folder_open(spec, options, summary.folder, &series.journal, &series.state, err);
	if (!status)
		status = neap_series_edit(&series, true, err);
	neap_journal_close(series.journal);
	neap_series_state_fini(&series.state);
	return status;
}
