/* The report of a cleanup: for the right device, in nvidia-smi's figures; and the message if NVML cannot be asked.
 */
#include "session_test.h"

/* The second of two devices, which is the program's first. */
static int open_second(void **state)
{
	(void)state;
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	open_world("mem=256MiB,gpus=2,reserved=16MiB,context=8MiB");
	unsetenv("CUDA_VISIBLE_DEVICES");
	return 0;
}

static void test_right_device(void **state)
{
	(void)state;
	uint64_t kept = take(&world, 100 * NEAP_MIB, NULL);
	assert_int_equal(neap_clear(world.alloc, &sink, NULL, NULL), NEAP_OK);
	assert_int_equal(lines.count, 8);
	assert_string_equal(lines.text[3], "Asking the driver for GPU memory (as nvidia-smi reports it)...");
	assert_string_equal(lines.text[4], "NVIDIA-SMI report:");
	assert_string_equal(lines.text[5], "memory.used [MiB], memory.free [MiB]");
	assert_string_equal(lines.text[6], "108, 132"); /* nvidia-smi does not count the driver's 16 MiB as used */
	give(&world, kept);
}

static void test_without_nvml(void **state)
{
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_alloc *alloc = NULL;

	(void)state;
	assert_int_equal(neap_driver_wrap(world.cuda, NULL, &driver, NULL), NEAP_OK);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	assert_int_equal(neap_alloc_create(device, NULL, &alloc, NULL), NEAP_OK);
	assert_int_equal(neap_clear(alloc, &sink, NULL, NULL), NEAP_OK);
	assert_int_equal(lines.count, 9);
	assert_string_equal(lines.text[4], "As CUDA reports it, for NVML cannot be asked: NVML could not be opened");
	assert_string_equal(lines.text[7], "8, 232");

	world.sim->fault("cuMemGetInfo_v2", 0, 0, CUDA_ERROR_UNKNOWN);
	lines.count = 0;
	assert_int_equal(neap_clear(alloc, &sink, NULL, NULL), NEAP_OK);
	world.sim->fault(NULL, 0, 0, 0);
	assert_int_equal(lines.count, 6);
	assert_memory_equal(lines.text[4], "The driver would not say: NVML could not be opened; ", 52);
	neap_alloc_destroy(alloc);
	neap_device_close(device);
	neap_driver_close(driver);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_second, close_world)
	const struct CMUnitTest tests[] = {TEST(test_right_device), TEST(test_without_nvml)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
