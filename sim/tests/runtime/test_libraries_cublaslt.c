/* cuBLASLt: descriptors keep their attributes, the heuristic gives one algorithm, a workspace counts as unknown only
 * if the program passes less than the maximum. */
#include "libraries_test.h"

struct algorithm {
	uint64_t data[8];
};

struct result {
	struct algorithm algorithm;
	size_t workspace_bytes;
	int status;
	float waves;
	int reserved[4];
};

static struct {
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
	int (*layout_init)(void *layout, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t leading);
	int (*layout_set)(void *layout, int number, const void *from, size_t bytes);
	int (*layout_get)(const void *layout, int number, void *to, size_t bytes, size_t *ret_bytes);
	int (*layout_destroy)(void *layout);
	int (*matmul_create)(void **matmul, int compute, int scale);
	int (*matmul_set)(void *matmul, int number, const void *from, size_t bytes);
	int (*matmul_get)(const void *matmul, int number, void *to, size_t bytes, size_t *ret_bytes);
	int (*matmul_destroy)(void *matmul);
	int (*preference_create)(void **preference);
	int (*preference_set)(void *preference, int number, const void *from, size_t bytes);
	int (*preference_destroy)(void *preference);
	int (*heuristic)(void *handle, void *matmul, void *a, void *b, void *c, void *d, void *preference, int count,
			 struct result *results, int *ret_count);
	int (*check)(void *handle, void *matmul, void *a, void *b, void *c, void *d,
		     const struct algorithm *algorithm, struct result *result);
	int (*multiply)(void *handle, void *matmul, const void *alpha, const void *a, void *a_layout, const void *b,
			void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
			const struct algorithm *algorithm, void *workspace, size_t bytes, void *stream);
	size_t (*version)(void);
	const char *(*status_name)(int status);
} lt;

