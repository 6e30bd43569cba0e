/* Stream-ordered allocation: cuMemAllocAsync, cuMemFreeAsync and each device's default pool.
 *
 *   alloc on A -- use on A -- free on A ==event==> [cached in the pool] ==wait==> alloc on B -- use on B
 *
 * Both ends are work that writes the whole range: use on a stream that was not ordered after the allocation, or not
 * ordered before the free, is a race like any other. The pool reuses blocks of the same size only, ordering the new
 * owner after the old one itself, and gives back what exceeds its release threshold at a synchronisation.
 *
 *   reserved = used + sum of the free list
 */
#include "sim/state.h"

static struct CUmemPoolHandle_st *pool_known(CUmemoryPool pool)
{
	uint32_t i;

	for (i = 0; i < sim.device_count; i++)
		if (pool == &sim.devices[i].pool)
			return pool;
	return NULL;
}

void sim_pool_trim(struct CUmemPoolHandle_st *pool, uint64_t keep_bytes)
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

CUresult sim_after_wait(CUresult result)
{
	uint32_t device;

	if (result != CUDA_SUCCESS || !sim_current_device(&device))
		return result;
	pthread_mutex_lock(&sim.lock);
	sim_pool_trim(&sim.devices[device].pool, sim.devices[device].pool.threshold);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* A cached block of exactly this size, taken off the list. */
static struct sim_reservation *take_cached(struct CUmemPoolHandle_st *pool, uint64_t bytes)
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
static CUresult take(struct CUmemPoolHandle_st *pool, size_t bytes, struct sim_reservation **ret_block,
		     bool *ret_cached)
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
		result = sim_allocate(pool->device, bytes, SIM_POOLED, &block);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			sim_pool_trim(pool, 0);
			result = sim_allocate(pool->device, bytes, SIM_POOLED, &block);
		}
		if (result != CUDA_SUCCESS)
			return result;
		pool->reserved_bytes += block->range.bytes;
	}
	pool->used_bytes += block->range.bytes;
	*ret_block = block;
	return CUDA_SUCCESS;
}

static CUresult order(CUstream stream, const char *name, uint64_t start, uint64_t bytes)
{
	struct neap_sim_range range = {start, bytes, 1};
	struct sim_task task = {.name = name, .ranges = &range, .range_count = 1};

	return sim_submit(stream, &task, NULL);
}

/* As it was before cuMemAllocAsync took it. */
static void undo(struct CUmemPoolHandle_st *pool, struct sim_reservation *block)
{
	pthread_mutex_lock(&sim.lock);
	pool->used_bytes -= block->range.bytes;
	pool->reserved_bytes -= block->range.bytes;
	sim_deallocate(block);
	pthread_mutex_unlock(&sim.lock);
}

/* Pool memory in a capture would be the graph's: not simulated. */
static CUresult check_stream(CUstream stream, uint32_t *ret_number)
{
	CUresult result;
	bool capturing;

	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, ret_number, &capturing);
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS && capturing ? CUDA_ERROR_NOT_SUPPORTED : result;
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	struct CUmemPoolHandle_st *pool;
	struct sim_reservation *block;
	uint32_t device, number;
	CUresult result;
	bool cached;

	if (!address || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = check_stream(stream, &number);
	if (result != CUDA_SUCCESS)
		return result;
	pool = &sim.devices[device].pool;
	pthread_mutex_lock(&sim.lock);
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
		undo(pool, block);
		return result;
	}
	*address = block->range.start;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	struct CUmemPoolHandle_st *pool;
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
	if (block && block->kind == SIM_POOLED)
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
		result = CUDA_ERROR_INVALID_VALUE; /* freed by two threads at once */
	if (result == CUDA_SUCCESS) {
		pool = &sim.devices[block->device].pool;
		block->pool_free = true;
		block->free_event = event;
		block->next_free = pool->free_list;
		pool->free_list = block;
		pool->used_bytes -= block->range.bytes;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		sim_event_destroy(sim.engine, event);
	return result;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	if (device < 0 || (uint32_t)device >= sim.device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = &sim.devices[device].pool;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes_to_keep)
{
	struct CUmemPoolHandle_st *pool = pool_known(handle);

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	sim_pool_trim(pool, bytes_to_keep);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct CUmemPoolHandle_st *pool = pool_known(handle);

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&sim.lock);
	pool->threshold = *(cuuint64_t *)value;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	struct CUmemPoolHandle_st *pool = pool_known(handle);
	CUresult result = CUDA_SUCCESS;
	cuuint64_t *to = value;

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		*to = pool->threshold;
	else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		*to = pool->reserved_bytes;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		*to = pool->used_bytes;
	else
		result = CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_unlock(&sim.lock);
	return result;
}
