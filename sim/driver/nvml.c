/* libnvidia-ml.so.1: the devices as other programs see them. Each query reads the device's state from the world
 * again. NVML never enters the world, so it needs no context and is not listed as a process.
 *
 *   NEAP_SIM_NVML=no-process-bytes   processes are listed without their bytes, as some drivers do in a container
 *   NEAP_SIM_NVML=unified            the device has no memory of its own (GB10): NVML answers NOT_SUPPORTED
 *   NEAP_SIM_LOST=FILE               while FILE exists, the devices are lost
 */
#include "sim/driver/nvml_internal.h"

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nvmlDevice_st {
	char unused;
};

static struct {
	atomic_int users; /* calls of nvmlInit minus calls of nvmlShutdown */
	atomic_int pid;   /* of the process that initialised: NVML does not survive fork */
	struct sim_spec spec;
	bool no_process_bytes, unified;
	char lost[512];                                 /* "" none */
	char message[320];                              /* why nvmlInit failed */
	struct nvmlDevice_st devices[SIM_DEVICE_LIMIT]; /* only their addresses are used */
	pthread_mutex_t watch_mutex;
	struct sim_watch watch;
} nvml = {.watch_mutex = PTHREAD_MUTEX_INITIALIZER};

static nvmlReturn_t read_settings(struct neap_error *err)
{
	const char *mode = getenv("NEAP_SIM_NVML"), *lost = getenv("NEAP_SIM_LOST");

	if (sim_spec_parse(getenv("NEAP_SIM"), &nvml.spec, err) != NEAP_OK)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvml.no_process_bytes = mode && strcmp(mode, "no-process-bytes") == 0;
	nvml.unified = mode && strcmp(mode, "unified") == 0;
	if (mode && *mode && !nvml.no_process_bytes && !nvml.unified) {
		neap_fail(err, NEAP_EINVAL, "NEAP_SIM_NVML: '%s': expected no-process-bytes or unified", mode);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	if ((size_t)snprintf(nvml.lost, sizeof nvml.lost, "%s", lost ? lost : "") < sizeof nvml.lost)
		return NVML_SUCCESS;
	neap_fail(err, NEAP_EINVAL, "NEAP_SIM_LOST: the path is too long");
	return NVML_ERROR_INVALID_ARGUMENT;
}

/* The caller frees it; NULL: *ret_result has the reason. */
static struct sim_view *read_view(uint32_t devices, nvmlReturn_t *ret_result, struct neap_error *err)
{
	struct sim_view *view = malloc(sizeof *view);
	enum neap_status status = NEAP_ENOMEM;

	if (view) {
		pthread_mutex_lock(&nvml.watch_mutex);
		status = sim_watch_read(&nvml.watch, &nvml.spec, devices, view, err);
		pthread_mutex_unlock(&nvml.watch_mutex);
	}
	*ret_result = status == NEAP_OK ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
	if (!status)
		return view;
	free(view);
	return NULL;
}

nvmlReturn_t nvmlInit_v2(void)
{
	struct neap_error err = {0};
	struct sim_view *view = NULL;
	nvmlReturn_t result;

	if (atomic_load(&nvml.users) > 0 && atomic_load(&nvml.pid) == getpid()) {
		atomic_fetch_add(&nvml.users, 1);
		return NVML_SUCCESS;
	}
	/* In a forked child, where another thread of the parent may have held the lock during the fork */
	if (atomic_load(&nvml.pid) != getpid())
		pthread_mutex_init(&nvml.watch_mutex, NULL);
	result = read_settings(&err);
	if (result == NVML_SUCCESS)
		view = read_view(SIM_EVERY_DEVICE, &result, &err);
	snprintf(nvml.message, sizeof nvml.message, "%s", err.message);
	if (!view)
		return result;
	free(view);
	atomic_store(&nvml.pid, getpid());
	atomic_store(&nvml.users, 1);
	return NVML_SUCCESS;
}

static bool ready(void) { return atomic_load(&nvml.users) > 0 && atomic_load(&nvml.pid) == getpid(); }

nvmlReturn_t nvmlShutdown(void)
{
	if (!ready())
		return NVML_ERROR_UNINITIALIZED;
	if (atomic_fetch_sub(&nvml.users, 1) == 1) {
		pthread_mutex_lock(&nvml.watch_mutex);
		sim_watch_fini(&nvml.watch);
		pthread_mutex_unlock(&nvml.watch_mutex);
	}
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return !ready() && nvml.message[0] ? nvml.message : "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NO_PERMISSION:
		return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return "Function Not Found";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	default:
		return !ready() && nvml.message[0] ? nvml.message : "Unknown Error";
	}
}

static nvmlReturn_t copy_text(char *to, unsigned int capacity, const char *text)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (capacity <= strlen(text))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int capacity)
{
	return ready() ? copy_text(text, capacity, DRIVER_VERSION_TEXT) : NVML_ERROR_UNINITIALIZED;
}

static bool is_lost(void) { return nvml.lost[0] && access(nvml.lost, F_OK) == 0; }

/* Reads the world, and returns the device's index in it. `use`: also read the device's used memory and its processes.
 * The caller frees the view. */
