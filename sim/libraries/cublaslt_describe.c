/* sim/libraries/cublaslt_describe.c: see the header. */
#include "sim/libraries/cublaslt_describe.h"

#include <stdlib.h>

#include "sim/libraries/attributes.h"
#include "sim/libraries/cublas_common.h"
#include "sim/libraries/stand_in.h"

/* The contents of the API's opaque types. */
enum {
	SMALL_BYTES = 64,
	MATMUL_BYTES = 256,
};

struct layout {
	uint32_t type;
	int32_t order;
	uint64_t rows;
	uint64_t columns;
	int64_t leading;
	int32_t batches;
	uint32_t batch_mode;
	int64_t batch_stride;
	int64_t plane;
};

static const struct attribute layout_rows[] = {
	ATTRIBUTE(0, struct layout, type),         ATTRIBUTE(1, struct layout, order),
	ATTRIBUTE(2, struct layout, rows),         ATTRIBUTE(3, struct layout, columns),
	ATTRIBUTE(4, struct layout, leading),      ATTRIBUTE(5, struct layout, batches),
	ATTRIBUTE(6, struct layout, batch_stride), ATTRIBUTE(7, struct layout, plane),
	ATTRIBUTE(8, struct layout, batch_mode),
};

struct matmul {
	int32_t compute_type;
	int32_t scale_type;
	int32_t pointer_mode;
	int32_t transposes[3];
	int32_t fill;
	uint32_t epilogue;
	void *bias;
	int64_t bias_stride;
	void *auxiliary;
	int64_t auxiliary_leading;
	int64_t auxiliary_stride;
	int64_t alpha_stride;
	void *scales[4]; /* of A, B, C, D */
	void *amax;
	void *auxiliary_scale;
	void *auxiliary_amax;
	void *counters[2]; /* in, out */
	void *out_scale;
	void *emulation;
	int32_t multiprocessors;
	int32_t auxiliary_type;
	int32_t bias_type;
	int32_t chunks[2];
	int32_t scale_modes[4];
	int32_t auxiliary_scale_mode;
	int32_t out_scale_mode;
	int8_t fast;
};

static const struct attribute matmul_rows[] = {
	ATTRIBUTE(0, struct matmul, compute_type),
	ATTRIBUTE(1, struct matmul, scale_type),
	ATTRIBUTE(2, struct matmul, pointer_mode),
	ATTRIBUTE(3, struct matmul, transposes[0]),
	ATTRIBUTE(4, struct matmul, transposes[1]),
	ATTRIBUTE(5, struct matmul, transposes[2]),
	ATTRIBUTE(6, struct matmul, fill),
	ATTRIBUTE(7, struct matmul, epilogue),
	ATTRIBUTE(8, struct matmul, bias),
	ATTRIBUTE(10, struct matmul, bias_stride),
	ATTRIBUTE(11, struct matmul, auxiliary),
	ATTRIBUTE(12, struct matmul, auxiliary_leading),
	ATTRIBUTE(13, struct matmul, auxiliary_stride),
	ATTRIBUTE(14, struct matmul, alpha_stride),
	ATTRIBUTE(15, struct matmul, multiprocessors),
	ATTRIBUTE(17, struct matmul, scales[0]),
	ATTRIBUTE(18, struct matmul, scales[1]),
	ATTRIBUTE(19, struct matmul, scales[2]),
	ATTRIBUTE(20, struct matmul, scales[3]),
	ATTRIBUTE(21, struct matmul, amax),
	ATTRIBUTE(22, struct matmul, auxiliary_type),
	ATTRIBUTE(23, struct matmul, auxiliary_scale),
	ATTRIBUTE(24, struct matmul, auxiliary_amax),
	ATTRIBUTE(25, struct matmul, fast),
	ATTRIBUTE(26, struct matmul, bias_type),
	ATTRIBUTE(27, struct matmul, chunks[0]),
	ATTRIBUTE(28, struct matmul, chunks[1]),
	ATTRIBUTE(29, struct matmul, counters[0]),
	ATTRIBUTE(30, struct matmul, counters[1]),
	ATTRIBUTE(31, struct matmul, scale_modes[0]),
	ATTRIBUTE(32, struct matmul, scale_modes[1]),
	ATTRIBUTE(33, struct matmul, scale_modes[2]),
	ATTRIBUTE(34, struct matmul, scale_modes[3]),
	ATTRIBUTE(35, struct matmul, auxiliary_scale_mode),
	ATTRIBUTE(36, struct matmul, out_scale),
	ATTRIBUTE(37, struct matmul, out_scale_mode),
	ATTRIBUTE(38, struct matmul, emulation),
};

