/* libnvidia-ml.so.1: values of a device's model (profile.h): highest clocks, power limits, architecture; and values
 * that all simulated devices share: no MIG instances, the default compute mode, no NVLink fabric. */
#include "sim/driver/nvml_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nvmlClockType_t */
#define CLOCK_MEMORY 2
#define CLOCK_VIDEO  3

/* nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t */
#define P2P_READ          0
#define P2P_WRITE         1
#define P2P_CAPS_LAST     5
#define P2P_OK            0
#define P2P_NOT_SUPPORTED 5

NEAP_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned int capacity);
NEAP_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *text, unsigned int capacity);
NEAP_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz);
NEAP_API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts);
NEAP_API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts);
NEAP_API nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits);
NEAP_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture);
NEAP_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending);
NEAP_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending);
NEAP_API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode);
NEAP_API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode);
NEAP_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int caps,
					     unsigned int *status);
NEAP_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, void *info);
NEAP_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, unsigned int *info);

/* Finds the model of the device, and its compute capability times ten. */
static nvmlReturn_t find_model(nvmlDevice_t device, const struct sim_profile **ret_profile, int *ret_capability)
{
	const struct sim_view_device *seen;
	struct sim_view *view;
	uint32_t index;
	nvmlReturn_t result = sim_nvml_see(device, &view, &index);

	if (result != NVML_SUCCESS)
		return result;
	seen = &view->devices[index];
	*ret_profile = sim_profile_of(seen->name, seen->compute_major, seen->compute_minor);
	*ret_capability = seen->compute_major * 10 + seen->compute_minor;
	free(view);
	return NVML_SUCCESS;
}

static nvmlReturn_t give_text(char *text, unsigned int capacity, const char *value)
{
	if (!text)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (capacity <= strlen(value))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(text, value, strlen(value) + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned int capacity)
{
	return give_text(text, capacity, NVML_VERSION_TEXT);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *text, unsigned int capacity)
{
	char path[64], name[256];
	FILE *file;
	size_t length;

	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	file = fopen(path, "re");
	if (!file)
		return NVML_ERROR_NOT_FOUND;
	length = fread(name, 1, sizeof name - 1, file); /* up to the end of the first argument */
	fclose(file);
	name[length] = '\0';
	return length ? give_text(text, capacity, name) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result;

	if (!mhz || type > CLOCK_VIDEO)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = find_model(device, &profile, &capability);
	if (result == NVML_SUCCESS && type == CLOCK_VIDEO)
		result = NVML_ERROR_NOT_SUPPORTED;
	if (result == NVML_SUCCESS)
		*mhz = (unsigned int)(type == CLOCK_MEMORY ? profile->memory_mhz : profile->clock_mhz);
	return result;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result = milliwatts ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS)
		*milliwatts = (unsigned int)profile->watts * 1000;
	return result;
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts)
{
	return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result = bits ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS)
		*bits = (unsigned int)profile->bus_bits;
	return result;
}

/* nvmlDeviceArchitecture_t: Volta 5, Turing 6, Ampere 7, Ada 8, Hopper 9, Blackwell 10. */
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result = architecture ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS)
		*architecture = capability >= 100  ? 10
				: capability >= 90 ? 9
				: capability == 89 ? 8
				: capability >= 80 ? 7
				: capability >= 75 ? 6
						   : 5;
	return result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result =
		now && pending ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS && !profile->data_center)
		result = NVML_ERROR_NOT_SUPPORTED;
	if (result == NVML_SUCCESS)
		*now = *pending = 1;
	return result;
}

/* MIG is off on devices that support it: those for data centers, since compute capability 8.0. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result =
		now && pending ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS && (!profile->data_center || capability < 80 || capability == 89))
		result = NVML_ERROR_NOT_SUPPORTED;
	if (result == NVML_SUCCESS)
		*now = *pending = 0;
	return result;
}

static nvmlReturn_t give_same(nvmlDevice_t device, unsigned int *ret_value, unsigned int value)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result = ret_value ? find_model(device, &profile, &capability) : NVML_ERROR_INVALID_ARGUMENT;

	if (result == NVML_SUCCESS)
		*ret_value = value;
	return result;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) { return give_same(device, mode, 0); }
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode)
{
	return give_same(device, mode, 1);
}

/* Agrees with cuDeviceCanAccessPeer; there are no links. */
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int caps, unsigned int *status)
{
	const struct sim_profile *profile, *other;
	int capability;
	nvmlReturn_t result;

	if (!status || caps > P2P_CAPS_LAST)
		return NVML_ERROR_INVALID_ARGUMENT;
	result = find_model(device, &profile, &capability);
	if (result == NVML_SUCCESS)
		result = find_model(peer, &other, &capability);
	if (result == NVML_SUCCESS)
		*status = (caps == P2P_READ || caps == P2P_WRITE) && device != peer && profile->data_center &&
					  other->data_center
				  ? P2P_OK
				  : P2P_NOT_SUPPORTED;
	return result;
}

/* All zeros: the device is in no fabric. Devices before Hopper do not support this. `bytes`: of the struct. */
static nvmlReturn_t no_fabric(nvmlDevice_t device, void *info, size_t bytes)
{
	const struct sim_profile *profile;
	int capability;
	nvmlReturn_t result = find_model(device, &profile, &capability);

	if (result == NVML_SUCCESS && capability < 90)
		result = NVML_ERROR_NOT_SUPPORTED;
	if (result == NVML_SUCCESS)
		memset(info, 0, bytes);
	return result;
}

#define FABRIC_INFO_V1  28 /* nvmlGpuFabricInfo_t */
#define FABRIC_INFO_MIN 32 /* the structs that begin with their version: */
#define FABRIC_INFO_MAX 256

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, void *info)
{
	return info ? no_fabric(device, info, FABRIC_INFO_V1) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, unsigned int *info)
{
	size_t bytes = info ? *info & 0xffffffu : 0; /* its low 24 bits */

	if (bytes < FABRIC_INFO_MIN || bytes > FABRIC_INFO_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	return no_fabric(device, info + 1, bytes - sizeof *info);
}
