/* sim/libraries/cusparse_matrix.c: see the header. */
#include "sim/libraries/cusparse_matrix.h"

#include <stdlib.h>

#include "sim/libraries/attributes.h"
#include "sim/libraries/cusparse_common.h"
#include "sim/libraries/stand_in.h"

enum { /* cusparseFormat_t */
       CSR = 1,
       CSC = 2,
       COO = 3,
       BLOCKED_ELL = 5,
       BSR = 6,
       SLICED_ELL = 7,
};

/* cusparseIndexType_t: 16, 32, 64 bits */
static uint64_t index_bytes(int type) { return type == 1 ? 2 : type == 3 ? 8 : 4; }

uint64_t cusparse_matrix_bytes(const struct matrix *matrix)
{
	uint64_t bytes = (uint64_t)(matrix->count * matrix->block) * cusparse_type_bytes(matrix->value_type);

	if (matrix->indices)
		bytes += (uint64_t)matrix->count * index_bytes(matrix->index_type);
	if (matrix->offsets)
		bytes += (uint64_t)(matrix->format == COO   ? matrix->count
				    : matrix->format == CSC ? matrix->columns + 1
							    : matrix->rows + 1) *
			 index_bytes(matrix->offset_type);
	return bytes * (uint64_t)(matrix->batches > 0 ? matrix->batches : 1);
}

static int create(struct matrix **ret_matrix, struct matrix content)
{
	if (!ret_matrix || content.rows < 0 || content.columns < 0 || content.count < 0)
		return INVALID_VALUE;
	*ret_matrix = malloc(sizeof content);
	if (!*ret_matrix)
		return ALLOC_FAILED;
	content.batches = 1;
	if (content.block == 0)
		content.block = 1;
	**ret_matrix = content;
	return 0;
}

#define COMPRESSED(name, its_format)                                                                                 \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t count, void *offsets,            \
		 void *indices, void *values, int offset_type, int index_type, int base, int value_type)             \
	{                                                                                                            \
		return create(ret_matrix, (struct matrix){.format = its_format,                                      \
							  .rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = count,                                            \
							  .offsets = offsets,                                        \
							  .indices = indices,                                        \
							  .values = values,                                          \
							  .offset_type = offset_type,                                \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type});                                \
	}
COMPRESSED(cusparseCreateCsr, CSR)
COMPRESSED(cusparseCreateConstCsr, CSR)
COMPRESSED(cusparseCreateCsc, CSC)
COMPRESSED(cusparseCreateConstCsc, CSC)

#define COORDINATES(name)                                                                                            \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t count, void *row_indices,        \
		 void *column_indices, void *values, int index_type, int base, int value_type)                       \
	{                                                                                                            \
		return create(ret_matrix, (struct matrix){.format = COO,                                             \
							  .rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = count,                                            \
							  .offsets = row_indices,                                    \
							  .indices = column_indices,                                 \
							  .values = values,                                          \
							  .offset_type = index_type,                                 \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type});                                \
	}
COORDINATES(cusparseCreateCoo)
COORDINATES(cusparseCreateConstCoo)

#define BLOCKS(name)                                                                                                 \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t count, int64_t block_rows,       \
		 int64_t block_columns, void *offsets, void *indices, void *values, int offset_type, int index_type, \
		 int base, int value_type, int order)                                                                \
	{                                                                                                            \
		return create(ret_matrix, (struct matrix){.format = BSR,                                             \
							  .rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = count,                                            \
							  .block = block_rows * block_columns,                       \
							  .offsets = offsets,                                        \
							  .indices = indices,                                        \
							  .values = values,                                          \
							  .offset_type = offset_type,                                \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type,                                  \
							  .order = order});                                          \
	}
BLOCKS(cusparseCreateBsr)
BLOCKS(cusparseCreateConstBsr)

/* Every block row has the same number of blocks, which gives their total. */
#define BLOCKED(name)                                                                                                \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t side, int64_t ell_columns,       \
		 void *indices, void *values, int index_type, int base, int value_type)                              \
	{                                                                                                            \
		if (side <= 0)                                                                                       \
			return INVALID_VALUE;                                                                        \
		return create(ret_matrix, (struct matrix){.format = BLOCKED_ELL,                                     \
							  .rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = (rows / side) * (ell_columns / side),             \
							  .block = side * side,                                      \
							  .leading = side,                                           \
							  .indices = indices,                                        \
							  .values = values,                                          \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type});                                \
	}
