/* device/monitor.c: readings through NVML alone. */
#include "device/monitor.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "device/fork_guard.h"
#include "device/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Facts about a device that do not change while NVML is open; kept after the first reading. */
struct identity {
	bool known;
	unsigned char uuid[16];
	char uuid_text[48], name[96], pci_bus_id[32];
};

struct neap_monitor {
	struct neap_nvml nvml;
	enum neap_backend backend;
	unsigned int device_count;
	struct neap_fork_guard guard;
	struct identity *identities; /* one for each device */
};

static enum neap_status start(struct neap_monitor *monitor, struct neap_error *err)
{
	nvmlReturn_t result = monitor->nvml.nvmlDeviceGetCount(&monitor->device_count);

	if (result != NVML_SUCCESS)
		return neap_nvml_fail(&monitor->nvml, result, err, "counting devices");
	if (monitor->device_count == 0)
		return neap_fail(err, NEAP_ENODEVICE, "the driver shows no device; " NEAP_SIM_HINT);
	monitor->identities = calloc(monitor->device_count, sizeof *monitor->identities);
	if (!monitor->identities)
		return neap_fail(err, NEAP_ENOMEM, "opening NVML: out of host memory");
	return NEAP_OK;
}

/* Starts NVML through `table`. */
static enum neap_status open_table(const struct neap_nvml *table, enum neap_backend backend,
				   struct neap_monitor **ret_monitor, struct neap_error *err)
{
	struct neap_monitor *monitor = calloc(1, sizeof *monitor);
	enum neap_status status;

	if (!monitor)
		return neap_fail(err, NEAP_ENOMEM, "opening NVML: out of host memory");
	monitor->nvml = *table;
	monitor->backend = backend;
	nvmlReturn_t result = monitor->nvml.nvmlInit();
	if (result != NVML_SUCCESS) {
		if (result == NVML_ERROR_DRIVER_NOT_LOADED)
			status = neap_fail(err, NEAP_ENODEVICE, "the NVIDIA driver is not loaded; " NEAP_SIM_HINT);
		else if (backend == NEAP_BACKEND_SIM && result == NVML_ERROR_INVALID_ARGUMENT &&
			 monitor->nvml.nvmlErrorString) /* NEAP_SIM is malformed, and the simulator says where */
			status = neap_fail(err, NEAP_EINVAL, "%s", monitor->nvml.nvmlErrorString(result));
		else
			status = neap_nvml_fail(&monitor->nvml, result, err, "starting NVML");
		free(monitor);
		return status;
	}
	neap_fork_guard_init(&monitor->guard);
	if ((status = start(monitor, err))) {
		neap_monitor_close(monitor);
		return status;
	}
	*ret_monitor = monitor;
	return NEAP_OK;
}

enum neap_status neap_monitor_open(enum neap_backend backend, struct neap_monitor **ret_monitor,
				   struct neap_error *err)
{
	struct neap_loaded_nvml loaded;
	enum neap_status status = neap_backend_resolve(backend, &backend, err);

	if (status || (status = neap_load_nvml(backend, &loaded, err)) != NEAP_OK)
		return status;
	return open_table(&loaded.table, loaded.backend, ret_monitor, err);
}

enum neap_status neap_monitor_wrap(const struct neap_nvml *nvml, struct neap_monitor **ret_monitor,
				   struct neap_error *err)
{
	const char *missing = neap_nvml_missing(nvml);

	if (missing)
		return neap_fail(err, NEAP_EINVAL, "wrapping NVML: the table has no %s", missing);
	return open_table(nvml, NEAP_BACKEND_CUDA, ret_monitor, err);
}

void neap_monitor_close(struct neap_monitor *monitor)
{
	if (!monitor)
		return;
	if (neap_fork_guard_holds(&monitor->guard))
		monitor->nvml.nvmlShutdown();
	neap_fork_guard_fini(&monitor->guard);
	free(monitor->identities);
	free(monitor);
}

enum neap_backend neap_monitor_backend(const struct neap_monitor *monitor) { return monitor->backend; }
size_t neap_monitor_device_count(const struct neap_monitor *monitor) { return monitor->device_count; }
/* Reads the host's memory, for a device without memory of its own. */
static enum neap_status read_host_memory(struct neap_reading *reading, struct neap_error *err)
{
	struct neap_host_memory host;
	enum neap_status status = neap_host_memory_read("", &host, err);

	if (status)
		return status;
	reading->unified = reading->reserved_known = true;
	reading->total_bytes = host.host_total_bytes;
	reading->free_bytes = host.host_available_bytes;
	reading->used_bytes = host.host_total_bytes - host.host_available_bytes;
	return NEAP_OK;
}

static enum neap_status read_memory(struct neap_monitor *monitor, nvmlDevice_t device, struct neap_reading *reading,
				    struct neap_error *err)
{
	nvmlMemory_v2_t newer = {.version = NVML_MEMORY_V2};
	nvmlMemory_t older = {0};

