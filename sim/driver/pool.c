/* Stream-ordered allocation (cuMemAllocAsync, cuMemFreeAsync), each device's default pool, and the program's pools.
 *
 *   alloc on A -- use on A -- free on A ==event==> [cached in the pool] ==wait==> alloc on B -- use on B
 *
 * Both ends are work that writes the whole range. So a use that is not ordered after the allocation, or not before
 * the free, is a race like any other. A pool reuses only blocks of the same size, and itself orders the new owner
 * after the old one. At a synchronisation it frees cached bytes above its release threshold.
 *
 *   reserved = used + sum of the free list
 *
 * A destroyed pool is freed with its last allocation.
 */
#include "sim/driver/state.h"

#include <stdlib.h>
#include <string.h>

/* -- pools, lock held -------------------------------------------------------------------------------------------- */

static CUmemoryPool pool_create(uint32_t device, uint64_t limit)
{
	CUmemoryPool pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	*pool = (struct CUmemPoolHandle_st){.next = sim.pools, .device = device, .limit = limit, .reuse = {1, 1, 1}};
	sim.pools = pool;
	return pool;
}

static void pool_unlink(CUmemoryPool pool)
{
	CUmemoryPool *link = &sim.pools;

	while (*link != pool)
		link = &(*link)->next;
	*link = pool->next;
}

/* The pool with this handle, or NULL. */
static CUmemoryPool pool_known(CUmemoryPool pool)
{
	CUmemoryPool known = sim.pools;

	while (known && known != pool)
		known = known->next;
	return known && !known->destroyed ? known : NULL;
}

/* A device's default pool, and its current one, for cuMemAllocAsync. NULL: host out of memory. */
static CUmemoryPool device_pool(uint32_t ordinal)
{
	struct sim_device *device = &sim.devices[ordinal];

	if (!device->default_pool)
		device->default_pool = pool_create(ordinal, 0);
	if (!device->pool)
		device->pool = device->default_pool;
	return device->pool;
}

static void trim(CUmemoryPool pool, uint64_t keep_bytes)
{
	struct sim_reservation **link = &pool->free_list;

	while (*link && pool->reserved_bytes > keep_bytes) {
		struct sim_reservation *block = *link;

		if (sim_flight_over(block->range.start, block->range.bytes)) {
			link = &block->next_free;
			continue;
		}
		*link = block->next_free;
		pool->reserved_bytes -= block->range.bytes;
		sim_event_destroy(sim.engine, block->free_event);
		sim_deallocate(block);
	}
}

/* Frees a destroyed pool without allocations. */
static void settle(CUmemoryPool pool)
{
	if (!pool->destroyed || pool->reserved_bytes > 0)
		return;
	pool_unlink(pool);
	free(pool);
}

void sim_pools_trim(uint32_t device, uint64_t keep_bytes)
{
	CUmemoryPool pool, next;

	for (pool = sim.pools; pool; pool = next) {
		next = pool->next;
		if (pool->device != device)
			continue;
		trim(pool, keep_bytes);
		settle(pool);
	}
}

CUresult sim_after_wait(CUresult result)
{
	CUmemoryPool pool, next;
	uint32_t device;

	if (result != CUDA_SUCCESS || !sim_current_device(&device))
		return result;
	pthread_mutex_lock(&sim.lock);
	for (pool = sim.pools; pool; pool = next) {
		next = pool->next;
		if (pool->device != device)
			continue;
		trim(pool, pool->destroyed ? 0 : pool->threshold);
		settle(pool);
	}
	pthread_mutex_unlock(&sim.lock);
	return atomic_load(&sim.sticky); /* late work may have failed */
}

void sim_pool_take_out(struct sim_reservation *block)
{
	CUmemoryPool pool = block->pool;

	pool->used_bytes -= block->range.bytes;
	pool->reserved_bytes -= block->range.bytes;
	block->pool = NULL;
	settle(pool);
}

void sim_pools_drop(uint32_t device)
{
	CUmemoryPool pool, next;

	for (pool = sim.pools; pool; pool = next) {
		next = pool->next;
		if (pool->device != device)
			continue;
		while (pool->free_list) {
			struct sim_reservation *block = pool->free_list;

			pool->free_list = block->next_free;
			sim_event_destroy(sim.engine, block->free_event);
			sim_deallocate(block);
		}
		pool_unlink(pool);
		free(pool);
	}
	sim_allocations_drop(NULL, device);
	sim.devices[device].default_pool = sim.devices[device].pool = NULL;
}

