/* device/nvml.c: NVML for device.c and monitor.c: translates its errors, formats UUIDs, reads process lists. */
#include "base/error.h"
#include "device/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum neap_status status_of(nvmlReturn_t result)
{
	switch (result) {
	case NVML_ERROR_NOT_SUPPORTED:
	case NVML_ERROR_FUNCTION_NOT_FOUND:
		return NEAP_ENOTSUP;
	case NVML_ERROR_NO_PERMISSION:
		return NEAP_EPERM;
	case NVML_ERROR_DRIVER_NOT_LOADED:
	case NVML_ERROR_NOT_FOUND:
	case NVML_ERROR_GPU_IS_LOST:
		return NEAP_ENODEVICE;
	default:
		return NEAP_EDRIVER;
	}
}

enum neap_status neap_nvml_fail(const struct neap_nvml *nvml, nvmlReturn_t result, struct neap_error *err,
				const char *what)
{
	const char *text = NULL;

	if (result == NVML_SUCCESS)
		return NEAP_OK;
	if (!err)
		return status_of(result);
	if (nvml->nvmlErrorString)
		text = nvml->nvmlErrorString(result);
	neap_fail(err, status_of(result), "%s: NVML error %d: %s", what, result,
		  text ? text : "the driver gives no text");
	err->cause = result;
	return err->status;
}

void neap_uuid_format(const unsigned char uuid[16], char text[48])
{
	size_t at = (size_t)sprintf(text, "GPU-");

	for (int i = 0; i < 16; i++)
		at += (size_t)sprintf(text + at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool neap_uuid_parse(const char *text, unsigned char ret_uuid[16])
{
	const char *at = strchr(text, '-');
	unsigned char uuid[16];

	if (!at)
		return false;
	at++;
	for (int i = 0; i < 16; i++) {
		if (*at == '-')
			at++;
		int high = hex_digit(at[0]), low = high < 0 ? -1 : hex_digit(at[1]);
		if (low < 0)
			return false;
		uuid[i] = (unsigned char)(high << 4 | low);
		at += 2;
	}
	if (*at)
		return false;
	memcpy(ret_uuid, uuid, sizeof uuid);
	return true;
}

enum neap_status neap_nvml_processes(const struct neap_nvml *nvml, nvmlDevice_t device,
				     nvmlProcessInfo_t **ret_processes, unsigned int *ret_count,
				     struct neap_error *err)
{
	nvmlProcessInfo_t *processes = NULL;
	unsigned int capacity = 32;

	if (!nvml->nvmlDeviceGetComputeRunningProcesses)
		return neap_fail(err, NEAP_ENOTSUP, "this driver's NVML has no list of processes");
	/* Processes may start between two calls: each try asks for more than the last answer needed. */
	for (int try = 0; try < 8 && capacity <= 1u << 20; try++) {
		unsigned int count = capacity;
		free(processes);
		if (!(processes = calloc(capacity, sizeof *processes)))
			return neap_fail(err, NEAP_ENOMEM, "listing processes: out of host memory");
		nvmlReturn_t result = nvml->nvmlDeviceGetComputeRunningProcesses(device, &count, processes);
		if (result == NVML_SUCCESS) {
			*ret_processes = processes;
			*ret_count = count < capacity ? count : capacity;
			return NEAP_OK;
		}
		if (result != NVML_ERROR_INSUFFICIENT_SIZE) {
			free(processes);
			return neap_nvml_fail(nvml, result, err, "listing the device's processes");
		}
		capacity = (count > capacity ? count : capacity) * 2;
	}
	free(processes);
	return neap_fail(err, NEAP_EDRIVER, "listing the device's processes: NVML keeps asking for more room");
}

bool neap_nvml_process_bytes(const struct neap_nvml *nvml, const unsigned char uuid[16], pid_t pid,
			     uint64_t *ret_bytes)
{
	nvmlProcessInfo_t *processes = NULL;
	char text[NVML_DEVICE_UUID_CAPACITY];
	unsigned int device_count = 0, count = 0;
	unsigned char found[16];
	nvmlDevice_t device;
	bool known = false;

	if (nvml->nvmlDeviceGetCount(&device_count) != NVML_SUCCESS)
		return false;
	/* By UUID: NVML's order is not CUDA's, and CUDA_VISIBLE_DEVICES does not apply to it. */
	for (unsigned int i = 0; i < device_count; i++) {
		if (nvml->nvmlDeviceGetHandleByIndex(i, &device) != NVML_SUCCESS ||
		    nvml->nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS ||
		    !neap_uuid_parse(text, found) || memcmp(found, uuid, sizeof found) != 0)
			continue;
		if (neap_nvml_processes(nvml, device, &processes, &count, NULL) != NEAP_OK)
			return false;
		for (unsigned int p = 0; p < count && !known; p++) {
			if (processes[p].pid != (unsigned int)pid ||
			    processes[p].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL)
				continue;
			*ret_bytes = processes[p].usedGpuMemory;
			known = true;
		}
		free(processes);
		return known;
	}
	return false;
}
