/* estimate/values.h: the parameters of the command that `neap estimate` runs, and the questions that the user has
 * about them: the largest value that fits (--fit), single changes (--try), all combinations for a number of samples
 * (--plan). One thread. */
#ifndef NEAP_ESTIMATE_VALUES_H
#define NEAP_ESTIMATE_VALUES_H

#include "estimate/fit.h"
#include "estimate/model.h"
#include "estimate/search.h"

/* What the user gave. NULL: not given. The words must live as long as the values. */
struct neap_estimate_values_given {
	const struct neap_estimate_model *model;
	char *const *argv;                      /* of the command, NULL-terminated */
	char *const *parameters, *const *tries; /* "NAME=VALUE", NULL-terminated */
	const char *fit, *plan, *ranks;
	bool infers;  /* --task infer */
	bool bounded; /* --gpu or --max-memory */
};

struct neap_estimate_values {
	char **parameters;                  /* "NAME=VALUE", NULL-terminated */
	struct neap_estimate_fit fit;       /* name NULL: not asked for */
	struct neap_estimate_search search; /* samples 0: not asked for */
	uint64_t fit_value, accumulation;   /* the values that the command has; 0: none */
	struct neap_estimate_tries tries;
};

/* Checks the options, and finds in the command each parameter that they name. The caller calls
 * neap_estimate_values_fini, also after a failure. Errors: NEAP_EINVAL, NEAP_ENOMEM. */
enum neap_status neap_estimate_values_make(const struct neap_estimate_values_given *given,
					   struct neap_estimate_values *values, struct neap_error *err);
void neap_estimate_values_fini(struct neap_estimate_values *values);

#endif
