/* sim/libraries/cusparse_matrix.h: cuSPARSE's descriptors. A descriptor stores and returns the program's
 * description of a matrix or vector; the memory belongs to the program. */
#ifndef NEAP_RUNTIME_LIBRARIES_CUSPARSE_MATRIX_H
#define NEAP_RUNTIME_LIBRARIES_CUSPARSE_MATRIX_H

#include <stddef.h>
#include <stdint.h>

/* A matrix or a vector, sparse or dense. A vector is one column; of a dense one only `values` is a pointer. */
struct matrix {
	int format; /* cusparseFormat_t; 0: not a sparse matrix */
	int64_t rows;
	int64_t columns;
	int64_t count;   /* elements in memory; of a block format, blocks */
	int64_t block;   /* elements in a block; 1 where there are no blocks */
	int64_t leading; /* dense: the leading dimension. Blocked ELL: the side of a block */
	void *offsets;
	void *indices;
	void *values;
	int offset_type; /* cusparseIndexType_t */
	int index_type;
	int base;
	int value_type; /* cudaDataType */
	int order;
	int batches;
	int64_t batch_stride;
	struct {
		int fill;
		int diagonal;
	} attributes;
};

/* Memory of the elements and their indices. */
uint64_t cusparse_matrix_bytes(const struct matrix *matrix);

#endif
