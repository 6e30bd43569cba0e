/* cli/estimate_fit.h: `neap estimate --fit`: runs the command with other values of a parameter until the largest that
 * fits is known for each GPU. */
#ifndef NEAP_CLI_ESTIMATE_FIT_H
#define NEAP_CLI_ESTIMATE_FIT_H

#include "cli/estimate_start.h"
#include "estimate/fit.h"

struct estimate_fit_options {
	const struct neap_estimate_plan *plan;
	const struct estimate_command *command;
	const char *folder;
	bool keep; /* the folders of the runs */
	/* Those with the given value, and their findings; by run and by GPU of the plan. */
	const struct neap_estimate_run *runs;
	const struct neap_estimate_verdict *verdicts;
	uint64_t value;
};

/* `fit` has its name and room for its points; on return every GPU's value is known, or as many as
 * NEAP_ESTIMATE_POINTS allows. Errors: NEAP_ECANCELED; those of starting runs. */
enum neap_status estimate_fit_find(const struct estimate_fit_options *options, struct neap_estimate_fit *fit,
				   struct neap_error *err);

#endif
