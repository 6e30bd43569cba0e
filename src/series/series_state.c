/* series/series_state.c: see series_state.h. */
#include "series/series_state.h"

#include "base/array.h"
#include "base/error.h"
#include "run/drain.h"
#include "store/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum neap_status neap_series_state_init(struct neap_series_state *state, const struct neap_spec *spec,
					struct neap_error *err)
{
	struct neap_series_state fresh = {.count = spec->count};
	fresh.experiments = calloc(spec->count, sizeof *fresh.experiments);
	fresh.ends = calloc(spec->count, sizeof *fresh.ends);
	if (!fresh.experiments || !fresh.ends) {
		neap_series_state_fini(&fresh);
		return neap_fail(err, NEAP_ENOMEM, "reading a series: out of memory");
	}
	*state = fresh;
	return NEAP_OK;
}

void neap_series_state_fini(struct neap_series_state *state)
{
	free(state->experiments);
	free(state->ends);
	free(state->jobs);
	free(state->gone);
	*state = (struct neap_series_state){0};
}

static void hash_text(const struct neap_spec *spec, char text[17]) { snprintf(text, 17, "%016" PRIx64, spec->hash); }

static enum neap_status apply_begin(struct neap_series_state *state, const struct neap_spec *spec,
				    const json_t *record, struct neap_error *err)
{
	char hash[17];
	if (state->begun)
		return neap_fail(err, NEAP_EPARSE, "a second beginning");
	if (json_integer_value(json_object_get(record, "schema")) != NEAP_SERIES_SCHEMA)
		return neap_fail(err, NEAP_EPARSE, "expected schema %d", NEAP_SERIES_SCHEMA);
	hash_text(spec, hash);
	if (!state->tolerant && strcmp(neap_json_get_text(record, "spec_hash"), hash))
		return neap_fail(err, NEAP_ESTATE, "the series file has changed since the series began");
	state->begun = true;
	return NEAP_OK;
}

/* Resets each experiment that runs again, as if it had never started. Its attempt numbers continue, since folders
 * stay.
 */
static enum neap_status apply_edit(struct neap_series_state *state, const struct neap_spec *spec,
				   const json_t *record, struct neap_error *err)
{
	const json_t *again = json_object_get(record, "again");
	char hash[17];
	hash_text(spec, hash);
	if (!json_is_array(again))
		return neap_fail(err, NEAP_EPARSE, "expected the experiments that are run again");
	for (size_t i = 0; i < json_array_size(again); i++) {
		const char *name = json_string_value(json_array_get(again, i));
		if (!name || (!state->tolerant && neap_spec_find(spec, name) == spec->count))
			return neap_fail(err, NEAP_EPARSE, "expected the names of experiments that are run again");
	}
	if (!state->tolerant && strcmp(neap_json_get_text(record, "spec_hash"), hash))
		return neap_fail(err, NEAP_ESTATE, "the series file has changed since its last edit");
	for (size_t i = 0; i < json_array_size(again); i++) {
		size_t at = neap_spec_find(spec, json_string_value(json_array_get(again, i)));
		if (at < spec->count)
			state->experiments[at] =
				(struct neap_step_experiment){.attempts = state->experiments[at].attempts};
	}
	state->finished = state->submitted = false;
	if (!state->tolerant)
		state->edited = false;
	return NEAP_OK;
}

/* Applies a record about an experiment that is not in the file any more. */
static enum neap_status apply_to_gone(struct neap_series_state *state, const char *type, const char *name,
				      json_int_t attempt, struct neap_error *err)
{
	size_t at = 0;
	while (at < state->gone_count && strcmp(state->gone[at].name, name))
		at++;
	if (!*name || strlen(name) >= sizeof state->gone->name || attempt < 1 || attempt > UINT32_MAX)
		return neap_fail(err, NEAP_EPARSE, "expected an experiment's name and an attempt's number");
	if (at == state->gone_count) {
		if (!neap_array_grow(&state->gone, at, sizeof *state->gone))
			return neap_fail(err, NEAP_ENOMEM, "reading a series: out of memory");
		state->gone[at] = (struct neap_series_gone){0};
		strcpy(state->gone[at].name, name);
		state->gone_count++;
	}
	state->gone[at].attempts = (uint32_t)attempt;
	state->gone[at].open = !strcmp(type, "start");
	return NEAP_OK;
}