BLOCKED(cusparseCreateBlockedEll)
BLOCKED(cusparseCreateConstBlockedEll)

#define SLICED(name)                                                                                                 \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t count, int64_t stored,           \
		 int64_t slice, void *offsets, void *indices, void *values, int offset_type, int index_type,         \
		 int base, int value_type)                                                                           \
	{                                                                                                            \
		(void)stored;                                                                                        \
		return create(ret_matrix, (struct matrix){.format = SLICED_ELL,                                      \
							  .rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = count,                                            \
							  .leading = slice,                                          \
							  .offsets = offsets,                                        \
							  .indices = indices,                                        \
							  .values = values,                                          \
							  .offset_type = offset_type,                                \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type});                                \
	}
SLICED(cusparseCreateSlicedEll)
SLICED(cusparseCreateConstSlicedEll)

#define SPARSE_VECTOR(name)                                                                                          \
	int name(struct matrix **ret_vector, int64_t size, int64_t count, void *indices, void *values,               \
		 int index_type, int base, int value_type)                                                           \
	{                                                                                                            \
		return create(ret_vector, (struct matrix){.rows = size,                                              \
							  .columns = 1,                                              \
							  .count = count,                                            \
							  .indices = indices,                                        \
							  .values = values,                                          \
							  .index_type = index_type,                                  \
							  .base = base,                                              \
							  .value_type = value_type});                                \
	}
SPARSE_VECTOR(cusparseCreateSpVec)
SPARSE_VECTOR(cusparseCreateConstSpVec)

#define DENSE(name)                                                                                                  \
	int name(struct matrix **ret_matrix, int64_t rows, int64_t columns, int64_t leading, void *values,           \
		 int value_type, int order)                                                                          \
	{                                                                                                            \
		return create(ret_matrix, (struct matrix){.rows = rows,                                              \
							  .columns = columns,                                        \
							  .count = rows * columns,                                   \
							  .leading = leading,                                        \
							  .values = values,                                          \
							  .value_type = value_type,                                  \
							  .order = order});                                          \
	}
DENSE(cusparseCreateDnMat)
DENSE(cusparseCreateConstDnMat)

#define DENSE_VECTOR(name)                                                                                           \
	int name(struct matrix **ret_vector, int64_t size, void *values, int value_type)                             \
	{                                                                                                            \
		return create(ret_vector, (struct matrix){.rows = size,                                              \
							  .columns = 1,                                              \
							  .count = size,                                             \
							  .values = values,                                          \
							  .value_type = value_type});                                \
	}
DENSE_VECTOR(cusparseCreateDnVec)
DENSE_VECTOR(cusparseCreateConstDnVec)

#define DESTROY(name)                                                                                                \
	int name(struct matrix *matrix)                                                                              \
	{                                                                                                            \
		free(matrix);                                                                                        \
		return 0;                                                                                            \
	}
DESTROY(cusparseDestroySpMat)
DESTROY(cusparseDestroySpVec)
DESTROY(cusparseDestroyDnMat)
DESTROY(cusparseDestroyDnVec)

/* Get functions store every output. */
#define STORE(to, value)                                                                                             \
	do {                                                                                                         \
		if (to)                                                                                              \
			*(to) = (value);                                                                             \
	} while (0)

#define COMPRESSED_GET(name)                                                                                         \
	int name(const struct matrix *matrix, int64_t *rows, int64_t *columns, int64_t *count, void **offsets,       \
		 void **indices, void **values, int *offset_type, int *index_type, int *base, int *value_type)       \
	{                                                                                                            \
		if (!matrix)                                                                                         \
			return INVALID_VALUE;                                                                        \
		STORE(rows, matrix->rows);                                                                           \
		STORE(columns, matrix->columns);                                                                     \
		STORE(count, matrix->count);                                                                         \
		STORE(offsets, matrix->offsets);                                                                     \
		STORE(indices, matrix->indices);                                                                     \
		STORE(values, matrix->values);                                                                       \
		STORE(offset_type, matrix->offset_type);                                                             \
		STORE(index_type, matrix->index_type);                                                               \
		STORE(base, matrix->base);                                                                           \
		STORE(value_type, matrix->value_type);                                                               \
		return 0;                                                                                            \
	}
