/* CUDA's own header against our list of functions and constants, at compile time. cuda.h renames functions by macros
 * (cuMemAlloc to cuMemAlloc_v2). With the macro below it declares each version under its own name, and the versioned
 * name is compared. CUDA's types stand in for the types in our list's parameters. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include "layouts.h"

#define X(need, name, symbol, parameters)                                                                            \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(CUDAAPI *) parameters),            \
		       "the prototype of " #symbol " differs from cuda.h");
#include "device/cuda_functions.h"
#undef X

#define X(type, name, value)                                                                                         \
	_Static_assert((int)name == value, "the value of " #name " differs from cuda.h");                            \
	_Static_assert(sizeof(type) == 4, #type " is not an int in the ABI");
#include "device/cuda_constants.h"
#undef X

const struct layout cuda_layouts[] = {LAYOUTS};
const size_t cuda_layout_count = sizeof cuda_layouts / sizeof cuda_layouts[0];