	if (monitor->nvml.nvmlDeviceGetMemoryInfo_v2 &&
	    monitor->nvml.nvmlDeviceGetMemoryInfo_v2(device, &newer) == NVML_SUCCESS) {
		reading->reserved_known = true;
		reading->total_bytes = newer.total;
		reading->reserved_bytes = newer.reserved;
		reading->used_bytes = newer.used;
		reading->free_bytes = newer.free;
		return NEAP_OK;
	}
	nvmlReturn_t result = monitor->nvml.nvmlDeviceGetMemoryInfo(device, &older);
	if (result == NVML_ERROR_NOT_SUPPORTED)
		return read_host_memory(reading, err);
	if (result != NVML_SUCCESS)
		return neap_nvml_fail(&monitor->nvml, result, err, "asking for the device's memory");
	reading->total_bytes = older.total;
	reading->used_bytes = older.used;
	reading->free_bytes = older.free;
	return NEAP_OK;
}

static void read_processes(struct neap_monitor *monitor, nvmlDevice_t device, struct neap_reading *reading)
{
	nvmlProcessInfo_t *processes = NULL;
	unsigned int count = 0;

	if (neap_nvml_processes(&monitor->nvml, device, &processes, &count, NULL) != NEAP_OK)
		return;
	reading->processes_known = true;
	reading->processes_truncated = count > NEAP_READING_PROCESSES;
	reading->process_count = count < NEAP_READING_PROCESSES ? count : NEAP_READING_PROCESSES;
	for (size_t i = 0; i < reading->process_count; i++) {
		unsigned long long bytes = processes[i].usedGpuMemory;
		reading->processes[i].pid = (pid_t)processes[i].pid;
		reading->processes[i].bytes = bytes == NVML_VALUE_NOT_AVAILABLE_ULL ? NEAP_BYTES_UNKNOWN : bytes;
	}
	free(processes);
}

static enum neap_status ask_identity(const struct neap_nvml *nvml, nvmlDevice_t device, struct identity *ret_identity,
				     struct neap_error *err)
{
	struct identity found = {.known = true};
	char text[NVML_DEVICE_UUID_CAPACITY] = "";
	nvmlReturn_t result = nvml->nvmlDeviceGetUUID(device, text, sizeof text);

	if (result != NVML_SUCCESS)
		return neap_nvml_fail(nvml, result, err, "asking for the device's UUID");
	if (!neap_uuid_parse(text, found.uuid))
		return neap_fail(err, NEAP_EDRIVER, "NVML gives \"%.48s\" for a UUID", text);
	snprintf(found.uuid_text, sizeof found.uuid_text, "%.47s", text);
	if (nvml->nvmlDeviceGetName(device, found.name, sizeof found.name) != NVML_SUCCESS)
		found.name[0] = '\0';
	found.name[sizeof found.name - 1] = '\0';

	nvmlPciInfo_t pci = {{0}};
	if (nvml->nvmlDeviceGetPciInfo && nvml->nvmlDeviceGetPciInfo(device, &pci) == NVML_SUCCESS)
		snprintf(found.pci_bus_id, sizeof found.pci_bus_id, "%.31s", pci.busId);
	*ret_identity = found;
	return NEAP_OK;
}

static enum neap_status read_identity(struct neap_monitor *monitor, nvmlDevice_t device, struct identity *identity,
				      struct neap_reading *reading, struct neap_error *err)
{
	enum neap_status status = identity->known ? NEAP_OK : ask_identity(&monitor->nvml, device, identity, err);
	if (status)
		return status;
	memcpy(reading->uuid, identity->uuid, sizeof reading->uuid);
	memcpy(reading->uuid_text, identity->uuid_text, sizeof reading->uuid_text);
	memcpy(reading->name, identity->name, sizeof reading->name);
	memcpy(reading->pci_bus_id, identity->pci_bus_id, sizeof reading->pci_bus_id);
	return NEAP_OK;
}

/* Finds the handle of a device. */
static enum neap_status get_device(struct neap_monitor *monitor, size_t index, nvmlDevice_t *ret_device,
				   struct neap_error *err)
{
	if (!neap_fork_guard_holds(&monitor->guard))
		return neap_fail(err, NEAP_ESTATE, "NVML was opened before a fork: open it again in the child");
	if (index >= monitor->device_count)
		return neap_fail(err, NEAP_ENODEVICE, "no device %zu: NVML shows %u (from 0)", index,
				 monitor->device_count);
	nvmlReturn_t result = monitor->nvml.nvmlDeviceGetHandleByIndex((unsigned int)index, ret_device);
	return result == NVML_SUCCESS ? NEAP_OK : neap_nvml_fail(&monitor->nvml, result, err, "asking for a device");
}