static enum neap_status apply_array(struct neap_series_state *state, const struct neap_spec *spec,
				    const json_t *record, struct neap_error *err)
{
	const json_t *members = json_object_get(record, "experiments");
	uint32_t submission = state->submissions + 1;
	if (json_integer_value(json_object_get(record, "submission")) != submission || !json_array_size(members) ||
	    (!state->tolerant && json_array_size(members) > spec->count) || submission > NEAP_SERIES_SUBMISSIONS)
		return neap_fail(err, NEAP_EPARSE, "expected the experiments of submission %" PRIu32, submission);
	for (size_t i = 0; i < json_array_size(members); i++) {
		const char *name = json_string_value(json_array_get(members, i));
		size_t at = name ? neap_spec_find(spec, name) : spec->count;
		if (at == spec->count ? !name || !state->tolerant
				      : state->experiments[at].open || state->experiments[at].ended)
			return neap_fail(err, NEAP_EPARSE, "submitted an experiment that may not run: '%.60s'",
					 name ? name : "");
	}
	if (!neap_array_grow(&state->jobs, submission - 1, sizeof *state->jobs))
		return neap_fail(err, NEAP_ENOMEM, "reading a series: out of memory");
	state->jobs[submission - 1] = 0;
	state->submissions = submission;
	state->submitted = true;
	for (size_t i = 0; i < json_array_size(members); i++) {
		size_t at = neap_spec_find(spec, json_string_value(json_array_get(members, i)));
		if (at == spec->count)
			continue;
		state->ends[at].submission = submission;
		state->ends[at].task = (uint32_t)i + 1;
	}
	return NEAP_OK;
}

static enum neap_status apply_needs(struct neap_series_state *state, const struct neap_spec *spec,
				    const json_t *record, struct neap_error *err)
{
	size_t at = neap_spec_find(spec, neap_json_get_text(record, "experiment"));
	const char *needs = neap_json_get_text(record, "needs");
	struct neap_needs parsed;
	if (at == spec->count && state->tolerant)
		return NEAP_OK;
	if (at == spec->count || strlen(needs) >= sizeof state->ends[at].estimated ||
	    neap_needs_parse(needs, &parsed, NULL))
		return neap_fail(err, NEAP_EPARSE, "expected an experiment of the series and what it needs");
	strcpy(state->ends[at].estimated, needs);
	snprintf(state->ends[at].estimated_key, sizeof state->ends[at].estimated_key, "%s",
		 neap_json_get_text(record, "key"));
	return NEAP_OK;
}

static enum neap_status apply_submit(struct neap_series_state *state, const json_t *record, struct neap_error *err)
{
	json_int_t submission = json_integer_value(json_object_get(record, "submission"));
	json_int_t job = json_integer_value(json_object_get(record, "job"));
	if (submission < 1 || submission > state->submissions || job < 1 || job > UINT32_MAX ||
	    state->jobs[submission - 1])
		return neap_fail(err, NEAP_EPARSE, "expected the job of a submission that has none");
	state->jobs[submission - 1] = (uint32_t)job;
	return NEAP_OK;
}

static enum neap_status apply_start(struct neap_series_state *state, size_t at, uint32_t attempt,
				    const json_t *record, struct neap_error *err)
{
	struct neap_step_experiment *experiment = &state->experiments[at];
	const char *run_id = neap_json_get_text(record, "run_id");
	if (experiment->ended || experiment->open || attempt != experiment->attempts + 1)
		return neap_fail(err, NEAP_EPARSE, "a start out of order");
	if (!*run_id || strlen(run_id) >= sizeof state->ends[at].run_id)
		return neap_fail(err, NEAP_EPARSE, "expected a run_id");
	const char *needs = neap_json_get_text(record, "needs"), *device = neap_json_get_text(record, "device");
	struct neap_needs parsed;
	if (strlen(needs) >= sizeof state->ends[at].needs || strlen(device) >= sizeof state->ends[at].device ||
	    (*needs && neap_needs_parse(needs, &parsed, NULL)))
		return neap_fail(err, NEAP_EPARSE, "expected what an attempt needs, and a device");
	strcpy(state->ends[at].needs, needs);
	strcpy(state->ends[at].device, device);
	snprintf(state->ends[at].key, sizeof state->ends[at].key, "%s", neap_json_get_text(record, "key"));
	strcpy(state->ends[at].run_id, run_id);
	state->ends[at].submission = 0; /* no task runs the next attempt any more */
	experiment->attempts = attempt;
	experiment->open = true;
	return NEAP_OK;
}

