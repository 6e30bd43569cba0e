/* A context's flags, limits and preferences. They are stored and returned. They have no effect, as no kernel runs,
 * and they take no memory (on a GPU, a larger stack or heap does). */
#include "sim/driver/state.h"
#include "sim/profiles/architecture.h"

void sim_settings_reset(struct CUctx_st *context)
{
	const struct sim_architecture *architecture = sim_architecture_of(&sim.devices[context->device]);

	context->settings = (struct sim_settings){
		.limits = {[CU_LIMIT_STACK_SIZE] = 1024,
			   [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
			   [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
			   [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
			   [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
			   [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = (size_t)architecture->l2_fetch_bytes}};
}

/* Whether the limit exists: as documented, devices of compute capability 9.0 and newer have no depth of
 * synchronisation. */
static bool limit_known(const struct CUctx_st *context, CUlimit limit)
{
	const struct sim_device *device = &sim.devices[context->device];

	if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
		return device->view.compute_major < 9;
	if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return sim_architecture_of(device)->residency;
	return limit >= CU_LIMIT_STACK_SIZE && limit <= CU_LIMIT_MAX_L2_FETCH_GRANULARITY;
}

CUresult sim_cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct CUctx_st *context = sim_current_context();

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!limit_known(context, limit))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	pthread_mutex_lock(&sim.lock);
	*value = context->settings.limits[limit];
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* A set-aside that is larger than the cache is cut to the device's limit. */
CUresult sim_cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct CUctx_st *context = sim_current_context();
	int most = 0;

	if (!limit_known(context, limit))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > 128)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
		(void)sim_cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
					       (CUdevice)context->device);
		if (value > (size_t)most)
			value = (size_t)most;
	}
	pthread_mutex_lock(&sim.lock);
	context->settings.limits[limit] = value;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxResetPersistingL2Cache(void) { return CUDA_SUCCESS; }

CUresult sim_cuCtxGetCacheConfig(CUfunc_cache *config)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = sim_current_context()->settings.cache;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCacheConfig(CUfunc_cache config)
{
	if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	sim_current_context()->settings.cache = config;
	return CUDA_SUCCESS;
}

/* The size of shared memory's banks has been fixed since compute capability 5.0. */
CUresult sim_cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = SIM_PRIORITY_LEAST;
	if (greatest)
		*greatest = SIM_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}

/* -- flags ------------------------------------------------------------------------------------------------------- */

bool sim_context_flags_good(unsigned int flags)
{
	unsigned int schedule = flags & CU_CTX_SCHED_MASK;

	return (flags & ~(unsigned int)CU_CTX_FLAGS_MASK) == 0 && (schedule & (schedule - 1)) == 0;
}

/* The flags can be set even while no context exists. */
CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!sim_context_flags_good(flags))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	sim.devices[device].context.flags = flags;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetFlags(unsigned int *flags)
{
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = sim_current_context()->flags;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetFlags(unsigned int flags)
{
	if (!sim_context_flags_good(flags))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	sim_current_context()->flags = flags;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* It has no effect without a profiler, as documented. */
CUresult sim_cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult sim_cuProfilerStop(void) { return CUDA_SUCCESS; }
