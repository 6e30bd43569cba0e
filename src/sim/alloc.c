/* cuMemAlloc and its like: memory that comes mapped; pinned host memory; and what an address is.
 *
 * Each allocation takes whole pages of SIM_PAGE_BYTES for itself (NVIDIA's driver packs small ones into shared pages;
 * here the cost of many small ones is the worst case of that). A program may touch what it asked for, rounded up to
 * 512 bytes: beyond that is illegal, though the page goes on.
 */
#include "sim/state.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

CUresult sim_allocate(uint32_t device, uint64_t bytes, enum sim_reservation_kind kind,
		      struct sim_reservation **ret_reservation)
{
	uint64_t whole = (bytes + SIM_PAGE_BYTES - 1) / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
	struct sim_reservation *reservation;
	struct sim_handle *handle;
	CUresult result;

	if (bytes > SIM_MEMORY_LIMIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_physical_create(device, whole, &handle);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_reserve(whole, SIM_PAGE_BYTES, 0, &reservation);
	if (result == CUDA_SUCCESS) {
		result = sim_map(reservation, reservation->range.start, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
		if (result != CUDA_SUCCESS)
			sim_unreserve(reservation);
	}
	handle->released = true; /* its mapping holds it */
	sim_physical_settle(handle);
	if (result != CUDA_SUCCESS)
		return result;
	reservation->kind = kind;
	reservation->device = device;
	reservation->requested_bytes = bytes;
	sim_mapping_at(reservation->range.start)->valid_bytes = sim_touchable(bytes);
	*ret_reservation = reservation;
	return CUDA_SUCCESS;
}

void sim_deallocate(struct sim_reservation *reservation)
{
	struct sim_mapping *mapping = sim_mapping_at(reservation->range.start);

	if (mapping)
		sim_unmap(mapping);
	sim_unreserve(reservation);
}

CUresult sim_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
	struct sim_reservation *reservation;
	CUresult result;
	uint32_t device;

	if (!address || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	result = sim_allocate(device, bytes, SIM_ALLOCATED, &reservation);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* what the pool only caches is given up first */
		sim_pool_trim(&sim.devices[device].pool, 0);
		result = sim_allocate(device, bytes, SIM_ALLOCATED, &reservation);
	}
	if (result == CUDA_SUCCESS)
		*address = reservation->range.start;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

struct sim_reservation *sim_allocation_at(uint64_t address)
{
	struct sim_reservation *reservation =
		(struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);

	if (!reservation || reservation->range.start != address || reservation->pool_free ||
	    (reservation->kind != SIM_ALLOCATED && reservation->kind != SIM_POOLED))
		return NULL;
	return reservation;
}

CUresult sim_cuMemFree(CUdeviceptr address)
{
	struct sim_reservation *reservation;
	CUresult result;

	if (address == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	reservation = sim_allocation_at(address);
	pthread_mutex_unlock(&sim.lock);
	if (!reservation)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_synchronize_all(); /* as the driver does */
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	reservation = sim_allocation_at(address); /* another thread may have been faster */
	if (!reservation) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (!sim_flight_clear("cuMemFree", address, reservation->range.bytes)) {
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	} else {
		if (reservation->kind == SIM_POOLED) {
			sim.devices[reservation->device].pool.used_bytes -= reservation->range.bytes;
			sim.devices[reservation->device].pool.reserved_bytes -= reservation->range.bytes;
		}
		sim_deallocate(reservation);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

struct doomed {
	uint32_t device;
	struct sim_reservation *found;
};

static void find_doomed(const void *node, VISIT visit, void *context)
{
	struct sim_reservation *reservation = *(struct sim_reservation *const *)node;
	struct doomed *doomed = context;

	if ((visit == postorder || visit == leaf) && reservation->kind != SIM_RESERVED &&
	    reservation->device == doomed->device)
		doomed->found = reservation;
}

void sim_allocations_drop(uint32_t device)
{
	for (;;) {
		struct doomed doomed = {device, NULL};

		twalk_r(sim.reservations.root, find_doomed, &doomed);
		if (!doomed.found)
			return;
		sim_deallocate(doomed.found);
	}
}

CUresult sim_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	const struct sim_device *target;
	CUresult result = CUDA_SUCCESS;
	uint32_t device;

	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	target = &sim.devices[device];
	pthread_mutex_lock(&sim.lock);
	if (!sim.world)
		result = CUDA_ERROR_DEINITIALIZED;
	else if (free_bytes)
		*free_bytes = sim_world_free_bytes(sim.world, target->index);
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS && total_bytes)
		*total_bytes = target->view.total_bytes - target->view.reserved_bytes;
	return result;
}

/* -- pinned host memory ----------------------------------------------------------------------------------------- */

CUresult sim_cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	struct sim_host *memory;
	void *area;

	if (!pointer || bytes == 0 || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	memory = malloc(sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->range = (struct sim_range){(uint64_t)(uintptr_t)area, bytes};
	pthread_mutex_lock(&sim.lock);
	memory->space = ++sim.next_id;
	if (!sim_ranges_add(&sim.hosts, &memory->range)) {
		pthread_mutex_unlock(&sim.lock);
		munmap(area, bytes);
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim.lock);
	*pointer = area;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemFreeHost(void *pointer)
{
	uint64_t address = (uint64_t)(uintptr_t)pointer;
	CUresult result = sim_synchronize_all();
	struct sim_host *memory;

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	memory = (struct sim_host *)sim_ranges_find(&sim.hosts, address, 1);
	if (!memory || memory->range.start != address) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (!sim_flight_clear("cuMemFreeHost", address, memory->range.bytes)) {
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	} else {
		sim_engine_forget(sim.engine, memory->space);
		sim_ranges_remove(&sim.hosts, &memory->range);
		munmap(pointer, memory->range.bytes);
		free(memory);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- what an address is ----------------------------------------------------------------------------------------- */

/* The allocation, mapping or pinned range around an address. Lock held. */
static bool describe(uint64_t address, struct sim_range *ret_range, CUmemorytype *ret_type, uint32_t *ret_device)
{
	const struct sim_mapping *mapping = sim_mapping_at(address);
	const struct sim_range *pinned = sim_ranges_find(&sim.hosts, address, 1);

	if (mapping && !mapping->reservation->pool_free) {
		*ret_range = mapping->range;
		if (mapping->reservation->kind != SIM_RESERVED)
			ret_range->bytes = mapping->reservation->requested_bytes;
		*ret_type = CU_MEMORYTYPE_DEVICE;
		*ret_device = mapping->handle->device;
		return address - ret_range->start < ret_range->bytes;
	}
	if (!pinned)
		return false;
	*ret_range = *pinned;
	*ret_type = CU_MEMORYTYPE_HOST;
	return sim_current_device(ret_device);
}

CUresult sim_cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct sim_range range;
	CUmemorytype type = 0;
	uint32_t device;
	bool known;

	pthread_mutex_lock(&sim.lock);
	known = describe(address, &range, &type, &device) && type == CU_MEMORYTYPE_DEVICE;
	pthread_mutex_unlock(&sim.lock);
	if (!known)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = range.start;
	if (bytes)
		*bytes = range.bytes;
	return CUDA_SUCCESS;
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct sim_range range;
	CUmemorytype type = 0;
	uint32_t device;
	bool known;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	known = describe(address, &range, &type, &device);
	pthread_mutex_unlock(&sim.lock);
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = &sim.devices[device].context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = (unsigned int)type;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = (int)device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = range.start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = range.bytes;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}
