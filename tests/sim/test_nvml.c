/* NVML's functions that programs on the simulator ask for by name, beside those that neap uses. */
#include "sim_test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *library;

static void find(const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		print_error("no %s\n", name);
	assert_non_null(symbol);
	memcpy(ret_function, &symbol, sizeof(symbol));
}

static void devices_by_bus_and_uuid(void **unused)
{
	nvmlReturn_t (*by_bus)(const char *id, nvmlDevice_t *device),
		(*by_uuid)(const char *uuid, nvmlDevice_t *device);
	nvmlReturn_t (*index_of)(nvmlDevice_t device, unsigned int *index);
	char uuid[NVML_DEVICE_UUID_ROOM], bus[32];
	nvmlDevice_t second, found = NULL;
	unsigned int index = 9;

	(void)unused;
	sim_begin("nvml-bus", "mem=64MiB,context=2MiB,reserved=2MiB,gpus=2");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	find("nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
	find("nvmlDeviceGetHandleByUUID", &by_uuid);
	find("nvmlDeviceGetIndex", &index_of);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(1, &second), NVML_SUCCESS);
	assert_ok(t.cuda.cuDeviceGetPCIBusId(bus, sizeof(bus), 1));
	assert_int_equal(by_bus(bus, &found), NVML_SUCCESS);
	assert_ptr_equal(found, second);
	assert_int_equal(by_bus("0000:ff:00.0", &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(by_bus("nonsense", &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(by_bus(NULL, &found), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(t.nvml.nvmlDeviceGetUUID(second, uuid, sizeof(uuid)), NVML_SUCCESS);
	found = NULL;
	assert_int_equal(by_uuid(uuid, &found), NVML_SUCCESS);
	assert_ptr_equal(found, second);
	uuid[strlen(uuid) - 1] = 'z';
	assert_int_equal(by_uuid(uuid, &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(index_of(second, &index), NVML_SUCCESS);
	assert_int_equal(index, 1);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	sim_end();
}

static void processes_by_the_plain_name(void **unused)
{
	struct {
		unsigned int pid;
		unsigned long long used;
	} listed[4];
	nvmlReturn_t (*processes)(nvmlDevice_t device, unsigned int *count, void *processes);
	nvmlReturn_t (*graphics)(nvmlDevice_t device, unsigned int *count, void *processes);
	unsigned int count = 4;
	nvmlDevice_t device;

	(void)unused;
	sim_begin("nvml-processes", "mem=64MiB,context=2MiB,reserved=2MiB");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	find("nvmlDeviceGetComputeRunningProcesses", &processes);
	find("nvmlDeviceGetGraphicsRunningProcesses", &graphics);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(processes(device, &count, listed), NVML_SUCCESS);
	assert_int_equal(count, 1);
	assert_int_equal(listed[0].pid, getpid());
	assert_int_equal(listed[0].used, 2 * MIB); /* our context */
	count = 0;
	assert_int_equal(processes(device, &count, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(count, 1);
	count = 4;
	assert_int_equal(graphics(device, &count, listed), NVML_SUCCESS);
	assert_int_equal(count, 0);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	sim_end();
}

static void sensors_and_links_are_absent(void **unused)
{
	static const char *const names[] = {"nvmlDeviceGetTemperature",
					    "nvmlDeviceGetPowerUsage",
					    "nvmlDeviceGetClockInfo",
					    "nvmlDeviceGetNvLinkRemoteDeviceType",
					    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
					    "nvmlDeviceGetP2PStatus",
					    "nvmlDeviceGetGpuFabricInfoV"};
	nvmlReturn_t (*ask)(nvmlDevice_t device);
	nvmlReturn_t (*capability)(nvmlDevice_t device, int *major, int *minor);
	int major = 0, minor = -1;
	nvmlDevice_t device;

	(void)unused;
	sim_begin("nvml-sensors", "h100-80gb");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		find(names[i], &ask);
		assert_int_equal(ask(device), NVML_ERROR_NOT_SUPPORTED);
		assert_int_equal(ask(NULL), NVML_ERROR_INVALID_ARGUMENT);
	}
	find("nvmlDeviceGetCudaComputeCapability", &capability);
	assert_int_equal(capability(device, &major, &minor), NVML_SUCCESS);
	assert_int_equal(major * 10 + minor, 90);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_by_bus_and_uuid),
		cmocka_unit_test(processes_by_the_plain_name),
		cmocka_unit_test(sensors_and_links_are_absent),
	};
	char path[4096];

	sim_load();
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", getenv("NEAP_SIM_PATH"));
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
