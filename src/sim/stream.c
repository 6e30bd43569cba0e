/* Streams, events, host functions, capture.
 *
 * The program's handles are pointers that we made; each is looked up before it is believed. The null stream is one
 * for all devices of the process: order between two devices' null streams is assumed, so a race between those is
 * missed.
 *
 * Capture keeps what the driver promises about it: work given to a capturing stream does not run (there is no graph
 * launch here, so it never does), an event recorded there carries the capture to whoever waits for it, and in global
 * and thread-local mode the calls that a capture forbids are refused and spoil it.
 */
#include "sim/state.h"

#include <stdlib.h>

#define LEGACY_STREAM ((CUstream)1)

static bool known(const struct neap_map *map, const void *pointer)
{
	uint64_t value;

	return neap_map_get(map, (uint64_t)(uintptr_t)pointer, &value);
}

static bool remember(struct neap_map *map, const void *pointer)
{
	return neap_map_put(map, (uint64_t)(uintptr_t)pointer, 1);
}

static bool null_stream(CUstream stream) { return !stream || stream == LEGACY_STREAM; }

CUresult sim_stream_number(CUstream stream, uint32_t *ret_number)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim.lock);
	if (null_stream(stream))
		*ret_number = 0;
	else if (known(&sim.streams, stream))
		*ret_number = stream->number;
	else
		result = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_stream_device(CUstream stream, uint32_t *ret_device)
{
	if (null_stream(stream))
		return sim_current_device(ret_device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (!known(&sim.streams, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_device = stream->device;
	return CUDA_SUCCESS;
}

CUresult sim_stream_enter(CUstream stream, CUgraphNodeType type, const char *name, uint64_t duration_ns,
			  uint32_t *ret_number, bool *ret_captured)
{
	(void)type, (void)name, (void)duration_ns;
	*ret_number = 0;
	*ret_captured = false;
	if (null_stream(stream))
		return CUDA_SUCCESS;
	if (!known(&sim.streams, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_number = stream->number;
	*ret_captured = stream->capturing;
	if (stream->capturing)
		sim.capture.nodes++;
	return CUDA_SUCCESS;
}

bool sim_stream_capturing(CUstream stream) { return !null_stream(stream) && stream->capturing; }

static CUresult event_number(CUevent event, uint32_t *ret_number)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim.lock);
	if (event && known(&sim.events, event)) {
		*ret_number = event->number;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamCreate(CUstream *stream, unsigned int flags)
{
	uint32_t device;
	CUstream made;
	CUresult result;

	if (!stream || (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->device = device;
	result = sim_result_of(sim_stream_create(sim.engine, flags == CU_STREAM_NON_BLOCKING, &made->number));
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	pthread_mutex_lock(&sim.lock);
	if (!remember(&sim.streams, made))
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

CUresult sim_cuStreamDestroy(CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	uint32_t number = 0;

	pthread_mutex_lock(&sim.lock);
	if (!null_stream(stream) && neap_map_remove(&sim.streams, (uint64_t)(uintptr_t)stream, NULL)) {
		number = stream->number;
		if (stream == sim.capture.origin) {
			sim.capture = (struct sim_capture){0};
			atomic_store(&sim.capturing, false);
		}
		free(stream);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS ? sim_result_of(sim_stream_destroy(sim.engine, number)) : result;
}

/* A capturing stream has no work to wait for: asking spoils the capture, whatever its mode. */
static CUresult refuse_capturing(CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&sim.lock);
	if (sim_stream_capturing(stream)) {
		sim.capture.invalidated = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* What the pool of the current device need not keep goes back at a synchronisation. */
static CUresult after_wait(CUresult result)
{
	uint32_t device;

	if (result != CUDA_SUCCESS || !sim_current_device(&device))
		return result;
	pthread_mutex_lock(&sim.lock);
	sim_pool_trim(&sim.devices[device].pool, sim.devices[device].pool.threshold);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamSynchronize(CUstream stream)
{
	uint32_t number;
	CUresult result = sim_stream_number(stream, &number);

	if (result == CUDA_SUCCESS)
		result = refuse_capturing(stream);
	if (result != CUDA_SUCCESS)
		return result;
	return after_wait(sim_result_of(sim_stream_synchronize(sim.engine, number)));
}

CUresult sim_cuStreamQuery(CUstream stream)
{
	uint32_t number;
	CUresult result = sim_stream_number(stream, &number);

	if (result == CUDA_SUCCESS)
		result = refuse_capturing(stream);
	return result == CUDA_SUCCESS ? sim_result_of(sim_stream_query(sim.engine, number)) : result;
}

CUresult sim_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	uint32_t number, event_id;
	CUresult result = sim_stream_number(stream, &number);
	bool captured = false;

	if (result == CUDA_SUCCESS)
		result = flags == 0 ? event_number(event, &event_id) : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	if (event->captured && sim.capture.origin) {
		if (null_stream(stream))
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		else
			captured = stream->capturing = true; /* it joins */
	} else if (sim_stream_capturing(stream)) {
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a wait from within for what is outside */
		sim.capture.invalidated = true;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || captured)
		return result;
	return sim_result_of(sim_stream_wait_event(sim.engine, number, event_id));
}

CUresult sim_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	struct sim_task task = {.name = "cuLaunchHostFunc", .function = function, .argument = data};

	return function ? sim_submit(stream, &task, NULL) : CUDA_ERROR_INVALID_VALUE;
}

/* -- events ----------------------------------------------------------------------------------------------------- */

#define EVENT_FLAGS 3u /* blocking synchronisation, no timing */

CUresult sim_cuEventCreate(CUevent *event, unsigned int flags)
{
	uint32_t device;
	CUevent made;
	CUresult result;

	if (!event || (flags & ~EVENT_FLAGS) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	made = calloc(1, sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->device = device;
	made->flags = flags;
	result = sim_result_of(sim_event_create(sim.engine, &made->number));
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	pthread_mutex_lock(&sim.lock);
	if (!remember(&sim.events, made))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS) {
		sim_event_destroy(sim.engine, made->number);
		free(made);
		return result;
	}
	*event = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuEventDestroy(CUevent event)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	uint32_t number = 0;

	pthread_mutex_lock(&sim.lock);
	if (event && neap_map_remove(&sim.events, (uint64_t)(uintptr_t)event, NULL)) {
		number = event->number;
		free(event);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS ? sim_result_of(sim_event_destroy(sim.engine, number)) : result;
}

CUresult sim_cuEventRecord(CUevent event, CUstream stream)
{
	uint32_t number, event_id;
	CUresult result = sim_stream_number(stream, &number);
	bool captured;

	if (result == CUDA_SUCCESS)
		result = event_number(event, &event_id);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	captured = event->captured = sim_stream_capturing(stream);
	pthread_mutex_unlock(&sim.lock);
	return captured ? CUDA_SUCCESS : sim_result_of(sim_event_record(sim.engine, event_id, number));
}

/* An event that a capture recorded marks a place in a graph, no moment: it cannot be waited for. */
static CUresult waitable(CUevent event, uint32_t *ret_number)
{
	CUresult result = event_number(event, ret_number);
	bool captured = false;

	pthread_mutex_lock(&sim.lock);
	if (result == CUDA_SUCCESS)
		captured = event->captured;
	pthread_mutex_unlock(&sim.lock);
	return captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

CUresult sim_cuEventQuery(CUevent event)
{
	uint32_t number;
	CUresult result = waitable(event, &number);

	return result == CUDA_SUCCESS ? sim_result_of(sim_event_query(sim.engine, number)) : result;
}

CUresult sim_cuEventSynchronize(CUevent event)
{
	uint32_t number;
	CUresult result = waitable(event, &number);

	return result == CUDA_SUCCESS ? after_wait(sim_result_of(sim_event_synchronize(sim.engine, number))) : result;
}

/* -- capture ---------------------------------------------------------------------------------------------------- */

CUresult sim_capture_refuse(void)
{
	pthread_mutex_lock(&sim.lock);
	sim.capture.invalidated = true;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	uint32_t number;
	CUresult result = sim_stream_number(stream, &number);

	if (result != CUDA_SUCCESS)
		return result;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (!sim_stream_capturing(stream))
		*status = CU_STREAM_CAPTURE_STATUS_NONE;
	else
		*status = sim.capture.invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

/* The graph that a capture makes is not shown while it is made. */
CUresult sim_cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				       const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = status ? sim_cuStreamIsCapturing(stream, &now) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (now == CU_STREAM_CAPTURE_STATUS_ACTIVE && (graph || dependencies || edges || count))
		return CUDA_ERROR_NOT_SUPPORTED;
	*status = now;
	pthread_mutex_lock(&sim.lock);
	if (id)
		*id = now == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : sim.capture.id;
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				       const CUgraphNode **dependencies, size_t *count)
{
	return sim_cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

/* One capture at a time in a process. */
CUresult sim_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	uint32_t number;
	CUresult result = sim_stream_number(stream, &number);

	if (result != CUDA_SUCCESS)
		return result;
	if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (null_stream(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&sim.lock);
	if (stream->capturing) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (sim.capture.origin) {
		result = CUDA_ERROR_NOT_SUPPORTED;
	} else {
		sim.capture = (struct sim_capture){.origin = stream, .mode = mode, .id = ++sim.next_id};
		stream->capturing = true;
		atomic_store(&sim.capturing, mode != CU_STREAM_CAPTURE_MODE_RELAXED);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Every stream of the capture is an ordinary one again. Lock held. */
static void release_streams(void)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.streams, &cursor)) != NULL)
		((CUstream)(uintptr_t)slot->key)->capturing = false;
}

CUresult sim_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUgraph made = calloc(1, sizeof(*made));
	uint32_t number;
	CUresult result = sim_stream_number(stream, &number);

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim.lock);
	if (result == CUDA_SUCCESS && (null_stream(stream) || sim.capture.origin != stream || !graph))
		result = !graph || !sim_stream_capturing(stream) ? CUDA_ERROR_INVALID_VALUE
								 : CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (result == CUDA_SUCCESS) {
		made->nodes = sim.capture.nodes;
		if (sim.capture.invalidated)
			result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		else if (!remember(&sim.graphs, made))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		*graph = result == CUDA_SUCCESS ? made : NULL;
		sim.capture = (struct sim_capture){0};
		atomic_store(&sim.capturing, false);
		release_streams();
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		free(made);
	return result;
}

CUresult sim_cuGraphDestroy(CUgraph graph)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	if (graph && neap_map_remove(&sim.graphs, (uint64_t)(uintptr_t)graph, NULL)) {
		free(graph);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

void sim_streams_drop(uint32_t device)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.streams, &cursor)) != NULL) {
		CUstream stream = (CUstream)(uintptr_t)slot->key;

		if (stream->device != device)
			continue;
		if (stream == sim.capture.origin) {
			sim.capture = (struct sim_capture){0};
			atomic_store(&sim.capturing, false);
		}
		sim_stream_destroy(sim.engine, stream->number);
		neap_map_remove(&sim.streams, slot->key, NULL);
		free(stream);
		cursor = 0; /* removal moves slots */
	}
	for (cursor = 0; (slot = neap_map_next(&sim.events, &cursor)) != NULL;) {
		CUevent event = (CUevent)(uintptr_t)slot->key;

		if (event->device != device)
			continue;
		sim_event_destroy(sim.engine, event->number);
		neap_map_remove(&sim.events, slot->key, NULL);
		free(event);
		cursor = 0;
	}
}
