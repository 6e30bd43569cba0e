/* cuDNN: workspace and execution of a plan.
 *
 * NVIDIA's engines may need a workspace, mostly for copies of operands in another layout, and intermediates. A plan
 * of a convolution has the usual one, the others none. The most that may be needed is counted, if it is known.
 *
 * Attention is also accepted. Since 2.9 PyTorch prefers cuDNN's on compute capability 9.0 and 10.x, does not ask
 * whether it is supported, and raises an error if it is refused. The part of cuDNN that is compiled into PyTorch
 * allocates the memory of backward (the accumulator of dQ, the softmax's sums), with its true size.
 */
#include "sim/libraries/cudnn_graph.h"

/* Of a workspace with copies; compute capabilities as CUDA's, without the dot. */
#define ALIGNMENT                512u
#define FIRST_WITH_TF32          80
#define FIRST_THAT_COPIES_FLOATS 90

/* The convolutions of one network took 50 to 205 KiB on a GPU, even for small tensors. */
#define CONVOLUTION_MEASURED (205ull << 10)

static int missing(const char *text) { return cudnn_fail(CUDNN_STATUS_BAD_PARAM, text); }

/* Bytes from the first element to the last. SIZE_MAX: larger than an address space. */
static uint64_t tensor_span(const struct cudnn_contents *tensor)
{
	int64_t count = 0;
	const int64_t *dimension = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, &count);
	const int64_t *stride = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, &count);
	int bits = cudnn_graph_tensor_bits(tensor);
	uint64_t last = 1;
	uint64_t step = 0;

	for (int64_t i = 0; i < count; i++)
		if (__builtin_mul_overflow((uint64_t)dimension[i] - 1, (uint64_t)stride[i], &step) ||
		    __builtin_add_overflow(last, step, &last))
			return SIZE_MAX;
	return __builtin_mul_overflow(last, (uint64_t)bits, &last) || last > UINT64_MAX - 7 ? SIZE_MAX
											    : (last + 7) / 8;
}

/* Bytes of the elements; a tensor that is broadcast has fewer in memory. */
static uint64_t tensor_bytes(const struct cudnn_contents *tensor)
{
	int64_t count = 0;
	const int64_t *dimension = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, &count);
	int bits = cudnn_graph_tensor_bits(tensor);
	uint64_t product = (uint64_t)bits;

	for (int64_t i = 0; i < count; i++)
		if (__builtin_mul_overflow(product, (uint64_t)dimension[i], &product))
			return 0;
	return product / 8;
}

/* A graph's name in reports, from its operations. */
enum kind {
	POINTWISE,
	NORMALIZATION,
	MATMUL,
	CONVOLUTION,
	ATTENTION,
};

static enum kind kind_of_operation(int type)
{
	switch (type) {
	case CUDNN_BACKEND_CONVOLUTION_FORWARD:
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_DATA:
	case CUDNN_BACKEND_CONVOLUTION_BACKWARD_FILTER:
		return CONVOLUTION;
	case CUDNN_BACKEND_SDPA_FWD:
	case CUDNN_BACKEND_SDPA_BWD:
	case CUDNN_BACKEND_SOFTMAX:
		return ATTENTION;
	case CUDNN_BACKEND_OPERATION_MATMUL:
	case CUDNN_BACKEND_MOE_GROUPED_MATMUL:
	case CUDNN_BACKEND_MOE_GROUPED_MATMUL_BWD:
		return MATMUL;
	case CUDNN_BACKEND_NORM_FORWARD:
	case CUDNN_BACKEND_NORM_BACKWARD:
	case CUDNN_BACKEND_BN_FINALIZE:
	case CUDNN_BACKEND_BN_BWD_WEIGHTS:
	case CUDNN_BACKEND_GEN_STATS:
		return NORMALIZATION;
	default:
		return POINTWISE;
	}
}

