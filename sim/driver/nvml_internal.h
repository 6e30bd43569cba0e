/* sim/driver/nvml_internal.h: shared by the files of libnvidia-ml.so.1: nvml.c (functions that neap calls),
 * nvml_more.c and nvml_model.c (functions that only other programs call). */
#ifndef NEAP_SIM_NVML_INTERNAL_H
#define NEAP_SIM_NVML_INTERNAL_H

#include "device/nvml_api.h"
#include "neap/status.h"
#include "sim/driver/world.h"

#define X(need, type, name, newest, older, parameters) NEAP_API type newest parameters;
#include "device/nvml_functions.h"
#undef X
NEAP_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
							      nvmlProcessInfo_t *processes);

/* A driver that has CUDA 13.2. */
#define DRIVER_VERSION_TEXT "595.45.04"
#define NVML_VERSION_TEXT   "13." DRIVER_VERSION_TEXT

/* Reads the world's devices, without their use. Returns the device's index in the view, which the caller frees. */
nvmlReturn_t sim_nvml_see(nvmlDevice_t device, struct sim_view **ret_view, uint32_t *ret_index);

#endif
