/* Primary contexts, and the calling thread's stack of contexts. */
#include "sim/driver/graph.h"

#define STACK_LIMIT 32
/* In the static block of each thread: glibc would allocate a separate block at the first use, and end the process if
 * there is no memory for it. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	CUcontext contexts[STACK_LIMIT];
	unsigned int depth;
} stack;

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	struct sim_device *target;
	CUresult result = CUDA_SUCCESS;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	target = &sim.devices[device];
	pthread_mutex_lock(&sim.lock);
	if (!target->context.active) {
		result = sim_charge_device((uint32_t)device, SIM_CHARGE_CONTEXT, target->view.context_bytes);
		target->context.active = result == CUDA_SUCCESS;
		sim_settings_reset(&target->context);
	}
	if (result == CUDA_SUCCESS) {
		target->context.retained++;
		*context = &target->context;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Destroys the context's allocations, streams and events, and clears its sticky error. Handles of cuMemCreate do not
 * belong to it and stay. Lock held. */
static void end_context(struct sim_device *device, struct sim_hold **holds)
{
	uint32_t i;

	sim_modules_drop(device->context.device);
	sim_pools_drop(device->context.device);
	sim_allocations_drop(device->context.device);
	sim_managed_drop(device->context.device);
	device->context.peers = 0;
	for (i = 0; i < sim.device_count; i++)
		sim.devices[i].context.peers &= ~(1u << device->context.device);
	sim_streams_drop(device->context.device, holds);
	sim_events_drop(device->context.device);
	sim_executables_drop(device->context.device, holds);
	sim_refund_device(device->context.device, SIM_CHARGE_CONTEXT, device->view.context_bytes);
	device->context.active = false;
	for (i = 0; i < sim.device_count; i++)
		if (sim.devices[i].context.active)
			return;
	atomic_store(&sim.sticky, CUDA_SUCCESS);
}

/* Waits for all work, then ends the context if at most this many users retain it. Fails if work is pending while the
 * clock is held. */
static CUresult finish_context(struct sim_device *device, unsigned int retained)
{
	CUresult result = sim_synchronize_all();
	struct sim_hold *holds = NULL;

	pthread_mutex_lock(&sim.lock);
	if (result == CUDA_SUCCESS && device->context.active && device->context.retained <= retained) {
		device->context.retained = 0;
		end_context(device, &holds);
	}
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
	return result;
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice device)
{
	struct CUctx_st *context;
	unsigned int retained;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	context = &sim.devices[device].context;
	pthread_mutex_lock(&sim.lock);
	retained = context->retained;
	if (retained > 1)
		context->retained--;
	pthread_mutex_unlock(&sim.lock);
	if (retained == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	return retained == 1 ? finish_context(&sim.devices[device], 1) : CUDA_SUCCESS;
}

/* A reset drops every retain. */
CUresult sim_cuDevicePrimaryCtxReset(CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return finish_context(&sim.devices[device], UINT32_MAX);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	*flags = sim.devices[device].context.flags;
	*active = sim.devices[device].context.active;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* NULL, or one of the devices' primary contexts. */
bool sim_context_known(CUcontext context)
{
	uint32_t i;

	for (i = 0; i < sim.device_count; i++)
		if (context == &sim.devices[i].context)
			return context->active;
	return false;
}

bool sim_current_device(uint32_t *ret_device)
{
	CUcontext context = stack.depth ? stack.contexts[stack.depth - 1] : NULL;

	if (!context || !sim_context_known(context))
		return false;
	*ret_device = context->device;
	return true;
}

CUresult sim_cuCtxGetCurrent(CUcontext *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = stack.depth ? stack.contexts[stack.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCurrent(CUcontext context)
{
	if (context && !sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context && stack.depth > 0)
		stack.depth--;
	else if (context && stack.depth > 0)
		stack.contexts[stack.depth - 1] = context;
	else if (context)
		stack.contexts[stack.depth++] = context;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent(CUcontext context)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.depth == STACK_LIMIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[stack.depth++] = context;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPopCurrent(CUcontext *context)
{
	if (stack.depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth--;
	if (context)
		*context = stack.contexts[stack.depth];
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice(CUdevice *device)
{
	uint32_t ordinal;

	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&ordinal))
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = (CUdevice)ordinal;
	return CUDA_SUCCESS;
}

CUresult sim_synchronize_all(void) { return sim_result_of(sim_engine_synchronize(sim.engine)); }

/* Waits for the work of all devices. */
CUresult sim_cuCtxSynchronize(void)
{
	CUresult result;
	uint32_t device;

	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = sim_capture_check_device(device);
	return sim_after_wait(result == CUDA_SUCCESS ? sim_synchronize_all() : result);
}

/* -- calls that name a context ----------------------------------------------------------------------------------- */

CUresult sim_cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
	if (!context)
		return sim_cuCtxGetDevice(device);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = (CUdevice)context->device;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSynchronize_v2(CUcontext context)
{
	CUresult result;

	if (!context)
		return sim_cuCtxSynchronize();
	if (!sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = sim_capture_check_device(context->device);
	return sim_after_wait(result == CUDA_SUCCESS ? sim_synchronize_all() : result);
}

/* NULL: the calling thread's. */
CUresult sim_cuCtxGetId(CUcontext context, unsigned long long *id)
{
	uint32_t device;

	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (context ? !sim_context_known(context) : !sim_current_device(&device))
		return context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
	*id = (context ? context->device : device) + 1;
	return CUDA_SUCCESS;
}

/* 3.2, the oldest version of the API, as a GPU returns for a primary context. */
CUresult sim_cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	if (context && !sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020;
	return CUDA_SUCCESS;
}
