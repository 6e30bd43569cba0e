/* cuSOLVER: sizes of workspaces are written and counted, statuses on the device read as zero. */
#include "libraries_test.h"

static struct {
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*set_stream)(void *handle, void *stream);
	int (*get_stream)(void *handle, void **ret_stream);
	int (*potrf_size)(void *handle, int fill, int n, void *a, int leading, int *ret_elements);
	int (*gesvd_size)(void *handle, int m, int n, int *ret_elements);
	int (*heevj_size)(void *handle, int job, int fill, int n, const void *a, int leading, const void *w,
			  int *ret_elements, void *parameters, int batches);
	int (*xgeev_size)(void *handle, void *parameters, int left, int right, int64_t n, int a_type, const void *a,
			  int64_t a_leading, int w_type, const void *w, int l_type, const void *l, int64_t l_leading,
			  int r_type, const void *r, int64_t r_leading, int type, size_t *ret_device,
			  size_t *ret_host);
	int (*potrf)(void *handle, int fill, int n, void *a, int leading, void *work, int elements, int *status);
	int (*potrf_batched)(void *handle, int fill, int n, void *a, int leading, int *statuses, int batches);
	int (*syevd_range)(void *handle, int job, int range, int fill, int n, double *a, int leading, double low,
			   double high, int first, int last, int *ret_count, double *w, double *work, int elements,
			   int *status);
	int (*params_create)(void **params);
	int (*params_destroy)(void *params);
	int (*refine_create)(void **params);
	int (*refine_get)(void *params, int *ret_iterations);
	int (*refine_set)(void *params, int iterations);
	int (*refine_destroy)(void *params);
	int (*sparse_create)(void **handle);
	int (*property)(int type, int *ret_value);
} solver;

static void load(const char *soname)
{
	void *library = library_open(soname);

	library_function(library, "cusolverDnCreate", &solver.create);
	library_function(library, "cusolverDnDestroy", &solver.destroy);
	library_function(library, "cusolverDnSetStream", &solver.set_stream);
	library_function(library, "cusolverDnGetStream", &solver.get_stream);
	library_function(library, "cusolverDnDpotrf_bufferSize", &solver.potrf_size);
	library_function(library, "cusolverDnZgesvd_bufferSize", &solver.gesvd_size);
	library_function(library, "cusolverDnCheevjBatched_bufferSize", &solver.heevj_size);
	library_function(library, "cusolverDnXgeev_bufferSize", &solver.xgeev_size);
	library_function(library, "cusolverDnDpotrf", &solver.potrf);
	library_function(library, "cusolverDnDpotrfBatched", &solver.potrf_batched);
	library_function(library, "cusolverDnDsyevdx", &solver.syevd_range);
	library_function(library, "cusolverDnCreateParams", &solver.params_create);
	library_function(library, "cusolverDnDestroyParams", &solver.params_destroy);
	library_function(library, "cusolverDnIRSParamsCreate", &solver.refine_create);
	library_function(library, "cusolverDnIRSParamsGetMaxIters", &solver.refine_get);
	library_function(library, "cusolverDnIRSParamsSetMaxIters", &solver.refine_set);
	library_function(library, "cusolverDnIRSParamsDestroy", &solver.refine_destroy);
	library_function(library, "cusolverSpCreate", &solver.sparse_create);
	library_function(library, "cusolverGetProperty", &solver.property);
}

static void sizes_are_intervals_in_bytes(void **state)
{
	size_t device = 7, host = 7;
	int elements[2] = {-1, -1};

	(void)state;
	fake_begin();
	assert_int_equal(solver.potrf_size(NULL, 0, 100, NULL, 100, elements), 0);
	assert_true(elements[0] >= 1 && elements[1] == -1);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(fake.low, 8 * (uint64_t)elements[0]);
	assert_true(fake.high >= 8 * 100 * 100);
	assert_string_equal(fake.function, "cusolverDnDpotrf_bufferSize");

	assert_int_equal(solver.gesvd_size(NULL, 100, 10, elements), 0);
	assert_int_equal(elements[0], 100 + 3 * 10 + 1);
	assert_int_equal(fake.low, 16 * (uint64_t)elements[0]);

	assert_int_equal(solver.xgeev_size(NULL, NULL, 0, 1, 32, 5, NULL, 32, 5, NULL, 5, NULL, 32, 5, NULL, 32, 5,
					   &device, &host),
			 0);
	assert_int_equal(device, 16 * (4 * 32 + 1));
	assert_int_equal(fake.low, device);
	assert_int_equal(host, 0);
	assert_int_equal(solver.gesvd_size(NULL, -1, 10, elements), 3);
}

