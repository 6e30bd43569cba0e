/* slurm/plan.c: see plan.h. */
#include "slurm/plan.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "run/supervise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE_NS    (60 * NEAP_NS_PER_S)
#define NEAP_OWN_MIB 64 /* host memory that neap itself needs, added to the command's */

static bool needs_device(const struct neap_spec *spec, const struct neap_experiment *experiment)
{
	if (spec->slurm.gres)
		return strcmp(spec->slurm.gres, "none") != 0 &&
		       !(experiment->needs && !strcmp(experiment->needs, "none"));
	return !experiment->needs || strcmp(experiment->needs, "none") != 0;
}

static uint64_t duration_or(const char *text, uint64_t otherwise_ns)
{
	uint64_t ns = otherwise_ns;
	if (text)
		neap_duration_parse(text, &ns, NULL); /* checked when the file was read */
	return ns;
}

/* A task's total time: the wait for memory, the command, its end, the drain. The time doubles if the command may be
 * restarted after an OOM. 0: no limit. */
static uint64_t minutes_of(const struct neap_experiment *experiment)
{
	if (!experiment->time_limit)
		return 0;
	uint64_t limit_ns = duration_or(experiment->time_limit, 0);
	uint64_t parts_ns[] = {duration_or(experiment->wait_limit, NEAP_RUN_WAIT_LIMIT_NS), limit_ns,
			       experiment->on_oom ? limit_ns : 0, duration_or(experiment->grace, NEAP_RUN_GRACE_NS),
			       duration_or(experiment->drain_limit, NEAP_RUN_DRAIN_LIMIT_NS)};
	uint64_t seconds = 0;
	for (size_t i = 0; i < sizeof parts_ns / sizeof *parts_ns; i++)
		seconds += parts_ns[i] / NEAP_NS_PER_S + 1;
	return seconds / 60 + 1;
}

static uint64_t mebibytes_of(const struct neap_experiment *experiment)
{
	uint64_t bytes = 0;
	if (!experiment->max_host)
		return 0;
	neap_size_parse(experiment->max_host, &bytes, NULL);
	return bytes / NEAP_MIB + 1 + NEAP_OWN_MIB;
}

/* The larger of both; 0 means no limit. */
static uint64_t larger(uint64_t a, uint64_t b) { return !a || !b ? 0 : a > b ? a : b; }

/* Fills the resources to ask Slurm for. */
static void ask(const struct neap_spec *spec, struct neap_slurm_batch *batch)
{
	uint64_t ns = 0, bytes = 0;
	for (size_t i = 0; i < batch->count; i++) {
		const struct neap_experiment *experiment = &spec->experiments[batch->members[i]];
		uint64_t minutes = minutes_of(experiment), mebibytes = mebibytes_of(experiment);
		batch->minutes = i ? larger(batch->minutes, minutes) : minutes;
		batch->mebibytes = i ? larger(batch->mebibytes, mebibytes) : mebibytes;
	}
	if (spec->slurm.time && !neap_duration_parse(spec->slurm.time, &ns, NULL))
		batch->minutes = ns / MINUTE_NS + (ns % MINUTE_NS != 0);
	if (spec->slurm.mem && !neap_size_parse(spec->slurm.mem, &bytes, NULL))
		batch->mebibytes = bytes / NEAP_MIB + (bytes % NEAP_MIB != 0);
}

static struct neap_slurm_batch *add_batch(struct neap_slurm_plan *plan, bool device, size_t capacity)
{
	if (!neap_array_grow(&plan->batches, plan->count, sizeof *plan->batches))
		return NULL;
	struct neap_slurm_batch *batch = &plan->batches[plan->count];
	*batch = (struct neap_slurm_batch){.device = device, .members = calloc(capacity, sizeof *batch->members)};
	plan->count += batch->members != NULL;
	return batch->members ? batch : NULL;
}

/* Adds the arrays of the experiments that need a device, or of those that do not. */
static enum neap_status add_kind(const struct neap_spec *spec, const bool *wanted, size_t most, bool device,
				 struct neap_slurm_plan *plan)
{
	struct neap_slurm_batch *batch = NULL;
	for (size_t i = 0; i < spec->count; i++) {
		if (!wanted[i] || needs_device(spec, &spec->experiments[i]) != device)
			continue;
		if ((!batch || batch->count == most) && !(batch = add_batch(plan, device, most)))
			return NEAP_ENOMEM;
		batch->members[batch->count++] = i;
	}
	return NEAP_OK;
}

enum neap_status neap_slurm_plan_make(const struct neap_spec *spec, const bool *wanted, uint32_t max_array,
				      struct neap_slurm_plan *ret_plan, struct neap_error *err)
{
	struct neap_slurm_plan plan = {0};
	if (max_array < 2) /* the highest task number is max_array - 1 */
		return neap_fail(err, NEAP_ENOTSUP, "this cluster allows no job arrays (MaxArraySize is %" PRIu32 ")",
				 max_array);
	size_t most = max_array - 1 < spec->count ? max_array - 1 : spec->count;
	enum neap_status status = add_kind(spec, wanted, most, true, &plan);
	if (!status)
		status = add_kind(spec, wanted, most, false, &plan);
	if (status) {
		neap_slurm_plan_fini(&plan);
		return neap_fail(err, status, "planning job arrays: out of memory");
	}
	for (size_t i = 0; i < plan.count; i++)
		ask(spec, &plan.batches[i]);
	*ret_plan = plan;
	return NEAP_OK;
}

void neap_slurm_plan_fini(struct neap_slurm_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		free(plan->batches[i].members);
	free(plan->batches);
	*plan = (struct neap_slurm_plan){0};
}

