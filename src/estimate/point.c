/* estimate/point.c: see point.h. */
#include "estimate/point.h"

#include "base/error.h"

#include <stdlib.h>

static bool go_on(void *context, uint64_t done, uint64_t total)
{
	const struct neap_estimate_watch *watch = context;
	(void)done;
	(void)total;
	return watch->go_on(watch->context, NULL, 0);
}

void neap_estimate_point_take_run(const struct neap_estimate_run *run, struct neap_estimate_point *point)
{
	point->requested_peak = run->requested_peak;
	point->allocated_peak = run->allocated_peak;
	point->reserved_peak = run->reserved_peak;
}

void neap_estimate_point_take_verdict(const struct neap_estimate_verdict *verdict, size_t gpu,
				      struct neap_estimate_point *point)
{
	point->fits[gpu] = verdict->fits;
	point->doubt[gpu] = verdict->doubt;
	point->headroom[gpu] = verdict->headroom_bytes;
}

enum neap_status neap_estimate_point_judge(const struct neap_estimate_plan *plan, const struct neap_estimate_job *job,
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
		status = NEAP_OK;
	} else if (!status) {
		neap_estimate_point_take_run(run, point);
		for (size_t gpu = 0; !status && gpu < plan->count; gpu++) {
			struct neap_estimate_verdict verdict;
			if (plan->gpus[gpu].run != point->run)
				continue;
			status = neap_estimate_judge(plan, gpu, run, go_on, &own, &verdict, err);
			if (!status)
				neap_estimate_point_take_verdict(&verdict, gpu, point);
		}
	}
	neap_estimate_run_fini(run);
	free(run);
	return status;
}