static void load(const char *soname)
{
	void *library = library_open(soname);

	library_function(library, "cublasLtCreate", &lt.create);
	library_function(library, "cublasLtDestroy", &lt.destroy);
	library_function(library, "cublasLtMatrixLayoutCreate", &lt.layout_create);
	library_function(library, "cublasLtMatrixLayoutInit_internal", &lt.layout_init);
	library_function(library, "cublasLtMatrixLayoutSetAttribute", &lt.layout_set);
	library_function(library, "cublasLtMatrixLayoutGetAttribute", &lt.layout_get);
	library_function(library, "cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
	library_function(library, "cublasLtMatmulDescCreate", &lt.matmul_create);
	library_function(library, "cublasLtMatmulDescSetAttribute", &lt.matmul_set);
	library_function(library, "cublasLtMatmulDescGetAttribute", &lt.matmul_get);
	library_function(library, "cublasLtMatmulDescDestroy", &lt.matmul_destroy);
	library_function(library, "cublasLtMatmulPreferenceCreate", &lt.preference_create);
	library_function(library, "cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
	library_function(library, "cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
	library_function(library, "cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
	library_function(library, "cublasLtMatmulAlgoCheck", &lt.check);
	library_function(library, "cublasLtMatmul", &lt.multiply);
	library_function(library, "cublasLtGetVersion", &lt.version);
	library_function(library, "cublasLtGetStatusName", &lt.status_name);
}

static void a_layout_keeps_what_is_set(void **state)
{
	uint64_t own[8], rows = 0;
	int64_t leading = 0, stride = 12345;
	int32_t batches = 0;
	size_t bytes = 0;
	void *made = NULL;

	(void)state;
	fake_begin();
	assert_int_equal(lt.layout_create(&made, 2, 3, 4, 5), 0);
	assert_int_equal(lt.layout_init(own, sizeof own, 2, 3, 4, 5), 0);
	assert_int_equal(lt.layout_init(own, sizeof own - 1, 2, 3, 4, 5), 7);
	for (int i = 0; i < 2; i++) {
		void *layout = i == 0 ? made : own;

		assert_int_equal(lt.layout_get(layout, 2, &rows, sizeof rows, &bytes), 0);
		assert_int_equal(rows, 3);
		assert_int_equal(bytes, 8);
		assert_int_equal(lt.layout_get(layout, 4, &leading, sizeof leading, NULL), 0);
		assert_int_equal(leading, 5);
		assert_int_equal(lt.layout_get(layout, 5, &batches, sizeof batches, NULL), 0);
		assert_int_equal(batches, 1);
		assert_int_equal(lt.layout_set(layout, 6, &stride, sizeof stride), 0);
		leading = 0;
		assert_int_equal(lt.layout_get(layout, 6, &leading, sizeof leading, NULL), 0);
		assert_int_equal(leading, 12345);
		assert_int_equal(lt.layout_get(layout, 5, NULL, 0, &bytes), 0);
		assert_int_equal(bytes, 4);
		assert_int_equal(lt.layout_set(layout, 6, &stride, 4), 7);  /* not its size */
		assert_int_equal(lt.layout_set(layout, 99, &stride, 8), 7); /* no such attribute */
		assert_int_equal(lt.layout_get(layout, 5, NULL, 0, NULL), 7);
	}
	assert_int_equal(lt.layout_destroy(made), 0);
}

static void a_product_keeps_what_is_set(void **state)
{
	void *matmul = NULL, *pointer = NULL, *bias = &matmul;
	int32_t value = 0;
	int8_t fast = 1, read = 0;

	(void)state;
	fake_begin();
	assert_int_equal(lt.matmul_create(&matmul, 68, 0), 0);
	assert_int_equal(lt.matmul_get(matmul, 0, &value, sizeof value, NULL), 0);
	assert_int_equal(value, 68);
	assert_int_equal(lt.matmul_get(matmul, 7, &value, sizeof value, NULL), 0);
	assert_int_equal(value, 1); /* no epilogue */
	assert_int_equal(lt.matmul_set(matmul, 8, &bias, sizeof bias), 0);
	assert_int_equal(lt.matmul_set(matmul, 25, &fast, sizeof fast), 0);
	assert_int_equal(lt.matmul_get(matmul, 8, &pointer, sizeof pointer, NULL), 0);
	assert_ptr_equal(pointer, bias);
	assert_int_equal(lt.matmul_get(matmul, 25, &read, sizeof read, NULL), 0);
	assert_int_equal(read, 1);
	assert_int_equal(lt.matmul_destroy(matmul), 0);
}

static void a_workspace_is_unknown_only_where_less_than_the_maximum_was_given(void **state)
{
	void *handle = NULL, *matmul = NULL, *layout = NULL, *preference = NULL;
	const uint64_t most = 32 << 20;
	struct result results[2] = {{.status = 9}};
	int count = 0;

	(void)state;
	fake_begin();
	assert_int_equal(lt.create(&handle), 0);
	assert_int_equal(lt.matmul_create(&matmul, 68, 0), 0);
	assert_int_equal(lt.layout_create(&layout, 0, 16, 16, 16), 0);
	assert_int_equal(lt.preference_create(&preference), 0);
	assert_int_equal(lt.preference_set(preference, 1, &most, sizeof most), 0);
	assert_int_equal(lt.heuristic(handle, matmul, layout, layout, layout, layout, preference, 0, results, &count),
			 7);
	assert_int_equal(lt.heuristic(handle, matmul, layout, layout, layout, layout, preference, 2, results, &count),
			 0);
	assert_int_equal(count, 1);
	assert_int_equal(results[0].status, 0);
	assert_true(results[0].workspace_bytes <= most);

	assert_int_equal(lt.multiply(handle, matmul, NULL, NULL, layout, NULL, layout, NULL, NULL, layout, NULL,
				     layout, &results[0].algorithm, &fake, most, &count),
			 0);
	assert_ptr_equal(fake.launch_stream, &count);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 0);
	assert_int_equal(lt.multiply(handle, matmul, NULL, NULL, layout, NULL, layout, NULL, NULL, layout, NULL,
				     layout, NULL, NULL, 0, NULL),
			 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 0);
	fake.low = 1;
	assert_int_equal(lt.check(handle, matmul, layout, layout, layout, layout, &results[0].algorithm, &results[1]),
			 0);
	assert_int_equal(lt.multiply(handle, matmul, NULL, NULL, layout, NULL, layout, NULL, NULL, layout, NULL,
				     layout, &results[1].algorithm, NULL, results[1].workspace_bytes, NULL),
			 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(lt.multiply(NULL, matmul, NULL, NULL, layout, NULL, layout, NULL, NULL, layout, NULL, layout,
				     NULL, NULL, 0, NULL),
			 1);
	assert_int_equal(lt.preference_destroy(preference), 0);
	assert_int_equal(lt.layout_destroy(layout), 0);
	assert_int_equal(lt.matmul_destroy(matmul), 0);
	assert_int_equal(lt.destroy(handle), 0);
}

static void without_a_runtime_no_handle_is_made(void **state)
{
	void *handle = &handle;

	(void)state;
	fake_begin();
	fake.capability = 0;
	assert_int_equal(lt.create(&handle), 1);
	assert_null(handle);
	assert_string_equal(lt.status_name(15), "CUBLAS_STATUS_NOT_SUPPORTED");
}

int main(void)
{
	static const char *const sonames[] = {"libcublasLt.so.12", "libcublasLt.so.13"};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layout_keeps_what_is_set),
		cmocka_unit_test(a_product_keeps_what_is_set),
		cmocka_unit_test(a_workspace_is_unknown_only_where_less_than_the_maximum_was_given),
		cmocka_unit_test(without_a_runtime_no_handle_is_made),
	};
	int failed = 0;

	for (int i = 0; i < 2; i++) {
		load(sonames[i]);
		failed += cmocka_run_group_tests_name(sonames[i], tests, NULL, NULL);
		failed += lt.version() / 10000 != (size_t)(12 + i);
	}
	return failed;
}
