/* estimate/try_runs.h: `neap estimate --try NAME=VALUE`: runs the command once more with each, to measure what a
 * change of the training saves. */
#ifndef NEAP_ESTIMATE_TRY_RUNS_H
#define NEAP_ESTIMATE_TRY_RUNS_H

#include "estimate/runs.h"
#include "estimate/try.h"

/* Runs each of `tries` on each architecture of the plan, in folders below `folder`, which are removed unless `keep`.
 * Errors: NEAP_ECANCELED; those of starting runs. */
enum neap_status neap_estimate_tries_run(const struct neap_estimate_plan *plan,
					 const struct neap_estimate_command *command, const char *folder, bool keep,
					 struct neap_estimate_tries *tries, struct neap_error *err);

#endif
