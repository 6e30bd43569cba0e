/* Launches of kernels. A kernel does nothing: a launch checks its arguments and adds the time of NEAP_SIM_KERNEL
 * (default 0) to its stream. Launches are the most frequent calls, so outside of a capture they allocate nothing
 * (sim_stream_pass). */
#include "sim/driver/graph.h"
#include "sim/driver/occupancy.h"
#include "sim/profiles/architecture.h"

#include <dlfcn.h>
#include <string.h>

/* Words of the parameter `extra`, as in cuda.h. */
#define PARAM_END            ((void *)0)
#define PARAM_BUFFER_POINTER ((void *)1)
#define PARAM_BUFFER_SIZE    ((void *)2)

static _Atomic uint64_t loaded_launches;

/* Lock held. */
static CUresult add_node(CUstream stream, const char *name, uint64_t duration_ns)
{
	struct sim_task task = {.name = name, .duration_ns = duration_ns};
	struct sim_operation *operation = sim_operation_create(&task);

	if (!operation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return sim_capture_add(stream, CU_GRAPH_NODE_TYPE_KERNEL, operation, NULL);
}

CUresult sim_launch(CUstream stream, const char *name, uint64_t duration_ns)
{
	bool capturing;
	CUresult result;
	uint32_t number;

	if (duration_ns == 0)
		duration_ns = sim.kernel_ns;
	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, &number, &capturing);
	if (result == CUDA_SUCCESS && capturing)
		result = add_node(stream, name, duration_ns);
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || capturing)
		return result;
	return sim_result_of(sim_stream_pass(sim.engine, number, duration_ns));
}

int64_t sim_cluster_blocks(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			return (int64_t)attribute->value.clusterDim.x * attribute->value.clusterDim.y *
			       attribute->value.clusterDim.z;
	}
	return 0;
}

static bool is_cooperative(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.cooperative)
			return true;
	return false;
}

/* Checks the sizes that every launch has. */
static bool sizes_good(const CUlaunchConfig *config)
{
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;

	return config->gridDimX >= 1 && config->gridDimX <= 0x7fffffff && config->gridDimY >= 1 &&
	       config->gridDimY <= 65535 && config->gridDimZ >= 1 && config->gridDimZ <= 65535 &&
	       config->blockDimX <= 1024 && config->blockDimY <= 1024 && config->blockDimZ <= 64 && threads >= 1 &&
	       threads <= SIM_THREADS_PER_BLOCK;
}

static CUresult check_cluster(const struct CUfunc_st *function, const struct sim_device *device,
			      const CUlaunchConfig *config)
{
	int64_t blocks = sim_cluster_blocks(config);

	if (blocks == 0)
		return CUDA_SUCCESS;
	if (!sim_architecture_of(device)->clusters)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (blocks > sim_cluster_limit(function) ||
	    (int64_t)config->gridDimX * config->gridDimY * config->gridDimZ % blocks != 0)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return CUDA_SUCCESS;
}

/* All blocks of a cooperative launch must be on the device at once. */
static CUresult check_cooperative(const struct sim_device *device, const CUlaunchConfig *config)
{
	uint64_t blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
	int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);

	return blocks <= (uint64_t)sim_occupancy(device, threads, config->sharedMemBytes) *
				       (uint64_t)device->view.multiprocessors
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

/* Lock held. */
static CUresult check(const struct CUfunc_st *function, const CUlaunchConfig *config)
{
	CUcontext context = sim_current_context();
	uint32_t stream_device;
	CUresult result;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = sim_stream_device(config->hStream, &stream_device);
	if (result != CUDA_SUCCESS)
		return result;
	if (!function || (function->module && function->module->context != sim_stream_context(config->hStream)))
		return CUDA_ERROR_INVALID_HANDLE;
	if (function->module && function->module->context != context)
		return CUDA_ERROR_INVALID_HANDLE; /* only a CUkernel may take its context from the stream */
	if (!sizes_good(config) || config->sharedMemBytes > (unsigned int)function->shared_limit)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_cluster(function, &sim.devices[stream_device], config);
	if (result == CUDA_SUCCESS && is_cooperative(config))
		result = check_cooperative(&sim.devices[stream_device], config);
	return result;
}

/* Notes the first kernel that a program launches without the stand-in for CUDA's runtime. Nothing else reports such a
 * program. */
static void note(const char *name)
{
	static atomic_flag noted = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&noted) || dlsym(RTLD_DEFAULT, "neap_sim_get_values"))
		return;
	sim_note("kernel %.60s was launched and computed nothing, as every kernel here: what it would have written "
		 "keeps its old bytes",
		 name);
}

/* Calls the function that watches launches. */
static void tell(const char *name, size_t count, void **parameters, void **extra)
{
	sim_launch_watch watch = atomic_load_explicit(&sim.launch_watch, memory_order_relaxed);
	struct neap_sim_launch launch = {.name = name, .parameters = parameters, .count = count};

	for (int i = 0; watch && extra && i < 2 && extra[2 * i] != PARAM_END; i++)
		if (extra[2 * i] == PARAM_BUFFER_POINTER)
			launch.packed = extra[2 * i + 1];
		else if (extra[2 * i] == PARAM_BUFFER_SIZE && extra[2 * i + 1])
			memcpy(&launch.packed_bytes, extra[2 * i + 1], sizeof launch.packed_bytes);
	if (watch)
		watch(&launch);
	else
		note(name);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **parameters, void **extra)
{
	const struct CUfunc_st *function;
	const char *name = NULL;
	size_t count = 0;
	CUresult result;

	if (!config || (parameters && extra) || (config->numAttrs > 0 && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known(handle);
	result = check(function, config);
	if (result == CUDA_SUCCESS) {
		name = function->name;
		count = function->parameters;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		result = sim_launch(config->hStream, name, 0);
	if (result == CUDA_SUCCESS) {
		atomic_fetch_add_explicit(&loaded_launches, 1, memory_order_relaxed);
		tell(name, count, parameters, extra);
	}
	return result;
}

uint64_t sim_loaded_launches(void) { return atomic_load_explicit(&loaded_launches, memory_order_relaxed); }

CUresult sim_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			    unsigned int block_x, unsigned int block_y, unsigned int block_z,
			    unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
	CUlaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0};

	return sim_cuLaunchKernelEx(&config, function, parameters, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
				       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				       unsigned int block_z, unsigned int shared_bytes, CUstream stream,
				       void **parameters)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
	CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x,    block_y,
				 block_z, shared_bytes, stream, &attribute, 1};

	return sim_cuLaunchKernelEx(&config, function, parameters, NULL);
}
