/* series/slurm_submit.c: job arrays to Slurm; see slurm.h for what is written when. */
#include "series/slurm_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "series/slurm_call.h"
#include "series/slurm_claim.h"
#include "series/slurm_task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One of Slurm's commands; `refused` (room for 200) gets its complaint, "" when it ended with 0. */
static enum neap_status call(const struct neap_words *words, struct neap_buffer *output, char *refused,
			     struct neap_error *err)
{
	struct neap_buffer errors = {0};
	int code = 0;
	enum neap_status status = neap_slurm_call(words, output, &errors, &code, err);
	refused[0] = '\0';
	if (!status && code) {
		neap_slurm_complaint(&errors, refused, 200);
		if (!*refused)
			snprintf(refused, 200, "exit status %d", code);
	}
	neap_buffer_fini(&errors);
	return status;
}

uint32_t neap_slurm_ask_max_array(void)
{
	struct neap_words words = {0};
	struct neap_buffer output = {0};
	char refused[200] = "";
	uint32_t size = NEAP_SLURM_MAX_ARRAY;
	if (!neap_words_add(&words, "scontrol") && !neap_words_add(&words, "show") &&
	    !neap_words_add(&words, "config") && !call(&words, &output, refused, NULL) && !*refused)
		neap_slurm_max_array(neap_buffer_string(&output), output.length, &size);
	neap_words_fini(&words);
	neap_buffer_fini(&output);
	return size;
}

enum neap_status neap_slurm_withdraw(struct neap_slurm *slurm, size_t at, bool *ret_withdrawn, struct neap_error *err)
{
	const struct neap_series *series = &slurm->series;
	struct neap_attempt attempt;
	enum neap_status status =
		neap_attempt_init(&attempt, series->summary->folder, series->spec->experiments[at].name,
				  series->state.experiments[at].attempts, err);
	if (!status)
		status = neap_slurm_claim_make(attempt.folder, &(struct neap_slurm_claim){0}, err);
	if (status && status != NEAP_EEXIST)
		return status;
	*ret_withdrawn = status == NEAP_OK;
	return NEAP_OK;
}

/* A submission that may not have been one: what no task has begun is taken back, and another's to submit. */
static enum neap_status take_back(struct neap_slurm *slurm, const struct neap_slurm_batch *batch,
				  struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < batch->count && !status; i++) {
		size_t at = batch->members[i];
		bool withdrawn = false;
		if (!series->state.experiments[at].open)
			continue;
		status = neap_slurm_withdraw(slurm, at, &withdrawn, err);
		if (!status && withdrawn)
			status =
				neap_series_append(series,
						   neap_series_record_of("cancel", series->spec->experiments[at].name,
									 series->state.experiments[at].attempts),
						   err);
	}
	return status;
}

/* The file as it is now must be what was read: tasks read the copy. */
static enum neap_status copy_file(struct neap_slurm *slurm, struct neap_error *err)
{
	char folder[4096], path[4096];
	struct neap_buffer text = {0};
	if (neap_path_join(folder, sizeof folder, slurm->folder, "slurm") ||
	    neap_path_join(path, sizeof path, folder, "series.yaml"))
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", slurm->folder);
	enum neap_status status = neap_make_folder(folder, 0700, err);
	if (!status)
		status = neap_file_read(slurm->options->series.file, NEAP_SPEC_LIMIT_BYTES, &text, err);
	if (!status && neap_spec_hash(neap_buffer_string(&text), text.length) != slurm->series.spec->hash)
		status =
			neap_fail(err, NEAP_EBUSY, "%.150s is being changed: try again", slurm->options->series.file);
	if (!status)
		status = neap_file_write(path, neap_buffer_string(&text), text.length, err);
	neap_buffer_fini(&text);
	return status;
}

