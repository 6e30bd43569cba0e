/* estimate/fit.h: the largest value of a parameter with which a program fits on each GPU. Pure: it chooses the next
 * value to try, and takes the result.
 *
 *      fits                       does not
 *   |----------|- - - -?- - - - -|---------->  value     until both ends were run, and are neighbours (above 1000:
 *             low               high                     differ by a thousandth)
 *
 * Memory is nearly linear in a batch, so the next value is where the line through two known points meets the GPU's
 * memory; after some tries it is the middle. The search assumes that a larger value needs more.
 */
#ifndef NEAP_ESTIMATE_FIT_H
#define NEAP_ESTIMATE_FIT_H

#include "estimate/estimate.h"

#define NEAP_ESTIMATE_POINTS 512
#define NEAP_ESTIMATE_MOST   (1ull << 24) /* no larger value is tried */
/* How close the next larger value that was run must be: this part of the value. */
#define NEAP_ESTIMATE_SHARE 1024

#define NEAP_ESTIMATE_WHY 96

/* One run of one architecture with one value. */
struct neap_estimate_point {
	size_t run;
	uint64_t value;
	bool failed; /* with this value the program failed for another reason than memory: counts as not fitting */
	uint64_t requested_peak, allocated_peak, reserved_peak;
	enum neap_estimate_fits fits[NEAP_ESTIMATE_GPUS]; /* of GPUs with this architecture */
	enum neap_estimate_doubt doubt[NEAP_ESTIMATE_GPUS];
	int64_t headroom[NEAP_ESTIMATE_GPUS];
	char why[NEAP_ESTIMATE_WHY]; /* failed: the program's last line, cut; "": none */
};

/* Whether the point counts as one that fits. It also does if only convolutions are in doubt, because these are in
 * doubt at every value. */
static inline bool neap_estimate_point_fits(const struct neap_estimate_point *point, size_t gpu)
{
	return point->fits[gpu] == NEAP_ESTIMATE_YES || point->doubt[gpu] == NEAP_ESTIMATE_UNBOUNDED;
}

struct neap_estimate_fit {
	const char *name;                   /* of the parameter */
	struct neap_estimate_point *points; /* NEAP_ESTIMATE_POINTS */
	size_t count;
	unsigned tries[NEAP_ESTIMATE_GPUS]; /* how many values were tried for each GPU */
};

/* The changes of the training that were run: how much memory each needs, and on which GPUs it fits. */
#define NEAP_ESTIMATE_TRIES 16

struct neap_estimate_try {
	const char *change;                                    /* "checkpointing=1": replaces the parameter's value */
	struct neap_estimate_point points[NEAP_ESTIMATE_GPUS]; /* by run of the plan */
};

struct neap_estimate_tries {
	struct neap_estimate_try items[NEAP_ESTIMATE_TRIES];
	size_t count;
};

/* Returns the next value to run for a GPU; 0: the largest value that fits is known. */
uint64_t neap_estimate_fit_next(const struct neap_estimate_fit *fit, const struct neap_estimate_plan *plan,
				size_t gpu);

/* Returns the largest value that was run and fits; 0: none. *ret_open: even the largest value that may be tried
 * fits. */
uint64_t neap_estimate_fit_value(const struct neap_estimate_fit *fit, const struct neap_estimate_plan *plan,
				 size_t gpu, bool *ret_open);

#endif
