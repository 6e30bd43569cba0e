/* Executable graphs.
 *
 * Instantiating copies the graph. A launch runs its nodes one after another on the stream: kernels only take their
 * time; copies, sets and host functions really run. Launches of one executable graph run one after another, also on
 * different streams, as documented.
 */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdio.h>
#include <stdlib.h>

struct CUgraphExec_st {
	CUgraph graph; /* its own graph, never the program's */
	cuuint64_t flags;
	CUcontext context;
	uint32_t event; /* the engine's event at the end of the last launch; 0: none yet */
};

#define FLAGS                                                                                                        \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |                      \
	 CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static bool known(CUgraphExec executable)
{
	uint64_t value;

	return executable && neap_map_get(&sim.executables, key(executable), &value);
}

/* -- instantiation ----------------------------------------------------------------------------------------------- */

/* Lock held. */
static CUresult executable_create(CUgraph graph, cuuint64_t flags, CUcontext context, CUgraphExec *ret_executable)
{
	CUgraphExec executable = calloc(1, sizeof *executable);
	CUgraph copy = executable ? sim_graph_copy(graph) : NULL;

	if (!copy || !neap_map_put(&sim.executables, key(executable), 1)) {
		struct sim_hold *holds = NULL;

		if (copy)
			sim_graph_free(copy, &holds);
		sim_holds_forget(holds);
		free(executable);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*executable = (struct CUgraphExec_st){.graph = copy, .flags = flags, .context = context};
	*ret_executable = executable;
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *executable, CUgraph graph, cuuint64_t flags)
{
	CUcontext context = sim_current_context();
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!executable || (flags & ~(cuuint64_t)FLAGS) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED; /* only a kernel could launch the graph, and no kernel runs */
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && !graph->capture)
		result = executable_create(graph, flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, context,
					   executable);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
	return instantiate(executable, graph, flags);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *error_node, char *log,
				   size_t log_bytes)
{
	if (error_node)
		*error_node = NULL;
	if (log && log_bytes > 0)
		log[0] = '\0';
	return instantiate(executable, graph, 0);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
					  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
	CUresult result;

	if (!parameters)
		return CUDA_ERROR_INVALID_VALUE;
	result = instantiate(executable, graph, parameters->flags);
	parameters->hErrNode_out = NULL;
	parameters->result_out =
		result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
	return result;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec executable, cuuint64_t *flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(executable)) {
		*flags = executable->flags;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- the end ----------------------------------------------------------------------------------------------------- */

/* Call without sim.lock. The engine may call it, too, when queued work completes. */
static void free_graph(void *argument)
{
	struct sim_hold *holds = NULL;

	pthread_mutex_lock(&sim.lock);
	sim_graph_free(argument, &holds);
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
}

/* Frees a graph once the launch that `event` stands for has ended: until then the launch needs its user objects. */
static void retire(CUgraph graph, uint32_t event)
{
	struct sim_work work = {.name = "end of a graph", .function = free_graph, .argument = graph};
	enum sim_order order = event ? sim_event_query(sim.engine, event) : SIM_ORDER_OK;
	uint32_t stream;

	if (order == SIM_ORDER_NOT_READY && sim_stream_create(sim.engine, true, &stream) == SIM_ORDER_OK) {
		(void)sim_stream_wait_event(sim.engine, stream, event);
		order = sim_stream_submit(sim.engine, stream, &work);
		sim_stream_destroy(sim.engine, stream); /* its work still ends */
		if (order == SIM_ORDER_OK)
			return;
	}
	free_graph(graph);
}

CUresult sim_cuGraphExecDestroy(CUgraphExec executable)
{
	bool there;

	pthread_mutex_lock(&sim.lock);
	there = known(executable);
	if (there)
		neap_map_remove(&sim.executables, key(executable), NULL);
	pthread_mutex_unlock(&sim.lock);
	if (!there)
		return CUDA_ERROR_INVALID_VALUE;
	race_watch_executable_gone(executable);
	retire(executable->graph, executable->event);
	if (executable->event)
		sim_event_destroy(sim.engine, executable->event);
	free(executable);
	return CUDA_SUCCESS;
}

void sim_executables_drop(CUcontext context, struct sim_hold **holds)
{
	const struct neap_map_slot *slot;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.executables, &cursor)) != NULL) {
		CUgraphExec executable = (CUgraphExec)(uintptr_t)slot->key;

		if (executable->context != context)
			continue;
		neap_map_remove(&sim.executables, slot->key, NULL);
		race_watch_executable_gone(executable);
		sim_graph_free(executable->graph, holds);
		if (executable->event)
			sim_event_destroy(sim.engine, executable->event);
		free(executable);
		cursor = 0; /* removal moves slots */
	}
}

/* -- update ------------------------------------------------------------------------------------------------------ */