/* The script and the tasks of a submission. */
static enum neap_status write_files(struct neap_slurm *slurm, uint32_t submission, const struct neap_words *words,
				    const struct neap_slurm_task *tasks, size_t count, struct neap_error *err)
{
	char path[4096];
	struct neap_buffer script = {0};
	enum neap_status status = neap_slurm_path(slurm->folder, submission, ".json", path, err);
	if (!status)
		status = neap_slurm_tasks_write(path, slurm->series.spec, tasks, count, err);
	if (!status)
		status = neap_slurm_script(slurm->series.spec, words, slurm->options->series.program, slurm->folder,
					   submission, &script, err);
	if (!status)
		status = neap_slurm_path(slurm->folder, submission, ".sh", path, err);
	if (!status)
		status = neap_file_write(path, neap_buffer_string(&script), script.length, err);
	if (!status && chmod(path, 0700)) /* it can be run by hand, within a job */
		status = neap_fail(err, NEAP_EIO, "making %.150s a program", path);
	neap_buffer_fini(&script);
	return status;
}

static enum neap_status start_all(struct neap_slurm *slurm, uint32_t submission, const struct neap_slurm_task *tasks,
				  size_t count, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	enum neap_status status = NEAP_OK;
	if (!series->state.begun)
		status = neap_series_append(series, neap_series_record_begin(series->spec), err);
	for (size_t i = 0; i < count && !status; i++)
		status = neap_series_append(series,
					    neap_series_record_task(&series->spec->experiments[tasks[i].experiment],
								    tasks[i].attempt, tasks[i].run_id, submission,
								    tasks[i].task),
					    err);
	return status;
}

static struct neap_slurm_task *make_tasks(struct neap_slurm *slurm, const struct neap_slurm_batch *batch)
{
	struct neap_slurm_task *tasks = calloc(batch->count, sizeof *tasks);
	char words[64];
	for (size_t i = 0; tasks && i < batch->count; i++) {
		size_t at = batch->members[i];
		tasks[i].task = neap_slurm_task_of(batch, at);
		tasks[i].experiment = at;
		tasks[i].attempt = slurm->series.state.experiments[at].attempts + 1;
		neap_run_id_make(tasks[i].run_id);
		neap_series_needs(&slurm->series, &slurm->series.spec->experiments[at], tasks[i].needs, words);
	}
	return tasks;
}

/* sbatch itself; *ret_job is set only when it has said so. */
static enum neap_status submit_words(struct neap_slurm *slurm, const struct neap_slurm_batch *batch,
				     const struct neap_words *words, uint32_t *ret_job, struct neap_error *err)
{
	struct neap_buffer output = {0};
	struct neap_error back = {0};
	char refused[200];
	enum neap_status status = call(words, &output, refused, err);
	if (!status && *refused)
		status = neap_fail(err, NEAP_ESTATE, "sbatch refused: %s", refused);
	if (!status)
		status = neap_slurm_sbatch_answer(neap_buffer_string(&output), output.length, ret_job, err);
	if (status && take_back(slurm, batch, &back))
		neap_series_say(&slurm->series, "%s", back.message);
	neap_buffer_fini(&output);
	return status;
}

/* Whether sbatch would take it, before anything is journaled: most refusals are spelling errors in the file. */
static enum neap_status test(struct neap_slurm *slurm, const struct neap_slurm_batch *batch, uint32_t submission,
			     uint32_t after, struct neap_error *err)
{
	struct neap_words words = {0};
	struct neap_buffer output = {0};
	char refused[200];
	enum neap_status status =
		neap_slurm_words(slurm->series.spec, batch, slurm->folder, submission, after, true, &words, err);
	if (!status)
		status = call(&words, &output, refused, err);
	if (!status && *refused)
		status = neap_fail(err, NEAP_ESTATE, "sbatch refused: %s; nothing was submitted", refused);
	neap_words_fini(&words);
	neap_buffer_fini(&output);
	return status;
}

