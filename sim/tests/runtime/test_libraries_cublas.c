/* cuBLAS: handles are distinct, settings are returned, scalars go to host or device by the pointer mode. */
#include "libraries_test.h"

static const char *const sonames[] = {"libcublas.so.12", "libcublas.so.13"};

static struct {
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*set_stream)(void *handle, void *stream);
	int (*get_stream)(void *handle, void **ret_stream);
	int (*set_mode)(void *handle, int mode);
	int (*get_mode)(void *handle, int *ret_mode);
	int (*set_math)(void *handle, int mode);
	int (*get_math)(void *handle, int *ret_mode);
	int (*get_version)(void *handle, int *ret_version);
	int (*sgemm)(void *handle);
	int (*snrm2)(void *handle, int n, const float *x, int incx, float *ret);
	int (*isamax)(void *handle, int64_t n, const float *x, int64_t incx, int64_t *ret);
	int (*dot)(void *handle, int n, const void *x, int x_type, int incx, const void *y, int y_type, int incy,
		   void *ret, int type, int execution);
	int (*xt_create)(void **handle);
	const char *(*status_name)(int status);
} cublas;

static void load(const char *soname)
{
	void *library = library_open(soname);

	library_function(library, "cublasCreate_v2", &cublas.create);
	library_function(library, "cublasDestroy_v2", &cublas.destroy);
	library_function(library, "cublasSetStream_v2", &cublas.set_stream);
	library_function(library, "cublasGetStream_v2", &cublas.get_stream);
	library_function(library, "cublasSetPointerMode_v2", &cublas.set_mode);
	library_function(library, "cublasGetPointerMode_v2", &cublas.get_mode);
	library_function(library, "cublasSetMathMode", &cublas.set_math);
	library_function(library, "cublasGetMathMode", &cublas.get_math);
	library_function(library, "cublasGetVersion_v2", &cublas.get_version);
	library_function(library, "cublasSgemm_v2", &cublas.sgemm);
	library_function(library, "cublasSnrm2_v2", &cublas.snrm2);
	library_function(library, "cublasIsamax_v2_64", &cublas.isamax);
	library_function(library, "cublasDotEx", &cublas.dot);
	library_function(library, "cublasXtCreate", &cublas.xt_create);
	library_function(library, "cublasGetStatusName", &cublas.status_name);
}

static void handles_are_distinct_and_keep_what_is_set(void **state)
{
	void *one = NULL, *two = NULL, *stream = NULL;
	int mode = -1;

	(void)state;
	fake_begin();
	assert_int_equal(cublas.create(&one), 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(fake.low, 0);
	assert_int_equal(fake.high, 4 << 20);
	assert_int_equal(cublas.create(&two), 0);
	assert_ptr_not_equal(one, two);
	assert_int_equal(cublas.set_stream(one, &one), 0);
	assert_int_equal(cublas.set_mode(one, 1), 0);
	assert_int_equal(cublas.set_math(one, 3), 0);
	assert_int_equal(cublas.get_stream(one, &stream), 0);
	assert_ptr_equal(stream, &one);
	assert_int_equal(cublas.get_mode(one, &mode), 0);
	assert_int_equal(mode, 1);
	assert_int_equal(cublas.get_math(one, &mode), 0);
	assert_int_equal(mode, 3);
	assert_int_equal(cublas.get_stream(two, &stream), 0);
	assert_null(stream);
	assert_int_equal(cublas.get_mode(two, &mode), 0);
	assert_int_equal(mode, 0);
	assert_int_equal(cublas.destroy(one), 0);
	assert_int_equal(cublas.destroy(two), 0);
}

static void products_go_to_the_handles_stream(void **state)
{
	void *handle = NULL;

	(void)state;
	fake_begin();
	assert_int_equal(cublas.create(&handle), 0);
	assert_int_equal(cublas.set_stream(handle, &fake), 0);
	assert_int_equal(cublas.sgemm(handle), 0);
	assert_int_equal(fake.launches, 1);
	assert_ptr_equal(fake.launch_stream, &fake);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_string_equal(fake.library, "cuBLAS");
	assert_string_equal(fake.function, "cublasSgemm_v2");
	fake.launch_result = 900;
	assert_int_equal(cublas.sgemm(handle), 13);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_int_equal(cublas.destroy(handle), 0);
	assert_int_equal(cublas.sgemm(NULL), 1);
}

static void scalars_on_the_host_are_zeros_of_their_size(void **state)
{
	void *handle = NULL;
	float norm[2] = {1, 1};
	int64_t at[2] = {1, 1};
	double dots[2] = {1, 1};
	unsigned char half[4];

	(void)state;
	fake_begin();
	memset(half, 0xff, sizeof half);
	assert_int_equal(cublas.create(&handle), 0);
	assert_int_equal(cublas.snrm2(handle, 0, NULL, 1, norm), 0);
	assert_true(norm[0] == 0 && norm[1] == 1);
	assert_int_equal(cublas.isamax(handle, 0, NULL, 1, at), 0);
	assert_true(at[0] == 0 && at[1] == 1);
	assert_int_equal(cublas.dot(handle, 0, NULL, 1, 1, NULL, 1, 1, dots, 1, 1), 0);
	assert_true(dots[0] == 0 && dots[1] == 1);
	assert_int_equal(cublas.dot(handle, 0, NULL, 2, 1, NULL, 2, 1, half, 2, 0), 0);
	assert_true(half[0] == 0 && half[1] == 0 && half[2] == 0xff && half[3] == 0xff);

	norm[0] = 1; /* as if it were device memory */
	assert_int_equal(cublas.set_mode(handle, 1), 0);
	assert_int_equal(cublas.snrm2(handle, 0, NULL, 1, norm), 0);
	assert_true(norm[0] == 1);
	assert_int_equal(cublas.destroy(handle), 0);
}

static void what_is_not_simulated_is_refused(void **state)
{
	void *handle = NULL;

	(void)state;
	fake_begin();
	assert_int_equal(cublas.xt_create(&handle), 15);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	assert_string_equal(fake.function, "cublasXtCreate");
	assert_string_equal(cublas.status_name(15), "CUBLAS_STATUS_NOT_SUPPORTED");
}

static void without_a_device_no_handle_is_made(void **state)
{
	void *handle = &handle;

	(void)state;
	fake_begin();
	fake.capability = 0;
	assert_int_equal(cublas.create(&handle), 1);
	assert_null(handle);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(handles_are_distinct_and_keep_what_is_set),
		cmocka_unit_test(products_go_to_the_handles_stream),
		cmocka_unit_test(scalars_on_the_host_are_zeros_of_their_size),
		cmocka_unit_test(what_is_not_simulated_is_refused),
		cmocka_unit_test(without_a_device_no_handle_is_made),
	};
	int failed = 0;
	size_t i;

	for (i = 0; i < sizeof sonames / sizeof sonames[0]; i++) {
		int version = 0;

		load(sonames[i]);
		failed += cmocka_run_group_tests_name(sonames[i], tests, NULL, NULL);
		failed += cublas.get_version(NULL, &version) != 0 || version / 10000 != (i == 0 ? 12 : 13);
	}
	return failed;
}