static const struct attribute preference_rows[] = {
	ATTRIBUTE(0, struct preference, search_mode),      ATTRIBUTE(1, struct preference, workspace_bytes),
	ATTRIBUTE(3, struct preference, reduction_mask),   ATTRIBUTE(5, struct preference, alignments[0]),
	ATTRIBUTE(6, struct preference, alignments[1]),    ATTRIBUTE(7, struct preference, alignments[2]),
	ATTRIBUTE(8, struct preference, alignments[3]),    ATTRIBUTE(9, struct preference, waves),
	ATTRIBUTE(12, struct preference, implementations),
};

struct transform {
	int32_t scale_type;
	int32_t pointer_mode;
	int32_t transposes[2];
};

static const struct attribute transform_rows[] = {
	ATTRIBUTE(0, struct transform, scale_type),
	ATTRIBUTE(1, struct transform, pointer_mode),
	ATTRIBUTE(2, struct transform, transposes[0]),
	ATTRIBUTE(3, struct transform, transposes[1]),
};

struct emulation {
	int32_t strategy;
	int32_t special_values;
	int32_t mantissa_control;
	int32_t mantissa_bits;
	int32_t mantissa_offset;
	int32_t *mantissa_count;
};

static const struct attribute emulation_rows[] = {
	ATTRIBUTE(0, struct emulation, strategy),         ATTRIBUTE(1, struct emulation, special_values),
	ATTRIBUTE(2, struct emulation, mantissa_control), ATTRIBUTE(3, struct emulation, mantissa_bits),
	ATTRIBUTE(4, struct emulation, mantissa_offset),  ATTRIBUTE(5, struct emulation, mantissa_count),
};

_Static_assert(sizeof(struct layout) <= SMALL_BYTES && sizeof(struct preference) <= SMALL_BYTES &&
		       sizeof(struct transform) <= SMALL_BYTES && sizeof(struct emulation) <= SMALL_BYTES &&
		       sizeof(struct matmul) <= MATMUL_BYTES,
	       "a descriptor fits the API's opaque type");

/* Zeros the program's memory; NULL if it is smaller than the API requires. */
static void *begin(void *object, size_t bytes, size_t needed)
{
	return object && bytes >= needed ? memset(object, 0, needed) : NULL;
}

/* Allocates the memory, and lets `init` fill it. */
#define CREATE(ret_object, bytes, init)                                                                              \
	do {                                                                                                         \
		void *object;                                                                                        \
                                                                                                                     \
		if (!(ret_object))                                                                                   \
			return CUBLAS_INVALID_VALUE;                                                                 \
		object = malloc(bytes);                                                                              \
		if (!object)                                                                                         \
			return CUBLAS_ALLOC_FAILED;                                                                  \
		*(ret_object) = object;                                                                              \
		return init;                                                                                         \
	} while (0)

#define SET_AND_GET(set, get, type, rows)                                                                            \
	int set(struct type *object, int number, const void *from, size_t bytes)                                     \
	{                                                                                                            \
		static const struct attributes table = ATTRIBUTES(rows);                                             \
                                                                                                                     \
		return attributes_set(&table, object, number, from, bytes) ? 0 : CUBLAS_INVALID_VALUE;               \
	}                                                                                                            \
	int get(const struct type *object, int number, void *to, size_t bytes, size_t *ret_bytes)                    \
	{                                                                                                            \
		static const struct attributes table = ATTRIBUTES(rows);                                             \
                                                                                                                     \
		return attributes_get(&table, object, number, to, bytes, ret_bytes) ? 0 : CUBLAS_INVALID_VALUE;      \
	}