/* Two or more products are an attention: one after the softmax, one before. */
static enum kind kind_of(const struct cudnn_contents *graph)
{
	const struct cudnn_attribute *operations =
		cudnn_contents_typed(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
	enum kind highest = POINTWISE;
	int products = 0;

	for (int64_t i = 0; i < operations->count; i++) {
		int type = ((struct cudnn_contents **)operations->elements)[i]->type;
		enum kind kind = kind_of_operation(type);

		products += type == CUDNN_BACKEND_OPERATION_MATMUL;
		highest = kind > highest ? kind : highest;
	}
	return products > 1 ? ATTENTION : highest;
}

static const char *kind_name(enum kind kind)
{
	static const char *const names[] = {"cudnnBackendExecute(pointwise)", "cudnnBackendExecute(normalization)",
					    "cudnnBackendExecute(matmul)", "cudnnBackendExecute(convolution)",
					    "cudnnBackendExecute(attention)"};

	return names[kind];
}

/* Whether a tensor has an address: it is neither an intermediate nor a constant of the graph. */
static bool is_placed(const struct cudnn_contents *tensor)
{
	return !cudnn_graph_flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
	       !cudnn_contents_find(tensor, CUDNN_ATTR_TENSOR_CONSTANT_VALUE);
}

/* Sums up the largest workspace that a plan may need. */
struct need {
	int64_t ids[128]; /* of tensors that were counted */
	size_t count;
	uint64_t operands;
	uint64_t intermediate; /* the largest */
};

static int add_bytes(const struct cudnn_contents *tensor, int name, void *context)
{
	struct need *need = context;
	int64_t id = cudnn_graph_tensor_id(tensor);
	uint64_t bytes = tensor_bytes(tensor);

	(void)name;
	for (size_t i = 0; i < need->count; i++)
		if (need->ids[i] == id)
			return 0;
	if (need->count < sizeof need->ids / sizeof *need->ids)
		need->ids[need->count++] = id;
	if (is_placed(tensor))
		need->operands += bytes;
	else if (bytes > need->intermediate)
		need->intermediate = bytes;
	return 0;
}

/* What a convolution reads and writes. */
struct convolution {
	uint64_t read, written; /* bytes */
	bool channels_last;     /* all of them: each element's channels side by side */
	bool is_product;        /* the kernel has one element */
	int type;               /* of the elements */
};

static int64_t points_of(const struct cudnn_contents *tensor)
{
	int64_t count = 0;
	const int64_t *dimension = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, &count);
	int64_t points = 1;

	for (int64_t i = 2; i < count; i++)
		points *= dimension[i];
	return points;
}

static bool is_channels_last(const struct cudnn_contents *tensor)
{
	int64_t count = 0;
	const int64_t *stride = cudnn_graph_numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, &count);

	return count > 2 && (stride[1] == 1 || points_of(tensor) == 1);
}

