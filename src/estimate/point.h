/* estimate/point.h: what one more run of the program tells, with another value of a parameter: for --fit and
 * --try.
 */
#ifndef NEAP_ESTIMATE_POINT_H
#define NEAP_ESTIMATE_POINT_H

#include "estimate/fit.h"
#include "estimate/runs.h"

void neap_estimate_point_take_run(const struct neap_estimate_run *run, struct neap_estimate_point *point);
void neap_estimate_point_take_verdict(const struct neap_estimate_verdict *verdict, size_t gpu,
				      struct neap_estimate_point *point);

/* Reads the run of a job that is over, and judges it on each GPU of point->run's architecture. A program that failed
 * (a batch larger than its data) is not an error: point->failed. Errors: NEAP_ENOMEM, NEAP_ECANCELED, those of the
 * replay. */
enum neap_status neap_estimate_point_judge(const struct neap_estimate_plan *plan, const struct neap_estimate_job *job,
					   const struct neap_estimate_watch *watch, struct neap_estimate_point *point,
					   struct neap_error *err);

#endif