enum neap_status neap_monitor_memory(struct neap_monitor *monitor, size_t index, struct neap_reading *ret_reading,
				     struct neap_error *err)
{
	struct neap_reading reading = {.utilization_percent = -1};
	nvmlDevice_t device = NULL;
	enum neap_status status = get_device(monitor, index, &device, err);

	if (!status)
		status = read_memory(monitor, device, &reading, err);
	if (!status)
		*ret_reading = reading;
	return status;
}

enum neap_status neap_monitor_read(struct neap_monitor *monitor, size_t index, struct neap_reading *ret_reading,
				   struct neap_error *err)
{
	struct neap_reading reading = {.utilization_percent = -1};
	nvmlUtilization_t utilization = {0};
	nvmlDevice_t device = NULL;
	enum neap_status status = get_device(monitor, index, &device, err);

	if (status ||
	    (status = read_identity(monitor, device, &monitor->identities[index], &reading, err)) != NEAP_OK ||
	    (status = read_memory(monitor, device, &reading, err)) != NEAP_OK)
		return status;
	if (monitor->nvml.nvmlDeviceGetUtilizationRates &&
	    monitor->nvml.nvmlDeviceGetUtilizationRates(device, &utilization) == NVML_SUCCESS)
		reading.utilization_percent = (int)utilization.gpu;
	read_processes(monitor, device, &reading);
	*ret_reading = reading;
	return NEAP_OK;
}

/* Reads the newest sample of each process; the driver keeps the samples of the last seconds. */
static void read_busy(const struct neap_nvml *nvml, nvmlDevice_t device, struct neap_condition *condition)
{
	nvmlProcessUtilizationSample_t samples[NEAP_READING_PROCESSES];
	unsigned long long taken[NEAP_READING_PROCESSES];
	unsigned int count = NEAP_READING_PROCESSES;

	if (!nvml->nvmlDeviceGetProcessUtilization ||
	    nvml->nvmlDeviceGetProcessUtilization(device, samples, &count, 0) != NVML_SUCCESS)
		return;
	for (unsigned int i = 0; i < count && i < NEAP_READING_PROCESSES; i++) {
		size_t at = 0;
		while (at < condition->busy_count && condition->busy[at].pid != (pid_t)samples[i].pid)
			at++;
		if (at < condition->busy_count && taken[at] > samples[i].timeStamp)
			continue;
		condition->busy_count += at == condition->busy_count;
		condition->busy[at] = (struct neap_busy){(pid_t)samples[i].pid, (int)samples[i].smUtil};
		taken[at] = samples[i].timeStamp;
	}
}

void neap_monitor_condition(struct neap_monitor *monitor, size_t index, struct neap_condition *ret_condition)
{
	const struct neap_nvml *nvml = &monitor->nvml;
	nvmlDevice_t device = NULL;
	unsigned int value;

	*ret_condition = (struct neap_condition){-1, -1, -1, -1, 0, {{0}}};
	if (get_device(monitor, index, &device, NULL) != NEAP_OK)
		return;
	if (nvml->nvmlDeviceGetTemperature &&
	    nvml->nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
		ret_condition->temperature_celsius = (int)value;
	if (nvml->nvmlDeviceGetPowerUsage && nvml->nvmlDeviceGetPowerUsage(device, &value) == NVML_SUCCESS)
		ret_condition->power_watts = (int)(value / 1000);
	if (nvml->nvmlDeviceGetEnforcedPowerLimit &&
	    nvml->nvmlDeviceGetEnforcedPowerLimit(device, &value) == NVML_SUCCESS)
		ret_condition->power_limit_watts = (int)(value / 1000);
	if (nvml->nvmlDeviceGetClockInfo &&
	    nvml->nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
		ret_condition->clock_mhz = (int)value;
	read_busy(nvml, device, ret_condition);
}

enum neap_status neap_monitor_find(struct neap_monitor *monitor, const unsigned char uuid[16], size_t *ret_index,
				   struct neap_error *err)
{
	char text[NVML_DEVICE_UUID_CAPACITY];
	unsigned char found[16];
	nvmlDevice_t device;

	if (!neap_fork_guard_holds(&monitor->guard))
		return neap_fail(err, NEAP_ESTATE, "NVML was opened before a fork: open it again in the child");
	for (unsigned int i = 0; i < monitor->device_count; i++) {
		if (monitor->nvml.nvmlDeviceGetHandleByIndex(i, &device) != NVML_SUCCESS ||
		    monitor->nvml.nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS ||
		    !neap_uuid_parse(text, found) || memcmp(found, uuid, sizeof found) != 0)
			continue;
		*ret_index = i;
		return NEAP_OK;
	}
	char wanted[48];
	neap_uuid_format(uuid, wanted);
	return neap_fail(err, NEAP_ENODEVICE, "NVML shows no device %s", wanted);
}
