/* cuSOLVER: handles, and sizes of the dense routines' workspaces.
 *
 * NVIDIA documents functions that return the sizes, not the sizes. They are counted as intervals:
 *
 *   low   the minimum in LAPACK's documentation of the routine. Batched Jacobi eigenvalues: the answer of the real
 *         library for single-precision complex matrices in CuPy's issue 7261
 *   high  low, plus `matrices` copies of the matrices, and 64 columns and rows for blocking
 *
 * `matrices` is 6 for singular values, since 18 900 rows work and 19 000 overflow 31 bits (CuPy's issue 7611), 2 for
 * eigenvalues, the need of LAPACK's divide-and-conquer routines, and 1 for the others. These are assumptions, not
 * documented bounds.
 */
#include "sim/libraries/stand_in.h"

#include <stdlib.h>

enum { /* cusolverStatus_t */
       NOT_INITIALIZED = 1,
       ALLOC_FAILED = 2,
       INVALID_VALUE = 3,
};

#if STAND_IN_MAJOR == 11
#define MINOR 7
#define PATCH 5
#else
#define MINOR 0
#define PATCH 4
#endif

#define MAGIC 0x6e63736f6c763031ull

struct handle {
	uint64_t magic;
	void *stream;
	int deterministic;
	int math;
	int emulation;
};

#include "sim/libraries/handle.h"

intptr_t cusolver_stream(uintptr_t first, void **ret_stream);
intptr_t cusolver_stream(uintptr_t first, void **ret_stream) { return handle_stream(first, ret_stream); }

int cusolverDnCreate(struct handle **ret_handle)
{
	int capability = 0, status = handle_create(ret_handle, &capability);

	if (!status)
		(*ret_handle)->deterministic = 1; /* deterministic results, the default */
	return status;
}

int cusolverDnDestroy(struct handle *handle) { return handle_destroy(handle); }

HANDLE_FIELD(cusolverDnSetStream, cusolverDnGetStream, void *, stream)
HANDLE_FIELD(cusolverDnSetDeterministicMode, cusolverDnGetDeterministicMode, int, deterministic)
HANDLE_FIELD(cusolverDnSetMathMode, cusolverDnGetMathMode, int, math)
HANDLE_FIELD(cusolverDnSetEmulationStrategy, cusolverDnGetEmulationStrategy, int, emulation)

int cusolverDnIRSParamsCreate(int **ret_iterations)
{
	if (!ret_iterations)
		return INVALID_VALUE;
	*ret_iterations = malloc(sizeof(int));
	if (!*ret_iterations)
		return ALLOC_FAILED;
	**ret_iterations = 50; /* the documented default */
	return 0;
}

int cusolverDnIRSParamsSetMaxIters(int *iterations, int value)
{
	if (!iterations)
		return INVALID_VALUE;
	*iterations = value;
	return 0;
}

int cusolverDnIRSParamsGetMaxIters(const int *iterations, int *ret_value)
{
	if (!iterations || !ret_value)
		return INVALID_VALUE;
	*ret_value = *iterations;
	return 0;
}

int cusolverGetProperty(int type, int *ret_value)
{
	static const int values[] = {STAND_IN_MAJOR, MINOR, PATCH};

	if (!ret_value || type < 0 || type > 2)
		return INVALID_VALUE;
	*ret_value = values[type];
	return 0;
}

int cusolverGetVersion(int *ret_version)
{
	if (!ret_version)
		return INVALID_VALUE;
	*ret_version = STAND_IN_MAJOR * 1000 + MINOR * 100 + PATCH;
	return 0;
}

struct kind {
	const char *name;
	/* The least number of elements: longer * the longer side + shorter * the shorter one + 1. */
	int longer;
	int shorter;
	int matrices;
};

static const struct kind kinds[] = {
	{"gebrd", 1, 0, 1},        {"geev", 0, 4, 6},           {"gels", 0, 1, 2},
	{"geqrf", 0, 1, 1},        {"gesv", 0, 0, 2},           {"gesvd", 1, 3, 6},
	{"gesvdj", 1, 1, 6},       {"gesvdj_batched", 1, 1, 6}, {"gesvda_strided_batched", 1, 1, 6},
	{"gesvdp", 1, 3, 6},       {"gesvdr", 1, 3, 6},         {"getrf", 0, 0, 1},
	{"larft", 0, 0, 1},        {"lauum", 0, 0, 1},          {"orgbr", 0, 1, 1},
	{"orgqr", 0, 1, 1},        {"orgtr", 0, 1, 1},          {"ormqr", 0, 1, 1},
	{"ormtr", 0, 1, 1},        {"potrf", 0, 0, 1},          {"potri", 0, 0, 1},
	{"syev_batched", 0, 1, 2}, {"syevd", 0, 2, 2},          {"syevdx", 0, 2, 2},
	{"syevj", 0, 2, 2},        {"syevj_batched", 0, 0, 1},  {"sygvd", 0, 2, 2},
	{"sygvdx", 0, 2, 2},       {"sygvj", 0, 2, 2},          {"sytrd", 0, 0, 1},
	{"sytrf", 0, 0, 1},        {"sytri", 0, 1, 1},          {"sytrs", 0, 0, 1},
	{"trtri", 0, 0, 1},
};

static const struct kind *find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	}
	return NULL;
}

/* cudaDataType_t; -1: the letter in the function's name, or single precision. */
static uint64_t element_bytes(const char *function, int64_t type)
{
	static const char letters[] = "SDCZ";
	static const int64_t types[] = {0, 1, 4, 5};
	static const uint64_t bytes[] = {4, 8, 8, 16};
	const char letter = function[strlen("cusolverDn")];
	int i;

	for (i = 0; i < 4; i++) {
		if (type == types[i] || (type < 0 && letter == letters[i]))
			return bytes[i];
	}
	return 4;
}

/* Elements of one workspace of n x n matrices. Fits the figures of CuPy's issue: batches of 1 to 512 matrices of
 * 4 x 4, and the batches of 2 x 2 and 4 x 4 whose workspaces just fit 31 bits. */
static uint64_t syevj_batched(uint64_t n, uint64_t batches)
{
	return batches * (1024 + (n + 1) * (n + 1)) + 1024 + n;
}

stand_in_sizes cusolver_size;
bool cusolver_size(const char *function, const char *name, const int64_t *numbers, struct stand_in_size *ret_size)
{
	const uint64_t bytes = element_bytes(function, numbers[3]);
	/* The 64-bit API and iterative refinement return bytes, the others elements. */
	const bool in_bytes = numbers[3] >= 0 || strcmp(name, "gesv") == 0 || strcmp(name, "gels") == 0;
	const struct kind *kind = find(name);
	uint64_t longer, shorter, batches;

	if (!kind || numbers[0] < 0 || numbers[1] < 0)
		return false;
	longer = (uint64_t)(numbers[0] > numbers[1] ? numbers[0] : numbers[1]);
	shorter = (uint64_t)(numbers[0] > numbers[1] ? numbers[1] : numbers[0]);
	batches = numbers[2] > 0 ? (uint64_t)numbers[2] : 1;
	ret_size->low = batches * (kind->longer * longer + kind->shorter * shorter + 1);
	if (strcmp(name, "syevj_batched") == 0)
		ret_size->low = syevj_batched(longer, batches);
	ret_size->high = ret_size->low + batches * (kind->matrices * longer * shorter + 64 * (longer + shorter));
	ret_size->unit = in_bytes ? 1 : bytes;
	ret_size->low *= in_bytes ? bytes : 1;
	ret_size->high *= in_bytes ? bytes : 1;
	return true;
}
