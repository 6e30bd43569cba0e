/* Contexts: each device's primary one, those of cuCtxCreate, and the calling thread's stack of them.
 *
 * A context owns its streams, events, modules, executable graphs and allocations, which end with it. Memory pools
 * belong to the device: they end with its last context.
 */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdlib.h>

#define STACK_LIMIT 32
/* Lies in the static block of each thread: else glibc would allocate a block at the first use, and end the process if
 * there is no memory for it. An entry has ended if its id is no longer that of its context. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	struct {
		CUcontext context;
		uint64_t id;
	} entries[STACK_LIMIT];
	unsigned int depth;
} stack;

static bool is_active(const struct CUctx_st *context) { return atomic_load(&context->id) != 0; }

/* -- all contexts ------------------------------------------------------------------------------------------------ */

/* Iterates over the primary contexts, then those of cuCtxCreate. NULL: the first one. */
static CUcontext next_context(const struct CUctx_st *context)
{
	uint32_t next = 0;

	if (context && !context->primary)
		return context->next;
	if (context)
		next = context->device + 1;
	return next < sim.device_count ? &sim.devices[next].context : atomic_load(&sim.contexts);
}

bool sim_context_known(CUcontext context)
{
	for (CUcontext known = next_context(NULL); known; known = next_context(known))
		if (context == known)
			return is_active(known);
	return false;
}

bool sim_context_any(void)
{
	for (CUcontext context = next_context(NULL); context; context = next_context(context))
		if (is_active(context))
			return true;
	return false;
}

static bool device_used(uint32_t device)
{
	for (CUcontext context = next_context(NULL); context; context = next_context(context))
		if (context->device == device && is_active(context))
			return true;
	return false;
}

bool sim_peer_enabled(uint32_t device, uint32_t peer)
{
	for (CUcontext context = next_context(NULL); context; context = next_context(context))
		if (context->device == device && is_active(context) && (context->peers & (1u << peer)))
			return true;
	return false;
}

/* -- beginning and end ------------------------------------------------------------------------------------------- */

/* Charges the device for a context, and makes it active under this id. Lock held. */
static CUresult begin_context(CUcontext context, uint64_t id)
{
	CUresult result = sim_charge_device(context->device, SIM_CHARGE_CONTEXT,
					    sim.devices[context->device].view.context_bytes);

	if (result != CUDA_SUCCESS)
		return result;
	sim_settings_reset(context);
	context->peers = 0;
	atomic_store(&context->id, id);
	return CUDA_SUCCESS;
}

/* Destroys the resources that the context owns. If it is the last context, clears the sticky error, too. Handles of
 * cuMemCreate belong to no context and stay. Lock held. */
static void end_context(CUcontext context, struct sim_hold **holds)
{
	uint32_t device = context->device;

	atomic_store(&context->id, 0);
	sim_modules_drop(context);
	if (!device_used(device)) {
		sim_pools_drop(device);
		for (CUcontext other = next_context(NULL); other; other = next_context(other))
			other->peers &= ~(1u << device);
	}
	sim_allocations_drop(context, device);
	sim_host_drop(context);
	sim_streams_drop(context, holds);
	sim_events_drop(context);
	sim_executables_drop(context, holds);
	sim_refund_device(device, SIM_CHARGE_CONTEXT, sim.devices[device].view.context_bytes);
	if (!sim_context_any())
		atomic_store(&sim.sticky, CUDA_SUCCESS);
}

/* Waits for all work, then ends the context if no more than `retained` users retain it. Fails if work is pending
 * while the clock is held. */
static CUresult finish_context(CUcontext context, unsigned int retained)
{
	CUresult result = sim_synchronize_all();
	struct sim_hold *holds = NULL;

	pthread_mutex_lock(&sim.lock);
	if (result == CUDA_SUCCESS && is_active(context) && context->retained <= retained) {
		context->retained = 0;
		end_context(context, &holds);
	}
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
	return result;
}

/* -- primary contexts -------------------------------------------------------------------------------------------- */

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = CUDA_SUCCESS;
	CUcontext primary;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	primary = &sim.devices[device].context;
	pthread_mutex_lock(&sim.lock);
	if (!is_active(primary))
		result = begin_context(primary, (uint64_t)device + 1);
	if (result == CUDA_SUCCESS) {
		primary->retained++;
		*context = primary;
	}
	pthread_mutex_unlock(&sim.lock);
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
	return retained == 1 ? finish_context(context, 1) : CUDA_SUCCESS;
}

/* A reset drops every retain. */
CUresult sim_cuDevicePrimaryCtxReset(CUdevice device)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return finish_context(&sim.devices[device].context, UINT32_MAX);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	*flags = sim.devices[device].context.flags;
	*active = is_active(&sim.devices[device].context);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* -- contexts of the program's own ------------------------------------------------------------------------------- */

