/* How many blocks of a kernel fit on a multiprocessor at once: the least that its threads, registers, shared memory
 * and block slots allow. function.c has a kernel's registers and shared memory. */
#include "sim/driver/occupancy.h"
#include "sim/profiles/architecture.h"

/* A warp gets registers in multiples of this number. */
#define REGISTER_UNIT 256
#define SHARED_UNIT   128

static int least(int a, int b) { return a < b ? a : b; }

static int warps_of(int block_size) { return (block_size + SIM_WARP - 1) / SIM_WARP; }

/* Returns how much shared memory a block takes. */
static size_t shared_taken(const struct sim_architecture *architecture, size_t dynamic_bytes)
{
	size_t bytes = dynamic_bytes + (size_t)architecture->shared_reserved;

	return (bytes + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
}

int sim_occupancy(const struct sim_device *device, int block_size, size_t shared_bytes)
{
	const struct sim_architecture *architecture = sim_architecture_of(device);
	int warps = warps_of(block_size);
	int registers = (SIM_KERNEL_REGISTERS * SIM_WARP + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
	size_t shared = shared_taken(architecture, shared_bytes);
	int blocks;

	if (block_size <= 0 || block_size > SIM_THREADS_PER_BLOCK ||
	    shared_bytes > (size_t)architecture->shared_optin_bytes)
		return 0;
	blocks = least(architecture->blocks, architecture->threads / SIM_WARP / warps);
	blocks = least(blocks, SIM_REGISTERS / (registers * warps));
	if (shared > 0)
		blocks = least(blocks, (int)((size_t)architecture->shared_bytes / shared));
	return blocks;
}

/* The device of a function; false: no such function, or no context. */
static bool device_of(CUfunction handle, struct CUfunc_st *ret_function, const struct sim_device **ret_device)
{
	const struct CUfunc_st *function;
	uint32_t device;

	if (!sim_current_device(&device))
		return false;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known(handle);
	if (function) {
		*ret_function = *function;
		*ret_device = &sim.devices[function->module ? function->module->context->device : device];
	}
	pthread_mutex_unlock(&sim.lock);
	return function != NULL;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size,
								  size_t shared_bytes, unsigned int flags)
{
	const struct sim_device *device;
	struct CUfunc_st function;

	if (!blocks || block_size <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_of(handle, &function, &device))
		return CUDA_ERROR_INVALID_HANDLE;
	*blocks = sim_occupancy(device, block_size, shared_bytes);
	return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
							 size_t shared_bytes)
{
	return sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes,
									0);
}

/* The largest block size that puts the most threads on a multiprocessor. */
CUresult sim_cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction handle,
						       CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
						       int limit, unsigned int flags)
{
	const struct sim_device *device;
	struct CUfunc_st function;
	int best = 0, best_blocks = 0, size;

	if (!grid_size || !block_size || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_of(handle, &function, &device))
		return CUDA_ERROR_INVALID_HANDLE;
	if (limit <= 0 || limit > SIM_THREADS_PER_BLOCK)
		limit = SIM_THREADS_PER_BLOCK;
	for (size = (limit + SIM_WARP - 1) / SIM_WARP * SIM_WARP; size > 0; size -= SIM_WARP) {
		int tried = least(size, limit);
		int blocks = sim_occupancy(device, tried, shared_of_block ? shared_of_block(tried) : shared_bytes);

		if (blocks * tried > best * best_blocks) {
			best = tried;
			best_blocks = blocks;
		}
	}
	*block_size = best;
	*grid_size = best_blocks * device->view.multiprocessors;
	return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
					      CUoccupancyB2DSize shared_of_block, size_t shared_bytes, int limit)
{
	return sim_cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of_block,
							     shared_bytes, limit, 0);
}

CUresult sim_cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared_bytes, CUfunction handle, int blocks,
						     int block_size)
{
	const struct sim_architecture *architecture;
	const struct sim_device *device;
	struct CUfunc_st function;
	size_t share;

	if (!shared_bytes || blocks <= 0 || block_size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_of(handle, &function, &device))
		return CUDA_ERROR_INVALID_HANDLE;
	if (blocks > sim_occupancy(device, block_size, 0))
		return CUDA_ERROR_INVALID_VALUE;
	architecture = sim_architecture_of(device);
	share = (size_t)(architecture->shared_bytes / blocks) / SHARED_UNIT * SHARED_UNIT;
	share -= (size_t)architecture->shared_reserved;
	*shared_bytes = share < (size_t)function.shared_limit ? share : (size_t)function.shared_limit;
	return CUDA_SUCCESS;
}

/* -- clusters ---------------------------------------------------------------------------------------------------- */

int sim_cluster_limit(const struct CUfunc_st *function)
{
	return function->any_cluster ? SIM_CLUSTER_LIMIT : SIM_CLUSTER_PORTABLE;
}

CUresult sim_cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config)
{
	const struct sim_device *device;
	struct CUfunc_st function;

	if (!size || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_of(handle, &function, &device))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!sim_architecture_of(device)->clusters)
		return CUDA_ERROR_NOT_SUPPORTED;
	*size = sim_cluster_limit(&function);
	return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
	const struct sim_device *device;
	struct CUfunc_st function;
	int64_t cluster, threads;

	if (!clusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_of(handle, &function, &device))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!sim_architecture_of(device)->clusters)
		return CUDA_ERROR_NOT_SUPPORTED;
	threads = (int64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
	cluster = sim_cluster_blocks(config);
	if (cluster == 0 || threads <= 0 || threads > SIM_THREADS_PER_BLOCK)
		return CUDA_ERROR_INVALID_VALUE;
	if (cluster > sim_cluster_limit(&function))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*clusters = (int)(sim_occupancy(device, (int)threads, config->sharedMemBytes) *
			  (int64_t)device->view.multiprocessors / cluster);
	return CUDA_SUCCESS;
}
