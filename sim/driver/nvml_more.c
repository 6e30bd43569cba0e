/* libnvidia-ml.so.1: functions that other programs call (nvml.c has those that neap calls). PyTorch looks these up by
 * name, and stops if one is missing.
 *
 * A simulated GPU has no sensors and no links: temperature, power, clocks and NVLink answer NOT_SUPPORTED. Values of
 * its model: nvml_model.c.
 */
#include "sim/driver/nvml_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_DRIVER_VERSION 13020

/* Older names of the same functions. */
NEAP_API nvmlReturn_t nvmlInit(void);
NEAP_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
NEAP_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
NEAP_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags; /* the flags concern a machine without a GPU; here is always one */
	return nvmlInit_v2();
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* -- which device ------------------------------------------------------------------------------------------------ */

/* The first device for which `matches` is true. */
static nvmlReturn_t find_device(bool (*matches)(nvmlDevice_t device, const char *text), const char *text,
				nvmlDevice_t *ret_device)
{
	unsigned int count = 0, i;
	nvmlDevice_t device;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);

	if (result != NVML_SUCCESS)
		return result;
	if (!text || !ret_device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (i = 0; i < count; i++) {
		result = nvmlDeviceGetHandleByIndex_v2(i, &device);
		if (result != NVML_SUCCESS)
			return result;
		if (matches(device, text)) {
			*ret_device = device;
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* "0000:17:00.0", or with a domain of eight digits: the domain, bus and device are compared as numbers. */
static bool has_bus_id(nvmlDevice_t device, const char *text)
{
	unsigned int domain, bus, slot;
	nvmlPciInfo_t pci;

	return sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3 &&
	       nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS && pci.domain == domain && pci.bus == bus &&
	       pci.device == slot;
}

static bool has_uuid(nvmlDevice_t device, const char *text)
{
	char uuid[NVML_DEVICE_UUID_CAPACITY];

	return nvmlDeviceGetUUID(device, uuid, sizeof uuid) == NVML_SUCCESS && strcmp(uuid, text) == 0;
}

NEAP_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device);
NEAP_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device);
NEAP_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	return find_device(has_bus_id, id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
	return find_device(has_bus_id, id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find_device(has_uuid, uuid, device);
}

/* -- names and numbers ------------------------------------------------------------------------------------------- */

NEAP_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
NEAP_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
NEAP_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
NEAP_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	return nvmlDeviceGetMinorNumber(device, index); /* on one machine both numbers are the same */
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = major && minor ? sim_nvml_see(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	if (result != NVML_SUCCESS)
		return result;
	*major = view->devices[index].compute_major;
	*minor = view->devices[index].compute_minor;
	free(view);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = CUDA_DRIVER_VERSION;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* -- processes --------------------------------------------------------------------------------------------------- */

/* The name without a version takes the first, shorter struct. */
struct process_v1 {
	unsigned int pid;
	unsigned long long used;
};

NEAP_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
							   struct process_v1 *processes);
NEAP_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
							    void *processes);
NEAP_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
							       void *processes);
NEAP_API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
							       void *processes);

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
						  struct process_v1 *processes)
{
	nvmlProcessInfo_t found[SIM_SLOT_LIMIT];
	unsigned int number = SIM_SLOT_LIMIT, capacity, i;
	nvmlReturn_t result;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	capacity = processes ? *count : 0;
	result = nvmlDeviceGetComputeRunningProcesses_v3(device, &number, found);
	if (result != NVML_SUCCESS)
		return result;
	for (i = 0; i < number && i < capacity; i++)
		processes[i] = (struct process_v1){found[i].pid, found[i].usedGpuMemory};
	*count = number;
	return number > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* A simulated GPU runs no graphics. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *processes)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = count ? sim_nvml_see(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	(void)processes;
	if (result != NVML_SUCCESS)
		return result;
	free(view);
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, void *processes)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, processes);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, void *processes)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, processes);
}

/* -- not supported ----------------------------------------------------------------------------------------------- */

#define ABSENT_AS(name, parameters)                                                                                  \
	NEAP_API nvmlReturn_t name parameters;                                                                       \
	nvmlReturn_t name parameters                                                                                 \
	{                                                                                                            \
		struct sim_view *view;                                                                               \
		uint32_t index;                                                                                      \
		nvmlReturn_t result = sim_nvml_see(device, &view, &index);                                           \
                                                                                                                     \
		if (result != NVML_SUCCESS)                                                                          \
			return result;                                                                               \
		free(view);                                                                                          \
		return NVML_ERROR_NOT_SUPPORTED;                                                                     \
	}
#define ABSENT(name) ABSENT_AS(name, (nvmlDevice_t device))
#define UNUSED       __attribute__((unused))

/* These functions write no outputs, so their other parameters do not matter. */
ABSENT_AS(nvmlDeviceGetTemperature, (nvmlDevice_t device, UNUSED unsigned int sensor, UNUSED unsigned int *celsius))
ABSENT(nvmlDeviceGetTemperatureV)
ABSENT_AS(nvmlDeviceGetPowerUsage, (nvmlDevice_t device, UNUSED unsigned int *milliwatts))
ABSENT(nvmlDeviceGetTotalEnergyConsumption)
ABSENT_AS(nvmlDeviceGetClockInfo, (nvmlDevice_t device, UNUSED unsigned int clock, UNUSED unsigned int *mhz))
ABSENT(nvmlDeviceGetFanSpeed)
ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetNvLinkCapability)
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo)
ABSENT(nvmlDeviceGetPerformanceState)
ABSENT(nvmlDeviceGetEncoderUtilization)
ABSENT(nvmlDeviceGetDecoderUtilization)
ABSENT(nvmlDeviceGetPcieThroughput)
ABSENT(nvmlDeviceGetBAR1MemoryInfo)
ABSENT_AS(nvmlDeviceGetProcessUtilization, (nvmlDevice_t device, UNUSED nvmlProcessUtilizationSample_t *samples,
					    UNUSED unsigned int *count, UNUSED unsigned long long since))
ABSENT(nvmlDeviceGetMemoryErrorCounter)
ABSENT(nvmlDeviceGetTotalEccErrors)