COMPRESSED_GET(cusparseCsrGet)
COMPRESSED_GET(cusparseConstCsrGet)
COMPRESSED_GET(cusparseCscGet)
COMPRESSED_GET(cusparseConstCscGet)

#define COORDINATES_GET(name)                                                                                        \
	int name(const struct matrix *matrix, int64_t *rows, int64_t *columns, int64_t *count, void **row_indices,   \
		 void **column_indices, void **values, int *index_type, int *base, int *value_type)                  \
	{                                                                                                            \
		return cusparseCsrGet(matrix, rows, columns, count, row_indices, column_indices, values, NULL,       \
				      index_type, base, value_type);                                                 \
	}
COORDINATES_GET(cusparseCooGet)
COORDINATES_GET(cusparseConstCooGet)

#define BLOCKED_GET(name)                                                                                            \
	int name(const struct matrix *matrix, int64_t *rows, int64_t *columns, int64_t *side, int64_t *ell_columns,  \
		 void **indices, void **values, int *index_type, int *base, int *value_type)                         \
	{                                                                                                            \
		if (!matrix || matrix->format != BLOCKED_ELL)                                                        \
			return INVALID_VALUE;                                                                        \
		STORE(side, matrix->leading);                                                                        \
		STORE(ell_columns, matrix->rows / matrix->leading > 0                                                \
					   ? matrix->count / (matrix->rows / matrix->leading) * matrix->leading      \
					   : 0);                                                                     \
		return cusparseCsrGet(matrix, rows, columns, NULL, NULL, indices, values, NULL, index_type, base,    \
				      value_type);                                                                   \
	}
BLOCKED_GET(cusparseBlockedEllGet)
BLOCKED_GET(cusparseConstBlockedEllGet)

#define SPARSE_VECTOR_GET(name)                                                                                      \
	int name(const struct matrix *vector, int64_t *size, int64_t *count, void **indices, void **values,          \
		 int *index_type, int *base, int *value_type)                                                        \
	{                                                                                                            \
		return cusparseCsrGet(vector, size, NULL, count, NULL, indices, values, NULL, index_type, base,      \
				      value_type);                                                                   \
	}
SPARSE_VECTOR_GET(cusparseSpVecGet)
SPARSE_VECTOR_GET(cusparseConstSpVecGet)

#define DENSE_GET(name)                                                                                              \
	int name(const struct matrix *matrix, int64_t *rows, int64_t *columns, int64_t *leading, void **values,      \
		 int *value_type, int *order)                                                                        \
	{                                                                                                            \
		if (!matrix)                                                                                         \
			return INVALID_VALUE;                                                                        \
		STORE(leading, matrix->leading);                                                                     \
		STORE(order, matrix->order);                                                                         \
		return cusparseCsrGet(matrix, rows, columns, NULL, NULL, NULL, values, NULL, NULL, NULL,             \
				      value_type);                                                                   \
	}
DENSE_GET(cusparseDnMatGet)
DENSE_GET(cusparseConstDnMatGet)

#define DENSE_VECTOR_GET(name)                                                                                       \
	int name(const struct matrix *vector, int64_t *size, void **values, int *value_type)                         \
	{                                                                                                            \
		return cusparseCsrGet(vector, size, NULL, NULL, NULL, NULL, values, NULL, NULL, NULL, value_type);   \
	}
DENSE_VECTOR_GET(cusparseDnVecGet)
DENSE_VECTOR_GET(cusparseConstDnVecGet)

/* One output, or one input. */
#define GET(name, type, field)                                                                                       \
	int name(const struct matrix *matrix, type *ret_value)                                                       \
	{                                                                                                            \
		if (!matrix || !ret_value)                                                                           \
			return INVALID_VALUE;                                                                        \
		*ret_value = matrix->field;                                                                          \
		return 0;                                                                                            \
	}
