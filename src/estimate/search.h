/* estimate/search.h: finds the ways to train with a given number of samples per update that fit on each GPU, and the
 * largest micro-batch of each. Pure: it chooses the next runs, and takes their results.
 *
 *   way: changes of the command, such as checkpointing=1     micro-batch: a divisor of the samples of an update
 *
 *      1     2     4     8    16    32    64    each way: is run with the given micro-batch, then between the largest
 *      |--fits-----|- -?- -|--does not----|     that fits and the smallest that does not, until they are neighbours
 *
 * It predicts nothing: every micro-batch that it lists was run, and so was the next larger one. The search takes one
 * architecture after the other. If one way alone fails with the given micro-batch, it is not run again.
 */
#ifndef NEAP_ESTIMATE_SEARCH_H
#define NEAP_ESTIMATE_SEARCH_H

#include "estimate/fit.h"

#define NEAP_ESTIMATE_WAYS    32
#define NEAP_ESTIMATE_CHANGES 8 /* of one way */
#define NEAP_ESTIMATE_TRIALS  40
#define NEAP_ESTIMATE_ROUND   8 /* trials side by side, at most */

struct neap_estimate_way {
	const char *changes[NEAP_ESTIMATE_CHANGES]; /* "checkpointing=1": instead of the command's own; NULL: end */
};

struct neap_estimate_trial {
	size_t way;
	struct neap_estimate_point point; /* its value is the micro-batch */
};

struct neap_estimate_search {
	const char *name;                     /* of the parameter that is the micro-batch */
	uint64_t samples;                     /* of an update, all processes together */
	uint64_t processes;                   /* how many processes share them */
	uint64_t given;                       /* micro-batch */
	bool accumulates;                     /* the command has the parameter "accumulation" */
	bool unsupported[NEAP_ESTIMATE_GPUS]; /* GPUs without kernels in this PyTorch: the search skips them */
	uint64_t *values; /* the micro-batches, ascending: the divisors of samples / processes; owned */
	size_t value_count;
	struct neap_estimate_way ways[NEAP_ESTIMATE_WAYS];
	size_t way_count;
	struct neap_estimate_trial *trials; /* NEAP_ESTIMATE_TRIALS; owned */
	size_t count;
	bool cut_short; /* the largest micro-batches of some ways are still unknown */
};

/* Adds the ways: the command as it is, and every combination of `changes` ("NAME=VALUE", NULL-terminated, borrowed)
 * with one value for each name. Skips a value that the command's `parameters` have already, and repeated values.
 * Errors: NEAP_EINVAL for too many ways or names. */
enum neap_status neap_estimate_search_ways(struct neap_estimate_search *search, char *const *parameters,
					   const char *const *changes, struct neap_error *err);

/* Sets the micro-batches of `samples`, from 1 to NEAP_ESTIMATE_MOST, and allocates the trials. The caller calls
 * neap_estimate_search_fini. Errors: NEAP_EINVAL where the processes cannot share them; NEAP_ENOMEM. */
enum neap_status neap_estimate_search_begin(struct neap_estimate_search *search, uint64_t processes,
					    struct neap_error *err);
void neap_estimate_search_fini(struct neap_estimate_search *search);

/* How many micro-batches of `value` an update has, and how many of them are run: two at most, since from the second
 * on every micro-batch finds gradients of the earlier ones. */
uint64_t neap_estimate_search_accumulation(const struct neap_estimate_search *search, uint64_t value);
uint64_t neap_estimate_search_accumulated(const struct neap_estimate_search *search, uint64_t value);

/* Gives the trials of the next round, by their way, run and value: at most one for each way, none twice, and no more
 * than NEAP_ESTIMATE_TRIALS in all. Returns how many; 0: the search is over. */
size_t neap_estimate_search_next(struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				 struct neap_estimate_trial ret_trials[NEAP_ESTIMATE_ROUND]);

/* Returns the largest micro-batch of a way that was run and fits on a GPU; NULL: none. *ret_next: the next larger one
 * that was run, which does not fit, failed, or was cut short. *ret_next is NULL if none was run, because the edge is
 * not known (*ret_open) or there is none. */
const struct neap_estimate_trial *neap_estimate_search_edge(const struct neap_estimate_search *search,
							    const struct neap_estimate_plan *plan, size_t way,
							    size_t gpu, const struct neap_estimate_trial **ret_next,
							    bool *ret_open);

/* Whether a way fits on any GPU. */
bool neap_estimate_search_fits(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan);

/* The ways in order: by the largest micro-batch on a GPU, then by headroom. Ways that do not fit come last, the
 * nearest first. */
void neap_estimate_search_order(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				size_t gpu, size_t ret_ways[NEAP_ESTIMATE_WAYS]);

#endif
