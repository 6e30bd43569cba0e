/* cuMemAlloc and similar calls: device memory that is already mapped when the call returns.
 *
 * Each allocation takes whole pages of SIM_PAGE_BYTES for itself. NVIDIA's driver packs small ones into shared pages,
 * so here many small ones cost the worst case. A program may touch the bytes it asked for, rounded up to 512: access
 * beyond them is illegal, even inside the page.
 */
#include "sim/driver/state.h"

#include <search.h>

#define PITCH_ALIGN 512

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
	result = sim_reserve_lowest(whole, &reservation);
	if (result == CUDA_SUCCESS) {
		result = sim_map(reservation, reservation->range.start, handle, true);
		if (result != CUDA_SUCCESS)
			sim_unreserve(reservation);
	}
	sim_physical_release(handle); /* the mapping holds the handle now */
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
	CUcontext context = sim_current_context();
	CUresult result;

	if (!address || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	result = sim_allocate(context->device, bytes, SIM_ALLOCATED, &reservation);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* let pools free their cached blocks, and try again */
		sim_pools_trim(context->device, 0);
		result = sim_allocate(context->device, bytes, SIM_ALLOCATED, &reservation);
	}
	if (result == CUDA_SUCCESS) {
		reservation->context = context;
		*address = reservation->range.start;
	}
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
	bool host;

	if (address == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	reservation = sim_allocation_at(address);
	host = !reservation && sim_host_at(address);
	pthread_mutex_unlock(&sim.lock);
	if (host)
		return sim_managed_free(address);
	if (!reservation)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_synchronize_all(); /* as the driver does */
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	reservation = sim_allocation_at(address); /* another thread may have freed the allocation meanwhile */
	if (!reservation) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (!sim_flight_clear("cuMemFree", address, reservation->range.bytes)) {
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	} else {
		if (reservation->pool)
			sim_pool_take_out(reservation);
		sim_deallocate(reservation);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

struct doomed {
	CUcontext context;
	uint32_t device;
	struct sim_reservation *found;
};

static void find_doomed(const void *node, VISIT visit, void *context)
{
	struct sim_reservation *reservation = *(struct sim_reservation *const *)node;
	struct doomed *doomed = context;

	if ((visit == postorder || visit == leaf) && reservation->kind != SIM_RESERVED &&
	    reservation->context == doomed->context && (doomed->context || reservation->device == doomed->device))
		doomed->found = reservation;
}

void sim_allocations_drop(CUcontext context, uint32_t device)
{
	for (;;) {
		struct doomed doomed = {context, device, NULL};

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

/* The pitch makes each row start at an address that the device reads fast. */
CUresult sim_cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
			     unsigned int element_bytes)
{
	size_t wide = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
	CUresult result;

	if (!address || !pitch || width == 0 || height == 0 || width > SIM_MEMORY_LIMIT ||
	    height > SIM_MEMORY_LIMIT / PITCH_ALIGN ||
	    (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (wide > SIM_MEMORY_LIMIT / height)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_cuMemAlloc(address, wide * height);
	if (result == CUDA_SUCCESS)
		*pitch = wide;
	return result;
}

/* -- memory of graphs: always 0, as graphs have no memory nodes here --------------------------------------------- */

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || attribute < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
	    attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = 0;
	return CUDA_SUCCESS;
}

/* A peak value may be reset to 0, as documented. */
CUresult sim_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || *(cuuint64_t *)value != 0 ||
	    (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGraphMemTrim(CUdevice device)
{
	return sim_device_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
