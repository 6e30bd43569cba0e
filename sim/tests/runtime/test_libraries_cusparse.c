/* cuSPARSE: descriptors return their settings; the number of elements of results. */
#include "libraries_test.h"

static struct {
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*set_mode)(void *handle, int mode);
	int (*csr)(void **matrix, int64_t rows, int64_t columns, int64_t count, void *offsets, void *indices,
		   void *values, int offset_type, int index_type, int base, int value_type);
	int (*csr_get)(void *matrix, int64_t *rows, int64_t *columns, int64_t *count, void **offsets, void **indices,
		       void **values, int *offset_type, int *index_type, int *base, int *value_type);
	int (*csr_set)(void *matrix, void *offsets, void *indices, void *values);
	int (*set_attribute)(void *matrix, int number, void *data, size_t bytes);
	int (*get_attribute)(void *matrix, int number, void *data, size_t bytes);
	int (*get_size)(void *matrix, int64_t *rows, int64_t *columns, int64_t *count);
	int (*destroy_sparse)(void *matrix);
	int (*ell)(void **matrix, int64_t rows, int64_t columns, int64_t side, int64_t ell_columns, void *indices,
		   void *values, int index_type, int base, int value_type);
	int (*ell_get)(void *matrix, int64_t *rows, int64_t *columns, int64_t *side, int64_t *ell_columns,
		       void **indices, void **values, int *index_type, int *base, int *value_type);
	int (*dense)(void **matrix, int64_t rows, int64_t columns, int64_t leading, void *values, int type,
		     int order);
	int (*dense_get)(void *matrix, int64_t *rows, int64_t *columns, int64_t *leading, void **values, int *type,
			 int *order);
	int (*dense_batch)(void *matrix, int batches, int64_t stride);
	int (*dense_get_batch)(void *matrix, int *batches, int64_t *stride);
	int (*destroy_dense)(void *matrix);
	int (*product_size)(void *handle, int a, int b, const void *alpha, void *sparse, void *dense,
			    const void *beta, void *result, int type, int algorithm, size_t *ret_bytes);
	int (*spgemm)(void *handle, int a, int b, const void *alpha, void *first, void *second, const void *beta,
		      void *result, int type, int algorithm, void *description, size_t *ret_bytes, void *buffer);
	int (*sum_count)(void *handle, int rows, int columns, void *a, int a_count, const int *a_offsets,
			 const int *a_indices, void *b, int b_count, const int *b_offsets, const int *b_indices,
			 void *c, int *c_offsets, int *ret_count, void *workspace);
	int (*pivot)(void *handle, void *info, int *position);
	int (*describe)(void **description);
	int (*set_fill)(void *description, int fill);
	int (*get_fill)(void *description);
	int (*destroy_description)(void *description);
	int (*nnz)(void *handle);
	const char *(*error)(int status);
} sparse;

static void load(void)
{
	void *library = library_open("libcusparse.so.12");

	library_function(library, "cusparseCreate", &sparse.create);
	library_function(library, "cusparseDestroy", &sparse.destroy);
	library_function(library, "cusparseSetPointerMode", &sparse.set_mode);
	library_function(library, "cusparseCreateCsr", &sparse.csr);
	library_function(library, "cusparseCsrGet", &sparse.csr_get);
	library_function(library, "cusparseCsrSetPointers", &sparse.csr_set);
	library_function(library, "cusparseSpMatSetAttribute", &sparse.set_attribute);
	library_function(library, "cusparseSpMatGetAttribute", &sparse.get_attribute);
	library_function(library, "cusparseSpMatGetSize", &sparse.get_size);
	library_function(library, "cusparseDestroySpMat", &sparse.destroy_sparse);
	library_function(library, "cusparseCreateBlockedEll", &sparse.ell);
	library_function(library, "cusparseBlockedEllGet", &sparse.ell_get);
	library_function(library, "cusparseCreateDnMat", &sparse.dense);
	library_function(library, "cusparseDnMatGet", &sparse.dense_get);
	library_function(library, "cusparseDnMatSetStridedBatch", &sparse.dense_batch);
	library_function(library, "cusparseDnMatGetStridedBatch", &sparse.dense_get_batch);
	library_function(library, "cusparseDestroyDnMat", &sparse.destroy_dense);
	library_function(library, "cusparseSpMM_bufferSize", &sparse.product_size);
	library_function(library, "cusparseSpGEMM_compute", &sparse.spgemm);
	library_function(library, "cusparseXcsrgeam2Nnz", &sparse.sum_count);
	library_function(library, "cusparseXbsrsv2_zeroPivot", &sparse.pivot);
	library_function(library, "cusparseCreateMatDescr", &sparse.describe);
	library_function(library, "cusparseSetMatFillMode", &sparse.set_fill);
	library_function(library, "cusparseGetMatFillMode", &sparse.get_fill);
	library_function(library, "cusparseDestroyMatDescr", &sparse.destroy_description);
	library_function(library, "cusparseSnnz", &sparse.nnz);
	library_function(library, "cusparseGetErrorString", &sparse.error);
}

