/* estimate/fit_runs.c: runs --fit in rounds. A round runs one value for each architecture, side by side: the next one
 * for its first GPU without an answer. All GPUs of an architecture learn from each run. */
#include "estimate/fit_runs.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	const struct neap_estimate_watch *watch = context;
	(void)done;
	(void)total;
	return watch->go_on(watch->context, NULL, 0);
}

static void take_run(const struct neap_estimate_run *run, struct neap_estimate_point *point)
{
	point->requested_peak = run->requested_peak;
	point->allocated_peak = run->allocated_peak;
	point->reserved_peak = run->reserved_high;
}

static void take_verdict(const struct neap_estimate_verdict *verdict, size_t gpu, struct neap_estimate_point *point)
{
	point->fits[gpu] = verdict->fits;
	point->doubt[gpu] = verdict->doubt;
	point->headroom[gpu] = verdict->headroom_bytes;
}

/* Reads the run of a job that is over, and judges it on each GPU of point->run's architecture. A program that failed
 * (a batch larger than its data) is not an error: point->failed. */
static enum neap_status judge(const struct neap_estimate_plan *plan, const struct neap_estimate_job *job,
			      const struct neap_estimate_watch *watch, struct neap_estimate_point *point,
			      struct neap_error *err)
{
	struct neap_estimate_run *run = calloc(1, sizeof *run);
	struct neap_estimate_watch own = *watch;
	if (!run)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	enum neap_status status = neap_estimate_read(job->folder, run, err);
	enum neap_outcome outcome = run->result.outcome;
	if (status != NEAP_ENOMEM && (status || (outcome != NEAP_OUTCOME_OK && outcome != NEAP_OUTCOME_STOPPED &&
						 outcome != NEAP_OUTCOME_TIMEOUT))) {
		point->failed = true;
		snprintf(point->why, sizeof point->why, "%.*s", NEAP_ESTIMATE_WHY - 1, run->result.error_line);
		status = NEAP_OK;
	} else if (!status) {
		take_run(run, point);
		for (size_t gpu = 0; !status && gpu < plan->count; gpu++) {
			struct neap_estimate_verdict verdict;
			if (plan->gpus[gpu].run != point->run)
				continue;
			status = neap_estimate_judge(plan, gpu, run, go_on, &own, &verdict, err);
			if (!status)
				take_verdict(&verdict, gpu, point);
		}
	}
	neap_estimate_run_fini(run);
	free(run);
	return status;
}

/* --- --fit --- */

/* Begins with the given value, whose run is already known. */
static void begin(const struct neap_estimate_fit_options *options, struct neap_estimate_fit *fit)
{
	const struct neap_estimate_plan *plan = options->plan;
	for (size_t run = 0; run < plan->run_count; run++) {
		struct neap_estimate_point *point = &fit->points[fit->count++];
		*point = (struct neap_estimate_point){.run = run, .value = options->value};
		take_run(&options->runs[run], point);
		for (size_t gpu = 0; gpu < plan->count; gpu++)
			if (plan->gpus[gpu].run == run)
				take_verdict(&options->verdicts[gpu], gpu, point);
	}
}

/* Returns the next value to run on an architecture. 0: the answer is known for all its GPUs. */
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