#define SET(name, type, field)                                                                                       \
	int name(struct matrix *matrix, type value)                                                                  \
	{                                                                                                            \
		if (!matrix)                                                                                         \
			return INVALID_VALUE;                                                                        \
		matrix->field = value;                                                                               \
		return 0;                                                                                            \
	}
GET(cusparseSpMatGetValues, void *, values)
GET(cusparseConstSpMatGetValues, void *, values)
GET(cusparseSpVecGetValues, void *, values)
GET(cusparseConstSpVecGetValues, void *, values)
GET(cusparseDnMatGetValues, void *, values)
GET(cusparseConstDnMatGetValues, void *, values)
GET(cusparseDnVecGetValues, void *, values)
GET(cusparseConstDnVecGetValues, void *, values)
SET(cusparseSpMatSetValues, void *, values)
SET(cusparseSpVecSetValues, void *, values)
SET(cusparseDnMatSetValues, void *, values)
SET(cusparseDnVecSetValues, void *, values)
GET(cusparseSpMatGetFormat, int, format)
GET(cusparseSpMatGetIndexBase, int, base)
GET(cusparseSpVecGetIndexBase, int, base)
GET(cusparseSpMatGetStridedBatch, int, batches)

int cusparseSpMatGetSize(const struct matrix *matrix, int64_t *rows, int64_t *columns, int64_t *count)
{
	return cusparseCsrGet(matrix, rows, columns, count, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
}

#define SET_POINTERS(name)                                                                                           \
	int name(struct matrix *matrix, void *offsets, void *indices, void *values)                                  \
	{                                                                                                            \
		if (!matrix)                                                                                         \
			return INVALID_VALUE;                                                                        \
		matrix->offsets = offsets;                                                                           \
		matrix->indices = indices;                                                                           \
		matrix->values = values;                                                                             \
		return 0;                                                                                            \
	}
SET_POINTERS(cusparseCsrSetPointers)
SET_POINTERS(cusparseCscSetPointers)
SET_POINTERS(cusparseCooSetPointers)

int cusparseDnMatSetStridedBatch(struct matrix *matrix, int batches, int64_t stride)
{
	if (!matrix || batches < 1)
		return INVALID_VALUE;
	matrix->batches = batches;
	matrix->batch_stride = stride;
	return 0;
}

int cusparseCooSetStridedBatch(struct matrix *matrix, int batches, int64_t stride)
{
	return cusparseDnMatSetStridedBatch(matrix, batches, stride);
}

int cusparseCsrSetStridedBatch(struct matrix *matrix, int batches, int64_t offsets_stride, int64_t stride)
{
	(void)offsets_stride;
	return cusparseDnMatSetStridedBatch(matrix, batches, stride);
}

int cusparseBsrSetStridedBatch(struct matrix *matrix, int batches, int64_t offsets_stride, int64_t indices_stride,
			       int64_t stride)
{
	(void)offsets_stride, (void)indices_stride;
	return cusparseDnMatSetStridedBatch(matrix, batches, stride);
}

int cusparseDnMatGetStridedBatch(const struct matrix *matrix, int *ret_batches, int64_t *ret_stride)
{
	if (!matrix)
		return INVALID_VALUE;
	STORE(ret_batches, matrix->batches);
	STORE(ret_stride, matrix->batch_stride);
	return 0;
}

static const struct attribute attribute_rows[] = {
	ATTRIBUTE(0, struct matrix, attributes.fill),
	ATTRIBUTE(1, struct matrix, attributes.diagonal),
};
static const struct attributes attribute_table = ATTRIBUTES(attribute_rows);

int cusparseSpMatSetAttribute(struct matrix *matrix, int number, const void *from, size_t bytes)
{
	return attributes_set(&attribute_table, matrix, number, from, bytes) ? 0 : INVALID_VALUE;
}

int cusparseSpMatGetAttribute(const struct matrix *matrix, int number, void *to, size_t bytes)
{
	return bytes && attributes_get(&attribute_table, matrix, number, to, bytes, NULL) ? 0 : INVALID_VALUE;
}
