/* Events. An event recorded in a capturing stream marks a place in the graph, not a time: a stream that waits for it
 * joins the capture. The host can neither query it nor wait for it. */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdlib.h>

#define EVENT_FLAGS ((unsigned int)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

bool sim_event_known(CUevent event)
{
	uint64_t value;

	return event && neap_map_get(&sim.events, key(event), &value);
}

CUresult sim_cuEventCreate(CUevent *event, unsigned int flags)
{
	CUcontext context = sim_current_context();
	CUevent made;
	CUresult result;

	if (!event || (flags & ~EVENT_FLAGS) != 0 ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	made = calloc(1, sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->context = context;
	made->flags = flags;
	result = sim_result_of(sim_event_create(sim.engine, &made->number));
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	pthread_mutex_lock(&sim.lock);
	if (!neap_map_put(&sim.events, key(made), 1))
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

/* Lock held. */
static void event_free(CUevent event)
{
	race_watch_event_gone(event);
	neap_map_remove(&sim.events, key(event), NULL);
	sim_event_destroy(sim.engine, event->number);
	sim_nodes_fini(&event->nodes);
	free(event);
}

CUresult sim_cuEventDestroy(CUevent event)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&sim.lock);
	if (sim_event_known(event)) {
		event_free(event);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

void sim_events_drop(CUcontext context)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.events, &cursor)) != NULL) {
		CUevent event = (CUevent)(uintptr_t)slot->key;

		if (event->context != context)
			continue;
		event_free(event);
		cursor = 0; /* removal moves slots */
	}
}

/* -- record ------------------------------------------------------------------------------------------------------ */

/* Adds a node that records the event, or waits for it, at each launch of the graph. Lock held. */
static CUresult add_external(CUevent event, CUstream stream, CUgraphNodeType type)
{
	CUgraphNode node;
	CUresult result = sim_capture_add(stream, type, NULL, &node);

	if (result == CUDA_SUCCESS)
		node->event = event;
	return result;
}

/* Lock held. */
static CUresult record_captured(CUevent event, CUstream stream, unsigned int flags)
{
	struct sim_nodes nodes = {0};

	if (flags == CU_EVENT_RECORD_EXTERNAL)
		return add_external(event, stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
	if (!sim_nodes_add(&nodes, stream->next.list, stream->next.count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_nodes_fini(&event->nodes);
	event->nodes = nodes;
	event->capture = stream->capture->id;
	return CUDA_SUCCESS;
}

/* Event and stream must have one context, as documented. */
CUresult sim_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	uint32_t number = 0, event_number = 0, device;
	bool capturing = false, shared = false;
	CUresult result;

	if (flags > CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = sim_event_known(event) ? sim_stream_device(stream, &device) : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && sim_stream_context(stream) != event->context)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS)
		result = sim_stream_enter(stream, &number, &capturing);
	if (result == CUDA_SUCCESS && capturing) {
		result = record_captured(event, stream, flags);
	} else if (result == CUDA_SUCCESS && flags != CU_EVENT_RECORD_DEFAULT) {
		result = CUDA_ERROR_INVALID_VALUE; /* with other flags, the stream must be capturing */
	} else if (result == CUDA_SUCCESS) {
		event->capture = 0;
		sim_nodes_fini(&event->nodes);
		event_number = event->number;
		shared = event->flags & CU_EVENT_INTERPROCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || capturing)
		return result;
	if (shared) /* another process may wait for the event, and it does not see late work */
		race_watch_settle(stream);
	race_watch_recorded(event, stream);
	return sim_result_of(sim_event_record(sim.engine, event_number, number));
}

CUresult sim_cuEventRecord(CUevent event, CUstream stream) { return sim_cuEventRecordWithFlags(event, stream, 0); }

/* -- a stream waits ---------------------------------------------------------------------------------------------- */

/* The stream waits for an event of a capture, and so joins the capture. Lock held. */
static CUresult wait_captured(CUstream stream, CUevent event)
{
	struct sim_capture *capture = sim_capture_find(event->capture);

	if (!capture)
		return CUDA_ERROR_CAPTURED_EVENT; /* the event's capture has ended */
	if (capture->invalidated)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (sim_null_stream(stream)) {
		capture->invalidated = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (stream->capture && stream->capture != capture) {
		capture->invalidated = stream->capture->invalidated = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	return sim_capture_join(capture, stream, &event->nodes);
}

CUresult sim_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	uint32_t number = 0, event_number = 0;
	bool capturing = false, captured = false;
	CUresult result;

	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = sim_event_known(event) ? sim_stream_enter(stream, &number, &capturing) : CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && flags == CU_EVENT_WAIT_EXTERNAL) {
		captured = true;
		result = capturing ? add_external(event, stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT)
				   : CUDA_ERROR_INVALID_VALUE;
	} else if (result == CUDA_SUCCESS && event->capture) {
		captured = true;
		result = wait_captured(stream, event);
	} else if (result == CUDA_SUCCESS && capturing) { /* a captured stream waits for uncaptured work */
		stream->capture->invalidated = true;
		result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	} else if (result == CUDA_SUCCESS) {
		event_number = event->number;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || captured)
		return result;
	race_watch_waited(stream, event);
	return sim_result_of(sim_stream_wait_event(sim.engine, number, event_number));
}

/* -- queries by the host ----------------------------------------------------------------------------------------- */

/* Querying a captured event spoils its capture. */
static CUresult ask(CUevent event, uint32_t *ret_number)
{
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct sim_capture *capture;

	pthread_mutex_lock(&sim.lock);
	if (sim_event_known(event)) {
		capture = event->capture ? sim_capture_find(event->capture) : NULL;
		if (capture)
			capture->invalidated = true;
		result = event->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
		*ret_number = event->number;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuEventQuery(CUevent event)
{
	uint32_t number;
	CUresult result = ask(event, &number);

	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_event_query(sim.engine, number));
	return result == CUDA_SUCCESS && !race_watch_asked(event) ? CUDA_ERROR_NOT_READY : result;
}

CUresult sim_cuEventSynchronize(CUevent event)
{
	uint32_t number;
	CUresult result = ask(event, &number);

	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_event_synchronize(sim.engine, number));
	if (result == CUDA_SUCCESS)
		race_watch_host_event(event);
	return sim_after_wait(result);
}

/* Virtual time between two recorded events. */
CUresult sim_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	uint32_t start_number = 0, end_number = 0;
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	int64_t ns = 0;

	if (!milliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (sim_event_known(start) && sim_event_known(end) &&
	    !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) && start->context == end->context) {
		start_number = start->number;
		end_number = end->number;
		result = start->capture || end->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS) /* an event that was never recorded is an invalid handle, as documented */
		result = sim_result_of(sim_event_elapsed(sim.engine, start_number, end_number, &ns));
	if (result == CUDA_SUCCESS)
		*milliseconds = (float)((double)ns / 1e6);
	return result;
}

CUresult sim_cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
	return sim_cuEventElapsedTime(milliseconds, start, end);
}
