/* estimate/fit_runs.h: runs the command of an estimate with other values. `neap estimate --fit` runs values of a
 * parameter until the largest that fits is known for each GPU. `neap estimate --try NAME=VALUE` runs the command once
 * more with each change, to measure how much the change saves. `neap estimate --plan` runs every way that search.h
 * asks for. */
#ifndef NEAP_ESTIMATE_FIT_RUNS_H
#define NEAP_ESTIMATE_FIT_RUNS_H

#include "estimate/fit.h"
#include "estimate/runs.h"
#include "estimate/search.h"

struct neap_estimate_fit_options {
	const struct neap_estimate_plan *plan;
	const struct neap_estimate_command *command;
	const char *folder;
	bool keep; /* keep the folders of the runs */
	/* The runs with the given value, and their verdicts; by run and by GPU of the plan. */
	const struct neap_estimate_run *runs;
	const struct neap_estimate_verdict *verdicts;
	uint64_t value;
};

/* Runs values until the answer is known for every GPU, or NEAP_ESTIMATE_POINTS are used up. `fit` has its name and an
 * array for its points. Errors: NEAP_ECANCELED; those of starting runs. */
enum neap_status neap_estimate_fit_find(const struct neap_estimate_fit_options *options,
					struct neap_estimate_fit *fit, struct neap_error *err);

/* Runs the trials that the search asks for, until the search is over. The caller has begun the search.
 * `accumulation`: the accumulation of the runs with the given value. Errors: NEAP_ECANCELED; those of starting
 * runs. */
enum neap_status neap_estimate_search_run(const struct neap_estimate_fit_options *options, uint64_t accumulation,
					  struct neap_estimate_search *search, struct neap_error *err);

/* Runs each of `tries` on each architecture of the plan, in folders below `folder`, which are removed unless `keep`.
 * Errors: NEAP_ECANCELED; those of starting runs. */
enum neap_status neap_estimate_tries_run(const struct neap_estimate_plan *plan,
					 const struct neap_estimate_command *command, const char *folder, bool keep,
					 struct neap_estimate_tries *tries, struct neap_error *err);

#endif
