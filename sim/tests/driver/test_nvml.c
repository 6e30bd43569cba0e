/* NVML's functions that other programs look up by name, besides those that neap uses. */
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
	memcpy(ret_function, &symbol, sizeof symbol);
}

static void devices_by_bus_and_uuid(void **unused)
{
	nvmlReturn_t (*by_bus)(const char *id, nvmlDevice_t *device),
		(*by_uuid)(const char *uuid, nvmlDevice_t *device);
	nvmlReturn_t (*index_of)(nvmlDevice_t device, unsigned int *index);
	char uuid[NVML_DEVICE_UUID_CAPACITY], bus[32];
	nvmlDevice_t second, found = NULL;
	unsigned int index = 9;

	(void)unused;
	sim_begin("nvml-bus", "mem=64MiB,context=2MiB,reserved=2MiB,gpus=2");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	find("nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
	find("nvmlDeviceGetHandleByUUID", &by_uuid);
	find("nvmlDeviceGetIndex", &index_of);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(1, &second), NVML_SUCCESS);
	assert_ok(t.cuda.cuDeviceGetPCIBusId(bus, sizeof bus, 1));
	assert_int_equal(by_bus(bus, &found), NVML_SUCCESS);
	assert_ptr_equal(found, second);
	assert_int_equal(by_bus("0000:ff:00.0", &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(by_bus("nonsense", &found), NVML_ERROR_NOT_FOUND);
	assert_int_equal(by_bus(NULL, &found), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(t.nvml.nvmlDeviceGetUUID(second, uuid, sizeof uuid), NVML_SUCCESS);
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
	static const char *const names[] = {"nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage",
					    "nvmlDeviceGetClockInfo", "nvmlDeviceGetNvLinkRemoteDeviceType",
					    "nvmlDeviceGetNvLinkRemotePciInfo_v2"};
	nvmlReturn_t (*ask)(nvmlDevice_t device);
	nvmlReturn_t (*capability)(nvmlDevice_t device, int *major, int *minor);
	int major = 0, minor = -1;
	nvmlDevice_t device;

	(void)unused;
	sim_begin("nvml-sensors", "h100-80gb");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
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

static unsigned int ask_number(const char *name, nvmlDevice_t device)
{
	nvmlReturn_t (*ask)(nvmlDevice_t device, unsigned int *value);
	unsigned int value = 77;

	find(name, &ask);
	assert_int_equal(ask(device, &value), NVML_SUCCESS);
	assert_int_equal(ask(device, NULL), NVML_ERROR_INVALID_ARGUMENT);
	return value;
}

static void a_model_is_known(void **unused)
{
	nvmlReturn_t (*clock_of)(nvmlDevice_t device, unsigned int type, unsigned int *mhz);
	nvmlReturn_t (*pair_of)(nvmlDevice_t device, unsigned int *now, unsigned int *pending);
	nvmlReturn_t (*p2p)(nvmlDevice_t device, nvmlDevice_t peer, unsigned int caps, unsigned int *status);
	nvmlReturn_t (*fabric)(nvmlDevice_t device, void *info);
	nvmlReturn_t (*process_name)(unsigned int pid, char *text, unsigned int capacity);
	unsigned int now = 9, pending = 9, mhz, status, info[9] = {sizeof info | 2u << 24, 1, 1, 1, 1, 1, 1, 1, 1};
	nvmlDevice_t device, peer;
	char text[256];

	(void)unused;
	sim_begin("nvml-model", "2xh100-80gb");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(1, &peer), NVML_SUCCESS);
	find("nvmlDeviceGetMaxClockInfo", &clock_of);
	assert_int_equal(clock_of(device, 1, &mhz), NVML_SUCCESS);
	assert_int_equal(mhz, 1980);
	assert_int_equal(clock_of(device, 2, &mhz), NVML_SUCCESS);
	assert_int_equal(mhz, 2619);
	assert_int_equal(clock_of(device, 4, &mhz), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(ask_number("nvmlDeviceGetPowerManagementLimit", device), 700000);
	assert_int_equal(ask_number("nvmlDeviceGetMemoryBusWidth", device), 5120);
	assert_int_equal(ask_number("nvmlDeviceGetArchitecture", device), 9);
	assert_int_equal(ask_number("nvmlDeviceGetComputeMode", device), 0);
	find("nvmlDeviceGetMigMode", &pair_of);
	assert_int_equal(pair_of(device, &now, &pending), NVML_SUCCESS);
	assert_int_equal(now, 0);
	find("nvmlDeviceGetEccMode", &pair_of);
	assert_int_equal(pair_of(device, &now, &pending), NVML_SUCCESS);
	assert_int_equal(now, 1);
	find("nvmlDeviceGetP2PStatus", &p2p);
	assert_int_equal(p2p(device, peer, 0, &status), NVML_SUCCESS);
	assert_int_equal(status, 0);
	assert_int_equal(p2p(device, peer, 2, &status), NVML_SUCCESS); /* NVLink */
	assert_int_equal(status, 5);
	find("nvmlDeviceGetGpuFabricInfoV", &fabric);
	assert_int_equal(fabric(device, info), NVML_SUCCESS);
	for (size_t i = 1; i < sizeof info / sizeof info[0]; i++)
		assert_int_equal(info[i], 0);
	info[0] = 8;
	assert_int_equal(fabric(device, info), NVML_ERROR_INVALID_ARGUMENT);
	find("nvmlSystemGetProcessName", &process_name);
	assert_int_equal(process_name((unsigned int)getpid(), text, sizeof text), NVML_SUCCESS);
	assert_non_null(strstr(text, "nvml"));
	assert_int_equal(process_name((unsigned int)getpid(), text, 2), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	sim_end();
	sim_begin("nvml-model", "rtx4090-24gb");
	assert_int_equal(t.nvml.nvmlInit(), NVML_SUCCESS);
	assert_int_equal(t.nvml.nvmlDeviceGetHandleByIndex(0, &device), NVML_SUCCESS);
	assert_int_equal(pair_of(device, &now, &pending), NVML_ERROR_NOT_SUPPORTED); /* no ECC */
	info[0] = sizeof info | 2u << 24;
	assert_int_equal(fabric(device, info), NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(ask_number("nvmlDeviceGetArchitecture", device), 8);
	assert_int_equal(t.nvml.nvmlShutdown(), NVML_SUCCESS);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_by_bus_and_uuid),
		cmocka_unit_test(processes_by_the_plain_name),
		cmocka_unit_test(sensors_and_links_are_absent),
		cmocka_unit_test(a_model_is_known),
	};
	char path[4096];

	sim_load();
	snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", getenv("NEAP_SIM_PATH"));
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