/* -- blocks ------------------------------------------------------------------------------------------------------ */

static void raise(uint64_t *high, uint64_t value)
{
	if (value > *high)
		*high = value;
}

/* Removes a cached block of exactly this size from the list. */
static struct sim_reservation *take_cached(CUmemoryPool pool, uint64_t bytes)
{
	struct sim_reservation **link = &pool->free_list, *block;

	while (*link && (*link)->range.bytes != bytes)
		link = &(*link)->next_free;
	block = *link;
	if (block)
		*link = block->next_free;
	return block;
}

/* A block for `bytes`, cached or new. Lock held. */
static CUresult take(CUmemoryPool pool, size_t bytes, struct sim_reservation **ret_block, bool *ret_cached)
{
	uint64_t whole = (bytes + SIM_PAGE_BYTES - 1) / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
	struct sim_reservation *block = take_cached(pool, whole);
	CUresult result = CUDA_SUCCESS;

	*ret_cached = block != NULL;
	if (block) {
		block->pool_free = false;
		block->requested_bytes = bytes;
		sim_mapping_at(block->range.start)->valid_bytes = sim_touchable(bytes);
	} else {
		if (pool->limit && whole > pool->limit - pool->reserved_bytes)
			trim(pool, 0);
		if (pool->limit && whole > pool->limit - pool->reserved_bytes)
			return CUDA_ERROR_OUT_OF_MEMORY;
		result = sim_allocate(pool->device, bytes, SIM_POOLED, &block);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			trim(pool, 0);
			result = sim_allocate(pool->device, bytes, SIM_POOLED, &block);
		}
		if (result != CUDA_SUCCESS)
			return result;
		block->pool = pool;
		pool->reserved_bytes += block->range.bytes;
	}
	pool->used_bytes += block->range.bytes;
	raise(&pool->reserved_high, pool->reserved_bytes);
	raise(&pool->used_high, pool->used_bytes);
	*ret_block = block;
	return CUDA_SUCCESS;
}

static CUresult order(CUstream stream, const char *name, uint64_t start, uint64_t bytes)
{
	struct neap_sim_range range = {start, bytes, 1};
	struct sim_task task = {.name = name, .ranges = &range, .range_count = 1};

	return sim_submit(stream, &task, NULL);
}

/* Called after an allocation that failed: removes the block from its pool and frees it. */
static void undo(struct sim_reservation *block)
{
	pthread_mutex_lock(&sim.lock);
	sim_pool_take_out(block);
	sim_deallocate(block);
	pthread_mutex_unlock(&sim.lock);
}

/* Refuses a capturing stream: its memory would belong to the graph, which is not simulated. */
static CUresult check_stream(CUstream stream, uint32_t *ret_number)
{
	CUresult result;
	bool capturing;

	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, ret_number, &capturing);
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS && capturing ? CUDA_ERROR_NOT_SUPPORTED : result;
}

