/* Virtual memory: cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess and their counterparts. memory.c has the
 * ranges, physical.c the bytes.
 *
 * The program holds a handle once for cuMemCreate and once for each cuMemRetainAllocationHandle. Each device has its
 * own access to a mapping; the host has the access that any device has.
 */
#include "sim/driver/race_watch.h"
#include "sim/driver/state.h"

#include <stdlib.h>
#include <string.h>

static bool page_aligned(uint64_t value) { return value % SIM_PAGE_BYTES == 0; }

/* A location that names a device of ours. */
static bool location_known(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       (uint32_t)location->id < sim.device_count;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
				 unsigned long long flags)
{
	struct sim_reservation *reservation;
	CUresult result;

	if (sim.spec.no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!address || bytes == 0 || !page_aligned(bytes) || (alignment & (alignment - 1)) != 0 || flags != 0 ||
	    bytes > SIM_MEMORY_LIMIT || alignment > SIM_MEMORY_LIMIT)
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SIM_PAGE_BYTES)
		alignment = SIM_PAGE_BYTES;
	pthread_mutex_lock(&sim.lock);
	result = sim_reserve(bytes, alignment, wanted % alignment == 0 ? wanted : 0, &reservation);
	if (result == CUDA_SUCCESS)
		*address = reservation->range.start;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	struct sim_reservation *reservation;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (reservation && reservation->kind == SIM_RESERVED && reservation->range.start == address &&
	    reservation->range.bytes == bytes && reservation->mappings == 0) {
		sim_unreserve(reservation);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* File descriptors are the only handles for other processes. */
static CUresult check_properties(const CUmemAllocationProp *properties)
{
	if (sim.spec.no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!location_known(&properties->location))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ||
	    properties->allocFlags.compressionType)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
					   CUmemAllocationGranularity_flags option)
{
	CUresult result = check_properties(properties);

	if (result != CUDA_SUCCESS)
		return result;
	if (!bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = SIM_PAGE_BYTES;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
			 unsigned long long flags)
{
	CUresult result = check_properties(properties);
	struct sim_handle *made;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || bytes == 0 || !page_aligned(bytes) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = sim_physical_create((uint32_t)properties->location.id, bytes, &made);
	if (result == CUDA_SUCCESS) {
		made->named = true;
		made->handle_types = properties->requestedHandleTypes;
		*handle = made->id;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

struct sim_handle *sim_handle_held(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle = sim_physical_find(id);

	return handle && handle->named && handle->held > 0 ? handle : NULL;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	handle = sim_handle_held(id);
	if (handle) {
		sim_physical_release(handle);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
		      unsigned long long flags)
{
	struct sim_reservation *reservation;
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (bytes == 0 || !page_aligned(address) || offset != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	handle = sim_handle_held(id);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (handle && bytes == handle->bytes && reservation && reservation->kind == SIM_RESERVED &&
	    bytes <= reservation->range.start + reservation->range.bytes - address &&
	    !sim_ranges_find(&sim.mappings, address, bytes))
		result = sim_map(reservation, address, handle, false);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Whether whole mappings of cuMemMap fill the range exactly, one after another. */
static bool wholly_mapped(uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes;

	if (bytes == 0 || end < address)
		return false;
	while (address < end) {
		const struct sim_mapping *mapping = sim_mapping_at(address);

		if (!mapping || mapping->range.start != address || mapping->reservation->kind != SIM_RESERVED)
			return false;
		address += mapping->range.bytes;
	}
	return address == end;
}

CUresult sim_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t at, end = address + bytes;

	race_watch_settle_all(); /* run late work now: later it would find no memory */
	pthread_mutex_lock(&sim.lock);
	if (!wholly_mapped(address, bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!sim_flight_clear("cuMemUnmap", address, bytes))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	for (at = address; result == CUDA_SUCCESS && at < end;) {
		struct sim_mapping *mapping = sim_mapping_at(at);

		at += mapping->range.bytes;
		if (!sim_map_cover(mapping))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else
			sim_unmap(mapping);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- access ------------------------------------------------------------------------------------------------------ */

/* Computes the accesses that a mapping will have. */
static void wanted_access(const struct sim_mapping *mapping, const CUmemAccessDesc *access, size_t count,
			  struct sim_mapping *ret_wanted)
{
	*ret_wanted = *mapping;
	for (size_t i = 0; i < count; i++)
		ret_wanted->access[access[i].location.id] = (unsigned char)access[i].flags;
}

/* Whether a device would lose access. */
static bool takes_away(const struct sim_mapping *mapping, const struct sim_mapping *wanted)
{
	for (uint32_t i = 0; i < SIM_DEVICE_LIMIT; i++)
		if ((mapping->access[i] & wanted->access[i]) != mapping->access[i])
			return true;
	return false;
}

static bool flags_known(CUmemAccess_flags flags)
{
	return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
	       flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Checks that each location is the mapping's own device or one of its peers: only these can have access. */
static CUresult check_access(const struct sim_mapping *mapping, const CUmemAccessDesc *access, size_t count)
{
	uint32_t owner = mapping->handle->device;
	struct sim_mapping wanted;

	for (size_t i = 0; i < count; i++) {
		if (!location_known(&access[i].location) || !flags_known(access[i].flags))
			return CUDA_ERROR_INVALID_VALUE;
		if ((uint32_t)access[i].location.id != owner && !sim_peers((uint32_t)access[i].location.id, owner))
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	wanted_access(mapping, access, count, &wanted);
	if (takes_away(mapping, &wanted) &&
	    !sim_flight_clear("cuMemSetAccess", mapping->range.start, mapping->range.bytes))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	return CUDA_SUCCESS;
}

/* Gives the host, for each mapping of the range, the widest access that a device has once `access` applies (count 0:
 * has now). Makes one call for each run of mappings with equal access. */
static bool protect(uint64_t address, uint64_t end, const CUmemAccessDesc *access, size_t count)
{
	uint64_t start = address, at;
	CUmemAccess_flags run = CU_MEM_ACCESS_FLAGS_PROT_NONE, here;
	struct sim_mapping wanted;

	for (at = address; at < end; at += wanted.range.bytes) {
		wanted_access(sim_mapping_at(at), access, count, &wanted);
		here = sim_map_widest(&wanted);
		if (here != run && at > start) {
			if (!sim_map_protect(start, at - start, run))
				return false;
			start = at;
		}
		run = here;
	}
	return sim_map_protect(start, end - start, run);
}

/* Lock held; the range is wholly mapped. If the host refuses, nothing changes. */
static CUresult set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access, size_t count)
{
	uint64_t at, end = address + bytes;
	struct sim_mapping wanted;

	if (!protect(address, end, access, count)) {
		(void)protect(address, end, NULL, 0);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (at = address; at < end; at += wanted.range.bytes) {
		struct sim_mapping *mapping = sim_mapping_at(at);

		wanted_access(mapping, access, count, &wanted);
		memcpy(mapping->access, wanted.access, sizeof mapping->access);
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	CUresult result;
	uint64_t at;

	if (!access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = wholly_mapped(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (at = address; result == CUDA_SUCCESS && at < address + bytes; at += sim_mapping_at(at)->range.bytes)
		result = check_access(sim_mapping_at(at), access, count);
	if (result == CUDA_SUCCESS)
		result = set_access(address, bytes, access, count);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_mapping *mapping;

	if (!flags || !location || !location_known(location))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	mapping = sim_mapping_at(address);
	if (mapping && mapping->reservation->kind == SIM_RESERVED) {
		*flags = mapping->access[location->id];
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- handles again ----------------------------------------------------------------------------------------------- */

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_mapping *mapping;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	mapping = sim_mapping_at((uint64_t)(uintptr_t)address);
	if (mapping && mapping->handle->named) {
		mapping->handle->held++;
		*handle = mapping->handle->id;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle id)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_handle *handle;

	if (!properties)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	handle = sim_handle_held(id);
	if (handle) {
		*properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						    .requestedHandleTypes = handle->handle_types,
						    .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)handle->device}};
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}
