/* cli/run_options.h: reads the options of `neap run`, for `neap run` and for `neap queue add`, which passes them
 * on. */
#ifndef NEAP_CLI_RUN_OPTIONS_H
#define NEAP_CLI_RUN_OPTIONS_H

#include "cli/command.h"
#include "run/argv.h"
#include "run/supervise.h"

/* Fills `run` from the options, except for the environment, the folder and the turn. `command` gets the command if
 * --on-oom changes it; the caller frees it. Returns 0, or prints a misuse and returns its exit code. */
int run_options_parse(const struct neap_arguments *arguments, struct neap_argv *command,
		      struct neap_supervise_options *run);

/* A whole number up to `highest`; *number stays if the option was not given. Returns as run_options_parse. */
int run_options_number(const struct neap_arguments *arguments, const char *option, uint64_t highest,
		       uint64_t *number);

/* The settings of the simulator: --values and --streams. */

#define RUN_SIMULATED_MAX 2

/* Variables for the command's environment. */
struct run_simulated {
	char values[300], streams[40];
	char *entries[RUN_SIMULATED_MAX]; /* point into this struct */
	size_t count;
};

/* Returns 0 or NEAP_EXIT_USAGE. */
int run_simulated_make(const struct neap_arguments *arguments, struct run_simulated *ret_simulated);
/* After a run with --streams: prints the races that were found. */
void run_simulated_print(const char *folder, FILE *out);

#endif
