/* estimate/search.h: which ways to train with so many samples an update fit on each GPU, and with how many at once.
 * Pure: says what to run next, and takes what became of it.
 *
 *   way: changes of the command, such as checkpointing=1     micro-batch: a divisor of the samples of an update
 *
 *      1     2     4     8    16    32    64    each way: run with the given micro-batch, then between the largest
 *      |--fits-----|- -?- -|--does not----|     that fits and the smallest that does not, until they are neighbours
 *
 * Nothing is predicted: what is listed was run, and so was the next larger micro-batch. One architecture after the
 * other is searched. A program that fails with the given micro-batch in one way alone is not run again in that way.
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
	uint64_t processes;                   /* that share them */
	uint64_t given;                       /* micro-batch */
	bool accumulates;                     /* the command has the parameter "accumulation" */
	bool unsupported[NEAP_ESTIMATE_GPUS]; /* GPUs without kernels in this PyTorch: not searched */
	uint64_t *values; /* the micro-batches, ascending: what divides samples / processes; owned */
	size_t value_count;
	struct neap_estimate_way ways[NEAP_ESTIMATE_WAYS];
	size_t way_count;
	struct neap_estimate_trial *trials; /* NEAP_ESTIMATE_TRIALS; owned */
	size_t count;
	bool cut_short; /* ways are left whose edge is not known */
};

/* Adds the ways: the command as it is, and every combination of `changes` ("NAME=VALUE", NULL-terminated, borrowed)
 * with one value for each name; a value that the command's `parameters` have already is none, nor is a
 * second equal one. Errors: NEAP_EINVAL for more ways, or names, than there is place. */
enum neap_status neap_estimate_search_ways(struct neap_estimate_search *search, char *const *parameters,
					   const char *const *changes, struct neap_error *err);

/* Sets the micro-batches of `samples`, from 1 to NEAP_ESTIMATE_MOST, and makes place for the trials. The caller calls
 * neap_estimate_search_fini. Errors: NEAP_EINVAL where the processes cannot share them; NEAP_ENOMEM. */
enum neap_status neap_estimate_search_begin(struct neap_estimate_search *search, uint64_t processes,
					    struct neap_error *err);
void neap_estimate_search_fini(struct neap_estimate_search *search);

/* How many micro-batches of `value` an update has, and how many are run: two for more, since from the second on each
 * finds the gradients of those before it. */
uint64_t neap_estimate_search_accumulation(const struct neap_estimate_search *search, uint64_t value);
uint64_t neap_estimate_search_accumulated(const struct neap_estimate_search *search, uint64_t value);

/* The trials of the next round: at most one for each way, none twice, as many as NEAP_ESTIMATE_TRIALS allow; what is
 * asked for is their way, run and value. Returns how many; 0: it is over. */
size_t neap_estimate_search_next(struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				 struct neap_estimate_trial ret_trials[NEAP_ESTIMATE_ROUND]);

/* The largest micro-batch of a way that was run and fits on a GPU; NULL: none. *ret_next: the next one that was run:
 * it does not fit, or failed, or was cut short; NULL: there is none, or it is not known (*ret_open). */
const struct neap_estimate_trial *neap_estimate_search_edge(const struct neap_estimate_search *search,
							    const struct neap_estimate_plan *plan, size_t way,
							    size_t gpu, const struct neap_estimate_trial **ret_next,
							    bool *ret_open);

/* Whether a way fits on any GPU. */
bool neap_estimate_search_fits(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan);

/* The ways in order: those with the largest micro-batch on a GPU first, of these the one with the most headroom, and
 * those that do not fit at last, the nearest first. */
void neap_estimate_search_order(const struct neap_estimate_search *search, const struct neap_estimate_plan *plan,
				size_t gpu, size_t ret_ways[NEAP_ESTIMATE_WAYS]);

#endif
