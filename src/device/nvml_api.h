/* device/nvml_api.h: the part of NVML that neap uses: types, constants and the table of functions.
 *
 * Names are tried newest first (`_v3`, `_v2`, plain). NVML's plain process-list symbol fills the shorter v1 struct,
 * so it is not used. Source: NVML API reference, R535 to R580. nvmlReturn_t values are in the enum below.
 */
#ifndef NEAP_DEVICE_NVML_API_H
#define NEAP_DEVICE_NVML_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef int nvmlReturn_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_UNKNOWN = 999,
};

/* usedGpuMemory of a process if the driver does not report it (containers, vGPU). */
#define NVML_VALUE_NOT_AVAILABLE_ULL (~0ull)
#define NVML_DEVICE_UUID_CAPACITY    96
#define NVML_DEVICE_NAME_CAPACITY    96
#define NVML_SYSTEM_VERSION_CAPACITY 81

typedef struct {
	unsigned long long total, free, used; /* v1: `used` includes what the driver reserves */
} nvmlMemory_t;

typedef struct {
	unsigned int version; /* NVML_MEMORY_V2 */
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 ((unsigned int)(sizeof(nvmlMemory_v2_t) | (2u << 24)))

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
} nvmlProcessInfo_t; /* the layout of _v2 and _v3 */

typedef struct {
	unsigned int gpu, memory; /* percent over the last sample period */
} nvmlUtilization_t;

#define NVML_TEMPERATURE_GPU 0u
#define NVML_CLOCK_SM        1u

typedef struct {
	unsigned int pid;
	unsigned long long timeStamp;                   /* of the sample, in microseconds */
	unsigned int smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t; /* the layout of _v3 */

/* One member per function: nvml->nvmlDeviceGetCount(...). OPTIONAL ones may be NULL. */
struct neap_nvml {
#define X(need, type, name, newest, older, parameters) type(*name) parameters;
#include "device/nvml_functions.h"
#undef X
};

#endif