/* Finds the first node that differs in more than its operation. Returns how it differs. */
static CUgraphExecUpdateResult compare(CUgraph old, CUgraph graph, CUgraphNode *ret_node, CUgraphNode *ret_from)
{
	*ret_node = *ret_from = NULL;
	if (old->nodes.count != graph->nodes.count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; i < graph->nodes.count; i++) {
		CUgraphNode was = old->nodes.list[i], is = graph->nodes.list[i];

		*ret_node = is;
		if (was->type != is->type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (was->dependency_count != is->dependency_count)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (size_t k = 0; k < is->dependency_count; k++)
			if (was->dependencies[k]->index != is->dependencies[k]->index) {
				*ret_from = is->dependencies[k];
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
			}
	}
	*ret_node = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult sim_cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *outcome)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	CUgraph old = NULL, copy;
	uint32_t event = 0;

	if (!outcome)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(executable) && sim_graph_known(graph) && !graph->capture) {
		outcome->result = compare(executable->graph, graph, &outcome->errorNode, &outcome->errorFromNode);
		result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
		if (outcome->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
			copy = sim_graph_copy(graph);
			result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
			old = copy ? executable->graph : NULL;
			executable->graph = copy ? copy : executable->graph;
			event = executable->event;
		}
	}
	pthread_mutex_unlock(&sim.lock);
	if (old)
		retire(old, event);
	return result;
}

/* -- launch ------------------------------------------------------------------------------------------------------ */

static CUresult replay_event(CUgraphNode node, uint32_t number)
{
	uint32_t event = 0;

	pthread_mutex_lock(&sim.lock);
	if (sim_event_known(node->event))
		event = node->event->number;
	pthread_mutex_unlock(&sim.lock);
	if (event == 0)
		return CUDA_ERROR_INVALID_VALUE; /* the program has destroyed it */
	return sim_result_of(node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD
				     ? sim_event_record(sim.engine, event, number)
				     : sim_stream_wait_event(sim.engine, number, event));
}

/* Submits the nodes in order. Merges successive nodes that only take time. */
static CUresult replay(CUgraph graph, CUstream stream, uint32_t number)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t duration_ns = 0;

	race_watch_replayed(graph->uses, stream);
	for (size_t i = 0; i < graph->nodes.count && result == CUDA_SUCCESS; i++) {
		CUgraphNode node = graph->nodes.list[i];
		struct sim_operation *operation = node->operation;

		if (operation && operation->range_count == 0 && !operation->function) {
			duration_ns += operation->duration_ns;
			continue;
		}
		if (!operation && !node->child && !node->event)
			continue;
		result = sim_result_of(sim_stream_pass(sim.engine, number, duration_ns));
		duration_ns = 0;
		if (result == CUDA_SUCCESS && operation)
			result = sim_submit_operation(stream, operation);
		else if (result == CUDA_SUCCESS && node->child)
			result = replay(node->child, stream, number);
		else if (result == CUDA_SUCCESS)
			result = replay_event(node, number);
	}
	return result == CUDA_SUCCESS ? sim_result_of(sim_stream_pass(sim.engine, number, duration_ns)) : result;
}

/* Lock held. Adds the graph as a child node to the stream's capture. */
static CUresult launch_captured(CUgraphExec executable, CUstream stream)
{
	CUgraph copy = sim_graph_copy(executable->graph);
	CUgraphNode node;
	CUresult result;

	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_capture_add(stream, CU_GRAPH_NODE_TYPE_GRAPH, NULL, &node);
	if (result == CUDA_SUCCESS) {
		node->child = copy;
	} else {
		struct sim_hold *holds = NULL;

		sim_graph_free(copy, &holds);
		sim_holds_forget(holds);
	}
	return result;
}

CUresult sim_cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	bool capturing = false;
	uint32_t number = 0;

	pthread_mutex_lock(&sim.lock);
	if (known(executable))
		result = sim_stream_enter(stream, &number, &capturing);
	if (result == CUDA_SUCCESS && capturing)
		result = launch_captured(executable, stream);
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS || capturing)
		return result;
	race_watch_launch_begins(executable, stream);
	if (executable->event)
		result = sim_result_of(sim_stream_wait_event(sim.engine, number, executable->event));
	else
		result = sim_result_of(sim_event_create(sim.engine, &executable->event));
	if (result == CUDA_SUCCESS)
		result = replay(executable->graph, stream, number);
	if (result == CUDA_SUCCESS)
		result = sim_result_of(sim_event_record(sim.engine, executable->event, number));
	race_watch_launch_ends(executable, stream);
	return result;
}

/* Checks its arguments only: there is nothing to upload here. */
CUresult sim_cuGraphUpload(CUgraphExec executable, CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	uint32_t number;
	bool capturing;

	pthread_mutex_lock(&sim.lock);
	if (known(executable))
		result = sim_stream_enter(stream, &number, &capturing);
	pthread_mutex_unlock(&sim.lock);
	return result;
}
