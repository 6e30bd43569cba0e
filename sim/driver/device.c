/* Devices: how many, their names and numbers, and whether one can read another's memory. */
#include "sim/driver/state.h"

#include <stdio.h>
#include <string.h>

#define DRIVER_VERSION 13020 /* the newest CUDA that neap's stand-ins serve */

CUresult sim_cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetCount(int *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)sim.device_count;
	return CUDA_SUCCESS;
}

bool sim_device_known(CUdevice device) { return device >= 0 && (uint32_t)device < sim.device_count; }

CUresult sim_cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult copy_text(char *to, int capacity, const char *text, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!to || capacity <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(to, (size_t)capacity, "%s", text);
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetName(char *name, int length, CUdevice device)
{
	return copy_text(name, length, sim_device_known(device) ? sim.devices[device].view.name : "", device);
}

CUresult sim_cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	return copy_text(id, length, sim_device_known(device) ? sim.devices[device].view.pci_bus_id : "", device);
}

CUresult sim_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid->bytes, sim.devices[device].view.uuid, sizeof uuid->bytes);
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = sim.devices[device].view.total_bytes - sim.devices[device].view.reserved_bytes;
	return CUDA_SUCCESS;
}

/* The two functions differ only for MIG instances, which are not simulated. */
CUresult sim_cuDeviceGetUuid_v1(CUuuid *uuid, CUdevice device) { return sim_cuDeviceGetUuid(uuid, device); }

/* "[domain]:[bus]:[device].[function]"; the domain and the function may be missing, as documented. */
CUresult sim_cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	unsigned int domain = 0, bus, number, known_bus, known_number, i;

	if (!device || !id)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &number) != 3) {
		domain = 0;
		if (sscanf(id, "%x:%x", &bus, &number) != 2)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (i = 0; i < sim.device_count; i++)
		if (domain == 0 &&
		    sscanf(sim.devices[i].view.pci_bus_id, "0000:%x:%x", &known_bus, &known_number) == 2 &&
		    known_bus == bus && known_number == number) {
			*device = (CUdevice)i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = sim.devices[device].view.compute_major;
	*minor = sim.devices[device].view.compute_minor;
	return CUDA_SUCCESS;
}

/* Contexts always use all multiprocessors. */
CUresult sim_cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

/* -- two devices ------------------------------------------------------------------------------------------------- */

bool sim_peers(uint32_t device, uint32_t peer)
{
	return device != peer && sim.devices[device].profile->data_center && sim.devices[peer].profile->data_center;
}

CUresult sim_cuDeviceCanAccessPeer(int *value, CUdevice device, CUdevice peer)
{
	if (!sim_device_known(device) || !sim_device_known(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	*value = sim_peers((uint32_t)device, (uint32_t)peer);
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
	if (!sim_device_known(from) || !sim_device_known(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
	    attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && sim_peers((uint32_t)from, (uint32_t)to);
	return CUDA_SUCCESS;
}