static enum neap_status apply_end(struct neap_series_state *state, size_t at, const json_t *record,
				  struct neap_error *err)
{
	enum neap_outcome outcome;
	json_int_t status = json_integer_value(json_object_get(record, "exit_status"));
	if (!neap_outcome_named(neap_json_get_text(record, "outcome"), &outcome) || status < 0 || status > 255)
		return neap_fail(err, NEAP_EPARSE, "expected an outcome and an exit status");
	state->experiments[at].open = false;
	state->experiments[at].ended = true;
	state->ends[at].outcome = outcome;
	state->ends[at].exit_status = (int)status;
	return NEAP_OK;
}

static enum neap_status apply_give_up(struct neap_series_state *state, size_t at, struct neap_error *err)
{
	struct neap_step_experiment *experiment = &state->experiments[at];
	if (experiment->open || experiment->ended || !experiment->lost)
		return neap_fail(err, NEAP_EPARSE, "giving up out of order");
	experiment->ended = true;
	state->ends[at].outcome = NEAP_OUTCOME_LOST;
	return NEAP_OK;
}

/* The task ended before it began: another task will run the attempt. */
static enum neap_status apply_unbegun(struct neap_series_state *state, size_t at, uint32_t attempt,
				      struct neap_error *err)
{
	struct neap_step_experiment *experiment = &state->experiments[at];
	if (experiment->open || experiment->ended || attempt != experiment->attempts + 1 ||
	    !state->ends[at].submission)
		return neap_fail(err, NEAP_EPARSE, "the end of a task that was not submitted");
	state->ends[at].submission = 0;
	experiment->lost++;
	return NEAP_OK;
}

static enum neap_status apply_to_experiment(struct neap_series_state *state, const struct neap_spec *spec,
					    const char *type, const json_t *record, struct neap_error *err)
{
	const char *name = neap_json_get_text(record, "experiment");
	json_int_t attempt = json_integer_value(json_object_get(record, "attempt"));
	size_t at = neap_spec_find(spec, name);
	if (at == spec->count && state->tolerant)
		return apply_to_gone(state, type, name, attempt, err);
	if (at == spec->count || attempt < 1 || attempt > UINT32_MAX)
		return neap_fail(err, NEAP_EPARSE, "expected an experiment of the series and an attempt's number");
	struct neap_step_experiment *experiment = &state->experiments[at];
	if (!strcmp(type, "start"))
		return apply_start(state, at, (uint32_t)attempt, record, err);
	if (!strcmp(type, "unbegun"))
		return apply_unbegun(state, at, (uint32_t)attempt, err);
	if (!strcmp(type, "give_up"))
		return apply_give_up(state, at, err);
	bool lost = !strcmp(type, "lost"), cancel = !strcmp(type, "cancel"), retry = !strcmp(type, "retry");
	bool deviceless = !strcmp(type, "device_lost");
	if (!lost && !cancel && !retry && !deviceless && strcmp(type, "end"))
		return neap_fail(err, NEAP_EPARSE, "unknown type '%.40s'", type);
	if (!experiment->open || experiment->attempts != (uint32_t)attempt)
		return neap_fail(err, NEAP_EPARSE, "the end of an attempt that was not going on");
	if (!lost && !cancel && !retry && !deviceless)
		return apply_end(state, at, record, err);
	experiment->open = false;
	experiment->lost += lost;
	experiment->failed += retry;
	experiment->deviceless += deviceless;
	return NEAP_OK;
}

enum neap_status neap_series_state_apply(struct neap_series_state *state, const struct neap_spec *spec,
					 const json_t *record, struct neap_error *err)
{
	const char *type = neap_json_get_text(record, "type");
	if (!strcmp(type, "series"))
		return apply_begin(state, spec, record, err);
	if (state->begun && !strcmp(type, "edit"))
		return apply_edit(state, spec, record, err);
	if (!state->begun || state->finished)
		return neap_fail(err, NEAP_EPARSE, "a record outside of a series");
	if (!strcmp(type, "array"))
		return apply_array(state, spec, record, err);
	if (!strcmp(type, "needs"))
		return apply_needs(state, spec, record, err);
	if (!strcmp(type, "submit"))
		return apply_submit(state, record, err);
	if (strcmp(type, "finish"))
		return apply_to_experiment(state, spec, type, record, err);
	if (!state->tolerant &&
	    neap_step_next(state->experiments, state->count, NEAP_STEP_FOUND_NOTHING, UINT32_MAX).kind !=
		    NEAP_STEP_FINISH)
		return neap_fail(err, NEAP_EPARSE, "a finish before the last experiment's end");
	state->finished = true;
	return NEAP_OK;
}