static void say_submitted(struct neap_slurm *slurm, const struct neap_slurm_batch *batch,
			  const struct neap_words *words, uint32_t job)
{
	struct neap_buffer asked = {0};
	for (size_t i = 0; i < words->count; i++)
		if (!strncmp(words->items[i], "--array=", 8) || !strncmp(words->items[i], "--gres=", 7) ||
		    !strncmp(words->items[i], "--time=", 7) || !strncmp(words->items[i], "--mem=", 6))
			neap_buffer_format(&asked, " %s", words->items[i]);
	neap_series_say(&slurm->series, "submitted %zu task%s as job %" PRIu32 ":%s", batch->count,
			batch->count == 1 ? "" : "s", job, neap_buffer_string(&asked));
	neap_buffer_fini(&asked);
}

static enum neap_status submit_batch(struct neap_slurm *slurm, const struct neap_slurm_batch *batch, uint32_t *after,
				     struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	uint32_t submission = series->state.submissions + 1, job = 0;
	struct neap_words words = {0};
	struct neap_slurm_task *tasks = make_tasks(slurm, batch);
	enum neap_status status = tasks ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "submitting to Slurm: out of memory");
	if (!status)
		status = neap_slurm_words(series->spec, batch, slurm->folder, submission, *after, false, &words, err);
	if (!status)
		status = write_files(slurm, submission, &words, tasks, batch->count, err);
	if (!status)
		status = test(slurm, batch, submission, *after, err);
	if (!status)
		status = start_all(slurm, submission, tasks, batch->count, err);
	if (!status)
		status = submit_words(slurm, batch, &words, &job, err);
	if (!status)
		status = neap_series_append(series, neap_series_record_submit(submission, job), err);
	if (!status) {
		say_submitted(slurm, batch, &words, job);
		slurm->summary->submitted += batch->count;
		slurm->summary->pending += batch->count;
		neap_slurm_add_job(slurm->summary, job);
		if (series->spec->has_parallel)
			*after = job;
	}
	neap_words_fini(&words);
	free(tasks);
	return status;
}

/* The youngest job that has tasks under way; 0: none. */
static uint32_t find_last_job(const struct neap_series_state *state)
{
	uint32_t last = 0;
	for (size_t i = 0; i < state->count; i++)
		if (state->experiments[i].open && state->ends[i].submission > last)
			last = state->ends[i].submission;
	return last ? state->jobs[last - 1] : 0;
}

static enum neap_status give_up(struct neap_series *series, size_t at, struct neap_error *err)
{
	const char *name = series->spec->experiments[at].name;
	neap_series_say(series, "[%zu/%zu] %s: given up after %d lost attempts", at + 1, series->spec->count, name,
			NEAP_SERIES_LOST_LIMIT);
	return neap_series_append(
		series, neap_series_record_of("give_up", name, series->state.experiments[at].attempts), err);
}

enum neap_status neap_slurm_submit(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	struct neap_slurm_plan plan = {0};
	uint32_t after = series->spec->has_parallel ? find_last_job(&series->state) : 0;
	size_t count = series->spec->count, ready = 0;
	bool *wanted = calloc(count, sizeof *wanted);
	enum neap_status status =
		wanted ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "submitting to Slurm: out of memory");
	for (size_t i = 0; i < count && !status; i++) {
		const struct neap_step_experiment *experiment = &series->state.experiments[i];
		if (experiment->open || experiment->ended || slurm->withheld[i])
			continue;
		if (experiment->lost >= NEAP_SERIES_LOST_LIMIT)
			status = give_up(series, i, err);
		else
			wanted[i] = ++ready > 0;
	}
	if (!status && ready)
		status = copy_file(slurm, err);
	if (!status && ready)
		status = neap_slurm_plan_make(series->spec, wanted, neap_slurm_ask_max_array(), &plan, err);
	for (size_t i = 0; i < plan.count && !status; i++)
		status = submit_batch(slurm, &plan.batches[i], &after, err);
	neap_slurm_plan_fini(&plan);
	free(wanted);
	return status;
}
