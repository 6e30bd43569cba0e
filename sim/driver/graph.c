/* Graphs: their nodes, edges and queries. See graph.h. */
#include "sim/driver/graph.h"
#include "sim/driver/race_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t key(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static bool known(const struct neap_map *map, const void *pointer)
{
	uint64_t value;

	return pointer && neap_map_get(map, key(pointer), &value);
}

/* -- operations -------------------------------------------------------------------------------------------------- */

struct sim_operation *sim_operation_create(const struct sim_task *task)
{
	struct sim_operation *operation = malloc(sizeof *operation + task->range_count * sizeof operation->ranges[0]);
	char *name = strdup(task->name);

	if (!operation || !name) {
		free(operation);
		free(name);
		free(task->staged);
		return NULL;
	}
	*operation = (struct sim_operation){.name = name,
					    .label = task->name,
					    .duration_ns = task->duration_ns,
					    .function = task->function,
					    .argument = task->argument,
					    .staged = task->staged,
					    .strict = task->strict,
					    .range_count = task->range_count};
	atomic_init(&operation->references, 1);
	if (task->range_count)
		memcpy(operation->ranges, task->ranges, task->range_count * sizeof operation->ranges[0]);
	return operation;
}

void sim_operation_release(struct sim_operation *operation)
{
	if (!operation || atomic_fetch_sub(&operation->references, 1) > 1)
		return;
	free(operation->staged);
	free(operation->name);
	free(operation);
}

/* -- sets of nodes ----------------------------------------------------------------------------------------------- */

static bool nodes_capacity(struct sim_nodes *nodes, size_t more)
{
	size_t capacity = nodes->capacity ? nodes->capacity : 4;
	CUgraphNode *list;

	while (capacity < nodes->count + more)
		capacity *= 2;
	if (capacity == nodes->capacity)
		return true;
	list = realloc(nodes->list, capacity * sizeof(CUgraphNode));
	if (!list)
		return false;
	nodes->list = list;
	nodes->capacity = capacity;
	return true;
}

bool sim_nodes_add(struct sim_nodes *nodes, const CUgraphNode *more, size_t count)
{
	size_t i, k;

	if (count == 0)
		return true;
	if (!nodes_capacity(nodes, count))
		return false;
	for (i = 0; i < count; i++) {
		for (k = 0; k < nodes->count && nodes->list[k] != more[i]; k++)
			;
		if (k == nodes->count)
			nodes->list[nodes->count++] = more[i];
	}
	return true;
}

void sim_nodes_fini(struct sim_nodes *nodes)
{
	free(nodes->list);
	*nodes = (struct sim_nodes){0};
}

/* -- graphs, lock held ------------------------------------------------------------------------------------------- */

static CUgraph graph_new(void)
{
	static uint64_t ids;
	CUgraph graph = calloc(1, sizeof *graph);

	if (graph)
		graph->id = ++ids;
	return graph;
}

CUgraph sim_graph_create(void)
{
	CUgraph graph = graph_new();

	if (graph && !neap_map_put(&sim.graphs, key(graph), 1)) {
		free(graph);
		return NULL;
	}
	return graph;
}

bool sim_graph_known(CUgraph graph) { return known(&sim.graphs, graph); }

static void node_free(CUgraphNode node, struct sim_hold **holds)
{
	neap_map_remove(&sim.nodes, key(node), NULL);
	sim_operation_release(node->operation);
	if (node->child)
		sim_graph_free(node->child, holds);
	free(node);
}

void sim_graph_free(CUgraph graph, struct sim_hold **holds)
{
	struct sim_hold **link = holds;

	neap_map_remove(&sim.graphs, key(graph), NULL);
	for (size_t i = 0; i < graph->nodes.count; i++)
		node_free(graph->nodes.list[i], holds);
	sim_nodes_fini(&graph->nodes);
	race_recording_release(graph->uses);
	while (*link)
		link = &(*link)->next;
	*link = graph->holds;
	free(graph);
}

void sim_graphs_drop(void)
{
	const struct neap_map_slot *slot;
	struct sim_hold *holds = NULL;
	size_t cursor = 0;

	while ((slot = neap_map_next(&sim.graphs, &cursor)) != NULL) {
		sim_graph_free((CUgraph)(uintptr_t)slot->key, &holds);
		cursor = 0; /* removal moves slots */
	}
	sim_holds_forget(holds);
}

CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, struct sim_operation *operation,
			  const CUgraphNode *dependencies, size_t count)
{
	CUgraphNode node = malloc(sizeof *node + count * sizeof node->dependencies[0]);

	if (!node || !nodes_capacity(&graph->nodes, 1) || !neap_map_put(&sim.nodes, key(node), 1)) {
		sim_operation_release(operation);
		free(node);
		return NULL;
	}
	*node = (struct CUgraphNode_st){.graph = graph,
					.type = type,
					.index = graph->nodes.count,
					.operation = operation,
					.dependency_count = count};
	if (count)
		memcpy(node->dependencies, dependencies, count * sizeof node->dependencies[0]);
	graph->nodes.list[graph->nodes.count++] = node;
	return node;
}

bool sim_graph_owns(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!known(&sim.nodes, nodes[i]) || nodes[i]->graph != graph)
			return false;
	return true;
}

/* Copies a node; its dependencies are the nodes with the same numbers. */
static bool copy_node(CUgraph copy, CUgraphNode node)
{
	CUgraphNode made;

	if (node->operation)
		atomic_fetch_add(&node->operation->references, 1);
	made = sim_graph_add(copy, node->type, node->operation, node->dependencies, node->dependency_count);
	if (!made)
		return false;
	for (size_t i = 0; i < made->dependency_count; i++)
		made->dependencies[i] = copy->nodes.list[node->dependencies[i]->index];
	made->event = node->event;
	made->child = node->child ? sim_graph_copy(node->child) : NULL;
	return !node->child || made->child;
}

CUgraph sim_graph_copy(CUgraph graph)
{
	CUgraph copy = graph_new();
	bool good = copy != NULL;

	if (copy)
		copy->uses = race_recording_keep(graph->uses);
	for (size_t i = 0; good && i < graph->nodes.count; i++)
		good = copy_node(copy, graph->nodes.list[i]);
	for (const struct sim_hold *hold = graph->holds; good && hold; hold = hold->next)
		good = sim_holds_add(&copy->holds, hold->object, hold->count);
	if (copy && !good) {
		struct sim_hold *holds = NULL;

		sim_graph_free(copy, &holds);
		sim_holds_forget(holds); /* the original graph still has these references */
		return NULL;
	}
	return copy;
}

/* -- the calls --------------------------------------------------------------------------------------------------- */

CUresult sim_cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	CUgraph made;

	if (!graph || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	made = sim_graph_create();
	pthread_mutex_unlock(&sim.lock);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*graph = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphDestroy(CUgraph graph)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_hold *holds = NULL;

	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && !graph->capture) {
		sim_graph_free(graph, &holds);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	sim_holds_release(holds);
	return result;
}

CUresult sim_cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	CUgraph made;

	if (!clone)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph)) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		made = sim_graph_copy(graph);
		if (made && neap_map_put(&sim.graphs, key(made), 1)) {
			*clone = made;
			result = CUDA_SUCCESS;
		} else if (made) {
			struct sim_hold *holds = NULL;

			sim_graph_free(made, &holds);
			sim_holds_forget(holds);
		}
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_nodes each = {0};
	CUgraphNode made;

	if (!node || (count > 0 && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph) && sim_graph_owns(graph, dependencies, count)) {
		if (!sim_nodes_add(&each, dependencies, count))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (each.count == count) { /* no duplicates */
			made = sim_graph_add(graph, CU_GRAPH_NODE_TYPE_EMPTY, NULL, dependencies, count);
			result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
			*node = made ? made : *node;
		}
		sim_nodes_fini(&each);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* A list that a call returns. Without an array the call returns only the length; else the entries that fit, then
 * NULLs. */
struct answer {
	CUgraphNode *list, *second;
	size_t capacity, count;
};

static void give(struct answer *answer, CUgraphNode node, CUgraphNode other)
{
	if (answer->list && answer->count < answer->capacity) {
		answer->list[answer->count] = node;
		if (answer->second)
			answer->second[answer->count] = other;
	}
	answer->count++;
}

static void close_answer(struct answer *answer, size_t *count)
{
	for (size_t i = answer->count; answer->list && i < answer->capacity; i++) {
		answer->list[i] = NULL;
		if (answer->second)
			answer->second[i] = NULL;
	}
	*count = answer->list && answer->count > answer->capacity ? answer->capacity : answer->count;
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
	struct answer answer = {.list = nodes};
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	answer.capacity = *count;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph)) {
		for (size_t i = 0; i < graph->nodes.count; i++)
			if (!roots || graph->nodes.list[i]->dependency_count == 0)
				give(&answer, graph->nodes.list[i], NULL);
		close_answer(&answer, count);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return list_nodes(graph, nodes, count, false);
}

