/* slurm/task.c: see task.h. */
#include "slurm/task.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "series/journal.h"
#include "series/series_attempt.h"
#include "series/series_state.h"
#include "slurm/claim.h"
#include "slurm/decide.h"
#include "store/json.h"
#include "store/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The series may hold the lock for a moment, to test it: retry. */
#define LOCK_TRIES 500
#define READ_TRIES 5
#define PAUSE_NS   (20 * NEAP_NS_PER_MS)

/* The experiments that the tasks of an array may run. */
struct work {
	const struct neap_spec *spec;
	const char *folder;
	struct neap_series_state state;
	json_t *records;
	const json_t *names, *needs; /* of the array; they point into `records` */
};

static void work_fini(struct work *work)
{
	neap_series_state_fini(&work->state);
	json_decref(work->records);
}

/* A reader without the journal's lock may see a torn record that is being replaced: retry. */
static enum neap_status read_journal(struct work *work, struct neap_error *err)
{
	enum neap_status status;
	for (int i = 0;
	     (status = neap_journal_read(work->folder, &work->records, err)) == NEAP_EPARSE && i < READ_TRIES; i++)
		neap_clock_sleep(neap_clock_system(), PAUSE_NS);
	if (!status)
		status = neap_series_state_init(&work->state, work->spec, err);
	return status ? status : neap_series_state_replay(&work->state, work->spec, work->records, err);
}

/* The caller frees `work`, also on failure. */
static enum neap_status work_read(struct work *work, uint32_t submission, struct neap_error *err)
{
	size_t index;
	json_t *record;
	enum neap_status status = read_journal(work, err);
	if (!status && work->state.edited)
		status =
			neap_fail(err, NEAP_EPARSE, "the series in %.120s continues with another file", work->folder);
	if (status)
		return status;
	json_array_foreach(work->records, index, record)
	{
		if (strcmp(neap_json_get_text(record, "type"), "array") != 0 ||
		    json_integer_value(json_object_get(record, "submission")) != (json_int_t)submission)
			continue;
		work->names = json_object_get(record, "experiments");
		work->needs = json_object_get(record, "needs");
	}
	return work->names ? NEAP_OK
			   : neap_fail(err, NEAP_ENOENT, "the series in %.120s has no submission %" PRIu32,
				       work->folder, submission);
}

