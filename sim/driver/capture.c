/* Stream capture.
 *
 *   begin on A --[n1]--record e--[n3]--wait f--[n4]-- end on A      a graph: n1 -> n2, n1 -> n3, n2 + n3 -> n4
 *                        |                |
 *   B             wait e--[n2]--record f--+
 *
 * Each capturing stream keeps the dependencies of its next node. An event recorded there copies them, and a stream
 * that waits for the event joins the capture. Several captures may run at once, each with its own id.
 *
 * Calls that the documentation forbids meanwhile fail and spoil the capture: cuStreamEndCapture then returns no
 * graph. For calls that are only potentially unsafe, the modes of the capture and of the calling thread decide.
 */
#include "sim/driver/graph.h"

#include <stdlib.h>
#include <string.h>

/* In each thread's static block: no allocation at the first use. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	CUstreamCaptureMode mode;
	uint64_t number; /* 0: not assigned yet */
} thread;

static atomic_ullong thread_count;

static uint64_t this_thread(void)
{
	if (thread.number == 0)
		thread.number = atomic_fetch_add(&thread_count, 1) + 1;
	return thread.number;
}

/* -- forbidden calls --------------------------------------------------------------------------------------------- */

static bool forbids(const struct sim_capture *capture)
{
	if (thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->thread == this_thread())
		return true;
	return thread.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (atomic_load(&sim.capture_count) == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	for (struct sim_capture *capture = sim.captures; capture; capture = capture->next)
		if (forbids(capture)) {
			capture->invalidated = true;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Whether the capture includes a stream of this device. `blocking`: counts only streams that wait for the null
 * stream. */
static bool touches(const struct sim_capture *capture, uint32_t device, bool blocking)
{
	for (CUstream stream = capture->streams; stream; stream = stream->next_captured)
		if (stream->context->device == device && !(blocking && (stream->flags & CU_STREAM_NON_BLOCKING)))
			return true;
	return false;
}

CUresult sim_capture_check_device(uint32_t device)
{
	CUresult result = CUDA_SUCCESS;

	if (atomic_load(&sim.capture_count) == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	for (struct sim_capture *capture = sim.captures; capture; capture = capture->next)
		if (touches(capture, device, false)) {
			capture->invalidated = true;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_capture_check_null(bool spoil)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t device;

	if (!sim.captures)
		return CUDA_SUCCESS;
	if (!sim_current_device(&device))
		return CUDA_ERROR_INVALID_CONTEXT;
	for (struct sim_capture *capture = sim.captures; capture; capture = capture->next)
		if (touches(capture, device, true)) {
			capture->invalidated |= spoil;
			result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return result;
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode wanted;

	if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	wanted = *mode;
	*mode = thread.mode;
	thread.mode = wanted;
	return CUDA_SUCCESS;
}

/* -- captures, lock held ----------------------------------------------------------------------------------------- */

struct sim_capture *sim_capture_find(uint64_t id)
{
	struct sim_capture *capture = sim.captures;

	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

CUresult sim_capture_join(struct sim_capture *capture, CUstream stream, const struct sim_nodes *nodes)
{
	if (!sim_nodes_add(&stream->next, nodes->list, nodes->count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!stream->capture) {
		stream->capture = capture;
		stream->next_captured = capture->streams;
		capture->streams = stream;
	}
	return CUDA_SUCCESS;
}

CUresult sim_capture_add(CUstream stream, CUgraphNodeType type, struct sim_operation *operation,
			 CUgraphNode *ret_node)
{
	struct sim_capture *capture = stream->capture;
	CUgraphNode node = sim_graph_add(capture->graph, type, operation, stream->next.list, stream->next.count);

	if (!node) {
		capture->invalidated = true;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	stream->next.count = 0;
	if (!sim_nodes_add(&stream->next, &node, 1)) {
		capture->invalidated = true;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (ret_node)
		*ret_node = node;
	return CUDA_SUCCESS;
}

static void release_stream(CUstream stream)
{
	stream->capture = NULL;
	stream->next_captured = NULL;
	sim_nodes_fini(&stream->next);
	free(stream->edges);
	stream->edges = NULL;
}

/* Removes all streams from the capture and frees it. The graph stays: it belongs to the caller. */
static void capture_free(struct sim_capture *capture)
{
	struct sim_capture **link = &sim.captures;

	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	atomic_fetch_sub(&sim.capture_count, 1);
	while (capture->streams) {
		CUstream stream = capture->streams;

		capture->streams = stream->next_captured;
		release_stream(stream);
	}
	capture->graph->capture = NULL;
	sim_nodes_fini(&capture->lost);
	free(capture);
}

void sim_capture_leave(CUstream stream, struct sim_hold **holds)
{
	struct sim_capture *capture = stream->capture;
	CUstream *link;

	if (!capture)
		return;
	if (capture->origin == stream) { /* now no stream can end the capture */
		CUgraph graph = capture->given ? NULL : capture->graph;

		capture_free(capture);
		if (graph)
			sim_graph_free(graph, holds);
		return;
	}
	if (!sim_nodes_add(&capture->lost, stream->next.list, stream->next.count))
		capture->invalidated = true;
	for (link = &capture->streams; *link != stream; link = &(*link)->next_captured)
		;
	*link = stream->next_captured;
	release_stream(stream);
}

void sim_captures_drop(void)
{
	while (sim.captures)
		capture_free(sim.captures);
}

/* -- begin ------------------------------------------------------------------------------------------------------- */

/* Lock held. `graph`: the program's, or NULL. */
static CUresult capture_create(CUstream stream, CUgraph graph, CUstreamCaptureMode mode,
			       struct sim_capture **ret_capture)
{
	static uint64_t ids;
	struct sim_capture *capture = calloc(1, sizeof *capture);
	CUgraph own = capture && !graph ? sim_graph_create() : NULL;

	if (!capture || (!graph && !own)) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*capture = (struct sim_capture){.next = sim.captures,
					.id = ++ids,
					.origin = stream,
					.graph = graph ? graph : own,
					.given = graph != NULL,
					.mode = mode,
					.thread = this_thread()};
	capture->graph->capture = capture;
	sim.captures = capture;
	atomic_fetch_add(&sim.capture_count, 1);
	*ret_capture = capture;
	return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, size_t count,
		      CUstreamCaptureMode mode)
{
	struct sim_nodes nodes = {(CUgraphNode *)dependencies, count, count};
	struct sim_capture *capture;
	CUresult result;

	if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_null_stream(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!sim_stream_known(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	result = capture_create(stream, graph, mode, &capture);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_capture_join(capture, stream, &nodes);
	if (result != CUDA_SUCCESS) {
		struct sim_hold *holds = NULL; /* a new graph has none */
		CUgraph own = graph ? NULL : capture->graph;

		capture_free(capture);
		if (own)
			sim_graph_free(own, &holds);
	}
	return result;
}

CUresult sim_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	CUresult result;

	pthread_mutex_lock(&sim.lock);
	result = begin(stream, NULL, NULL, 0, mode);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
					 const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	(void)edges; /* only ordinary edges exist */
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && !graph->capture && (dependencies || count == 0) &&
	    sim_graph_owns(graph, dependencies, count))
		result = begin(stream, graph, dependencies, count, mode);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- end --------------------------------------------------------------------------------------------------------- */

/* Marks these nodes and all their predecessors. Edges lead to earlier nodes, so one pass is enough. */
static void mark_before(const struct sim_nodes *all, const struct sim_nodes *nodes, bool *marked)
{
	for (size_t i = 0; i < nodes->count; i++)
		marked[nodes->list[i]->index] = true;
	for (size_t i = all->count; i-- > 0;)
		for (size_t k = 0; marked[i] && k < all->list[i]->dependency_count; k++)
			marked[all->list[i]->dependencies[k]->index] = true;
}

static bool all_marked(const struct sim_nodes *nodes, const bool *marked)
{
	for (size_t i = 0; i < nodes->count; i++)
		if (!marked[nodes->list[i]->index])
			return false;
	return true;
}

/* Whether every other stream's last node precedes the origin's. */
static CUresult check_joined(const struct sim_capture *capture)
{
	const struct sim_nodes *all = &capture->graph->nodes;
	bool *marked = calloc(all->count + 1, sizeof *marked);
	bool joined;

	if (!marked)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mark_before(all, &capture->origin->next, marked);
	joined = all_marked(&capture->lost, marked);
	for (CUstream stream = capture->streams; stream && joined; stream = stream->next_captured)
		joined = all_marked(&stream->next, marked);
	free(marked);
	return joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

/* Lock held. */
static CUresult end(CUstream stream, CUgraph *ret_graph, struct sim_hold **holds)
{
	struct sim_capture *capture;
	CUgraph graph;
	CUresult result;
	bool given;

	if (sim_null_stream(stream) || !sim_stream_known(stream))
		return sim_null_stream(stream) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_HANDLE;
	capture = stream->capture;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream) {
		capture->invalidated = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : check_joined(capture);
	graph = capture->graph;
	given = capture->given;
	capture_free(capture);
	if (result == CUDA_SUCCESS)
		*ret_graph = graph;
	else if (!given)
		sim_graph_free(graph, holds);
	return result;
}

CUresult sim_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	struct sim_hold *holds = NULL;
	CUgraph made = NULL;
	CUresult result;

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = end(stream, &made, &holds);
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
	*graph = made;
	return result;
}

/* -- queries ----------------------------------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(CUstream stream)
{
	if (sim_null_stream(stream) || !stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Checks a query, which does not spoil the capture. Lock held. */
static CUresult check_question(CUstream stream)
{
	if (sim_null_stream(stream))
		return sim_capture_check_null(false);
	return sim_stream_known(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	CUresult result;

	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = check_question(stream);
	if (result == CUDA_SUCCESS)
		*status = status_of(stream);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Returns one zero for each edge of the stream's next node. The stream keeps the array. Lock held. */
static CUresult give_edges(CUstream stream, const CUgraphEdgeData **edges)
{
	CUgraphEdgeData *zeros = calloc(stream->next.count + 1, sizeof *zeros);

	if (!zeros)
		return CUDA_ERROR_OUT_OF_MEMORY;
	free(stream->edges);
	*edges = stream->edges = zeros;
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				       const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count)
{
	CUresult result;

	if (!status || (edges && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = check_question(stream);
	if (result == CUDA_SUCCESS)
		*status = status_of(stream);
	if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (edges)
			result = give_edges(stream, edges);
		if (id)
			*id = stream->capture->id;
		if (graph)
			*graph = stream->capture->graph;
		if (dependencies)
			*dependencies = stream->next.list;
		if (count)
			*count = stream->next.count;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
				       const CUgraphNode **dependencies, size_t *count)
{
	return sim_cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

CUresult sim_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
						  const CUgraphEdgeData *edges, size_t count, unsigned int flags)
{
	CUresult result;

	(void)edges;
	if ((count > 0 && !dependencies) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = check_question(stream);
	if (result == CUDA_SUCCESS && status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (result == CUDA_SUCCESS && stream->capture->invalidated)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (result == CUDA_SUCCESS && !sim_graph_owns(stream->capture->graph, dependencies, count))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
			stream->next.count = 0;
		if (!sim_nodes_add(&stream->next, dependencies, count))
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuStreamUpdateCaptureDependencies_v1(CUstream stream, CUgraphNode *dependencies, size_t count,
						  unsigned int flags)
{
	return sim_cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}