static nvmlReturn_t see_any(nvmlDevice_t device, bool use, struct sim_view **ret_view, uint32_t *ret_index)
{
	struct neap_error err;
	struct sim_view *view;
	nvmlReturn_t result;
	size_t i;

	if (!ready())
		return NVML_ERROR_UNINITIALIZED;
	for (i = 0; i < SIM_DEVICE_LIMIT && device != &nvml.devices[i]; i++)
		;
	if (i == SIM_DEVICE_LIMIT)
		return NVML_ERROR_INVALID_ARGUMENT;
	view = read_view(use ? 1u << i : 0, &result, &err);
	if (!view)
		return result;
	if (i >= view->device_count) {
		free(view);
		return NVML_ERROR_GPU_IS_LOST; /* a new world has fewer devices */
	}
	*ret_view = view;
	*ret_index = (uint32_t)i;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_see(nvmlDevice_t device, struct sim_view **ret_view, uint32_t *ret_index)
{
	return is_lost() ? NVML_ERROR_GPU_IS_LOST : see_any(device, false, ret_view, ret_index);
}

/* As sim_nvml_see, but reads also the device's used memory and its processes. */
static nvmlReturn_t see_use(nvmlDevice_t device, struct sim_view **ret_view, uint32_t *ret_index)
{
	return is_lost() ? NVML_ERROR_GPU_IS_LOST : see_any(device, true, ret_view, ret_index);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = see_any(&nvml.devices[0], false, &view, &index);
	if (result != NVML_SUCCESS)
		return result;
	*count = view->device_count;
	free(view);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	unsigned int count;
	nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);

	if (result != NVML_SUCCESS)
		return result;
	if (!device || index >= count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (is_lost())
		return NVML_ERROR_GPU_IS_LOST;
	*device = &nvml.devices[index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int capacity)
{
	struct sim_view *view;
	uint32_t index;
	char uuid[48];
	nvmlReturn_t result = sim_nvml_see(device, &view, &index);

	if (result != NVML_SUCCESS)
		return result;
	sim_uuid_format(view->devices[index].uuid, uuid);
	free(view);
	return copy_text(text, capacity, uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int capacity)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = sim_nvml_see(device, &view, &index);

	if (result != NVML_SUCCESS)
		return result;
	result = copy_text(text, capacity, view->devices[index].name);
	free(view);
	return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = memory ? see_use(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	if (result != NVML_SUCCESS)
		return result;
	if (nvml.unified) {
		free(view);
		return NVML_ERROR_NOT_SUPPORTED;
	}
	memory->total = view->devices[index].total_bytes;
	memory->free = view->devices[index].free_bytes;
	memory->used = memory->total - memory->free;
	free(view);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result;

	if (!memory || memory->version != NVML_MEMORY_V2)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = see_use(device, &view, &index);
	if (result != NVML_SUCCESS)
		return result;
	if (nvml.unified) {
		free(view);
		return NVML_ERROR_NOT_SUPPORTED;
	}
	memory->total = view->devices[index].total_bytes;
	memory->reserved = view->devices[index].reserved_bytes;
	memory->free = view->devices[index].free_bytes;
	memory->used = memory->total - memory->reserved - memory->free;
	free(view);
	return NVML_SUCCESS;
}

/* Whether NVML lists a process: it exists, holds memory on this device, and is not hidden. */
static bool listed(const struct sim_view_process *process, uint32_t index)
{
	return process->state == SIM_SLOT_ALIVE && !process->hidden &&
	       process->memory_bytes[index] + process->context_bytes[index] > 0 && sim_view_present(process);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_t *processes)
{
	struct sim_view *view;
	unsigned int capacity, found = 0;
	uint32_t index;
	nvmlReturn_t result = count ? see_use(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;
	size_t i;

	if (result != NVML_SUCCESS)
		return result;
	capacity = processes ? *count : 0;
	for (i = 0; i < view->process_count; i++) {
		const struct sim_view_process *process = &view->processes[i];

		if (!listed(process, index))
			continue;
		if (found < capacity)
			processes[found] = (nvmlProcessInfo_t){
				.pid = (unsigned int)process->pid,
				.usedGpuMemory = nvml.no_process_bytes ? NVML_VALUE_NOT_AVAILABLE_ULL
								       : process->memory_bytes[index] +
										 process->context_bytes[index],
				.gpuInstanceId = UINT32_MAX,
				.computeInstanceId = UINT32_MAX};
		found++;
	}
	free(view);
	*count = found;
	return found > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_t *processes)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

/* The rates are not derived from virtual time, because a sample period is real time. */
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = utilization ? sim_nvml_see(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	if (result != NVML_SUCCESS)
		return result;
	free(view);
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = pci ? sim_nvml_see(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	if (result != NVML_SUCCESS)
		return result;
	memset(pci, 0, sizeof *pci);
	if (sscanf(view->devices[index].pci_bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
		result = NVML_ERROR_UNKNOWN;
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s", view->devices[index].pci_bus_id);
	snprintf(pci->busId, sizeof pci->busId, "0000%s", view->devices[index].pci_bus_id);
	free(view);
	return result;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = minor ? sim_nvml_see(device, &view, &index) : NVML_ERROR_INVALID_ARGUMENT;

	if (result != NVML_SUCCESS)
		return result;
	*minor = index;
	free(view);
	return NVML_SUCCESS;
}
