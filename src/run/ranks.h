/* run/ranks.h: sorts the attached processes of a run into the ranks of a distributed training, the workers of their
 * data loaders, and the rest. Pure: uses the facts of each recording (analyze/run.h). One thread. */
#ifndef NEAP_RUN_RANKS_H
#define NEAP_RUN_RANKS_H

#include "analyze/run.h"
#include "store/result.h"

/* A zeroed struct is empty. */
struct neap_ranks {
	struct neap_result_rank items[NEAP_RESULT_RANKS];
	uint64_t parents[NEAP_RESULT_RANKS];
	size_t count;
};

/* Adds a process; those beyond NEAP_RESULT_RANKS are left out. */
void neap_ranks_add(struct neap_ranks *ranks, uint64_t pid, const struct neap_run_facts *facts);

/* Call after all are added: puts them into the result, sorted. A rank's children inherit its environment and so its
 * rank: they become plain processes of that rank. Errors: NEAP_ENOMEM. */
enum neap_status neap_ranks_put(struct neap_ranks *ranks, struct neap_result *result, struct neap_error *err);

#endif
