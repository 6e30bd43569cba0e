/* The driver and its devices over a table made by the test: what is read, which context is current, and every call
 * failing in turn. */
#include "fake_driver.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **unused)
{
	(void)unused;
	fake_reset();
	return 0;
}

static void device_says_what_it_is(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_nvml nvml = fake_nvml();
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL, *again = NULL;
	struct neap_error err;

	(void)unused;
	assert_int_equal(neap_driver_wrap(&cuda, &nvml, &driver, &err), NEAP_OK);
	assert_int_equal(neap_driver_device_count(driver), 1);
	assert_null(neap_driver_sim(driver));
	assert_int_equal(neap_device_open(driver, 0, &device, &err), NEAP_OK);
	const struct neap_device_info *info = neap_device_info(device);
	assert_string_equal(info->uuid_text, "GPU-deadbeef-0102-0304-0506-0708090a0b0c");
	assert_memory_equal(info->uuid, fake_uuid, 16);
	assert_string_equal(info->name, "Fake 40");
	assert_string_equal(info->pci_bus_id, "");
	assert_int_equal(info->page_bytes, 2 << 20);
	assert_true(info->total_bytes == FAKE_TOTAL);
	assert_int_equal(info->compute_major, 9);
	/* NVML lists this device second: found by its UUID. */
	assert_int_equal(neap_device_context_bytes(device), 500);

	/* The context existed already: its cost can no longer be measured. */
	assert_int_equal(neap_device_open(driver, 0, &again, &err), NEAP_OK);
	assert_int_equal(neap_device_context_bytes(again), 0);
	assert_int_equal(fake.retained, 2);
	neap_device_close(again);
	neap_device_close(device);
	assert_int_equal(fake.retained, 0);

	assert_int_equal(neap_device_open(driver, 1, &device, &err), NEAP_ENODEVICE);
	assert_int_equal(neap_device_open(driver, -1, &device, &err), NEAP_ENODEVICE);
	neap_driver_close(driver);
	assert_int_equal(fake.nvml_running, 0);
	neap_device_close(NULL);
	neap_driver_close(NULL);
}

static void device_without_virtual_memory_has_no_pages(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;

	(void)unused;
	fake.vmm = 0;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, NULL), NEAP_OK);
	assert_true(neap_driver_capabilities(driver)->virtual_memory); /* the driver can, this device cannot */
	assert_int_equal(neap_driver_capabilities(driver)->pci_bus_id, cuda.cuDeviceGetPCIBusId != NULL);
	assert_int_equal(neap_driver_capabilities(driver)->capture_status, cuda.cuStreamIsCapturing != NULL);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	assert_int_equal(neap_device_info(device)->page_bytes, 0);
	neap_device_close(device);
	neap_driver_close(driver);

	fake_reset();
	cuda.cuMemMap = NULL;
	cuda.cuDeviceGetPCIBusId = NULL;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, NULL), NEAP_OK);
	assert_false(neap_driver_capabilities(driver)->virtual_memory);
	assert_false(neap_driver_capabilities(driver)->pci_bus_id);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	assert_int_equal(neap_device_info(device)->page_bytes, 0);
	assert_int_equal(neap_device_context_bytes(device), 0); /* no NVML */
	neap_device_close(device);
	neap_driver_close(driver);
}

static void guard_nests_and_restores(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_device_guard outer, inner;
	uint64_t free_bytes = 0, total_bytes = 0;
	char other;

	(void)unused;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, NULL), NEAP_OK);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	fake.stack[fake.depth++] = (CUcontext)(void *)&other;
	assert_int_equal(neap_device_enter(device, &outer, NULL), NEAP_OK);
	assert_int_equal(fake.depth, 2);
	int before = fake.calls;
	assert_int_equal(neap_device_enter(device, &inner, NULL), NEAP_OK);
	assert_int_equal(fake.calls, before + 1); /* a look, no push */
	assert_int_equal(neap_device_memory(device, &free_bytes, &total_bytes, NULL), NEAP_OK);
	assert_true(free_bytes == FAKE_TOTAL / 2 && total_bytes == FAKE_TOTAL);
	neap_device_leave(&inner);
	assert_int_equal(fake.depth, 2);
	neap_device_leave(&outer);
	neap_device_leave(&outer);
	assert_int_equal(fake.depth, 1);
	assert_ptr_equal(fake.stack[0], &other);
	neap_device_close(device);
	neap_driver_close(driver);
}

/* Opens, queries and closes, with every CUDA call failing in turn. No context stays retained or current, the outputs
 * are untouched, and the message names CUDA's code. */