/* Answers of the real library, from CuPy's issue 7261. */
static void batched_eigenvalues_have_the_published_sizes(void **state)
{
	static const int sizes[][3] = {
		{4, 1, 2077}, {4, 2, 3126}, {4, 64, 68164}, {4, 256, 269572}, {4, 2047171, 2147483407}};
	int elements = 0;

	(void)state;
	fake_begin();
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		assert_int_equal(
			solver.heevj_size(NULL, 1, 0, sizes[i][0], NULL, 4, NULL, &elements, NULL, sizes[i][1]), 0);
		assert_int_equal(elements, sizes[i][2]);
	}
	assert_int_equal(solver.heevj_size(NULL, 1, 0, 4, NULL, 4, NULL, &elements, NULL, 2047172), 3);
	assert_int_equal(solver.heevj_size(NULL, 1, 0, 2, NULL, 2, NULL, &elements, NULL, 2078879), 0);
	assert_int_equal(solver.heevj_size(NULL, 1, 0, 2, NULL, 2, NULL, &elements, NULL, 2078880), 3);
}

static void statuses_on_the_device_read_as_zero(void **state)
{
	int status = 5, statuses[3], count = 5;
	void *handle = NULL, *stream = NULL;

	(void)state;
	fake_begin();
	assert_int_equal(solver.create(&handle), 0);
	assert_int_equal(solver.set_stream(handle, &fake), 0);
	assert_int_equal(solver.get_stream(handle, &stream), 0);
	assert_ptr_equal(stream, &fake);
	assert_int_equal(solver.potrf(handle, 0, 4, NULL, 4, NULL, 1, &status), 0);
	assert_int_equal(fake.forgotten_at, (uintptr_t)&status);
	assert_int_equal(fake.forgotten, 4);
	assert_int_equal(status, 5); /* device memory: not touched here */
	assert_ptr_equal(fake.launch_stream, &fake);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_int_equal(solver.potrf_batched(handle, 0, 4, NULL, 4, statuses, 3), 0);
	assert_int_equal(fake.forgotten_at, (uintptr_t)statuses);
	assert_int_equal(fake.forgotten, 4 + 12);
	assert_int_equal(solver.syevd_range(handle, 0, 0, 0, 4, NULL, 4, 0, 1, 1, 2, &count, NULL, NULL, 1, &status),
			 0);
	assert_int_equal(count, 0); /* on the host */
	assert_int_equal(fake.forgotten_at, (uintptr_t)&status);
	assert_int_equal(solver.destroy(handle), 0);
	assert_int_equal(solver.potrf(NULL, 0, 4, NULL, 4, NULL, 1, &status), 1);
}

static void parameters(void **state)
{
	void *one = NULL, *two = NULL;
	int iterations = 0;

	(void)state;
	fake_begin();
	assert_int_equal(solver.params_create(&one), 0);
	assert_int_equal(solver.params_create(&two), 0);
	assert_ptr_not_equal(one, two);
	assert_int_equal(solver.params_destroy(one), 0);
	assert_int_equal(solver.params_destroy(two), 0);
	assert_int_equal(solver.refine_create(&one), 0);
	assert_int_equal(solver.refine_get(one, &iterations), 0);
	assert_int_equal(iterations, 50);
	assert_int_equal(solver.refine_set(one, 7), 0);
	assert_int_equal(solver.refine_get(one, &iterations), 0);
	assert_int_equal(iterations, 7);
	assert_int_equal(solver.refine_destroy(one), 0);
	assert_int_equal(solver.sparse_create(&one), 9);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
}

int main(void)
{
	static const char *const sonames[] = {"libcusolver.so.11", "libcusolver.so.12"};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_intervals_in_bytes),
		cmocka_unit_test(batched_eigenvalues_have_the_published_sizes),
		cmocka_unit_test(statuses_on_the_device_read_as_zero),
		cmocka_unit_test(parameters),
	};
	int failed = 0;

	for (int i = 0; i < 2; i++) {
		int major = 0;

		load(sonames[i]);
		failed += cmocka_run_group_tests_name(sonames[i], tests, NULL, NULL);
		failed += solver.property(0, &major) != 0 || major != 11 + i;
	}
	return failed;
}
