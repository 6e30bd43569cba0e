/* The smaller libraries: nvRTC, CUPTI, cuRAND, cuSPARSELt, and those that refuse everything. */
#include "libraries_test.h"

static void nvrtc_compiles_to_an_image_that_names_its_kernels(void **state)
{
	const char *source = "template <typename T> __global__ void __launch_bounds__(256) my_kernel(T *x) {}\n"
			     "extern \"C\" __global__ void plain(int n);\n__global__ void\nother ( float *y ) {}";
	const char *options[] = {"--std=c++17", "--gpu-architecture=sm_90"};
	const char *virtual_options[] = {"-arch", "compute_80"};
	const char *lowered = NULL, *again = NULL;
	int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
	int (*destroy)(void **);
	int (*name)(void *, const char *);
	int (*compile)(void *, int, const char *const *);
	int (*get_name)(void *, const char *, const char **);
	int (*ptx_size)(void *, size_t *), (*cubin_size)(void *, size_t *), (*log_size)(void *, size_t *);
	int (*ptx)(void *, char *), (*cubin)(void *, char *), (*log)(void *, char *);
	const char *(*error)(int);
	int (*version)(int *, int *);
	int major = 0, minor = 0;
	char text[2000];
	void *program = NULL;
	size_t bytes = 0;

	for (int i = 0; i < 2; i++) {
		void *library = library_open(i == 0 ? "libnvrtc.so.12" : "libnvrtc.so.13");

		(void)state;
		fake_begin();
		library_function(library, "nvrtcCreateProgram", &create);
		library_function(library, "nvrtcDestroyProgram", &destroy);
		library_function(library, "nvrtcAddNameExpression", &name);
		library_function(library, "nvrtcCompileProgram", &compile);
		library_function(library, "nvrtcGetLoweredName", &get_name);
		library_function(library, "nvrtcGetPTXSize", &ptx_size);
		library_function(library, "nvrtcGetPTX", &ptx);
		library_function(library, "nvrtcGetCUBINSize", &cubin_size);
		library_function(library, "nvrtcGetCUBIN", &cubin);
		library_function(library, "nvrtcGetProgramLogSize", &log_size);
		library_function(library, "nvrtcGetProgramLog", &log);
		library_function(library, "nvrtcGetErrorString", &error);
		library_function(library, "nvrtcVersion", &version);
		assert_int_equal(version(&major, &minor), 0);
		assert_int_equal(major, 12 + i);
		assert_int_equal(minor, 99); /* not one of NVIDIA's, whose compiled kernels programs keep in files */
		assert_int_equal(create(&program, source, "name.cu", 0, NULL, NULL), 0);
		assert_int_equal(name(program, "my_kernel<float>"), 0);
		assert_int_equal(name(program, "plain"), 0);
		assert_int_equal(ptx_size(program, &bytes), 4);
		assert_int_equal(get_name(program, "my_kernel<float>", &lowered), 9);
		assert_int_equal(compile(program, 2, options), 0);
		assert_int_equal(fake.tallies[GAP_VALUES], 1);
		assert_int_equal(get_name(program, "my_kernel<float>", &lowered), 0);
		assert_int_equal(get_name(program, "my_kernel<float>", &again), 0);
		assert_string_equal(lowered, again);
		assert_int_equal(strspn(lowered, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
				 strlen(lowered));
		assert_int_equal(get_name(program, "unknown", &again), 10);
		assert_int_equal(name(program, "late"), 8);
		assert_int_equal(ptx_size(program, &bytes), 0);
		assert_true(bytes <= sizeof text);
		memset(text, 'x', sizeof text);
		assert_int_equal(ptx(program, text), 0);
		assert_int_equal(strlen(text) + 1, bytes);
		assert_non_null(strstr(text, ".version"));
		assert_non_null(strstr(text, ".entry my_kernel("));
		assert_non_null(strstr(text, ".entry plain("));
		assert_non_null(strstr(text, ".entry other("));
		assert_non_null(strstr(text, lowered));
		assert_int_equal(cubin_size(program, &bytes), 0);
		assert_true(bytes > 0 && bytes <= sizeof text);
		assert_int_equal(cubin(program, text), 0);
		assert_memory_equal(text, "\x50\xed\x55\xba", 4); /* a fat binary's magic number */
		assert_int_equal(log_size(program, &bytes), 0);
		assert_int_equal(bytes, 1);
		assert_int_equal(log(program, text), 0);
		assert_int_equal(text[0], 0);
		assert_int_equal(compile(program, 2, virtual_options), 0);
		assert_int_equal(cubin_size(program, &bytes), 0);
		assert_int_equal(bytes, 0);
		assert_int_equal(destroy(&program), 0);
		assert_null(program);
		assert_string_equal(error(6), "NVRTC_ERROR_COMPILATION");
		assert_non_null(error(99));
	}
}

static void cupti_has_no_records(void **state)
{
	int (*subscribe)(void **, void *, void *);
	int (*unsubscribe)(void *);
	int (*enable)(int);
	int (*next)(uint8_t *, size_t, void **);
	int (*dropped)(void *, uint32_t, size_t *);
	int (*version)(uint32_t *);
	int (*name)(int, const char **);
	int (*profiler)(void *);
	void *subscriber = NULL, *record = NULL;
	const char *text = NULL;
	uint32_t number = 0;
	uint8_t buffer[64] = {0};
	size_t count = 9;

	(void)state;
	for (int i = 0; i < 2; i++) {
		void *library = library_open(i == 0 ? "libcupti.so.12" : "libcupti.so.13");

		fake_begin();
		library_function(library, "cuptiSubscribe", &subscribe);
		library_function(library, "cuptiUnsubscribe", &unsubscribe);
		library_function(library, "cuptiActivityEnable", &enable);
		library_function(library, "cuptiActivityGetNextRecord", &next);
		library_function(library, "cuptiActivityGetNumDroppedRecords", &dropped);
		library_function(library, "cuptiGetVersion", &version);
		library_function(library, "cuptiGetResultString", &name);
		library_function(library, "cuptiProfilerInitialize", &profiler);
		assert_int_equal(subscribe(&subscriber, NULL, NULL), 0);
		assert_non_null(subscriber);
		assert_int_equal(enable(10), 0);
		assert_int_equal(next(buffer, sizeof buffer, &record), 12);
		assert_int_equal(dropped(NULL, 0, &count), 0);
		assert_int_equal(count, 0);
		assert_int_equal(unsubscribe(subscriber), 0);
		assert_int_equal(version(&number), 0);
		assert_true(i == 0 ? number < 100 : number / 10000 == 13);
		assert_int_equal(name(27, &text), 0);
		assert_string_equal(text, "CUPTI_ERROR_NOT_SUPPORTED");
		assert_int_equal(profiler(buffer), 27);
		assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	}
}

static void curand_writes_zeros_on_the_host_only(void **state)
{
	void *library = library_open("libcurand.so.10"), *generator = NULL;
	int (*create)(void **, int), (*create_host)(void **, int), (*destroy)(void *), (*set_stream)(void *, void *);
	int (*normal)(void *, double *, size_t, double, double);
	double numbers[3] = {1, 1, 1};

	(void)state;
	fake_begin();
	library_function(library, "curandCreateGenerator", &create);
	library_function(library, "curandCreateGeneratorHost", &create_host);
	library_function(library, "curandDestroyGenerator", &destroy);
	library_function(library, "curandSetStream", &set_stream);
	library_function(library, "curandGenerateNormalDouble", &normal);
	assert_int_equal(create(&generator, 7), 103);
	assert_int_equal(create(&generator, 100), 0);
	assert_int_equal(set_stream(generator, &library), 0);
	assert_int_equal(normal(generator, numbers, 2, 0, 1), 0);
	assert_true(numbers[0] == 1);
	assert_ptr_equal(fake.launch_stream, &library);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(normal(generator, numbers, 2, 0, 1), 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1); /* the state was counted */
	assert_int_equal(destroy(generator), 0);
	assert_int_equal(create_host(&generator, 100), 0);
	assert_int_equal(normal(generator, numbers, 2, 0, 1), 0);
	assert_true(numbers[0] == 0 && numbers[1] == 0 && numbers[2] == 1);
	assert_int_equal(fake.launches, 2);
	assert_int_equal(destroy(generator), 0);
	assert_int_equal(normal(NULL, numbers, 2, 0, 1), 101);
}

static void cusparselt_compresses_to_the_published_sizes(void **state)
{
	static const int64_t sizes[][4] = {
		/* rows, columns, type, bytes */
		{128, 128, 2, 128 * 128 * 2 * 9 / 16}, {128, 128, 14, 128 * 128 * 2 * 9 / 16},
		{128, 128, 3, 128 * 128 * 10 / 16},    {8, 16, 2, 384},
		{1024, 2048, 2, 1024 * 2048 * 9 / 8},
	};
	void *library = library_open("libcusparseLt.so.0");
	int (*init)(void *), (*destroy)(const void *);
	int (*structured)(const void *, void *, int64_t, int64_t, int64_t, uint32_t, int, int, int);
	int (*dense)(const void *, void *, int64_t, int64_t, int64_t, uint32_t, int, int);
	int (*product)(const void *, void *, int, int, const void *, const void *, const void *, const void *, int);
	int (*set)(const void *, void *, int, const void *, size_t),
		(*get)(const void *, const void *, int, void *, size_t);
	int (*size)(const void *, const void *, size_t *, size_t *);
	uint64_t handle[64] = {0}, matrix[64], other[64], descriptor[64];
	size_t bytes = 0, buffer = 0;
	int gelu = 1, read = 0;

	(void)state;
	fake_begin();
	library_function(library, "cusparseLtInit", &init);
	library_function(library, "cusparseLtDestroy", &destroy);
	library_function(library, "cusparseLtStructuredDescriptorInit", &structured);
	library_function(library, "cusparseLtDenseDescriptorInit", &dense);
	library_function(library, "cusparseLtMatmulDescriptorInit", &product);
	library_function(library, "cusparseLtMatmulDescSetAttribute", &set);
	library_function(library, "cusparseLtMatmulDescGetAttribute", &get);
	library_function(library, "cusparseLtSpMMACompressedSize2", &size);
	assert_int_equal(structured(handle, matrix, 8, 16, 16, 16, 2, 1, 0), 1);
	assert_int_equal(init(handle), 0);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		assert_int_equal(
			structured(handle, matrix, sizes[i][0], sizes[i][1], sizes[i][1], 16, (int)sizes[i][2], 1, 0),
			0);
		assert_int_equal(size(handle, matrix, &bytes, &buffer), 0);
		assert_int_equal(bytes, sizes[i][3]);
		assert_int_equal(buffer, 0);
	}
	assert_int_equal(dense(handle, other, 128, 128, 128, 16, 2, 1), 0);
	assert_int_equal(size(handle, other, &bytes, &buffer), 3);
	assert_int_equal(product(handle, descriptor, 0, 0, other, other, other, other, 2), 3);
	assert_int_equal(product(handle, descriptor, 0, 0, matrix, other, other, other, 2), 0);
	assert_int_equal(set(handle, descriptor, 3, &gelu, sizeof gelu), 0);
	assert_int_equal(get(handle, descriptor, 3, &read, sizeof read), 0);
	assert_int_equal(read, 1);
	assert_int_equal(set(handle, descriptor, 3, &gelu, 8), 3);
	assert_int_equal(destroy(handle), 0);
}