/* Returns a context to begin: a destroyed one, or a new one at the list's end. NULL: host out of memory. Lock
 * held. */
static CUcontext unused_context(void)
{
	CUcontext context = atomic_load(&sim.contexts);

	while (context && is_active(context))
		context = context->next;
	if (context || !(context = calloc(1, sizeof *context)))
		return context;
	context->next = atomic_load(&sim.contexts);
	atomic_store(&sim.contexts, context);
	return context;
}

CUresult sim_cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	static uint64_t ids = SIM_DEVICE_LIMIT; /* primary contexts have the numbers up to this one */
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	CUcontext made;

	if (!context || !sim_context_flags_good(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (stack.depth == STACK_LIMIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim.lock);
	made = unused_context();
	if (made) {
		made->device = (uint32_t)device;
		made->flags = flags;
		made->retained = 1;
		result = begin_context(made, ids + 1);
	}
	if (result == CUDA_SUCCESS)
		ids++;
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		return result;
	*context = made;
	return sim_cuCtxPushCurrent(made);
}

/* Fails for an affinity: only the multi-process service has it. */
CUresult sim_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
			    CUdevice device)
{
	if (count < 0 || (count > 0 && !affinity))
		return CUDA_ERROR_INVALID_VALUE;
	return count > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : sim_cuCtxCreate(context, flags, device);
}

CUresult sim_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags, CUdevice device)
{
	if (parameters && parameters->execAffinityParams && parameters->cigParams)
		return CUDA_ERROR_INVALID_VALUE;
	if (parameters && parameters->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED; /* it shares the device with a graphics API */
	return sim_cuCtxCreate_v3(context, parameters ? parameters->execAffinityParams : NULL,
				  parameters ? parameters->numExecAffinityParams : 0, flags, device);
}

/* Threads that have the context current, or in their stack, keep it there. Their next call reports that it has
 * ended. */
CUresult sim_cuCtxDestroy(CUcontext context)
{
	CUresult result;

	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_context_known(context) || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = finish_context(context, 1);
	if (result == CUDA_SUCCESS && stack.depth && stack.entries[stack.depth - 1].context == context)
		stack.depth--;
	return result;
}

/* -- the calling thread's stack ---------------------------------------------------------------------------------- */

CUcontext sim_current_context(void)
{
	CUcontext context = stack.depth ? stack.entries[stack.depth - 1].context : NULL;

	return context && atomic_load(&context->id) == stack.entries[stack.depth - 1].id ? context : NULL;
}

bool sim_current_device(uint32_t *ret_device)
{
	CUcontext context = sim_current_context();

	if (context)
		*ret_device = context->device;
	return context != NULL;
}

CUresult sim_context_missing(void)
{
	return stack.depth ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuCtxGetCurrent(CUcontext *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = stack.depth ? stack.entries[stack.depth - 1].context : NULL;
	return CUDA_SUCCESS;
}

static void push(CUcontext context)
{
	stack.entries[stack.depth].context = context;
	stack.entries[stack.depth++].id = atomic_load(&context->id);
}

CUresult sim_cuCtxSetCurrent(CUcontext context)
{
	if (context && !sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.depth > 0)
		stack.depth--;
	if (context)
		push(context);
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
	push(context);
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPopCurrent(CUcontext *context)
{
	if (stack.depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth--;
	if (context)
		*context = stack.entries[stack.depth].context;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice(CUdevice *device)
{
	uint32_t ordinal;

	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&ordinal))
		return sim_context_missing();
	*device = (CUdevice)ordinal;
	return CUDA_SUCCESS;
}

CUresult sim_synchronize_all(void)
{
	CUresult result = sim_result_of(sim_engine_synchronize(sim.engine));

	if (result == CUDA_SUCCESS)
		race_watch_settle_all();
	return result;
}

/* Waits for the work of all devices. */
CUresult sim_cuCtxSynchronize(void)
{
	CUresult result;
	uint32_t device;

	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = sim_capture_check_device(device);
	result = result == CUDA_SUCCESS ? sim_synchronize_all() : result;
	if (result == CUDA_SUCCESS)
		race_watch_host_device(device);
	return sim_after_wait(result);
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
	result = result == CUDA_SUCCESS ? sim_synchronize_all() : result;
	if (result == CUDA_SUCCESS)
		race_watch_host_device(context->device);
	return sim_after_wait(result);
}

/* NULL: the calling thread's. */
CUresult sim_cuCtxGetId(CUcontext context, unsigned long long *id)
{
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context && !(context = sim_current_context()))
		return sim_context_missing();
	if (!sim_context_known(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*id = atomic_load(&context->id);
	return CUDA_SUCCESS;
}

/* 3.2, the oldest version of the API that has a context of 64 bits. */
CUresult sim_cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	if (context && !sim_context_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020;
	return CUDA_SUCCESS;
}