static int add_operand(const struct cudnn_contents *tensor, int name, void *context)
{
	struct convolution *convolution = context;

	if (name == CUDNN_ATTR_CONVOLUTION_FORWARD_W || name == CUDNN_ATTR_CONVOLUTION_BWD_DATA_W ||
	    name == CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DW)
		convolution->is_product = points_of(tensor) == 1;
	switch (name) {
	case CUDNN_ATTR_CONVOLUTION_FORWARD_X:
	case CUDNN_ATTR_CONVOLUTION_FORWARD_W:
	case CUDNN_ATTR_CONVOLUTION_BWD_DATA_DY:
	case CUDNN_ATTR_CONVOLUTION_BWD_DATA_W:
	case CUDNN_ATTR_CONVOLUTION_BWD_FILTER_X:
	case CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DY:
		convolution->read += tensor_bytes(tensor);
		convolution->type = cudnn_graph_enumerator(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
		break;
	case CUDNN_ATTR_CONVOLUTION_FORWARD_Y:
	case CUDNN_ATTR_CONVOLUTION_BWD_DATA_DX:
	case CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DW:
		convolution->written += tensor_bytes(tensor);
		break;
	default:
		return 0;
	}
	convolution->channels_last = convolution->channels_last && is_channels_last(tensor);
	return 0;
}

/* The workspace that cuDNN usually takes: tensor cores want channels last, so it copies other operands, and the
 * result if its kernel does not write the other layout itself. cudnn.md has the measurements. */
static uint64_t usual_workspace(const struct convolution *convolution)
{
	const struct runtime_services *services = stand_in_services();
	bool narrow = convolution->type == CUDNN_DATA_HALF || convolution->type == CUDNN_DATA_BFLOAT16;
	uint64_t bytes = convolution->read + ALIGNMENT;
	int capability = 0, multiprocessors = 0;

	if (convolution->channels_last || (!narrow && convolution->type != CUDNN_DATA_FLOAT) || !services ||
	    !services->architecture(services->device(), &capability, &multiprocessors))
		return 0;
	if (narrow)
		return bytes + convolution->written;
	if (capability < FIRST_WITH_TF32 || convolution->is_product)
		return 0;
	return capability < FIRST_THAT_COPIES_FLOATS ? bytes : bytes + convolution->written;
}

/* The most that cuDNN may take: with channels last, a copy of each operand in float, for partial sums. Otherwise no
 * bound is known. */
static uint64_t most_workspace(const struct convolution *convolution)
{
	uint64_t most = 2 * (convolution->read + convolution->written);

	if (!convolution->channels_last)
		return STAND_IN_UNBOUNDED;
	return most < CONVOLUTION_MEASURED ? CONVOLUTION_MEASURED : most;
}

uint64_t cudnn_execute_count_workspace(const struct cudnn_contents *plan)
{
	const struct cudnn_contents *graph = cudnn_graph_of(plan);
	enum kind kind = kind_of(graph);
	struct convolution convolution = {.channels_last = true};
	struct need need = {.count = 0};
	uint64_t usual = 0;

	if (kind == CONVOLUTION) {
		cudnn_graph_visit(graph, add_operand, &convolution);
		usual = usual_workspace(&convolution);
		stand_in_workspace(kind_name(kind), usual, most_workspace(&convolution));
	} else {
		cudnn_graph_visit(graph, add_bytes, &need);
		stand_in_workspace(kind_name(kind), 0, need.operands + need.intermediate);
	}
	return usual;
}

/* A benchmark runs plans again with the same addresses, and on a GPU may choose one that takes any workspace. */
static void count_benchmark(const struct cudnn_contents *pack, enum kind kind)
{
	atomic_bool *executed = (atomic_bool *)&pack->executed; /* the only part that changes */

	if (atomic_exchange(executed, true) && kind == CONVOLUTION)
		stand_in_workspace(kind_name(kind), 0, STAND_IN_UNBOUNDED);
}

/* A plan's addresses. */
struct pack {
	int64_t count;
	const int64_t *ids;
	void *const *addresses;
};

static struct pack pack_of(const struct cudnn_contents *contents)
{
	const struct cudnn_attribute *pointers =
		cudnn_contents_typed(contents, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
	struct pack pack = {0};

	pack.ids = cudnn_graph_numbers(contents, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &pack.count);
	pack.addresses = pointers->elements;
	return pack;
}

static void *address_of(const struct pack *pack, const struct cudnn_contents *tensor)
{
	for (int64_t i = 0; i < pack->count; i++)
		if (pack->ids[i] == cudnn_graph_tensor_id(tensor))
			return pack->addresses[i];
	return NULL;
}

static int check_address(const struct cudnn_contents *tensor, int name, void *context)
{
	(void)name;
	return !is_placed(tensor) || address_of(context, tensor) ? 0 : missing("a tensor of the plan has no address");
}

static bool is_output(int name)
{
	switch (name) {
	case CUDNN_ATTR_CONVOLUTION_FORWARD_Y:
	case CUDNN_ATTR_CONVOLUTION_BWD_DATA_DX:
	case CUDNN_ATTR_CONVOLUTION_BWD_FILTER_DW:
	case CUDNN_ATTR_OPERATION_POINTWISE_YDESC:
	case CUDNN_ATTR_OPERATION_POINTWISE_DXDESC:
	case CUDNN_ATTR_OPERATION_MATMUL_CDESC:
	case CUDNN_ATTR_OPERATION_REDUCTION_YDESC:
	case CUDNN_ATTR_NORM_FWD_YDESC:
	case CUDNN_ATTR_NORM_BWD_DXDESC:
	case CUDNN_ATTR_SDPA_FWD_ODESC:
	case CUDNN_ATTR_SDPA_FWD_STATSDESC:
	case CUDNN_ATTR_SOFTMAX_STATS_DESC:
	case CUDNN_ATTR_SDPA_BWD_DQDESC:
	case CUDNN_ATTR_SDPA_BWD_DKDESC:
	case CUDNN_ATTR_SDPA_BWD_DVDESC:
		return true;
	default:
		return false;
	}
}

/* Makes an output read as zeros. Leaves a ragged tensor as it is: its strides do not give its end. */
static int forget_output(const struct cudnn_contents *tensor, int name, void *context)
{
	uint64_t bytes = tensor_span(tensor);

	if (is_output(name) && is_placed(tensor) && bytes < SIZE_MAX &&
	    !cudnn_contents_find(tensor, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC) &&
	    !cudnn_graph_flag(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE))
		cudnn_forget(address_of(context, tensor), bytes);
	return 0;
}

int cudnnBackendExecute(const void *handle, const struct cudnn_descriptor *plan,
			const struct cudnn_descriptor *variants)
{
	const struct cudnn_contents *of_plan = cudnn_backend_contents(plan, CUDNN_BACKEND_EXECUTION_PLAN);
	const struct cudnn_contents *of_pack = cudnn_backend_contents(variants, CUDNN_BACKEND_VARIANT_PACK);
	const struct cudnn_contents *graph = of_plan ? cudnn_graph_of(of_plan) : NULL;
	struct pack pack;
	int status;

	if (!graph || !of_pack)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no plan or variant pack, or not finalized");
	pack = pack_of(of_pack);
	status = cudnn_graph_visit(graph, check_address, &pack);
	if (!status)
		status = cudnn_compute(kind_name(kind_of(graph)), handle);
	if (!status)
		count_benchmark(of_pack, kind_of(graph));
	if (!status && !cudnn_contents_find(of_pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS))
		cudnn_graph_visit(graph, forget_output, &pack);
	return status;
}

int cudnnGetExecutionPlanWorkspaceSize(const void *handle, const struct cudnn_descriptor *plan,
				       const struct cudnn_descriptor *variants, size_t *ret_bytes)
{
	const struct cudnn_contents *of_plan = cudnn_backend_contents(plan, CUDNN_BACKEND_EXECUTION_PLAN);

	(void)variants;
	if (!cudnn_handle_valid(handle))
		return CUDNN_STATUS_BAD_PARAM;
	if (!of_plan || !ret_bytes)
		return cudnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnGetExecutionPlanWorkspaceSize: no finalized plan");
	*ret_bytes = cudnn_graph_workspace(of_plan);
	return 0;
}
