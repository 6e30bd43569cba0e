/* estimate/try.h: changes of the training that were run: the memory that each needs, and the GPUs on which it fits.
 */
#ifndef NEAP_ESTIMATE_TRY_H
#define NEAP_ESTIMATE_TRY_H

#include "estimate/fit.h"

#define NEAP_ESTIMATE_TRIES 16

struct neap_estimate_try {
	const char *change; /* "checkpointing=1": instead of the parameter's value */
	struct neap_estimate_point points[NEAP_ESTIMATE_GPUS]; /* by run of the plan */
};

struct neap_estimate_tries {
	struct neap_estimate_try items[NEAP_ESTIMATE_TRIES];
	size_t count;
};

#endif
