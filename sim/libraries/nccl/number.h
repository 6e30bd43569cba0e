/* sim/libraries/nccl/number.h: arithmetic on NCCL's data types. Pure functions.
 *
 * Each element becomes a wide number, is combined in rank order, and is rounded once at the end: integers wrap at
 * their own width, floating point is added as double and rounded to nearest, ties to even. NCCL rounds after each
 * addition, in an undocumented order, so its last bits may differ; our ranks all get the same bits. 8-bit floats
 * saturate. Maximum and minimum ignore a NaN unless both numbers are NaN.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_NUMBER_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_NUMBER_H

#include "sim/libraries/nccl/api.h"

#include <stdbool.h>

union nccl_wide {
	double real;
	uint64_t whole; /* signed types: extended */
};

enum nccl_reduction {
	NCCL_REDUCE_SUM,
	NCCL_REDUCE_PRODUCT,
	NCCL_REDUCE_MAXIMUM,
	NCCL_REDUCE_MINIMUM,
	NCCL_REDUCE_AVERAGE,       /* the sum, divided by the number of ranks at the end */
	NCCL_REDUCE_PREMULTIPLIED, /* the sum, after each rank multiplied its elements by its own scalar */
};

/* 0: unknown data type. */
size_t nccl_type_bytes(int type);
const char *nccl_type_name(int type);
bool nccl_type_is_float8(int type);

void nccl_widen(int type, const void *from, size_t count, union nccl_wide *ret_to);
/* into = into (reduction) from */
void nccl_combine(int type, enum nccl_reduction reduction, size_t count, union nccl_wide *into,
		  const union nccl_wide *from);
/* Rounds, or wraps; an average is divided by `ranks`. */
void nccl_narrow(int type, enum nccl_reduction reduction, int ranks, size_t count, const union nccl_wide *from,
		 void *ret_to);
/* Multiplies elements by a scalar of their type, in place. */
void nccl_multiply(int type, size_t count, void *elements, const void *scalar);

#endif