/* Reads a number from an environment variable that Slurm sets. */
static bool number_from(const char *name, uint32_t *ret_number)
{
	uint64_t number = 0;
	const char *text = getenv(name);
	if (!text || neap_u64_parse(text, &number, NULL) || number > UINT32_MAX)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

static enum neap_status read_environment(struct neap_slurm_claim *claim, struct neap_error *err)
{
	const char *node = getenv("SLURMD_NODENAME");
	if (!number_from("SLURM_ARRAY_JOB_ID", &claim->job) || !claim->job ||
	    !number_from("SLURM_ARRAY_TASK_ID", &claim->task) || !claim->task)
		return neap_fail(err, NEAP_EINVAL,
				 "this is what a task of Slurm's job array runs: SLURM_ARRAY_JOB_ID and "
				 "SLURM_ARRAY_TASK_ID are not set");
	number_from("SLURM_RESTART_COUNT", &claim->restarts);
	if (node && *node && !strpbrk(node, " \t\n"))
		snprintf(claim->node, sizeof claim->node, "%s", node);
	neap_run_id_make(claim->run_id);
	return NEAP_OK;
}

/* Whether the attempt has a result that allows no other attempt. Errors: the result exists but cannot be read now. */
static enum neap_status find_end(const char *folder, bool *ret_end, struct neap_error *err)
{
	char path[4096];
	struct neap_result result = {0};
	*ret_end = false;
	if (neap_path_join(path, sizeof path, folder, "result.json"))
		return NEAP_OK;
	enum neap_status status = neap_result_read(path, &result, err);
	if (status)
		return status == NEAP_ENOENT || status == NEAP_EPARSE ? NEAP_OK : status;
	*ret_end = !neap_slurm_may_have_ended(result.outcome);
	neap_result_fini(&result);
	return NEAP_OK;
}

/* Whether this task claimed the attempt in an earlier start, which Slurm ended. */
static enum neap_status find_requeued(const struct neap_slurm_claim *claim, const char *folder, bool *ret_requeued,
				      struct neap_error *err)
{
	struct neap_slurm_claim other = {0};
	bool ended = false;
	enum neap_status status = neap_slurm_claim_read(folder, &other, err);
	if (status == NEAP_EPARSE) /* damaged: no task may run it */
		status = NEAP_OK;
	else if (!status)
		status = find_end(folder, &ended, err);
	*ret_requeued =
		!ended && other.job == claim->job && other.task == claim->task && other.restarts < claim->restarts;
	return status;
}

/* Finds the experiment of an entry of the array. NULL: it has ended, or is no longer in the file. */
static const struct neap_experiment *find_unfinished(const struct work *work, size_t entry, uint32_t *ret_attempt)
{
	const char *name = json_string_value(json_array_get(work->names, entry));
	for (size_t i = 0; name && i < work->spec->count; i++) {
		const struct neap_step_experiment *experiment = &work->state.experiments[i];
		if (strcmp(work->spec->experiments[i].name, name) != 0 || experiment->ended || experiment->open)
			continue;
		*ret_attempt = experiment->attempts + 1;
		return &work->spec->experiments[i];
	}
	return NULL;
}

/* Claims the next attempt of one experiment. NEAP_EEXIST: another task has claimed it. */
static enum neap_status claim_one(const struct neap_slurm_claim *claim, const char *series_folder,
				  const char *experiment, uint32_t first, struct neap_attempt *attempt,
				  struct neap_error *err)
{
	bool requeued = true;
	enum neap_status status = NEAP_EEXIST;
	for (uint32_t i = 0; status == NEAP_EEXIST && requeued && i <= claim->restarts; i++) {
		status = neap_attempt_init(attempt, series_folder, experiment, first + i, err);
		if (!status)
			status = neap_slurm_claim_make(attempt->folder, claim, err);
		enum neap_status found =
			status == NEAP_EEXIST ? find_requeued(claim, attempt->folder, &requeued, err) : NEAP_OK;
		if (found)
			return found;
	}
	return status;
}

/* Claims the next experiment that no task has claimed. NEAP_EEXIST: there is none. */
static enum neap_status claim_next(const struct neap_slurm_claim *claim, const struct work *work,
				   const struct neap_experiment **ret_experiment, const char **ret_needs,
				   struct neap_attempt *attempt, struct neap_error *err)
{
	size_t count = json_array_size(work->names);
	enum neap_status status = NEAP_EEXIST;
	for (size_t i = 0; status == NEAP_EEXIST && i < count; i++) {
		size_t entry = (claim->task - 1 + i) % count;
		const char *needs = json_string_value(json_array_get(work->needs, entry));
		uint32_t first;
		*ret_experiment = find_unfinished(work, entry, &first);
		*ret_needs = needs ? needs : "device";
		if (*ret_experiment)
			status = claim_one(claim, work->folder, (*ret_experiment)->name, first, attempt, err);
	}
	return status;
}

/* Unsets XDG_RUNTIME_DIR if it cannot be used: a job has no login session, so the folder may not exist. */
static void leave_session(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	if (runtime && access(runtime, W_OK | X_OK))
		unsetenv("XDG_RUNTIME_DIR");
}

static enum neap_status become(const struct neap_slurm_claim *claim, const struct neap_experiment *experiment,
			       const char *needs, struct neap_attempt *attempt, const char *program,
			       struct neap_error *err)
{
	enum neap_status status;
	for (int i = 0; (status = neap_attempt_claim(attempt, err)) == NEAP_EBUSY && i < LOCK_TRIES; i++)
		neap_clock_sleep(neap_clock_system(), PAUSE_NS);
	if (status)
		return status;
	leave_session();
	return neap_attempt_become(attempt, program, experiment, needs, claim->run_id, err);
}

/* Reports the start in the task's output, for people and neap_slurm_last_cause. */
static void report_start(const struct neap_slurm_claim *claim, const struct neap_experiment *experiment,
			 const struct neap_attempt *attempt, void (*report)(const char *line))
{
	char line[400];
	snprintf(line, sizeof line, NEAP_SLURM_BEGINS " %" PRIu32 "_%" PRIu32 " runs %.80s in %.250s", claim->job,
		 claim->task, experiment->name, attempt->folder);
	report(line);
}

enum neap_status neap_slurm_task_run(const struct neap_spec *spec, const char *folder, uint32_t submission,
				     const char *program, void (*report)(const char *line), struct neap_error *err)
{
	struct neap_slurm_claim claim = {0};
	struct work work = {.spec = spec, .folder = folder};
	struct neap_attempt attempt = {.lock_fd = -1, .pidfd = -1, .log_fd = -1};
	const struct neap_experiment *experiment = NULL;
	const char *needs = NULL;
	enum neap_status status = read_environment(&claim, err);
	if (!status)
		status = work_read(&work, submission, err);
	if (!status)
		status = claim_next(&claim, &work, &experiment, &needs, &attempt, err);
	if (status == NEAP_EEXIST) {
		report(NEAP_SLURM_BEGINS ": other tasks have begun every experiment of this array: nothing to do");
		status = NEAP_OK;
	} else if (!status) {
		report_start(&claim, experiment, &attempt, report);
		status = become(&claim, experiment, needs, &attempt, program, err);
	}
	neap_attempt_fini(&attempt);
	work_fini(&work);
	return status;
}
