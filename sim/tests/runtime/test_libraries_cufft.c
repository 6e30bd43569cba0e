/* cuFFT: plans are numbers; work areas have the documented least size, and the library allocates them unless the
 * program provides them. */
#include "libraries_test.h"

enum {
	R2C = 0x2a,
	C2C = 0x29,
	Z2Z = 0x69,
};

static struct {
	int (*create)(int *plan);
	int (*destroy)(int plan);
	int (*manual)(int plan, int automatic);
	int (*set_area)(int plan, void *area);
	int (*set_stream)(int plan, void *stream);
	int (*get_size)(int plan, size_t *ret_bytes);
	int (*estimate)(int x, int y, int type, size_t *ret_bytes);
	int (*make)(int plan, int x, int type, int batches, size_t *ret_bytes);
	int (*make_typed)(int plan, int rank, long long *sides, long long *in_sides, long long in_step,
			  long long in_distance, int input, long long *out_sides, long long out_step,
			  long long out_distance, int output, long long batches, size_t *ret_bytes, int execution);
	int (*plan_many)(int *plan, int rank, int *sides, int *in_sides, int in_step, int in_distance, int *out_sides,
			 int out_step, int out_distance, int type, int batches);
	int (*execute)(int plan, void *in, void *out, int direction);
	int (*set_devices)(int plan, int count, int *devices);
	int (*version)(int *ret_version);
} fft;

static int allocations, frees;
static size_t allocated;

/* The runtime's function, which the library finds in the process. */
int cudaMalloc(void **ret_address, size_t bytes);
__attribute__((visibility("default"))) int cudaMalloc(void **ret_address, size_t bytes)
{
	allocations++;
	allocated = bytes;
	*ret_address = &allocations;
	return 0;
}

int cudaFree(void *address);
__attribute__((visibility("default"))) int cudaFree(void *address)
{
	frees += address == &allocations;
	return 0;
}

static void load(const char *soname)
{
	void *library = library_open(soname);

	library_function(library, "cufftCreate", &fft.create);
	library_function(library, "cufftDestroy", &fft.destroy);
	library_function(library, "cufftSetAutoAllocation", &fft.manual);
	library_function(library, "cufftSetWorkArea", &fft.set_area);
	library_function(library, "cufftSetStream", &fft.set_stream);
	library_function(library, "cufftGetSize", &fft.get_size);
	library_function(library, "cufftEstimate2d", &fft.estimate);
	library_function(library, "cufftMakePlan1d", &fft.make);
	library_function(library, "cufftXtMakePlanMany", &fft.make_typed);
	library_function(library, "cufftPlanMany", &fft.plan_many);
	library_function(library, "cufftXtExec", &fft.execute);
	library_function(library, "cufftXtSetGPUs", &fft.set_devices);
	library_function(library, "cufftGetVersion", &fft.version);
}

static void begin(void)
{
	fake_begin();
	allocations = frees = 0;
	allocated = 0;
}

static void the_library_makes_the_work_area(void **state)
{
	size_t bytes = 0, read = 0;
	int one = 0, two = 0;

	(void)state;
	begin();
	assert_int_equal(fft.create(&one), 0);
	assert_int_equal(fft.create(&two), 0);
	assert_int_not_equal(one, two);
	assert_int_equal(fft.make(one, 1000, C2C, 3, &bytes), 0);
	assert_int_equal(bytes, 3 * 1000 * 8);
	assert_int_equal(fake.low, bytes);
	assert_int_equal(fake.high, 8 * bytes);
	assert_int_equal(allocations, 1);
	assert_int_equal(allocated, bytes);
	assert_int_equal(fft.get_size(one, &read), 0);
	assert_int_equal(read, bytes);
	assert_int_equal(fft.set_area(one, &bytes), 0); /* the program's area takes its place */
	assert_int_equal(frees, 1);
	assert_int_equal(fft.destroy(one), 0);
	assert_int_equal(frees, 1);
	assert_int_equal(fft.make(two, 10, Z2Z, 1, &bytes), 0);
	assert_int_equal(bytes, 160);
	assert_int_equal(fft.destroy(two), 0);
	assert_int_equal(frees, 2);
	assert_int_equal(fft.destroy(two), 1);
}

static void the_program_may_bring_it(void **state)
{
	long long sides[] = {16, 32};
	size_t bytes = 0;
	int plan = 0;

	(void)state;
	begin();
	assert_int_equal(fft.create(&plan), 0);
	assert_int_equal(fft.manual(plan, 0), 0);
	/* real to complex, half precision: the complex side has 17 columns */
	assert_int_equal(fft.make_typed(plan, 2, sides, NULL, 1, 1, 2, NULL, 1, 1, 6, 4, &bytes, 6), 0);
	assert_int_equal(bytes, 4 * 16 * 17 * 4);
	assert_int_equal(allocations, 0);
	assert_int_equal(fft.set_stream(plan, &bytes), 0);
	assert_int_equal(fft.execute(plan, NULL, NULL, -1), 0);
	assert_ptr_equal(fake.launch_stream, &bytes);
	assert_int_equal(fft.destroy(plan), 0);
	assert_int_equal(fft.execute(plan, NULL, NULL, -1), 1);
}

static void sizes_and_types_are_checked(void **state)
{
	int sides[] = {8, 0, 8}, plan = 77;
	size_t bytes = 5;

	(void)state;
	begin();
	assert_int_equal(fft.estimate(8, 8, R2C, &bytes), 0);
	assert_int_equal(bytes, 8 * 5 * 8);
	assert_int_equal(fft.estimate(8, 8, 1, &bytes), 3);
	assert_int_equal(fft.estimate(0, 8, R2C, &bytes), 8);
	assert_int_equal(fft.plan_many(&plan, 3, sides, NULL, 1, 0, NULL, 1, 0, C2C, 1), 8);
	assert_int_equal(plan, 77);
	sides[1] = 8;
	assert_int_equal(fft.plan_many(&plan, 3, sides, NULL, 1, 0, NULL, 1, 0, C2C, 1), 0);
	assert_int_equal(allocated, 512 * 8);
	assert_int_equal(fft.set_devices(plan, 1, sides), 16);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	assert_int_equal(fft.destroy(plan), 0);
	assert_int_equal(frees, 1);
}

static void there_are_more_plans_than_64(void **state)
{
	int plans[200];

	(void)state;
	begin();
	for (int i = 0; i < 200; i++)
		assert_int_equal(fft.create(&plans[i]), 0);
	for (int i = 1; i < 200; i++)
		assert_int_not_equal(plans[i], plans[i - 1]);
	for (int i = 0; i < 200; i++)
		assert_int_equal(fft.destroy(plans[i]), 0);
}

int main(void)
{
	static const char *const sonames[] = {"libcufft.so.11", "libcufft.so.12"};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_makes_the_work_area),
		cmocka_unit_test(the_program_may_bring_it),
		cmocka_unit_test(sizes_and_types_are_checked),
		cmocka_unit_test(there_are_more_plans_than_64),
	};
	int failed = 0;

	for (int i = 0; i < 2; i++) {
		int version = 0;

		load(sonames[i]);
		failed += cmocka_run_group_tests_name(sonames[i], tests, NULL, NULL);
		failed += fft.version(&version) != 0 || version / 1000 != 11 + i;
	}
	return failed;
}
