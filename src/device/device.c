/* device/device.c: one device with its primary context.
 *
 * NVML tells the cost of a context: its figure for our own PID, right after the context was made. If the context
 * existed before (PyTorch created it, for example), its cost cannot be separated from allocations and is reported as
 * unknown.
 */
#include "base/error.h"
#include "device/driver_private.h"
#include "device/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct neap_device {
	struct neap_driver *driver;
	CUdevice handle;
	CUcontext context;
	uint64_t context_bytes;
	struct neap_device_info info;
};

static enum neap_status check_process(const struct neap_driver *driver, struct neap_error *err)
{
	if (neap_fork_guard_holds(&driver->guard))
		return NEAP_OK;
	return neap_fail(err, NEAP_ESTATE, "the driver was opened before a fork: open it again in the child");
}

/* The granularity of virtual memory; 0 if the driver or device lacks any part of it. */
static enum neap_status read_page_bytes(struct neap_device *device, struct neap_error *err)
{
	const struct neap_cuda *cuda = &device->driver->cuda;
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
	};
	int supported = 0;
	size_t bytes = 0;

	if (!device->driver->can.virtual_memory)
		return NEAP_OK;
	CUresult result = cuda->cuDeviceGetAttribute(
		&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->handle);
	if (result == CUDA_SUCCESS && supported)
		result = cuda->cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(cuda, result, err, "asking for the page size of the device");
	if (bytes > UINT32_MAX || (bytes & (bytes - 1)) != 0)
		return neap_fail(err, NEAP_ENOTSUP, "the device has pages of %zu bytes", bytes);
	device->info.page_bytes = (uint32_t)bytes;
	return NEAP_OK;
}

static enum neap_status read_info(struct neap_device *device, int ordinal, struct neap_error *err)
{
	const struct neap_cuda *cuda = &device->driver->cuda;
	struct neap_device_info *info = &device->info;
	const char *what = "asking for the device's UUID";
	CUuuid uuid = {{0}};
	size_t total = 0;
	CUresult result = cuda->cuDeviceGetUuid(&uuid, device->handle);

	if (result == CUDA_SUCCESS) {
		what = "asking for the device's name";
		result = cuda->cuDeviceGetName(info->name, (int)sizeof info->name, device->handle);
	}
	if (result == CUDA_SUCCESS) {
		what = "asking for the device's memory size";
		result = cuda->cuDeviceTotalMem(&total, device->handle);
	}
	if (result == CUDA_SUCCESS) {
		what = "asking for the device's compute capability";
		result = cuda->cuDeviceGetAttribute(&info->compute_major,
						    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->handle);
	}
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetAttribute(&info->compute_minor,
						    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->handle);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(cuda, result, err, what);
	if (!device->driver->can.pci_bus_id ||
	    cuda->cuDeviceGetPCIBusId(info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle) != CUDA_SUCCESS)
		info->pci_bus_id[0] = '\0';

	info->ordinal = ordinal;
	info->total_bytes = total;
	info->name[sizeof info->name - 1] = '\0';
	info->pci_bus_id[sizeof info->pci_bus_id - 1] = '\0';
	memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
	neap_uuid_format(info->uuid, info->uuid_text);
	return read_page_bytes(device, err);
}

static enum neap_status retain_context(struct neap_device *device, struct neap_error *err)
{
	struct neap_driver *driver = device->driver;
	unsigned int flags;
	int active = 1;

	if (driver->cuda.cuDevicePrimaryCtxGetState(device->handle, &flags, &active) != CUDA_SUCCESS)
		active = 1;
	CUresult result = driver->cuda.cuDevicePrimaryCtxRetain(&device->context, device->handle);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(&driver->cuda, result, err, "making the device's context");
	if (!active && driver->nvml_running)
		neap_nvml_process_bytes(&driver->nvml, device->info.uuid, getpid(), &device->context_bytes);
	return NEAP_OK;
}

enum neap_status neap_device_open(struct neap_driver *driver, int ordinal, struct neap_device **ret_device,
				  struct neap_error *err)
{
	enum neap_status status = check_process(driver, err);
	struct neap_device *device;