enum neap_status neap_slurm_check(const struct neap_spec *spec, const char *file, struct neap_error *err)
{
	for (size_t i = 0; i < spec->count; i++)
		if (spec->experiments[i].device)
			return neap_fail(
				err, NEAP_EPARSE,
				"%s:%" PRIu32 ": experiment '%.60s': 'device' cannot be chosen with --slurm, "
				"Slurm gives each task its own: remove it (slurm: {gres: ...} says which kind)",
				file, spec->experiments[i].line, spec->experiments[i].name);
	return NEAP_OK;
}

enum neap_status neap_slurm_script_path(const char *folder, uint32_t submission, char path[4096],
					struct neap_error *err)
{
	int length = snprintf(path, 4096, "%s/slurm/%" PRIu32 ".sh", folder, submission);
	if (length < 0 || length >= 4096)
		return neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	return NEAP_OK;
}

/* Slurm replaces %x in a file's name, takes backslashes for its own, and cuts a script's line at its end. */
static enum neap_status put_output(const char *folder, struct neap_buffer *text, struct neap_error *err)
{
	for (const char *c = folder; *c; c++) {
		if (*c == '\\' || (unsigned char)*c < 0x20 || *c == 0x7f)
			return neap_fail(
				err, NEAP_EINVAL,
				"the folder %.120s: Slurm cannot write where a name has backslashes or control "
				"characters: choose another with --folder",
				folder);
		neap_buffer_text(text, *c == '%' ? "%" : "");
		neap_buffer_append(text, c, 1);
	}
	neap_buffer_text(text, "/slurm/%A-%a.out");
	return NEAP_OK;
}

enum neap_status neap_slurm_argv(const struct neap_spec *spec, const struct neap_slurm_batch *batch,
				 const char *folder, uint32_t submission, uint32_t after, bool test_only,
				 struct neap_argv *ret_argv, struct neap_error *err)
{
	const struct neap_spec_slurm *slurm = &spec->slurm;
	struct neap_buffer tasks = {0}, output = {0};
	char script[4096];
	neap_buffer_text(&tasks, "1");
	if (batch->count > 1)
		neap_buffer_format(&tasks, "-%zu", batch->count);
	if (spec->has_parallel)
		neap_buffer_format(&tasks, "%%%" PRIu32, spec->parallel);
	enum neap_status status = put_output(folder, &output, err);
	if (!status)
		status = neap_slurm_script_path(folder, submission, script, err);
	if (status)
		goto out;
	const struct {
		const char *option, *value;
	} texts[] = {
		{"--job-name=", spec->name},
		{"--array=", neap_buffer_string(&tasks)},
		{"--output=", neap_buffer_string(&output)},
		{"--gres=", batch->device ? slurm->gres ? slurm->gres : "gpu:1" : NULL},
		{"--cpus-per-task=", slurm->cpus},
		{"--partition=", slurm->partition},
		{"--account=", slurm->account},
		{"--qos=", slurm->qos},
	};
	bool failed = neap_argv_add(ret_argv, "sbatch") || neap_argv_add(ret_argv, "--parsable") ||
		      (test_only && neap_argv_add(ret_argv, "--test-only")) ||
		      neap_argv_add(ret_argv, "--open-mode=append");
	for (size_t i = 0; i < sizeof texts / sizeof *texts && !failed; i++)
		failed = texts[i].value && neap_argv_format(ret_argv, "%s%s", texts[i].option, texts[i].value);
	failed = failed || (batch->minutes && neap_argv_format(ret_argv, "--time=%" PRIu64, batch->minutes)) ||
		 (batch->mebibytes && neap_argv_format(ret_argv, "--mem=%" PRIu64 "M", batch->mebibytes)) ||
		 (after && neap_argv_format(ret_argv, "--dependency=afterany:%" PRIu32, after));
	for (size_t i = 0; i < slurm->sbatch.count && !failed; i++)
		failed = neap_argv_add(ret_argv, slurm->sbatch.items[i]);
	if (failed || neap_argv_add(ret_argv, script) || tasks.failed || output.failed)
		status = neap_fail(err, NEAP_ENOMEM, "submitting to Slurm: out of memory");
out:
	neap_buffer_fini(&tasks);
	neap_buffer_fini(&output);
	return status;
}

enum neap_status neap_slurm_script(const struct neap_spec *spec, const struct neap_argv *argv, const char *program,
				   const char *folder, uint32_t submission, struct neap_buffer *script,
				   struct neap_error *err)
{
	struct neap_argv command = {0};
	char file[4096];
	char *submitted = neap_argv_join(argv), *line = NULL;
	enum neap_status status = NEAP_OK;
	if (neap_path_join(file, sizeof file, folder, "slurm/series.yaml"))
		status = neap_fail(err, NEAP_EINVAL, "the folder's name is too long: %.120s", folder);
	else if (!neap_argv_add(&command, program) && !neap_argv_add(&command, "series") &&
		 !neap_argv_add(&command, file) && !neap_argv_add(&command, "--folder") &&
		 !neap_argv_add(&command, folder) && !neap_argv_add(&command, "--slurm-task") &&
		 !neap_argv_format(&command, "%" PRIu32, submission))
		line = neap_argv_join(&command);
	if (!status && line && submitted)
		neap_buffer_format(script,
				   "#!/bin/sh\n"
				   "# A task of the series %s: one experiment under 'neap run'. Submitted with\n"
				   "#   %s\n"
				   "exec %s\n",
				   spec->name, submitted, line);
	if (!status && (!line || !submitted || script->failed))
		status = neap_fail(err, NEAP_ENOMEM, "submitting to Slurm: out of memory");
	free(submitted);
	free(line);
	neap_argv_fini(&command);
	return status;
}
