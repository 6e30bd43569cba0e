/* Streams.
 *
 * The program's handles are our pointers; each is looked up before use. All devices and threads of the process share
 * one null stream: so the null streams of two devices count as ordered, and races between them are missed. A
 * per-thread default stream orders like the null stream. Priorities are stored without effect: work ends when its
 * time has passed.
 */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdlib.h>

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

bool sim_stream_known(CUstream stream)
{
	uint64_t value;

	return !sim_null_stream(stream) && neap_map_get(&sim.streams, key(stream), &value);
}

CUresult sim_stream_device(CUstream stream, uint32_t *ret_device)
{
	if (sim_null_stream(stream))
		return sim_current_device(ret_device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (!sim_stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_device = stream->context->device;
	return CUDA_SUCCESS;
}

CUcontext sim_stream_context(CUstream stream)
{
	return sim_null_stream(stream) ? sim_current_context() : stream->context;
}

CUresult sim_stream_enter(CUstream stream, uint32_t *ret_number, bool *ret_capturing)
{
	*ret_number = 0;
	*ret_capturing = false;
	if (sim_null_stream(stream))
		return sim_capture_check_null(true);
	if (!sim_stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_number = stream->number;
	*ret_capturing = stream->capture != NULL;
	return stream->capture && stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult sim_stream_enter_query(CUstream stream, uint32_t *ret_number)
{
	CUresult result;
	bool capturing;

	pthread_mutex_lock(&sim.lock);
	result = sim_stream_enter(stream, ret_number, &capturing);
	if (capturing) { /* a query of a capturing stream spoils its capture in any mode */
		stream->capture->invalidated = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- create and destroy ------------------------------------------------------------------------------------------ */

CUresult sim_cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	static uint64_t ids = 2 * SIM_DEVICE_LIMIT + 1; /* null streams have the smaller ones */
	CUcontext context = sim_current_context();
	CUstream made;
	CUresult result;

	if (!stream || (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	made = calloc(1, sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->context = context;
	made->flags = flags;
	made->priority = priority > SIM_PRIORITY_LEAST      ? SIM_PRIORITY_LEAST
			 : priority < SIM_PRIORITY_GREATEST ? SIM_PRIORITY_GREATEST
							    : priority;
	result = sim_result_of(sim_stream_create(sim.engine, flags == CU_STREAM_NON_BLOCKING, &made->number));
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	pthread_mutex_lock(&sim.lock);
	made->id = ids++;
	if (!neap_map_put(&sim.streams, key(made), 1))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS) {
		sim_stream_destroy(sim.engine, made->number);
		free(made);
		return result;
	}
	*stream = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return sim_cuStreamCreateWithPriority(stream, flags, SIM_PRIORITY_LEAST);
}

/* Frees the stream. Its pending work still completes. Lock held. */
static void stream_free(CUstream stream, struct sim_hold **holds)
{
	sim_capture_leave(stream, holds);
	race_watch_stream_gone(stream);
	neap_map_remove(&sim.streams, key(stream), NULL);
	sim_stream_destroy(sim.engine, stream->number);
	free(stream);
}

CUresult sim_cuStreamDestroy(CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct sim_hold *holds = NULL;

	pthread_mutex_lock(&sim.lock);
	if (sim_stream_known(stream)) {
		stream_free(stream, &holds);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
	return result;
}

void sim_streams_drop(CUcontext context, struct sim_hold **holds)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.streams, &cursor)) != NULL) {
		CUstream stream = (CUstream)(uintptr_t)slot->key;

		if (stream->context != context)
			continue;
		stream_free(stream, holds);
		cursor = 0; /* removal moves slots */
	}
}

/* -- attributes -------------------------------------------------------------------------------------------------- */

/* Copies a stream's struct. For a null stream, that of the calling thread's context. */
static CUresult read_stream(CUstream stream, struct CUstream_st *ret_stream)
{
	CUresult result;
	uint32_t device = 0;

	pthread_mutex_lock(&sim.lock);
	result = sim_stream_device(stream, &device);
	if (result == CUDA_SUCCESS && sim_null_stream(stream))
		*ret_stream =
			(struct CUstream_st){.context = sim_current_context(),
					     .id = 2 * (uint64_t)device + (stream == CU_STREAM_PER_THREAD ? 2 : 1)};
	else if (result == CUDA_SUCCESS)
		*ret_stream = *stream;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamGetPriority(CUstream stream, int *priority)
{
	struct CUstream_st seen;
	CUresult result = priority ? read_stream(stream, &seen) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*priority = seen.priority;
	return result;
}

CUresult sim_cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
	struct CUstream_st seen;
	CUresult result = flags ? read_stream(stream, &seen) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*flags = seen.flags;
	return result;
}

CUresult sim_cuStreamGetId(CUstream stream, unsigned long long *id)
{
	struct CUstream_st seen;
	CUresult result = id ? read_stream(stream, &seen) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*id = seen.id;
	return result;
}

CUresult sim_cuStreamGetDevice(CUstream stream, CUdevice *device)
{
	struct CUstream_st seen;
	CUresult result = device ? read_stream(stream, &seen) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*device = (CUdevice)seen.context->device;
	return result;
}

CUresult sim_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	struct CUstream_st seen;
	CUresult result = context ? read_stream(stream, &seen) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*context = seen.context;
	return result;
}

/* -- waiting ----------------------------------------------------------------------------------------------------- */

CUresult sim_cuStreamSynchronize(CUstream stream)
{
	uint32_t number;
	CUresult result = sim_stream_enter_query(stream, &number);

	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_stream_synchronize(sim.engine, number));
	if (result == CUDA_SUCCESS)
		race_watch_host_stream(stream);
	return sim_after_wait(result);
}

CUresult sim_cuStreamQuery(CUstream stream)
{
	uint32_t number;
	CUresult result = sim_stream_enter_query(stream, &number);

	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_stream_query(sim.engine, number));
	return result == CUDA_SUCCESS && !race_watch_asked_stream(stream) ? CUDA_ERROR_NOT_READY : result;
}
