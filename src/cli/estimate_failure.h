/* cli/estimate_failure.h: explains on stderr why a run of `neap estimate` gave no figures. */
#ifndef NEAP_CLI_ESTIMATE_FAILURE_H
#define NEAP_CLI_ESTIMATE_FAILURE_H

#include "estimate/estimate.h"

/* `folder`: of the run. `gpu`: the profile that an example names. `status`, `err`: of reading the run. Returns the
 * exit code. */
int estimate_explain_failure(const struct neap_estimate_run *run, const char *folder, const char *gpu,
			     enum neap_status status, const struct neap_error *err);

#endif