static void a_sparse_matrix_is_returned_as_it_was_described(void **state)
{
	int64_t rows, columns, count, side, ell_columns;
	int offset_type, index_type, base, value_type, fill = 1, read = 0;
	void *matrix, *offsets, *indices, *values, *own = &own;

	(void)state;
	fake_begin();
	assert_int_equal(sparse.csr(&matrix, 10, 20, 30, &rows, &columns, &count, 3, 2, 1, 4), 0);
	assert_int_equal(sparse.csr_get(matrix, &rows, &columns, &count, &offsets, &indices, &values, &offset_type,
					&index_type, &base, &value_type),
			 0);
	assert_true(rows == 10 && columns == 20 && count == 30);
	assert_true(offsets == &rows && indices == &columns && values == &count);
	assert_true(offset_type == 3 && index_type == 2 && base == 1 && value_type == 4);
	assert_int_equal(sparse.csr_set(matrix, own, &rows, &columns), 0);
	assert_int_equal(sparse.csr_get(matrix, &rows, &columns, &count, &offsets, &indices, &values, &offset_type,
					&index_type, &base, &value_type),
			 0);
	assert_true(offsets == own && indices == &rows && values == &columns);
	assert_int_equal(sparse.set_attribute(matrix, 1, &fill, sizeof fill), 0);
	assert_int_equal(sparse.get_attribute(matrix, 1, &read, sizeof read), 0);
	assert_int_equal(read, 1);
	assert_int_equal(sparse.set_attribute(matrix, 2, &fill, sizeof fill), 3);
	assert_int_equal(sparse.destroy_sparse(matrix), 0);
	assert_int_equal(sparse.csr(&matrix, -1, 20, 30, NULL, NULL, NULL, 3, 2, 1, 4), 3);

	assert_int_equal(sparse.ell(&matrix, 64, 128, 16, 32, NULL, NULL, 2, 0, 0), 0);
	assert_int_equal(sparse.ell_get(matrix, &rows, &columns, &side, &ell_columns, &indices, &values, &index_type,
					&base, &value_type),
			 0);
	assert_true(rows == 64 && columns == 128 && side == 16 && ell_columns == 32);
	assert_int_equal(sparse.destroy_sparse(matrix), 0);
}

static void a_dense_matrix_is_returned_as_it_was_described(void **state)
{
	int64_t rows, columns, leading, stride;
	int type, order, batches;
	void *matrix, *values;

	(void)state;
	fake_begin();
	assert_int_equal(sparse.dense(&matrix, 10, 20, 30, &rows, 14, 2), 0);
	assert_int_equal(sparse.dense_get(matrix, &rows, &columns, &leading, &values, &type, &order), 0);
	assert_true(rows == 10 && columns == 20 && leading == 30 && values == &rows && type == 14 && order == 2);
	assert_int_equal(sparse.dense_batch(matrix, 3, 600), 0);
	assert_int_equal(sparse.dense_get_batch(matrix, &batches, &stride), 0);
	assert_true(batches == 3 && stride == 600);
	assert_int_equal(sparse.destroy_dense(matrix), 0);
}

