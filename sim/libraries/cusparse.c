/* cuSPARSE: handles, errors, and sizes of buffers.
 *
 * NVIDIA documents functions that return the sizes, not the sizes. The intervals are from 0 to a copy of the operands
 * (of their blocks and indices; a solver of tridiagonal systems: four copies of its diagonals). The upper end is an
 * assumption, not a documented bound.
 *
 * The number of elements of a sum or a product of sparse matrices depends on their values. For a sum the stand-in
 * returns the larger operand's number, the least possible. For a product it returns 0; the interval of the buffers
 * then covers all possible elements: one for each pair of the operands' elements, or all that the matrix has.
 */
#include "sim/libraries/cusparse_common.h"
#include "sim/libraries/cusparse_matrix.h"
#include "sim/libraries/stand_in.h"

#include <stdlib.h>

#define MAJOR 12
#define MINOR 6
#define PATCH 3

#define MAGIC 0x6e63737061727331ull

struct handle {
	uint64_t magic;
	void *stream;
	int pointer_mode; /* 0: host */
};

#include "sim/libraries/handle.h"

intptr_t cusparse_stream(uintptr_t first, void **ret_stream);
intptr_t cusparse_stream(uintptr_t first, void **ret_stream) { return handle_stream(first, ret_stream); }

int cusparseCreate(struct handle **ret_handle)
{
	int capability = 0;

	return handle_create(ret_handle, &capability);
}

int cusparseDestroy(struct handle *handle) { return handle_destroy(handle); }

HANDLE_FIELD(cusparseSetStream, cusparseGetStream, void *, stream)
HANDLE_FIELD(cusparseSetPointerMode, cusparseGetPointerMode, int, pointer_mode)

int cusparseGetVersion(const struct handle *handle, int *ret_version)
{
	(void)handle;
	if (!ret_version)
		return INVALID_VALUE;
	*ret_version = MAJOR * 1000 + MINOR * 100 + PATCH;
	return 0;
}

int cusparseGetProperty(int type, int *ret_value)
{
	static const int values[] = {MAJOR, MINOR, PATCH};

	if (!ret_value || type < 0 || type > 2)
		return INVALID_VALUE;
	*ret_value = values[type];
	return 0;
}

const char *cusparseGetErrorName(int status) { return cusparse_status_name(status); }

const char *cusparseGetErrorString(int status) { return cusparse_status_text(status); }

/* The descriptions of the older functions. */
struct description {
	int type;
	int fill;
	int diagonal;
	int base;
};

int cusparseCreateMatDescr(struct description **ret_description)
{
	if (!ret_description)
		return INVALID_VALUE;
	*ret_description = calloc(1, sizeof **ret_description);
	return *ret_description ? 0 : ALLOC_FAILED;
}

int cusparseDestroyMatDescr(struct description *description)
{
	free(description);
	return 0;
}

#define DESCRIPTION(set, get, field)                                                                                 \
	int set(struct description *description, int value)                                                          \
	{                                                                                                            \
		if (!description)                                                                                    \
			return INVALID_VALUE;                                                                        \
		description->field = value;                                                                          \
		return 0;                                                                                            \
	}                                                                                                            \
	int get(const struct description *description) { return description ? description->field : 0; }
DESCRIPTION(cusparseSetMatType, cusparseGetMatType, type)
DESCRIPTION(cusparseSetMatFillMode, cusparseGetMatFillMode, fill)
DESCRIPTION(cusparseSetMatDiagType, cusparseGetMatDiagType, diagonal)
DESCRIPTION(cusparseSetMatIndexBase, cusparseGetMatIndexBase, base)

/* Writes a scalar to host or device, by the pointer mode. */
static void put(const struct handle *handle, void *to, const void *from, size_t bytes)
{
	const struct runtime_services *services = stand_in_services();

	if (!to)
		return;
	if (handle->pointer_mode == 0)
		memcpy(to, from, bytes);
	else if (services)
		services->write((uintptr_t)to, from, bytes);
}

