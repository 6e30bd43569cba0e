/* cli/run_estimate.h: `neap run --estimate`: says before a command starts whether it fits on this machine's GPU. */
#ifndef NEAP_CLI_RUN_ESTIMATE_H
#define NEAP_CLI_RUN_ESTIMATE_H

#include "cli/command.h"
#include "run/drain.h"

/* With --estimate: estimates the command for the devices it will see and reports on stderr: with --quiet only what is
 * wrong. A command that cannot be estimated, or may fit, is run. With `needs` also without --estimate: sets it to
 * what the command takes at most, or to the whole device where that is not known. Returns 0 to continue;
 * NEAP_EXIT_UNAVAILABLE: it does not fit, and --estimate=refuse was given; NEAP_EXIT_USAGE. */
int run_estimate_first(const struct neap_arguments *arguments, struct neap_needs *needs);

#endif