static void the_others_refuse_or_do_nothing(void **state)
{
	struct {
		int error;
		int driver;
	} status, (*open)(void);
	long (*read)(void *, void *, size_t, long, long);
	void *(*shared)(size_t);
	int (*pes)(void), (*started)(void), (*init)(unsigned int, void *, void *);
	int (*push)(const char *), (*link)(void **, uint32_t, const char **);
	int (*version)(unsigned int *, unsigned int *);
	int (*devices)(void **);
	unsigned int major = 0, minor = 0;
	void *library = library_open("libcufile.so.0");

	(void)state;
	fake_begin();
	library_function(library, "cuFileDriverOpen", &open);
	library_function(library, "cuFileRead", &read);
	status = open();
	assert_int_equal(status.error, 5007);
	assert_int_equal(status.driver, 0);
	assert_int_equal(read(NULL, NULL, 0, 0, 0), -5007);
	library = library_open("libnvshmem_host.so.3");
	library_function(library, "nvshmem_malloc", &shared);
	library_function(library, "nvshmem_n_pes", &pes);
	library_function(library, "nvshmemid_init_status", &started);
	library_function(library, "nvshmemid_hostlib_init_attr", &init);
	assert_null(shared(1));
	assert_int_equal(pes(), -1);
	assert_int_equal(started(), 0);
	assert_int_not_equal(init(0, NULL, NULL), 0);
	library = library_open("libnvToolsExt.so.1");
	library_function(library, "nvtxRangePushA", &push);
	assert_int_equal(push("range"), -2);
	library = library_open("libnvJitLink.so.12");
	library_function(library, "__nvJitLinkCreate_12_9", &link);
	assert_int_equal(link(&library, 0, NULL), 6);
	library = library_open("libnvJitLink.so.13");
	library_function(library, "nvJitLinkVersion", &version);
	assert_int_equal(version(&major, &minor), 0);
	assert_int_equal(major, 13);
	library = library_open("libcusolverMg.so.12");
	library_function(library, "cusolverMgCreate", &devices);
	assert_int_equal(devices(&library), 9);
	assert_int_equal(fake.tallies[GAP_REFUSED], 7);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvrtc_compiles_to_an_image_that_names_its_kernels),
		cmocka_unit_test(cupti_has_no_records),
		cmocka_unit_test(curand_writes_zeros_on_the_host_only),
		cmocka_unit_test(cusparselt_compresses_to_the_published_sizes),
		cmocka_unit_test(the_others_refuse_or_do_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
