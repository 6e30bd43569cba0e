/* cli/estimate_options.h: the options of `neap estimate` that bound a run, isolate it and change its command.
 * Each function prints what is wrong with them, and returns the exit code. */
#ifndef NEAP_CLI_ESTIMATE_OPTIONS_H
#define NEAP_CLI_ESTIMATE_OPTIONS_H

#include "cli/command.h"
#include "cli/estimate_model.h"
#include "estimate/runs.h"
#include "estimate/search.h"

/* The parameters of the command, and what is asked of them. */
struct estimate_values {
	const struct estimate_model *model;
	char *const *argv;                  /* of the command */
	char **parameters;                  /* "NAME=VALUE", NULL-terminated */
	struct neap_estimate_fit fit;       /* name NULL: not asked for */
	struct neap_estimate_search search; /* samples 0: not asked for */
	uint64_t fit_value, accumulation;   /* the given ones; 0: none */
	struct neap_estimate_tries tries;
};

/* --steps, --time-limit, --forwards, --ranks. */
int estimate_parse_bounds(const struct neap_arguments *arguments, struct neap_estimate_command *command);

/* --in-place, --no-network, --keep-writes, whose folder is made; `keep_path` holds its path as long as the runs go
 * on. */
int estimate_parse_isolation(const struct neap_arguments *arguments, struct neap_estimate_isolation *isolation,
			     char keep_path[NEAP_ESTIMATE_CAPACITY]);

/* --param, or the choices of --model; --fit, --try, --plan. The caller calls estimate_values_fini, also after a
 * failure. */
int estimate_parse_values(const struct neap_arguments *arguments, const struct estimate_model *model,
			  char *const *argv, struct estimate_values *values);
void estimate_values_fini(struct estimate_values *values);

#endif
