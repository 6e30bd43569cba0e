#include "fake_driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fake fake;
const unsigned char fake_uuid[16] = {0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static char context_storage;
#define CONTEXT ((CUcontext)(void *)&context_storage)

void fake_reset(void)
{
	fake = (struct fake){
		.vmm = 1, .has_memory_v2 = true, .bytes_known = true, .process_count = 1, .own_bytes = 500};
}

static CUresult count(const char *name)
{
	if (++fake.calls != fake.fail_at)
		return CUDA_SUCCESS;
	fake.failed = name;
	return fake.code;
}

#define COUNT                                                                                                        \
	do {                                                                                                         \
		CUresult result_ = count(__func__);                                                                  \
		if (result_ != CUDA_SUCCESS)                                                                         \
			return result_;                                                                              \
	} while (0)

static CUresult init(unsigned int flags)
{
	COUNT;
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult get_count(int *ret)
{
	COUNT;
	*ret = 1;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device, int ordinal)
{
	COUNT;
	*device = 40 + ordinal; /* a handle is not an ordinal */
	return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int length, CUdevice device)
{
	COUNT;
	snprintf(name, (size_t)length, "Fake %d", device);
	return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
	(void)device;
	COUNT;
	memcpy(uuid->bytes, fake_uuid, 16);
	return CUDA_SUCCESS;
}

static CUresult total_memory(size_t *bytes, CUdevice device)
{
	(void)device;
	COUNT;
	*bytes = FAKE_TOTAL;
	return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
	(void)device;
	COUNT;
	*value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
		 : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
									 : fake.vmm;
	return CUDA_SUCCESS;
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *properties,
			    CUmemAllocationGranularity_flags option)
{
	(void)option;
	COUNT;
	*bytes = properties->location.id == 40 ? 2 << 20 : 12345;
	return CUDA_SUCCESS;
}

static CUresult context_state(CUdevice device, unsigned int *flags, int *active)
{
	(void)device;
	COUNT;
	*flags = 0;
	*active = fake.retained > 0;
	return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	(void)device;
	COUNT;
	fake.retained++;
	*context = CONTEXT;
	return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
	(void)device;
	COUNT;
	fake.retained--;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
	COUNT;
	*context = fake.depth ? fake.stack[fake.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
	COUNT;
	fake.stack[fake.depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
	COUNT;
	*context = fake.stack[--fake.depth];
	return CUDA_SUCCESS;
}

static CUresult memory(size_t *free_bytes, size_t *total_bytes)
{
	COUNT;
	if (!fake.depth || fake.stack[fake.depth - 1] != CONTEXT)
		return CUDA_ERROR_INVALID_CONTEXT;
	*free_bytes = FAKE_TOTAL / 2;
	*total_bytes = FAKE_TOTAL;
	return CUDA_SUCCESS;
}

static CUresult error_name(CUresult error, const char **name)
{
	*name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_text(CUresult error, const char **text)
{
	*text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : NULL;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unused(void) { return CUDA_ERROR_NOT_SUPPORTED; }

struct neap_cuda fake_cuda(void)
{
	struct neap_cuda cuda;
	CUresult (*filler)(void) = unused;

#define X(need, name, symbol, parameters) memcpy(&cuda.name, &filler, sizeof filler);
#include "device/cuda_functions.h"
#undef X
	cuda.cuInit = init;
	cuda.cuDeviceGetCount = get_count;
	cuda.cuDeviceGet = get_device;
	cuda.cuDeviceGetName = get_name;
	cuda.cuDeviceGetUuid = get_uuid;
	cuda.cuDeviceTotalMem = total_memory;
	cuda.cuDeviceGetAttribute = attribute;
	cuda.cuDeviceGetPCIBusId = NULL; /* optional */
	cuda.cuMemGetAllocationGranularity = granularity;
	cuda.cuDevicePrimaryCtxGetState = context_state;
	cuda.cuDevicePrimaryCtxRetain = retain;
	cuda.cuDevicePrimaryCtxRelease = release;
	cuda.cuCtxGetCurrent = get_current;
	cuda.cuCtxPushCurrent = push;
	cuda.cuCtxPopCurrent = pop;
	cuda.cuMemGetInfo = memory;
	cuda.cuGetErrorName = error_name;
	cuda.cuGetErrorString = error_text;
	return cuda;
}

static nvmlReturn_t nvml_init(void)
{
	if (fake.nvml_init == NVML_SUCCESS)
		fake.nvml_running++;
	return fake.nvml_init;
}

static nvmlReturn_t nvml_shutdown(void)
{
	fake.nvml_running--;
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_count(unsigned int *ret)
{
	*ret = 2;
	return NVML_SUCCESS;
}

/* CUDA's device is the second one here. */
static char nvml_devices[2];

static nvmlReturn_t nvml_handle(unsigned int index, nvmlDevice_t *device)
{
	*device = (nvmlDevice_t)(void *)&nvml_devices[index];
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_uuid(nvmlDevice_t device, char *text, unsigned int capacity)
{
	snprintf(text, capacity, "%s",
		 (char *)device == &nvml_devices[1] ? "GPU-deadbeef-0102-0304-0506-0708090a0b0c"
						    : "GPU-00000000-0000-0000-0000-000000000000");
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_name(nvmlDevice_t device, char *text, unsigned int capacity)
{
	(void)device;
	snprintf(text, capacity, "Fake");
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_memory(nvmlDevice_t device, nvmlMemory_t *info)
{
	(void)device;
	*info = (nvmlMemory_t){.total = 1000, .used = 400, .free = 600};
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
	(void)device;
	if (!fake.has_memory_v2 || info->version != NVML_MEMORY_V2)
		return NVML_ERROR_NOT_SUPPORTED;
	*info = (nvmlMemory_v2_t){.version = NVML_MEMORY_V2, .total = 1000, .reserved = 50, .used = 350, .free = 600};
	return NVML_SUCCESS;
}

static nvmlReturn_t nvml_processes(nvmlDevice_t device, unsigned int *capacity, nvmlProcessInfo_t *processes)
{
	unsigned int wanted = (char *)device == &nvml_devices[1] ? fake.process_count : 0;

	if (*capacity < wanted) {
		*capacity = wanted;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*capacity = wanted;
	for (unsigned int i = 0; i < wanted; i++)
		processes[i] = (nvmlProcessInfo_t){
			.pid = (unsigned int)getpid() + i,
			.usedGpuMemory = fake.bytes_known ? fake.own_bytes + i : NVML_VALUE_NOT_AVAILABLE_ULL,
		};
	return NVML_SUCCESS;
}

struct neap_nvml fake_nvml(void)
{
	return (struct neap_nvml){
		.nvmlInit = nvml_init,
		.nvmlShutdown = nvml_shutdown,
		.nvmlDeviceGetCount = nvml_count,
		.nvmlDeviceGetHandleByIndex = nvml_handle,
		.nvmlDeviceGetUUID = nvml_uuid,
		.nvmlDeviceGetName = nvml_name,
		.nvmlDeviceGetMemoryInfo = nvml_memory,
		.nvmlDeviceGetMemoryInfo_v2 = nvml_memory_v2,
		.nvmlDeviceGetComputeRunningProcesses = nvml_processes,
	};
}