enum neap_status neap_series_state_replay(struct neap_series_state *state, const struct neap_spec *spec,
					  const json_t *records, struct neap_error *err)
{
	size_t index, last = 0;
	json_t *record;
	char hash[17];
	json_array_foreach(records, index, record)
	{
		if (!strcmp(neap_json_get_text(record, "type"), "edit"))
			last = index;
	}
	hash_text(spec, hash);
	bool edited = json_array_size(records) &&
		      strcmp(neap_json_get_text(json_array_get(records, last), "spec_hash"), hash);
	state->edited = edited;
	json_array_foreach(records, index, record)
	{
		state->tolerant = edited || index < last;
		enum neap_status status = neap_series_state_apply(state, spec, record, err);
		if (status == NEAP_EPARSE)
			neap_error_prefix(err, "record %zu", index + 1);
		if (status)
			return status;
	}
	state->tolerant = false;
	state->edited = edited;
	return NEAP_OK;
}

json_t *neap_series_record_begin(const struct neap_spec *spec)
{
	char hash[17];
	hash_text(spec, hash);
	return json_pack("{s:s, s:i, s:s, s:s}", "type", "series", "schema", NEAP_SERIES_SCHEMA, "name", spec->name,
			 "spec_hash", hash);
}

json_t *neap_series_record_edit(const struct neap_spec *spec, const bool *again)
{
	char hash[17];
	json_t *names = json_array();
	bool failed = !names;
	hash_text(spec, hash);
	for (size_t i = 0; i < spec->count && !failed; i++)
		failed = again[i] && json_array_append_new(names, json_string(spec->experiments[i].name));
	if (failed) {
		json_decref(names);
		return NULL;
	}
	return json_pack("{s:s, s:s, s:o}", "type", "edit", "spec_hash", hash, "again", names);
}

json_t *neap_series_record_start(const struct neap_experiment *experiment, uint32_t attempt, const char *run_id,
				 const char *needs, const char *device)
{
	char key[NEAP_EXPERIMENT_KEY_CAPACITY];
	neap_experiment_key(experiment, key);
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s}", "type", "start", "experiment", experiment->name,
			 "attempt", (json_int_t)attempt, "run_id", run_id, "needs", needs, "device", device, "key",
			 key);
}

json_t *neap_series_record_needs(const struct neap_experiment *experiment, const char *needs,
				 const struct neap_estimate_answer *answer)
{
	char key[NEAP_EXPERIMENT_KEY_CAPACITY];
	neap_experiment_key(experiment, key);
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s}", "type", "needs", "experiment", experiment->name,
			 "needs", needs, "origin", "estimated", "low", (json_int_t)answer->low_bytes, "high",
			 (json_int_t)answer->high_bytes, "gpu", answer->gpu, "key", key);
}

json_t *neap_series_record_array(uint32_t submission, json_t *experiments, json_t *needs)
{
	return json_pack("{s:s, s:I, s:o, s:o}", "type", "array", "submission", (json_int_t)submission, "experiments",
			 experiments, "needs", needs);
}

json_t *neap_series_record_submit(uint32_t submission, uint32_t job)
{
	return json_pack("{s:s, s:I, s:I}", "type", "submit", "submission", (json_int_t)submission, "job",
			 (json_int_t)job);
}

json_t *neap_series_record_end(const char *experiment, uint32_t attempt, enum neap_outcome outcome, int exit_status)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:i}", "type", "end", "experiment", experiment, "attempt",
			 (json_int_t)attempt, "outcome", neap_outcome_name(outcome), "exit_status", exit_status);
}

json_t *neap_series_record_of(const char *type, const char *experiment, uint32_t attempt)
{
	return json_pack("{s:s, s:s, s:I}", "type", type, "experiment", experiment, "attempt", (json_int_t)attempt);
}

json_t *neap_series_record_finish(void) { return json_pack("{s:s}", "type", "finish"); }
