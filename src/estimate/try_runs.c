/* estimate/try_runs.c: see try_runs.h. */
#include "estimate/try_runs.h"

#include "base/error.h"
#include "estimate/point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job for each try and architecture: those of a try in a row. */
static void prepare(const struct neap_estimate_plan *plan, const char *folder, struct neap_estimate_tries *tries,
		    struct neap_estimate_job *jobs)
{
	for (size_t i = 0; i < tries->count; i++)
		for (size_t run = 0; run < plan->run_count; run++, jobs++) {
			char suffix[32];
			snprintf(suffix, sizeof suffix, "-try-%zu", i + 1);
			neap_estimate_job_prepare(plan, run, NEAP_ESTIMATE_PLENTY, folder, suffix, jobs);
			snprintf(jobs->label, sizeof jobs->label, "%.60s", tries->items[i].change);
			jobs->parameter = tries->items[i].change;
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
	prepare(plan, folder, tries, jobs);
	enum neap_status status = count ? neap_estimate_jobs_run(command, jobs, count, 0, err) : NEAP_OK;
	for (size_t i = 0; !status && i < count; i++) {
		struct neap_estimate_try *item = &tries->items[i / plan->run_count];
		status = neap_estimate_point_judge(plan, &jobs[i], &command->watch,
						   &item->points[i % plan->run_count], err);
		if (!keep)
			neap_estimate_remove(jobs[i].folder);
	}
	free(jobs);
	return status;
}
