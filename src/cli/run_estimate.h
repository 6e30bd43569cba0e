/* cli/run_estimate.h: `neap run --estimate`: reports, before a command starts, whether it fits on this machine's
 * GPU. */
#ifndef NEAP_CLI_RUN_ESTIMATE_H
#define NEAP_CLI_RUN_ESTIMATE_H

#include "cli/command.h"
#include "run/drain.h"

/* With --estimate: estimates the command for the devices it will see and reports on stderr: with --quiet, only
 * problems. A command that cannot be estimated, or may fit, is run. If `needs` is not NULL, estimates even without
 * --estimate, and sets *needs to the most that the command takes, or to the whole device if that is unknown. Returns
 * 0 to continue; NEAP_EXIT_UNAVAILABLE: it does not fit, and --estimate=refuse was given; NEAP_EXIT_USAGE. */
int run_estimate_first(const struct neap_arguments *arguments, struct neap_needs *needs);

#endif
