/* cuDNN: graphs of operations, and their engines, configurations and plans.
 *
 * Finalize refuses invalid graphs: a tensor whose dimensions and strides differ in number, a convolution whose output
 * has another shape, two tensors with one id and different shapes (cudnn_operations.c checks the first two). Every
 * valid graph has two engines, without knobs, which compile no kernel at run time. With the first one, a plan of a
 * convolution needs the workspace that cuDNN usually takes for it. The second one is what heuristics give as a
 * fallback, and needs none.
 */
#include "sim/libraries/cudnn_graph.h"

enum { USUAL, FALLBACK, ENGINES };

static int missing(const char *text) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM, text); }

const int64_t *cudnn_graph_numbers(const struct cudnn_contents *contents, int name, int64_t *ret_count)
{
	const struct cudnn_attribute *attribute = cudnn_contents_typed(contents, name, CUDNN_TYPE_INT64);

	*ret_count = attribute ? attribute->count : 0;
	return attribute ? attribute->elements : NULL;
}

bool cudnn_graph_flag(const struct cudnn_contents *contents, int name)
{
	const struct cudnn_attribute *attribute = cudnn_contents_typed(contents, name, CUDNN_TYPE_BOOLEAN);

	return attribute && ((const char *)attribute->elements)[0];
}

int cudnn_graph_enumerator(const struct cudnn_contents *contents, int name, int type)
{
	const struct cudnn_attribute *attribute = cudnn_contents_typed(contents, name, type);
	int value = -1;

	if (attribute)
		memcpy(&value, attribute->elements, sizeof value);
	return value;
}

int64_t cudnn_graph_tensor_id(const struct cudnn_contents *tensor)
{
	int64_t count = 0;

	return *cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, &count);
}

int cudnn_graph_tensor_bits(const struct cudnn_contents *tensor)
{
	return cudnn_type_bits(cudnn_graph_enumerator(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE));
}

static bool same_attribute(const struct cudnn_contents *one, const struct cudnn_contents *other, int name, int type,
			   size_t bytes)
{
	const struct cudnn_attribute *a = cudnn_contents_typed(one, name, type);
	const struct cudnn_attribute *b = cudnn_contents_typed(other, name, type);

	return a && b && a->count == b->count && memcmp(a->elements, b->elements, (size_t)a->count * bytes) == 0;
}

static bool same_tensor(const struct cudnn_contents *one, const struct cudnn_contents *other)
{
	return one == other || (same_attribute(one, other, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8) &&
				same_attribute(one, other, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 4));
}

/* An operation has tensors, and other operations (the softmax of an attention); a tensor has those with its offsets.
 */
static int visit_parts(const struct cudnn_contents *owner, cudnn_graph_visitor visit, void *context)
{
	int status = 0;

	for (size_t i = 0; i < owner->count && !status; i++) {
		const struct cudnn_attribute *attribute = &owner->attributes[i];
		struct cudnn_contents **parts = attribute->elements;

		for (int64_t j = 0;
		     attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < attribute->count && !status; j++) {
			if (parts[j]->type == CUDNN_BACKEND_TENSOR)
				status = visit(parts[j], attribute->name, context);
			if (!status && parts[j]->type != CUDNN_BACKEND_OPERATIONGRAPH)
				status = visit_parts(parts[j], visit, context);
		}
	}
	return status;
}

int cudnn_graph_visit(const struct cudnn_contents *graph, cudnn_graph_visitor visit, void *context)
{
	const struct cudnn_attribute *operations =
		cudnn_contents_typed(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
	int status = 0;

	for (int64_t i = 0; operations && i < operations->count && !status; i++)
		status = visit_parts(((struct cudnn_contents **)operations->elements)[i], visit, context);
	return status;
}

/* Graphs */

struct twin {
	const struct cudnn_contents *graph;
	const struct cudnn_contents *tensor;
};

static int check_twin(const struct cudnn_contents *tensor, int name, void *context)
{
	const struct twin *twin = context;

	(void)name;
	if (cudnn_graph_tensor_id(tensor) == cudnn_graph_tensor_id(twin->tensor) &&
	    !same_tensor(tensor, twin->tensor))
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
				  "two tensors of one id have another shape or type");
	return 0;
}

static int check_twins(const struct cudnn_contents *tensor, int name, void *context)
{
	struct twin twin = {context, tensor};

	(void)name;
	return cudnn_graph_visit(twin.graph, check_twin, &twin);
}

static bool set_number(struct cudnn_contents *contents, int name, int64_t value)
{
	return cudnn_contents_set(contents, name, CUDNN_TYPE_INT64, 1, &value);
}

static int graph_check(struct cudnn_contents *graph)
{
	const struct cudnn_attribute *operations =
		cudnn_contents_typed(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR);

	if (!operations)
		return missing("a graph has no operations");
	for (int64_t i = 0; i < operations->count; i++)
		if (!cudnn_operation_is(((struct cudnn_contents **)operations->elements)[i]->type))
			return cudnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
					  "a graph has a descriptor that is not an operation");
	if (!set_number(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, ENGINES))
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	return cudnn_graph_visit(graph, check_twins, graph);
}