static void buffers_are_intervals_from_zero(void **state)
{
	void *handle = NULL, *a = NULL, *b = NULL, *empty = NULL;
	size_t bytes = 9;
	int64_t count = 9;

	(void)state;
	fake_begin();
	assert_int_equal(sparse.create(&handle), 0);
	assert_int_equal(sparse.csr(&a, 64, 64, 100, &a, &a, &a, 2, 2, 0, 1), 0);
	assert_int_equal(sparse.csr(&empty, 64, 64, 0, NULL, NULL, NULL, 2, 2, 0, 1), 0);
	assert_int_equal(sparse.dense(&b, 64, 8, 64, &b, 1, 1), 0);
	assert_int_equal(sparse.product_size(handle, 0, 0, NULL, a, b, NULL, b, 1, 0, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(fake.high, 100 * (8 + 4) + 65 * 4 + 2 * 64 * 8 * 8);

	/* A product of sparse matrices: at most as many elements as it has places, here 4096. */
	bytes = 9;
	assert_int_equal(sparse.spgemm(handle, 0, 0, NULL, a, a, NULL, empty, 1, 0, NULL, &bytes, NULL), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 2);
	assert_int_equal(fake.high, 4096 * (8 + 8));
	assert_int_equal(sparse.get_size(empty, NULL, NULL, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(sparse.destroy_sparse(a), 0);
	assert_int_equal(sparse.destroy_sparse(empty), 0);
	assert_int_equal(sparse.destroy_dense(b), 0);
	assert_int_equal(sparse.destroy(handle), 0);
}

static void a_sum_has_the_elements_of_its_larger_operand(void **state)
{
	void *handle = NULL, *description = NULL;
	int count = 0, written;

	(void)state;
	fake_begin();
	assert_int_equal(sparse.create(&handle), 0);
	assert_int_equal(sparse.describe(&description), 0);
	assert_int_equal(sparse.sum_count(handle, 10, 10, description, 30, NULL, NULL, description, 40, NULL, NULL,
					  description, NULL, &count, NULL),
			 0);
	assert_int_equal(count, 40);
	assert_int_equal(fake.low, 40 * 20);
	assert_int_equal(fake.high, 70 * 20);
	assert_int_equal(fake.written_bytes, 0);
	assert_int_equal(sparse.set_mode(handle, 1), 0); /* the count is device memory */
	count = 0;
	assert_int_equal(sparse.sum_count(handle, 10, 10, description, 30, NULL, NULL, description, 40, NULL, NULL,
					  description, NULL, &count, NULL),
			 0);
	assert_int_equal(count, 0);
	assert_int_equal(fake.written, (uintptr_t)&count);
	memcpy(&written, fake.content, sizeof written);
	assert_int_equal(written, 40);
	assert_int_equal(sparse.set_fill(description, 1), 0);
	assert_int_equal(sparse.get_fill(description), 1);
	assert_int_equal(sparse.destroy_description(description), 0);
	assert_int_equal(sparse.destroy(handle), 0);
}

static void no_pivot_is_zero_and_counts_of_values_are_refused(void **state)
{
	void *handle = NULL;
	int position = 3;

	(void)state;
	fake_begin();
	assert_int_equal(sparse.create(&handle), 0);
	assert_int_equal(sparse.pivot(handle, &handle, &position), 0);
	assert_int_equal(position, -1);
	assert_int_equal(sparse.nnz(handle), 10);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	assert_int_equal(sparse.destroy(handle), 0);
	assert_non_null(strstr(sparse.error(10), "not supported"));
	assert_non_null(sparse.error(-5));
	fake.capability = 0;
	assert_int_equal(sparse.create(&handle), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sparse_matrix_is_returned_as_it_was_described),
		cmocka_unit_test(a_dense_matrix_is_returned_as_it_was_described),
		cmocka_unit_test(buffers_are_intervals_from_zero),
		cmocka_unit_test(a_sum_has_the_elements_of_its_larger_operand),
		cmocka_unit_test(no_pivot_is_zero_and_counts_of_values_are_refused),
	};

	load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