/* Runs one value for each architecture that is still open. *ret_count: how many it ran. */
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
		jobs[count].changes[0] = parameters[count];
		points[count++] = (struct neap_estimate_point){.run = run, .value = value};
	}
	if (count)
		status = neap_estimate_jobs_run(options->command, jobs, count, 0, err);
	for (size_t i = 0; !status && i < count; i++) {
		status = judge(options->plan, &jobs[i], &options->command->watch, &points[i], err);
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

/* --- --try --- */

/* Makes a job for each try and architecture. The jobs of one try stand in a row. */
static void prepare_tries(const struct neap_estimate_plan *plan, const char *folder,
			  struct neap_estimate_tries *tries, struct neap_estimate_job *jobs)
{
	for (size_t i = 0; i < tries->count; i++)
		for (size_t run = 0; run < plan->run_count; run++, jobs++) {
			char suffix[32];
			snprintf(suffix, sizeof suffix, "-try-%zu", i + 1);
			neap_estimate_job_prepare(plan, run, NEAP_ESTIMATE_PLENTY, folder, suffix, jobs);
			snprintf(jobs->label, sizeof jobs->label, "%.60s", tries->items[i].change);
			jobs->changes[0] = tries->items[i].change;
			tries->items[i].points[run].run = run;
		}
}

enum neap_status neap_estimate_tries_run(const struct neap_estimate_plan *plan,
					 const struct neap_estimate_command *command, const char *folder, bool keep,
					 struct neap_estimate_tries *tries, struct neap_error *err)
{
	size_t count = tries->count * plan->run_count;
	struct neap_estimate_job *jobs = calloc(count ? count : 1, sizeof *jobs);
	if (!jobs)
		return neap_fail(err, NEAP_ENOMEM, "out of memory");
	prepare_tries(plan, folder, tries, jobs);
	enum neap_status status = count ? neap_estimate_jobs_run(command, jobs, count, 0, err) : NEAP_OK;
	for (size_t i = 0; !status && i < count; i++) {
		struct neap_estimate_try *item = &tries->items[i / plan->run_count];
		status = judge(plan, &jobs[i], &command->watch, &item->points[i % plan->run_count], err);
		if (!keep)
			neap_estimate_remove(jobs[i].folder);
	}
	free(jobs);
	return status;
}

/* --- --plan --- */

/* The changes of a trial. The job needs these texts until it is over. */
struct trial_texts {
	char value[96], accumulation[64];
};

static void prepare_trial(const struct neap_estimate_fit_options *options, const struct neap_estimate_search *search,
			  const struct neap_estimate_trial *trial, size_t number, struct trial_texts *texts,
			  struct neap_estimate_job *job)
{
	const struct neap_estimate_way *way = &search->ways[trial->way];
	uint64_t value = trial->point.value;
	char suffix[32];
	size_t count = 0;
	snprintf(suffix, sizeof suffix, "-plan-%zu", number);
	snprintf(texts->value, sizeof texts->value, "%.64s=%" PRIu64, search->name, value);
	snprintf(texts->accumulation, sizeof texts->accumulation, "accumulation=%" PRIu64,
		 neap_estimate_search_accumulated(search, value));
	neap_estimate_job_prepare(options->plan, trial->point.run, NEAP_ESTIMATE_PLENTY, options->folder, suffix,
				  job);
	snprintf(job->label, sizeof job->label, "%.40s", texts->value);
	while (way->changes[count]) {
		size_t length = strlen(job->label);
		snprintf(job->label + length, sizeof job->label - length, " %s", way->changes[count]);
		job->changes[count] = way->changes[count];
		count++;
	}
	job->changes[count++] = texts->value;
	if (search->accumulates)
		job->changes[count] = texts->accumulation;
}

/* Adds the runs with the given values as trials, if their updates have the wanted number of samples. */
static void begin_search(const struct neap_estimate_fit_options *options, struct neap_estimate_search *search,
			 uint64_t accumulation)
{
	const struct neap_estimate_plan *plan = options->plan;
	bool divides = false;
	search->given = options->value;
	for (size_t gpu = 0; gpu < plan->count; gpu++)
		search->unsupported[gpu] = options->verdicts[gpu].unsupported;
	for (size_t i = 0; i < search->value_count; i++)
		divides |= search->values[i] == options->value;
	if (!divides || (search->accumulates && neap_estimate_search_accumulated(search, options->value) !=
							(accumulation < 2 ? accumulation : 2)))
		return;
	for (size_t run = 0; run < plan->run_count && search->count < NEAP_ESTIMATE_TRIALS; run++) {
		struct neap_estimate_point *point = &search->trials[search->count++].point;
		*point = (struct neap_estimate_point){.run = run, .value = options->value};
		take_run(&options->runs[run], point);
		for (size_t gpu = 0; gpu < plan->count; gpu++)
			if (plan->gpus[gpu].run == run)
				take_verdict(&options->verdicts[gpu], gpu, point);
	}
}

/* Runs the trials side by side, and adds them to the search. */
static enum neap_status run_trials(const struct neap_estimate_fit_options *options,
				   struct neap_estimate_search *search, struct neap_estimate_trial *trials,
				   size_t count, struct neap_error *err)
{
	struct neap_estimate_job *jobs = calloc(count, sizeof *jobs);
	struct trial_texts *texts = calloc(count, sizeof *texts);
	enum neap_status status = jobs && texts ? NEAP_OK : neap_fail(err, NEAP_ENOMEM, "out of memory");
	for (size_t i = 0; !status && i < count; i++)
		prepare_trial(options, search, &trials[i], search->count + i, &texts[i], &jobs[i]);
	if (!status)
		status = neap_estimate_jobs_run(options->command, jobs, count, 0, err);
	for (size_t i = 0; !status && i < count; i++) {
		status = judge(options->plan, &jobs[i], &options->command->watch, &trials[i].point, err);
		search->trials[search->count++] = trials[i];
		if (!options->keep)
			neap_estimate_remove(jobs[i].folder);
	}
	free(jobs);
	free(texts);
	return status;
}

enum neap_status neap_estimate_search_run(const struct neap_estimate_fit_options *options, uint64_t accumulation,
					  struct neap_estimate_search *search, struct neap_error *err)
{
	struct neap_estimate_trial trials[NEAP_ESTIMATE_ROUND];
	enum neap_status status = NEAP_OK;
	size_t count;
	begin_search(options, search, accumulation);
	while (!status && (count = neap_estimate_search_next(search, options->plan, trials)))
		status = run_trials(options, search, trials, count, err);
	return status;
}