/* Engines, configurations, plans */

static int engine_check(struct cudnn_contents *engine)
{
	int64_t count = 0;
	const int64_t *index = cudnn_graph_numbers(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &count);

	if (!cudnn_contents_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH))
		return missing("an engine has no graph");
	if (!index)
		return missing("an engine has no index");
	return *index >= 0 && *index < ENGINES
		       ? 0
		       : cudnn_refuse("cudnnBackendFinalize (engine)", "a graph has two engines, index 0 and 1");
}

static int configuration_check(struct cudnn_contents *configuration)
{
	int32_t shared = 0;

	if (!cudnn_contents_part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE))
		return missing("an engine configuration has no engine");
	if (!set_number(configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, 0) ||
	    !cudnn_contents_set(configuration, CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32, 1, &shared))
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	return 0;
}

/* The configuration of a graph's engine, finalized. NULL: host out of memory. */
static struct cudnn_contents *configure(struct cudnn_contents *graph, int index)
{
	struct cudnn_contents *engine = cudnn_contents_create(CUDNN_BACKEND_ENGINE);
	struct cudnn_contents *configuration = cudnn_contents_create(CUDNN_BACKEND_ENGINECFG);
	bool made = engine && configuration &&
		    cudnn_contents_set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
				       &graph) &&
		    set_number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index) &&
		    cudnn_contents_set(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
				       &engine) &&
		    !configuration_check(configuration);

	if (made)
		engine->finalized = configuration->finalized = true;
	cudnn_contents_release(engine);
	if (made)
		return configuration;
	cudnn_contents_release(configuration);
	return NULL;
}

static int heuristics_check(struct cudnn_contents *heuristics)
{
	struct cudnn_contents *graph =
		cudnn_contents_part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH);
	int mode = cudnn_graph_enumerator(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE);
	struct cudnn_contents *configuration;
	bool kept;

	if (!graph)
		return missing("heuristics have no graph");
	if (mode < 0 || mode >= CUDNN_HEUR_MODES_COUNT)
		return missing("heuristics have no mode");
	configuration = configure(graph, mode == CUDNN_HEUR_MODE_FALLBACK ? FALLBACK : USUAL);
	kept = configuration && cudnn_contents_set(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
	cudnn_contents_release(configuration);
	return kept ? 0 : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

static bool is_fallback(const struct cudnn_contents *configuration)
{
	int64_t count = 0;
	const int64_t *index = cudnn_graph_numbers(
		cudnn_contents_part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE),
		CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &count);

	return index && *index == FALLBACK;
}

static int plan_check(struct cudnn_contents *plan)
{
	const struct cudnn_contents *configuration =
		cudnn_contents_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG);

	if (!configuration)
		return missing("a plan has no engine configuration");
	uint64_t bytes = is_fallback(configuration) ? 0 : cudnn_execute_count_workspace(plan);
	if (!set_number(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, (int64_t)bytes))
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	return 0;
}

uint64_t cudnn_graph_workspace(const struct cudnn_contents *plan)
{
	int64_t count = 0;
	const int64_t *bytes = cudnn_graph_numbers(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &count);

	return bytes ? (uint64_t)*bytes : 0;
}

static int pack_check(const struct cudnn_contents *pack)
{
	const struct cudnn_attribute *pointers =
		cudnn_contents_typed(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
	int64_t count = 0;

	cudnn_graph_numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &count);
	if (!pointers || pointers->count != count)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
				  "a variant pack has as many addresses as unique ids");
	return 0;
}

static int knob_check(const struct cudnn_contents *knob)
{
	int64_t count = 0;

	if (cudnn_graph_enumerator(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE) < 0 ||
	    !cudnn_graph_numbers(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &count))
		return missing("a choice of a knob has no type or no value");
	return 0;
}

int cudnn_graph_finalize(struct cudnn_contents *contents)
{
	switch (contents->type) {
	case CUDNN_BACKEND_OPERATIONGRAPH:
		return graph_check(contents);
	case CUDNN_BACKEND_ENGINE:
		return engine_check(contents);
	case CUDNN_BACKEND_ENGINECFG:
		return configuration_check(contents);
	case CUDNN_BACKEND_ENGINEHEUR:
		return heuristics_check(contents);
	case CUDNN_BACKEND_EXECUTION_PLAN:
		return plan_check(contents);
	case CUDNN_BACKEND_VARIANT_PACK:
		return pack_check(contents);
	case CUDNN_BACKEND_KNOB_CHOICE:
		return knob_check(contents);
	default:
		return cudnn_operation_check(contents);
	}
}

const struct cudnn_contents *cudnn_graph_of(const struct cudnn_contents *contents)
{
	const struct cudnn_contents *configuration =
		contents->type == CUDNN_BACKEND_ENGINECFG
			? contents
			: cudnn_contents_part(contents, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
					      CUDNN_BACKEND_ENGINECFG);

	return cudnn_contents_part(
		cudnn_contents_part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE),
		CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH);
}
