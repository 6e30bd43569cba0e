/* The device layer over the simulator, with a world of its own: the same code runs on a real driver. */
#include "base/units.h"
#include "device/driver.h"
#include "device/ledger.h"
#include "neap/sim.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void device_and_monitor_agree(void **unused)
{
	static struct neap_reading reading;
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_monitor *monitor = NULL;
	struct neap_device_guard guard;
	struct neap_error err = {0};
	uint64_t free_before = 0, free_after = 0, total = 0;
	CUdeviceptr address = 0;
	size_t index = 9;

	(void)unused;
	assert_int_equal(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), NEAP_OK);
	assert_int_equal(neap_driver_backend(driver), NEAP_BACKEND_SIM);
	assert_non_null(neap_driver_sim(driver));
	assert_int_equal(neap_driver_device_count(driver), 2);
	assert_int_equal(neap_device_open(driver, 1, &device, &err), NEAP_OK);
	const struct neap_device_info *info = neap_device_info(device);
	assert_int_equal(info->page_bytes, 2 * NEAP_MIB);

	assert_int_equal(neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err), NEAP_OK);
	assert_int_equal(neap_monitor_backend(monitor), NEAP_BACKEND_SIM);
	assert_int_equal(neap_monitor_device_count(monitor), 2);
	assert_int_equal(neap_monitor_find(monitor, info->uuid, &index, &err), NEAP_OK);
	assert_int_equal(neap_monitor_read(monitor, index, &reading, &err), NEAP_OK);
	assert_string_equal(reading.uuid_text, info->uuid_text);

	/* NVML lists us with our context; the bytes that the driver keeps for itself are separate. */
	assert_int_equal(reading.process_count, 1);
	assert_int_equal(reading.processes[0].pid, getpid());
	assert_true(neap_device_context_bytes(device) > 0);
	assert_true(reading.processes[0].bytes == neap_device_context_bytes(device));

	/* Allocated bytes show in both accounts. */
	assert_int_equal(neap_device_memory(device, &free_before, &total, &err), NEAP_OK);
	assert_int_equal(neap_device_enter(device, &guard, &err), NEAP_OK);
	assert_int_equal(neap_driver_cuda(driver)->cuMemAlloc(&address, 64 * NEAP_MIB), CUDA_SUCCESS);
	assert_int_equal(neap_device_memory(device, &free_after, &total, &err), NEAP_OK);
	assert_true(free_before - free_after == 64 * NEAP_MIB);
	assert_int_equal(neap_monitor_read(monitor, index, &reading, &err), NEAP_OK);
	assert_true(reading.processes[0].bytes == neap_device_context_bytes(device) + 64 * NEAP_MIB);

	/* Our process, which is not attached, accounts for all used memory. */
	struct neap_ledger ledger;
	struct neap_ledger_process processes[NEAP_READING_PROCESSES];
	size_t count = 0;
	neap_ledger_compute(&reading, NULL, 0, &ledger, processes, &count);
	assert_true(ledger.unexplained == 0);
	assert_true(ledger.driver_reserved + ledger.not_attached + ledger.free == ledger.total);

	assert_int_equal(neap_driver_cuda(driver)->cuMemFree(address), CUDA_SUCCESS);
	neap_device_leave(&guard);
	neap_monitor_close(monitor);
	neap_device_close(device);
	neap_driver_close(driver);
}

static void injected_failures_are_reported(void **unused)
{
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_error err = {0};

	(void)unused;
	assert_int_equal(neap_driver_open(NEAP_BACKEND_SIM, &driver, &err), NEAP_OK);
	assert_int_equal(neap_driver_sim(driver)->fault("cuDevicePrimaryCtxRetain", 0, 1, CUDA_ERROR_OUT_OF_MEMORY),
			 0);
	assert_int_equal(neap_device_open(driver, 0, &device, &err), NEAP_EOOM);
	assert_string_equal(err.message, "opening device 0: making the device's context: CUDA_ERROR_OUT_OF_MEMORY "
					 "(code 2): out of memory");
	assert_int_equal(neap_device_open(driver, 0, &device, &err), NEAP_OK);
	neap_device_close(device);
	neap_driver_close(driver);
}

static void set_world(const char *more)
{
	char world[128];

	snprintf(world, sizeof world, "mem=1GiB,gpus=2,world=test-device-%d%s", (int)getpid(), more);
	setenv("NEAP_SIM", world, 1);
}

