/* slurm/submit.c: submits job arrays to Slurm; see slurm.h for the order of writes. */
#include "slurm/internal.h"

#include "base/error.h"
#include "base/file.h"
#include "slurm/call.h"
#include "slurm/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Copies the series file for the tasks. It must not have changed since it was read. */
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

static enum neap_status write_script(struct neap_slurm *slurm, uint32_t submission, const struct neap_argv *argv,
				     struct neap_error *err)
{
	char path[4096];
	struct neap_buffer script = {0};
	enum neap_status status = neap_slurm_script(slurm->series.spec, argv, slurm->options->series.program,
						    slurm->folder, submission, &script, err);
	if (!status)
		status = neap_slurm_script_path(slurm->folder, submission, path, err);
	if (!status)
		status = neap_file_write(path, neap_buffer_string(&script), script.length, err);
	if (!status && chmod(path, 0700)) /* a user can run it by hand, within a job */
		status = neap_fail(err, NEAP_EIO, "making %.150s a program", path);
	neap_buffer_fini(&script);
	return status;
}

/* Submits for real. *ret_job is set only when sbatch answers with a number. */
static enum neap_status call_sbatch(const struct neap_argv *argv, uint32_t *ret_job, struct neap_error *err)
{
	struct neap_buffer output = {0};
	char refused[200];
	enum neap_status status = neap_slurm_call(argv->items, &output, refused, err);
	if (!status && *refused)
		status = neap_fail(err, NEAP_ESTATE, "sbatch refused: %s", refused);
	if (!status)
		status = neap_slurm_sbatch_answer(neap_buffer_string(&output), output.length, ret_job, err);
	neap_buffer_fini(&output);
	return status;
}

/* Asks sbatch to check the batch before anything is journaled: most refusals are spelling errors in the file. */
static enum neap_status test(struct neap_slurm *slurm, const struct neap_slurm_batch *batch, uint32_t submission,
			     uint32_t after, struct neap_error *err)
{
	struct neap_argv argv = {0};
	struct neap_buffer output = {0};
	char refused[200];
	enum neap_status status =
		neap_slurm_argv(slurm->series.spec, batch, slurm->folder, submission, after, true, &argv, err);
	if (!status)
		status = neap_slurm_call(argv.items, &output, refused, err);
	if (!status && *refused)
		status = neap_fail(err, NEAP_ESTATE, "sbatch refused: %s; nothing was submitted", refused);
	neap_argv_fini(&argv);
	neap_buffer_fini(&output);
	return status;
}

static void report_submitted(struct neap_slurm *slurm, const struct neap_slurm_batch *batch,
			     const struct neap_argv *argv, uint32_t job)
{
	struct neap_buffer asked = {0};
	for (size_t i = 0; i < argv->count; i++)
		if (!strncmp(argv->items[i], "--array=", 8) || !strncmp(argv->items[i], "--gres=", 7) ||
		    !strncmp(argv->items[i], "--time=", 7) || !strncmp(argv->items[i], "--mem=", 6))
			neap_buffer_format(&asked, " %s", argv->items[i]);
	neap_series_report_line(&slurm->series, "submitted %zu task%s as job %" PRIu32 ":%s", batch->count,
				batch->count == 1 ? "" : "s", job, neap_buffer_string(&asked));
	neap_buffer_fini(&asked);
}

/* Journals the experiments that the tasks may run: tasks read the journal. */
static enum neap_status append_array(struct neap_slurm *slurm, uint32_t submission,
				     const struct neap_slurm_batch *batch, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	json_t *names = json_array(), *needs = json_array();
	char text[NEAP_UNITS_CAPACITY], argv[64];
	bool failed = false;
	for (size_t i = 0; i < batch->count; i++) {
		const struct neap_experiment *experiment = &series->spec->experiments[batch->members[i]];
		neap_series_needs(series, experiment, text, argv);
		failed |= json_array_append_new(names, json_string(experiment->name)) ||
			  json_array_append_new(needs, json_string(text));
	}
	json_t *record = neap_series_record_array(submission, names, needs);
	if (failed) {
		json_decref(record);
		record = NULL;
	}
	return neap_series_append(series, record, err);
}

/* Notes that the tasks of a batch are in the queue now. */
static void count_tasks(struct neap_slurm *slurm, const struct neap_slurm_batch *batch, uint32_t job)
{
	for (size_t i = 0; i < batch->count; i++)
		slurm->checked[batch->members[i]].place = NEAP_SLURM_QUEUED;
	slurm->summary->submitted += batch->count;
	slurm->summary->pending += batch->count;
	neap_slurm_add_job(slurm->summary, job);
}

static enum neap_status submit_batch(struct neap_slurm *slurm, const struct neap_slurm_batch *batch, uint32_t *after,
				     struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	uint32_t submission = series->state.submissions + 1, job = 0;
	struct neap_argv argv = {0};
	enum neap_status status =
		neap_slurm_argv(series->spec, batch, slurm->folder, submission, *after, false, &argv, err);
	if (!status)
		status = write_script(slurm, submission, &argv, err);
	if (!status)
		status = test(slurm, batch, submission, *after, err);
	if (!status && !series->state.begun)
		status = neap_series_append(series, neap_series_record_begin(series->spec), err);
	if (!status)
		status = neap_series_estimate(series, err);
	if (!status)
		status = append_array(slurm, submission, batch, err);
	if (!status)
		status = call_sbatch(&argv, &job, err);
	if (!status)
		status = neap_series_append(series, neap_series_record_submit(submission, job), err);
	if (!status) {
		report_submitted(slurm, batch, &argv, job);
		count_tasks(slurm, batch, job);
		if (series->spec->has_parallel)
			*after = job;
	}
	neap_argv_fini(&argv);
	return status;
}

/* The youngest job that has tasks in the queue; 0: none. */
static uint32_t find_last_job(const struct neap_slurm *slurm)
{
	uint32_t last = 0;
	for (size_t i = 0; i < slurm->series.state.count; i++) {
		const struct neap_slurm_checked *checked = &slurm->checked[i];
		uint32_t job = checked->place == NEAP_SLURM_BEGUN    ? checked->claim.job
			       : checked->place == NEAP_SLURM_QUEUED ? neap_slurm_job_of(slurm, i)
								     : 0;
		if (!slurm->series.state.experiments[i].ended && job > last)
			last = job;
	}
	return last;
}

static enum neap_status give_up(struct neap_series *series, size_t at, struct neap_error *err)
{
	const char *name = series->spec->experiments[at].name;
	uint32_t attempts = series->state.experiments[at].attempts;
	neap_series_report_line(series, "[%zu/%zu] %s: given up after %d lost attempts", at + 1, series->spec->count,
				name, NEAP_SERIES_LOST_LIMIT);
	return neap_series_append(series, neap_series_record_of("give_up", name, attempts ? attempts : 1), err);
}

enum neap_status neap_slurm_submit(struct neap_slurm *slurm, struct neap_error *err)
{
	struct neap_series *series = &slurm->series;
	struct neap_slurm_plan plan = {0};
	uint32_t after = series->spec->has_parallel ? find_last_job(slurm) : 0;
	size_t count = series->spec->count, ready = 0;
	bool *wanted = calloc(count, sizeof *wanted);
	enum neap_status status =
		wanted ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "submitting to Slurm: out of memory");
	for (size_t i = 0; i < count && !status; i++) {
		if (!neap_slurm_is_ready(slurm, i))
			continue;
		if (series->state.experiments[i].lost >= NEAP_SERIES_LOST_LIMIT)
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