/* Uses `pool` if `given`, else the current pool of the stream's device. */
static CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, bool given, CUstream stream)
{
	struct sim_reservation *block;
	uint32_t device, number;
	bool cached = false;
	CUresult result;

	if (!address || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_stream(stream, &number);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	result = sim_stream_device(stream, &device);
	if (result == CUDA_SUCCESS) {
		pool = given ? pool_known(pool) : device_pool(device);
		result = pool ? CUDA_SUCCESS : given ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS)
		result = take(pool, bytes, &block, &cached);
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		return result;
	if (cached) {
		result = sim_result_of(sim_stream_wait_event(sim.engine, number, block->free_event));
		sim_event_destroy(sim.engine, block->free_event);
	}
	if (result == CUDA_SUCCESS)
		result = order(stream, "cuMemAllocAsync", block->range.start, bytes);
	if (result != CUDA_SUCCESS) {
		undo(block);
		return result;
	}
	*address = block->range.start;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	return allocate(address, bytes, NULL, false, stream);
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate(address, bytes, pool, true, stream);
}

CUresult sim_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	struct sim_reservation *block;
	uint32_t number, event;
	uint64_t bytes = 0;
	CUresult result;

	if (address == 0)
		return CUDA_SUCCESS;
	result = check_stream(stream, &number);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	block = sim_allocation_at(address);
	if (block && block->pool)
		bytes = block->requested_bytes;
	pthread_mutex_unlock(&sim.lock);
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_result_of(sim_event_create(sim.engine, &event));
	if (result != CUDA_SUCCESS)
		return result;
	result = order(stream, "cuMemFreeAsync", address, bytes);
	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_event_record(sim.engine, event, number));
	pthread_mutex_lock(&sim.lock);
	block = sim_allocation_at(address);
	if (result == CUDA_SUCCESS && !block)
		result = CUDA_ERROR_INVALID_VALUE; /* two threads freed it at once */
	if (result == CUDA_SUCCESS) {
		block->pool_free = true;
		block->free_event = event;
		block->next_free = block->pool->free_list;
		block->pool->free_list = block;
		block->pool->used_bytes -= block->range.bytes;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		sim_event_destroy(sim.engine, event);
	return result;
}

/* -- the calls --------------------------------------------------------------------------------------------------- */

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	(void)device_pool((uint32_t)device);
	*pool = sim.devices[device].default_pool;
	pthread_mutex_unlock(&sim.lock);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	*pool = device_pool((uint32_t)device);
	pthread_mutex_unlock(&sim.lock);
	return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The pool must belong to the device, as documented. */
CUresult sim_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool) && pool->device == (uint32_t)device && device_pool((uint32_t)device)) {
		sim.devices[device].pool = pool;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Only pools of device memory that is not shared with other processes. */
CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
	CUmemoryPool made;

	if (!pool || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties->usage != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_device_known(properties->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	made = pool_create((uint32_t)properties->location.id, properties->maxSize);
	pthread_mutex_unlock(&sim.lock);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pool = made;
	return CUDA_SUCCESS;
}

/* A device whose current pool this was returns to its default pool. */
CUresult sim_cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool) && pool != sim.devices[pool->device].default_pool) {
		if (sim.devices[pool->device].pool == pool)
			sim.devices[pool->device].pool = sim.devices[pool->device].default_pool;
		pool->destroyed = true;
		trim(pool, 0);
		settle(pool);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes_to_keep)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool)) {
		trim(pool, bytes_to_keep);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Resets a peak to the current value. Programs can do this only by setting it to 0. Lock held. */
static CUresult lower(uint64_t *high, uint64_t now, const void *value)
{
	if (*(const cuuint64_t *)value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*high = now;
	return CUDA_SUCCESS;
}

/* Lock held. */
static CUresult set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - 1] = *(const int *)value != 0;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(const cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return lower(&pool->reserved_high, pool->reserved_bytes, value);
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return lower(&pool->used_high, pool->used_bytes, value);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool))
		result = set_attribute(pool, attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Lock held. */
static CUresult get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	cuuint64_t *bytes = value;

	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attribute - 1];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*bytes = pool->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*bytes = pool->reserved_bytes;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*bytes = pool->reserved_high;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*bytes = pool->used_bytes;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*bytes = pool->used_high;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool))
		result = get_attribute(pool, attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- access of other devices ------------------------------------------------------------------------------------- */

static bool place_good(CUmemoryPool pool, const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_known(location->id) &&
	       ((uint32_t)location->id == pool->device || sim_peers((uint32_t)location->id, pool->device));
}

/* The pool's own device keeps its access. */
CUresult sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	size_t i;

	if (!access && count > 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool))
		result = CUDA_SUCCESS;
	for (i = 0; result == CUDA_SUCCESS && i < count; i++)
		if (!place_good(pool, &access[i].location))
			result = CUDA_ERROR_INVALID_DEVICE;
		else if ((uint32_t)access[i].location.id == pool->device &&
			 access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			result = CUDA_ERROR_INVALID_VALUE;
	for (i = 0; result == CUDA_SUCCESS && i < count; i++)
		pool->access[access[i].location.id] = (unsigned char)access[i].flags;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (pool_known(pool) && location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device_known(location->id)) {
		*flags = (uint32_t)location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
								: pool->access[location->id];
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}
