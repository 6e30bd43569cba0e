/* NCCL's own header against our list of functions, at compile time; and its values, for the test to compare. */
#include <nccl.h>

#include "nccl_facts.h"

/* A function that this version of the header does not have is not compared. */
#define X(name, parameters, arguments)                                                                               \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), ncclResult_t(*) parameters),                  \
		       "the prototype of " #name " differs from nccl.h");                                            \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&p##name), ncclResult_t(*) parameters),               \
		       "the prototype of p" #name " differs from nccl.h");
#define REFUSED(name, parameters) X(name, parameters, ())
#include "sim/libraries/nccl/functions.h"
#undef X
#undef REFUSED

const struct nccl_fact nccl_facts_theirs[] = {NCCL_FACTS};
const size_t nccl_fact_count = sizeof nccl_facts_theirs / sizeof nccl_facts_theirs[0];