	if (status)
		return status;
	if (ordinal < 0 || ordinal >= driver->device_count)
		return neap_fail(err, NEAP_ENODEVICE, "no device %d: the driver shows %d (from 0)", ordinal,
				 driver->device_count);
	if (!(device = calloc(1, sizeof *device)))
		return neap_fail(err, NEAP_ENOMEM, "opening device %d: out of host memory", ordinal);
	device->driver = driver;
	CUresult result = driver->cuda.cuDeviceGet(&device->handle, ordinal);
	if (result != CUDA_SUCCESS)
		status = neap_cuda_fail(&driver->cuda, result, err, "asking for the device");
	if (!status)
		status = read_info(device, ordinal, err);
	if (!status)
		status = retain_context(device, err);
	if (status) {
		neap_error_prefix(err, "opening device %d", ordinal);
		free(device);
		return status;
	}
	*ret_device = device;
	return NEAP_OK;
}

void neap_device_close(struct neap_device *device)
{
	if (!device)
		return;
	if (neap_fork_guard_holds(&device->driver->guard))
		device->driver->cuda.cuDevicePrimaryCtxRelease(device->handle);
	free(device);
}

const struct neap_device_info *neap_device_info(const struct neap_device *device) { return &device->info; }
struct neap_driver *neap_device_driver(struct neap_device *device) { return device->driver; }
uint64_t neap_device_context_bytes(const struct neap_device *device) { return device->context_bytes; }

void neap_device_measure_context(struct neap_device *device, uint64_t allocated_bytes)
{
	uint64_t bytes = 0;
	if (device->driver->nvml_running &&
	    neap_nvml_process_bytes(&device->driver->nvml, device->info.uuid, getpid(), &bytes) &&
	    bytes > allocated_bytes)
		device->context_bytes = bytes - allocated_bytes;
}

CUcontext neap_device_context(const struct neap_device *device) { return device->context; }
CUdevice neap_device_handle(const struct neap_device *device) { return device->handle; }

enum neap_status neap_device_enter(struct neap_device *device, struct neap_device_guard *ret_guard,
				   struct neap_error *err)
{
	const struct neap_cuda *cuda = &device->driver->cuda;
	enum neap_status status = check_process(device->driver, err);
	CUcontext current = NULL;

	if (status)
		return status;
	CUresult result = cuda->cuCtxGetCurrent(&current);
	if (result == CUDA_SUCCESS && current == device->context) {
		*ret_guard = (struct neap_device_guard){NULL};
		return NEAP_OK;
	}
	if (result == CUDA_SUCCESS)
		result = cuda->cuCtxPushCurrent(device->context);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(cuda, result, err, "making the device's context current");
	*ret_guard = (struct neap_device_guard){device};
	return NEAP_OK;
}

void neap_device_leave(struct neap_device_guard *guard)
{
	CUcontext popped;

	if (!guard->device)
		return;
	if (neap_fork_guard_holds(&guard->device->driver->guard))
		guard->device->driver->cuda.cuCtxPopCurrent(&popped);
	guard->device = NULL;
}

enum neap_status neap_device_memory(struct neap_device *device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes,
				    struct neap_error *err)
{
	const struct neap_cuda *cuda = &device->driver->cuda;
	struct neap_device_guard guard = {NULL};
	size_t free_bytes = 0, total_bytes = 0;
	enum neap_status status = neap_device_enter(device, &guard, err);

	if (status)
		return status;
	CUresult result = cuda->cuMemGetInfo(&free_bytes, &total_bytes);
	neap_device_leave(&guard);
	if (result != CUDA_SUCCESS)
		return neap_cuda_fail(cuda, result, err, "asking for free and total memory");
	*ret_free_bytes = free_bytes;
	*ret_total_bytes = total_bytes;
	return NEAP_OK;
}

enum neap_status neap_device_synchronize(struct neap_device *device, void *stream, struct neap_error *err)
{
	const struct neap_cuda *cuda = &device->driver->cuda;
	struct neap_device_guard guard = {NULL};
	enum neap_status status = neap_device_enter(device, &guard, err);

	if (status)
		return status;
	CUresult result = cuda->cuStreamSynchronize(stream);
	neap_device_leave(&guard);
	return result == CUDA_SUCCESS ? NEAP_OK : neap_cuda_fail(cuda, result, err, "waiting for a stream");
}
