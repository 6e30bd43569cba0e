/* cli/estimate_options.h: the options of `neap estimate` that bound a run, isolate it and change its command.
 * Each function prints an error, and returns the exit code. */
#ifndef NEAP_CLI_ESTIMATE_OPTIONS_H
#define NEAP_CLI_ESTIMATE_OPTIONS_H

#include "cli/command.h"
#include "estimate/runs.h"
#include "estimate/values.h"

/* --model and the options that go with it. The caller calls neap_estimate_model_fini, also after a failure. */
int estimate_parse_model(const struct neap_arguments *arguments, struct neap_estimate_model *model);

/* --steps, --time-limit, --forwards, --ranks. */
int estimate_parse_bounds(const struct neap_arguments *arguments, struct neap_estimate_command *command);

/* --in-place, --no-network, --keep-writes, whose folder is made; `keep_path` holds its path until the runs end. */
int estimate_parse_isolation(const struct neap_arguments *arguments, struct neap_estimate_isolation *isolation,
			     char keep_path[NEAP_ESTIMATE_CAPACITY]);

/* --param, or the choices of --model; --fit, --try, --plan. The caller calls neap_estimate_values_fini, also after a
 * failure. */
int estimate_parse_values(const struct neap_arguments *arguments, const struct neap_estimate_model *model,
			  char *const *argv, struct neap_estimate_values *values);

#endif
