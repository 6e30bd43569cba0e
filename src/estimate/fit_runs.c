/* estimate/fit_runs.c: in rounds: of each architecture the next value of its first GPU that is still open, side by
 * side. A value that was run for one GPU is known to all of its architecture. */
#include "estimate/fit_runs.h"

#include "base/error.h"
#include "estimate/point.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known already: the given value. */
static void begin(const struct neap_estimate_fit_options *options, struct neap_estimate_fit *fit)
{
	const struct neap_estimate_plan *plan = options->plan;
	for (size_t run = 0; run < plan->run_count; run++) {
		struct neap_estimate_point *point = &fit->points[fit->count++];
		*point = (struct neap_estimate_point){.run = run, .value = options->value};
		neap_estimate_point_take_run(&options->runs[run], point);
		for (size_t gpu = 0; gpu < plan->count; gpu++)
			if (plan->gpus[gpu].run == run)
				neap_estimate_point_take_verdict(&options->verdicts[gpu], gpu, point);
	}
}

/* The next value of an architecture; 0: all its GPUs are known. */
static uint64_t next_value(const struct neap_estimate_fit_options *options, struct neap_estimate_fit *fit, size_t run)
{
	for (size_t gpu = 0; gpu < options->plan->count; gpu++) {
		uint64_t value =
			options->plan->gpus[gpu].run == run ? neap_estimate_fit_next(fit, options->plan, gpu) : 0;
		if (!value)
			continue;
		fit->tries[gpu]++;
		return value;
	}
	return 0;
}

/* One value of each architecture that is still open. *ret_count: how many. */
static enum neap_status run_round(const struct neap_estimate_fit_options *options, struct neap_estimate_fit *fit,
				  size_t *ret_count, struct neap_error *err)
{
	struct neap_estimate_job *jobs = calloc(options->plan->run_count, sizeof *jobs);
	char(*parameters)[128] = calloc(options->plan->run_count, sizeof *parameters);
	struct neap_estimate_point points[NEAP_ESTIMATE_GPUS];
	enum neap_status status = NEAP_OK;
	size_t count = 0;
	if (!jobs || !parameters) {
		status = neap_fail(err, NEAP_ENOMEM, "out of memory");
		goto out;
	}
	for (size_t run = 0; run < options->plan->run_count; run++) {
		uint64_t value = next_value(options, fit, run);
		char suffix[48];
		if (!value || fit->count + count == NEAP_ESTIMATE_POINTS)
			continue;
		snprintf(suffix, sizeof suffix, "-%.16s-%" PRIu64, fit->name, value);
		snprintf(parameters[count], sizeof parameters[count], "%.64s=%" PRIu64, fit->name, value);
		neap_estimate_job_prepare(options->plan, run, NEAP_ESTIMATE_PLENTY, options->folder, suffix,
					  &jobs[count]);
		snprintf(jobs[count].label, sizeof jobs[count].label, "%.40s", parameters[count]);
		jobs[count].parameter = parameters[count];
		points[count++] = (struct neap_estimate_point){.run = run, .value = value};
	}
	if (count)
		status = neap_estimate_jobs_run(options->command, jobs, count, 0, err);
	for (size_t i = 0; !status && i < count; i++) {
		status =
			neap_estimate_point_judge(options->plan, &jobs[i], &options->command->watch, &points[i], err);
		fit->points[fit->count++] = points[i];
		if (!options->keep)
			neap_estimate_remove(jobs[i].folder);
	}
	*ret_count = count;
out:
	free(jobs);
	free(parameters);
	return status;
}

enum neap_status neap_estimate_fit_find(const struct neap_estimate_fit_options *options,
					struct neap_estimate_fit *fit, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	size_t count = 1;
	begin(options, fit);
	while (!status && count)
		status = run_round(options, fit, &count, err);
	return status;
}