CUresult sim_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return list_nodes(graph, nodes, count, true);
}

CUresult sim_cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
				size_t *count)
{
	struct answer answer = {.list = from, .second = to};
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!count || !from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	answer.capacity = *count;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph)) {
		for (size_t i = 0; i < graph->nodes.count; i++)
			for (size_t k = 0; k < graph->nodes.list[i]->dependency_count; k++)
				give(&answer, graph->nodes.list[i]->dependencies[k], graph->nodes.list[i]);
		close_answer(&answer, count);
		if (edges && from)
			memset(edges, 0, answer.capacity * sizeof *edges);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphGetEdges_v1(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return sim_cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult sim_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.nodes, node)) {
		*type = node->type;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

static bool depends(CUgraphNode node, CUgraphNode on)
{
	for (size_t i = 0; i < node->dependency_count; i++)
		if (node->dependencies[i] == on)
			return true;
	return false;
}

static CUresult list_neighbours(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count,
				bool dependents)
{
	struct answer answer = {.list = nodes};
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_nodes *all;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	answer.capacity = *count;
	pthread_mutex_lock(&sim.lock);
	if (known(&sim.nodes, node)) {
		all = &node->graph->nodes;
		for (size_t i = 0; !dependents && i < node->dependency_count; i++)
			give(&answer, node->dependencies[i], NULL);
		for (size_t i = node->index + 1; dependents && i < all->count; i++)
			if (depends(all->list[i], node))
				give(&answer, all->list[i], NULL);
		close_answer(&answer, count);
		if (edges && nodes)
			memset(edges, 0, answer.capacity * sizeof *edges);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges,
					   size_t *count)
{
	return list_neighbours(node, dependencies, edges, count, false);
}

CUresult sim_cuGraphNodeGetDependencies_v1(CUgraphNode node, CUgraphNode *dependencies, size_t *count)
{
	return list_neighbours(node, dependencies, NULL, count, false);
}

CUresult sim_cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges,
					     size_t *count)
{
	return list_neighbours(node, dependents, edges, count, true);
}

CUresult sim_cuGraphNodeGetDependentNodes_v1(CUgraphNode node, CUgraphNode *dependents, size_t *count)
{
	return list_neighbours(node, dependents, NULL, count, true);
}

/* -- as a picture ------------------------------------------------------------------------------------------------ */

static const char *type_name(CUgraphNodeType type)
{
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return "kernel";
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return "memcpy";
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return "memset";
	case CU_GRAPH_NODE_TYPE_HOST:
		return "host";
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return "graph";
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return "wait event";
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return "record event";
	default:
		return "empty";
	}
}

/* A name, escaped for quotes. */
static void print_quoted(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', file);
		fputc(*text, file);
	}
}

static void print_graph(FILE *file, CUgraph graph)
{
	fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->id);
	for (size_t i = 0; i < graph->nodes.count; i++) {
		CUgraphNode node = graph->nodes.list[i];

		fprintf(file, "  node_%zu [label=\"%zu\\n%s", i, i, type_name(node->type));
		if (node->operation) {
			fputs("\\n", file);
			print_quoted(file, node->operation->name);
		}
		fputs("\"];\n", file);
		for (size_t k = 0; k < node->dependency_count; k++)
			fprintf(file, "  node_%zu -> node_%zu;\n", node->dependencies[k]->index, i);
	}
	fputs("}\n", file);
}

/* The flags ask for details that nodes do not have here. */
CUresult sim_cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	FILE *file;

	(void)flags;
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	if (sim_graph_known(graph)) {
		file = fopen(path, "we");
		if (file)
			print_graph(file, graph);
		result = file && fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}