/* CUDA's ordinal 0 is NVML's 1 here: every NVML query must use the UUID. */
static void orders_differ(void **unused)
{
	static struct neap_reading reading;
	struct neap_driver *driver = NULL;
	struct neap_device *device = NULL;
	struct neap_monitor *monitor = NULL;
	struct neap_error err = {0};
	size_t index = 9;

	(void)unused;
	for (int visible = 0; visible < 2; visible++) { /* all; then the second one only, as CUDA counts */
		set_world(",order=reversed");
		if (visible)
			setenv("CUDA_VISIBLE_DEVICES", "1", 1);
		assert_int_equal(neap_driver_open(NEAP_BACKEND_DEFAULT, &driver, &err), NEAP_OK);
		assert_int_equal(neap_device_open(driver, 0, &device, &err), NEAP_OK);
		assert_int_equal(neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, &err), NEAP_OK);
		assert_int_equal(neap_monitor_find(monitor, neap_device_info(device)->uuid, &index, &err), NEAP_OK);
		assert_int_equal(index, visible ? 0 : 1);
		assert_int_equal(neap_monitor_read(monitor, index, &reading, &err), NEAP_OK);
		assert_string_equal(reading.uuid_text, neap_device_info(device)->uuid_text);
		assert_int_equal(reading.process_count, 1); /* our process, and only there */
		assert_true(neap_device_context_bytes(device) > 0);
		assert_true(reading.processes[0].bytes == neap_device_context_bytes(device));
		assert_int_equal(neap_monitor_read(monitor, 1 - index, &reading, &err), NEAP_OK);
		assert_int_equal(reading.process_count, 0);
		neap_monitor_close(monitor);
		neap_device_close(device);
		neap_driver_close(driver);
		unsetenv("CUDA_VISIBLE_DEVICES");
	}
	set_world("");
}

/* The guard across two devices restores the context that was current, whatever happened inside. */
static void guard_across_devices(void **unused)
{
	struct neap_driver *driver = NULL;
	struct neap_device *devices[2] = {NULL};
	struct neap_device_guard outer, inner, again;
	struct neap_error err = {0};
	CUcontext current = NULL;

	(void)unused;
	assert_int_equal(neap_driver_open(NEAP_BACKEND_SIM, &driver, &err), NEAP_OK);
	const struct neap_cuda *cuda = neap_driver_cuda(driver);
	for (int i = 0; i < 2; i++)
		assert_int_equal(neap_device_open(driver, i, &devices[i], &err), NEAP_OK);
	assert_int_equal(cuda->cuCtxGetCurrent(&current), CUDA_SUCCESS);
	assert_null(current); /* opening makes nothing current */
	assert_int_equal(neap_device_enter(devices[0], &outer, &err), NEAP_OK);
	assert_int_equal(neap_device_enter(devices[1], &inner, &err), NEAP_OK);
	assert_int_equal(neap_device_enter(devices[0], &again, &err), NEAP_OK);
	cuda->cuCtxGetCurrent(&current);
	assert_ptr_equal(current, neap_device_context(devices[0]));
	neap_device_leave(&again);
	cuda->cuCtxGetCurrent(&current);
	assert_ptr_equal(current, neap_device_context(devices[1]));
	/* a query to the other device does not move us */
	uint64_t free_bytes, total_bytes;
	assert_int_equal(neap_device_memory(devices[0], &free_bytes, &total_bytes, &err), NEAP_OK);
	cuda->cuCtxGetCurrent(&current);
	assert_ptr_equal(current, neap_device_context(devices[1]));
	neap_device_leave(&inner);
	cuda->cuCtxGetCurrent(&current);
	assert_ptr_equal(current, neap_device_context(devices[0]));
	/* A refused change leaves everything as it was. */
	assert_int_equal(neap_driver_sim(driver)->fault("cuCtxPushCurrent_v2", 0, 1, CUDA_ERROR_INVALID_CONTEXT), 0);
	assert_int_not_equal(neap_device_enter(devices[1], &inner, &err), NEAP_OK);
	cuda->cuCtxGetCurrent(&current);
	assert_ptr_equal(current, neap_device_context(devices[0]));
	neap_device_leave(&outer);
	cuda->cuCtxGetCurrent(&current);
	assert_null(current);
	for (int i = 0; i < 2; i++)
		neap_device_close(devices[i]);
	neap_driver_close(driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_and_monitor_agree),
		cmocka_unit_test(injected_failures_are_reported),
		cmocka_unit_test(orders_differ),
		cmocka_unit_test(guard_across_devices),
	};

	set_world("");
	unsetenv("CUDA_VISIBLE_DEVICES");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
