/* Resources and settings of kernels. Machine code is not read: every kernel counts as needing SIM_KERNEL_REGISTERS
 * registers a thread, no local memory and no static shared memory. */
#include "sim/driver/module.h"
#include "sim/profiles/architecture.h"

/* The attribute's value for this function on this device. */
static CUresult function_attribute(const struct CUfunc_st *function, const struct sim_device *device,
				   CUfunction_attribute attribute, int *ret_value)
{
	int capability = device->view.compute_major * 10 + device->view.compute_minor;
	const int values[SIM_FUNCTION_ATTRIBUTES] = {
		[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = SIM_THREADS_PER_BLOCK,
		[CU_FUNC_ATTRIBUTE_NUM_REGS] = SIM_KERNEL_REGISTERS,
		[CU_FUNC_ATTRIBUTE_PTX_VERSION] = capability,
		[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = capability,
		[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = function->shared_limit,
		[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = function->carveout,
		[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = function->any_cluster,
		[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE] = function->scheduling,
	};

	if (attribute < 0 || attribute >= SIM_FUNCTION_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_value = values[attribute];
	return CUDA_SUCCESS;
}

/* The attributes that a program can set. */
static CUresult set_attribute(struct CUfunc_st *function, const struct sim_device *device,
			      CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > sim_architecture_of(device)->shared_optin_bytes)
			return CUDA_ERROR_INVALID_VALUE;
		function->shared_limit = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		function->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		function->any_cluster = value != 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < 0 || value > 2)
			return CUDA_ERROR_INVALID_VALUE;
		function->scheduling = value;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static uint32_t device_of(const struct CUfunc_st *function, uint32_t current)
{
	return function->module ? function->module->context->device : current;
}

CUresult sim_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	const struct CUfunc_st *function;
	uint32_t device;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known(handle);
	if (function)
		result = function_attribute(function, &sim.devices[device_of(function, device)], attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct CUfunc_st *function;
	uint32_t device;

	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known(handle);
	if (function)
		result = set_attribute(function, &sim.devices[device_of(function, device)], attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* A kernel has one set of attributes, the same for all devices. */
CUresult sim_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	const struct CUfunc_st *function;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known((CUfunction)kernel);
	if (function)
		result = function_attribute(function, &sim.devices[device], attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct CUfunc_st *function;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	function = sim_function_known((CUfunction)kernel);
	if (function)
		result = set_attribute(function, &sim.devices[device], attribute, value);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Checks the function and changes nothing: here, preferences for caches and banks, and lazy loading, have no
 * effect. */
static CUresult accept(CUfunction function, bool good)
{
	bool there;

	pthread_mutex_lock(&sim.lock);
	there = sim_function_known(function) != NULL;
	pthread_mutex_unlock(&sim.lock);
	if (!there)
		return CUDA_ERROR_INVALID_HANDLE;
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
	return accept(function, config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
}

CUresult sim_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	return sim_device_known(device) ? sim_cuFuncSetCacheConfig((CUfunction)kernel, config)
					: CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
	return accept(function, config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
					config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
}

CUresult sim_cuFuncLoad(CUfunction function) { return accept(function, true); }

CUresult sim_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	CUresult result = accept(function, state != NULL);

	if (result == CUDA_SUCCESS)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return result;
}

CUresult sim_cuFuncGetName(const char **name, CUfunction function)
{
	CUresult result = accept(function, name != NULL);

	if (result == CUDA_SUCCESS)
		*name = function->name;
	return result;
}

CUresult sim_cuKernelGetName(const char **name, CUkernel kernel)
{
	return sim_cuFuncGetName(name, (CUfunction)kernel);
}

CUresult sim_cuFuncGetModule(CUmodule *module, CUfunction function)
{
	CUresult result = accept(function, module != NULL);

	if (result == CUDA_SUCCESS && !function->module)
		return sim_cuLibraryGetModule(module, function->library);
	if (result == CUDA_SUCCESS)
		*module = function->module;
	return result;
}