SET_AND_GET(cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayoutGetAttribute, layout, layout_rows)
SET_AND_GET(cublasLtMatmulDescSetAttribute, cublasLtMatmulDescGetAttribute, matmul, matmul_rows)
SET_AND_GET(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreferenceGetAttribute, preference, preference_rows)
SET_AND_GET(cublasLtMatrixTransformDescSetAttribute, cublasLtMatrixTransformDescGetAttribute, transform,
	    transform_rows)
SET_AND_GET(cublasLtEmulationDescSetAttribute, cublasLtEmulationDescGetAttribute, emulation, emulation_rows)

int cublasLtMatrixLayoutInit_internal(void *memory, size_t bytes, int type, uint64_t rows, uint64_t columns,
				      int64_t leading)
{
	struct layout *layout = begin(memory, bytes, SMALL_BYTES);

	if (!layout)
		return CUBLAS_INVALID_VALUE;
	layout->type = (uint32_t)type;
	layout->rows = rows;
	layout->columns = columns;
	layout->leading = leading;
	layout->batches = 1;
	return 0;
}

int cublasLtMatrixLayoutCreate(void **ret_layout, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
	CREATE(ret_layout, SMALL_BYTES,
	       cublasLtMatrixLayoutInit_internal(object, SMALL_BYTES, type, rows, columns, leading));
}

int cublasLtMatmulDescInit_internal(void *memory, size_t bytes, int compute_type, int scale_type)
{
	struct matmul *matmul = begin(memory, bytes, MATMUL_BYTES);

	if (!matmul)
		return CUBLAS_INVALID_VALUE;
	matmul->compute_type = compute_type;
	matmul->scale_type = scale_type;
	matmul->fill = 2;     /* full */
	matmul->epilogue = 1; /* none */
	matmul->auxiliary_type = -1;
	matmul->bias_type = -1;
	return 0;
}

int cublasLtMatmulDescCreate(void **ret_matmul, int compute_type, int scale_type)
{
	CREATE(ret_matmul, MATMUL_BYTES,
	       cublasLtMatmulDescInit_internal(object, MATMUL_BYTES, compute_type, scale_type));
}

int cublasLtMatmulPreferenceInit_internal(void *memory, size_t bytes)
{
	struct preference *preference = begin(memory, bytes, SMALL_BYTES);
	int i;

	if (!preference)
		return CUBLAS_INVALID_VALUE;
	preference->reduction_mask = 7;
	preference->implementations = UINT64_MAX;
	for (i = 0; i < 4; i++)
		preference->alignments[i] = 256;
	return 0;
}

int cublasLtMatmulPreferenceCreate(void **ret_preference)
{
	CREATE(ret_preference, SMALL_BYTES, cublasLtMatmulPreferenceInit_internal(object, SMALL_BYTES));
}

int cublasLtMatrixTransformDescInit_internal(void *memory, size_t bytes, int scale_type)
{
	struct transform *transform = begin(memory, bytes, SMALL_BYTES);

	if (!transform)
		return CUBLAS_INVALID_VALUE;
	transform->scale_type = scale_type;
	return 0;
}

int cublasLtMatrixTransformDescCreate(void **ret_transform, int scale_type)
{
	CREATE(ret_transform, SMALL_BYTES, cublasLtMatrixTransformDescInit_internal(object, SMALL_BYTES, scale_type));
}

int cublasLtEmulationDescInit_internal(void *memory, size_t bytes)
{
	struct emulation *emulation = begin(memory, bytes, SMALL_BYTES);

	if (!emulation)
		return CUBLAS_INVALID_VALUE;
	emulation->special_values = 0xffff;
	return 0;
}

int cublasLtEmulationDescCreate(void **ret_emulation)
{
	CREATE(ret_emulation, SMALL_BYTES, cublasLtEmulationDescInit_internal(object, SMALL_BYTES));
}