/* No pivot is zero. */
#define ZERO_PIVOT(name)                                                                                             \
	int name(struct handle *handle, const void *info, int *position)                                             \
	{                                                                                                            \
		static const int none = -1;                                                                          \
                                                                                                                     \
		if (!handle_of((uintptr_t)handle))                                                                   \
			return NOT_INITIALIZED;                                                                      \
		if (!info || !position)                                                                              \
			return INVALID_VALUE;                                                                        \
		put(handle, position, &none, sizeof none);                                                           \
		return (int)stand_in_values(#name);                                                                  \
	}
ZERO_PIVOT(cusparseXbsric02_zeroPivot)
ZERO_PIVOT(cusparseXbsrilu02_zeroPivot)
ZERO_PIVOT(cusparseXbsrsm2_zeroPivot)
ZERO_PIVOT(cusparseXbsrsv2_zeroPivot)
ZERO_PIVOT(cusparseXcsric02_zeroPivot)
ZERO_PIVOT(cusparseXcsrilu02_zeroPivot)

int cusparseSpVV(struct handle *handle, int operation, const struct matrix *x, const struct matrix *y, void *result,
		 int type, void *buffer)
{
	static const char zeros[16];

	(void)operation, (void)buffer;
	if (!handle_of((uintptr_t)handle))
		return NOT_INITIALIZED;
	if (!x || !y || !result)
		return INVALID_VALUE;
	put(handle, result, zeros, cusparse_type_bytes(type));
	return (int)stand_in_compute("cusparseSpVV", handle->stream);
}

int cusparseXcsrgeam2Nnz(struct handle *handle, int rows, int columns, const struct description *a, int a_count,
			 const int *a_offsets, const int *a_indices, const struct description *b, int b_count,
			 const int *b_offsets, const int *b_indices, const struct description *c, int *c_offsets,
			 int *ret_count, void *workspace)
{
	int count = a_count > b_count ? a_count : b_count;
	uint64_t all = (uint64_t)a_count + (uint64_t)b_count;
	const uint64_t element = 4 + 16; /* an index and at most a double-precision complex number */

	(void)a_offsets, (void)a_indices, (void)b_offsets, (void)b_indices, (void)c_offsets, (void)workspace;
	if (!handle_of((uintptr_t)handle))
		return NOT_INITIALIZED;
	if (rows < 0 || columns < 0 || a_count < 0 || b_count < 0 || !a || !b || !c || !ret_count)
		return INVALID_VALUE;
	if (all > (uint64_t)rows * (uint64_t)columns)
		all = (uint64_t)rows * (uint64_t)columns;
	put(handle, ret_count, &count, sizeof count);
	if (all > (uint64_t)count)
		stand_in_workspace("cusparseXcsrgeam2Nnz", (uint64_t)count * element, all * element);
	return (int)stand_in_compute("cusparseXcsrgeam2Nnz", handle->stream);
}

static uint64_t product_bytes(const struct matrix *a, const struct matrix *b, const struct matrix *c)
{
	const double pairs = (double)a->count * (double)b->count;
	const double all = (double)c->rows * (double)c->columns;

	return (uint64_t)((pairs < all ? pairs : all) * (double)(8 + cusparse_type_bytes(c->value_type)));
}

static bool operands(const char *kind, const int64_t *numbers, struct stand_in_size *ret_size)
{
	const struct matrix *matrices[3] = {NULL};
	int i;

	for (i = 0; i < 3; i++) {
		if (numbers[i] == -1)
			continue;
		matrices[i] = (const struct matrix *)(uintptr_t)numbers[i];
		if (!matrices[i])
			return false;
		ret_size->high += cusparse_matrix_bytes(matrices[i]);
	}
	if (strcmp(kind, "product") == 0)
		ret_size->high = product_bytes(matrices[0], matrices[1], matrices[2]);
	return true;
}

stand_in_sizes cusparse_size;
bool cusparse_size(const char *function, const char *kind, const int64_t *numbers, struct stand_in_size *ret_size)
{
	const uint64_t element = 16; /* a double-precision complex number, the largest */
	uint64_t rows = (uint64_t)numbers[0];
	uint64_t count = (uint64_t)numbers[1];
	uint64_t third = numbers[2] > 0 ? (uint64_t)numbers[2] : 1; /* the side of a block, batches, a second count */

	(void)function;
	*ret_size = (struct stand_in_size){.unit = 1};
	if (strcmp(kind, "operands") == 0 || strcmp(kind, "product") == 0)
		return operands(kind, numbers, ret_size);
	if (numbers[0] < 0 || numbers[1] < 0)
		return false;
	if (strcmp(kind, "diagonals") == 0)
		ret_size->high = 4 * rows * third * element;
	else if (strcmp(kind, "sum") == 0)
		ret_size->high = (count + third) * (element + 4) + 2 * rows * 4;
	else if (strcmp(kind, "sparse") == 0)
		ret_size->high = count * (third * third * element + 4) + rows * 4;
	else
		return false;
	return true;
}