static void every_call_may_fail(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	int failures = 0;

	(void)unused;
	for (int fail_at = 1;; fail_at++) {
		struct neap_driver *driver = NULL;
		struct neap_device *device = NULL;
		uint64_t free_bytes = 1, total_bytes = 2;
		struct neap_error err = {0};
		fake_reset();
		fake.fail_at = fail_at;
		fake.code = CUDA_ERROR_OUT_OF_MEMORY;
		enum neap_status status = neap_driver_wrap(&cuda, NULL, &driver, &err);
		if (status)
			assert_null(driver);
		if (!status && (status = neap_device_open(driver, 0, &device, &err)) != NEAP_OK)
			assert_null(device);
		if (!status && (status = neap_device_memory(device, &free_bytes, &total_bytes, &err)) != NEAP_OK)
			assert_true(free_bytes == 1 && total_bytes == 2);
		if (status) {
			failures++;
			assert_int_equal(status, NEAP_EOOM);
			assert_int_equal(err.cause, CUDA_ERROR_OUT_OF_MEMORY);
			assert_non_null(strstr(err.message, "CUDA_ERROR_OUT_OF_MEMORY (code 2): out of memory"));
		}
		neap_device_close(device);
		neap_driver_close(driver);
		if (!fake.failed)
			break;
		if (strcmp(fake.failed, "release") != 0)
			assert_int_equal(fake.retained, 0);
		if (strcmp(fake.failed, "pop") != 0)
			assert_int_equal(fake.depth, 0);
		assert_true(fail_at < 100);
	}
	assert_true(failures >= 11);
}

static void missing_drivers_name_the_simulator(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_driver *driver = NULL;
	struct neap_error err;

	(void)unused;
	fake.fail_at = 1;
	fake.code = CUDA_ERROR_STUB_LIBRARY;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, &err), NEAP_ENODEVICE);
	assert_non_null(strstr(err.message, "stub"));
	assert_non_null(strstr(err.message, "NEAP_DEVICE=sim"));
	fake_reset();
	fake.fail_at = 1;
	fake.code = CUDA_ERROR_NO_DEVICE;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, &err), NEAP_ENODEVICE);
	assert_non_null(strstr(err.message, "NEAP_DEVICE=sim"));
	assert_null(strchr(err.message, '\n'));
	cuda.cuMemAlloc = NULL;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, &err), NEAP_EINVAL);
	assert_non_null(strstr(err.message, "cuMemAlloc"));
	assert_null(driver);
}

static void errors_are_translated(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_error err;

	(void)unused;
	assert_int_equal(neap_cuda_fail(&cuda, CUDA_SUCCESS, &err, "x"), NEAP_OK);
	assert_int_equal(neap_cuda_fail(&cuda, CUDA_ERROR_OUT_OF_MEMORY, NULL, "x"), NEAP_EOOM);
	assert_int_equal(neap_cuda_fail(&cuda, CUDA_ERROR_NOT_SUPPORTED, NULL, "x"), NEAP_ENOTSUP);
	assert_int_equal(neap_cuda_fail(&cuda, 4711, &err, "asking"), NEAP_EDRIVER);
	assert_string_equal(err.message, "asking: unknown CUDA error (code 4711): the driver gives no text");
	assert_int_equal(err.cause, 4711);
}

static void child_of_a_fork_is_refused(void **unused)
{
	struct neap_cuda cuda = fake_cuda();
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	int wait_status = 0;

	(void)unused;
	assert_int_equal(neap_driver_wrap(&cuda, NULL, &driver, NULL), NEAP_OK);
	assert_int_equal(neap_device_open(driver, 0, &device, NULL), NEAP_OK);
	pid_t child = fork();
	if (child == 0) {
		struct neap_device_guard guard;
		struct neap_device *another;
		uint64_t a, b;
		int before = fake.calls;
		bool ok = neap_device_enter(device, &guard, NULL) == NEAP_ESTATE &&
			  neap_device_memory(device, &a, &b, NULL) == NEAP_ESTATE &&
			  neap_device_open(driver, 0, &another, NULL) == NEAP_ESTATE;
		neap_device_close(device);
		neap_driver_close(driver);
		_exit(ok && fake.calls == before ? 0 : 1); /* and without one driver call */
	}
	assert_int_equal(waitpid(child, &wait_status, 0), child);
	assert_int_equal(wait_status, 0);
	neap_device_close(device);
	neap_driver_close(driver);
}

static void backends_are_resolved(void **unused)
{
	struct neap_driver *driver = NULL;
	struct neap_error err;
	char folder[4096] = "untouched";

	(void)unused;
	setenv("NEAP_DEVICE", "tpu", 1);
	assert_int_equal(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), NEAP_EINVAL);
	assert_string_equal(err.message, "NEAP_DEVICE is \"tpu\": expected \"cuda\" or \"sim\"");
	setenv("NEAP_SIM_PATH", "/nonexistent", 1);
	assert_int_equal(neap_sim_folder(folder, sizeof folder, &err), NEAP_ENOENT);
	assert_non_null(strstr(err.message, "/nonexistent"));
	setenv("NEAP_DEVICE", "sim", 1);
	assert_int_equal(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), NEAP_ENOENT);
	assert_string_equal(folder, "untouched");
	assert_null(driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(device_says_what_it_is, setup),
		cmocka_unit_test_setup(device_without_virtual_memory_has_no_pages, setup),
		cmocka_unit_test_setup(guard_nests_and_restores, setup),
		cmocka_unit_test_setup(every_call_may_fail, setup),
		cmocka_unit_test_setup(missing_drivers_name_the_simulator, setup),
		cmocka_unit_test_setup(errors_are_translated, setup),
		cmocka_unit_test_setup(child_of_a_fork_is_refused, setup),
		cmocka_unit_test_setup(backends_are_resolved, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
