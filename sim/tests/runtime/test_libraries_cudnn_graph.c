/* cuDNN's graph API: attributes are stored and shared, invalid graphs are refused, a graph has two engines, a plan
 * runs on the stream. */
#include "libraries_test.h"

#include <string.h>

enum {
	NOT_INITIALIZED = 1001,
	BAD_PARAM = 2000,
	NULL_POINTER = 2002,
	NOT_FINALIZED = 2004,
	SIZE_INSUFFICIENT = 2006,
	SHAPE_MISMATCH = 2008,
	DUPLICATED = 2009,
	ATTRIBUTE_TYPE = 2010,
	DESCRIPTOR_TYPE = 2012,
	NOT_SUPPORTED = 3000,
};

/* Types of descriptors, and of attributes. */
enum {
	CONVOLUTION = 1,
	ENGINE = 2,
	CONFIGURATION = 3,
	HEURISTICS = 4,
	PLAN = 5,
	FORWARD = 10,
	BACKWARD_DATA = 12,
	GRAPH = 15,
	PACK = 16,
	TENSOR = 17,
	MATMUL = 18,
	OPERATION_MATMUL = 19,
	DATA_TYPE = 1,
	BOOLEAN = 2,
	INT64 = 3,
	POINTER = 6,
	MODE = 7,
	HEUR_MODE = 8,
	NOTE = 11,
	DESCRIPTOR = 15,
	TEXT = 24,
};

static struct {
	int (*create_handle)(void **);
	int (*destroy_handle)(void *);
	int (*set_stream)(void *, void *);
	int (*create)(int, void **);
	int (*destroy)(void *);
	int (*set)(void *, int, int, int64_t, const void *);
	int (*get)(const void *, int, int, int64_t, int64_t *, void *);
	int (*finalize)(void *);
	int (*execute)(void *, void *, void *);
} cudnn;

static void load(void)
{
	void *library = library_open("libcudnn.so.9");

	library_function(library, "cudnnCreate", &cudnn.create_handle);
	library_function(library, "cudnnDestroy", &cudnn.destroy_handle);
	library_function(library, "cudnnSetStream", &cudnn.set_stream);
	library_function(library, "cudnnBackendCreateDescriptor", &cudnn.create);
	library_function(library, "cudnnBackendDestroyDescriptor", &cudnn.destroy);
	library_function(library, "cudnnBackendSetAttribute", &cudnn.set);
	library_function(library, "cudnnBackendGetAttribute", &cudnn.get);
	library_function(library, "cudnnBackendFinalize", &cudnn.finalize);
	library_function(library, "cudnnBackendExecute", &cudnn.execute);
}

static void *create(int type)
{
	void *made = NULL;

	assert_int_equal(cudnn.create(type, &made), 0);
	assert_non_null(made);
	return made;
}

static void set_numbers(void *descriptor, int name, int64_t count, const int64_t *numbers)
{
	assert_int_equal(cudnn.set(descriptor, name, INT64, count, numbers), 0);
}

static void set_enumerator(void *descriptor, int name, int type, int value)
{
	assert_int_equal(cudnn.set(descriptor, name, type, 1, &value), 0);
}

/* Sets a descriptor as attribute and destroys it: the attribute keeps its contents. */
static void give(void *descriptor, int name, void *part)
{
	assert_int_equal(cudnn.set(descriptor, name, DESCRIPTOR, 1, &part), 0);
	assert_int_equal(cudnn.destroy(part), 0);
}

/* For tensors that are made from now on; zeroed: half, planes. */
static struct {
	int type; /* 0: half */
	bool is_float, channels_last;
} tensors;

/* A tensor of 4 dimensions, not finalized. */
static void *tensor_begin(int64_t id, const int64_t *dimension)
{
	int64_t points = dimension[2] * dimension[3], channels = dimension[1];
	int64_t planes[4] = {channels * points, points, dimension[3], 1};
	int64_t last[4] = {channels * points, 1, channels * dimension[3], channels};
	const int64_t *stride = tensors.channels_last ? last : planes;
	void *tensor = create(TENSOR);

	set_enumerator(tensor, 901, DATA_TYPE, tensors.is_float ? 0 : tensors.type ? tensors.type : 2);
	set_numbers(tensor, 902, 4, dimension);
	set_numbers(tensor, 903, 4, stride);
	set_numbers(tensor, 906, 1, &id);
	set_numbers(tensor, 900, 1, (int64_t[]){16});
	return tensor;
}

static void *tensor(int64_t id, const int64_t *dimension)
{
	void *made = tensor_begin(id, dimension);

	assert_int_equal(cudnn.finalize(made), 0);
	return made;
}

static void *virtual_tensor(int64_t id, const int64_t *dimension)
{
	void *made = tensor_begin(id, dimension);
	char yes = 1;

	assert_int_equal(cudnn.set(made, 907, BOOLEAN, 1, &yes), 0);
	assert_int_equal(cudnn.finalize(made), 0);
	return made;
}

static int64_t padding = 1;

/* Stride 1. */
static void *convolution(void)
{
	int64_t around[2] = {padding, padding};
	void *made = create(CONVOLUTION);

	set_enumerator(made, 100, DATA_TYPE, 0);
	set_enumerator(made, 101, MODE, 1);
	set_numbers(made, 102, 2, (int64_t[]){1, 1});
	set_numbers(made, 103, 2, (int64_t[]){1, 1});
	set_numbers(made, 104, 2, around);
	set_numbers(made, 105, 2, around);
	set_numbers(made, 106, 1, (int64_t[]){2});
	assert_int_equal(cudnn.finalize(made), 0);
	return made;
}

static const int64_t images[4] = {8, 3, 32, 32};
static const int64_t filters[4] = {16, 3, 3, 3};
static const int64_t outputs[4] = {8, 16, 32, 32};

/* A forward convolution of x, w to y, not finalized. */
static void *forward_begin(const int64_t *x, const int64_t *w, void *y)
{
	void *operation = create(FORWARD);

	give(operation, 702, convolution());
	give(operation, 703, tensor('w', w));
	give(operation, 704, tensor('x', x));
	give(operation, 705, y);
	return operation;
}

static void *graph_of(void *operation)
{
	void *graph = create(GRAPH);

	assert_int_equal(cudnn.finalize(operation), 0);
	give(graph, 801, operation);
	assert_int_equal(cudnn.finalize(graph), 0);
	return graph;
}

static void *plan_by(void *graph, int mode)
{
	void *heuristics = create(HEURISTICS);
	void *configuration = create(CONFIGURATION);
	void *plan = create(PLAN);
	int64_t count = -1;

	give(heuristics, 201, graph);
	set_enumerator(heuristics, 200, HEUR_MODE, mode);
	assert_int_equal(cudnn.finalize(heuristics), 0);
	assert_int_equal(cudnn.get(heuristics, 202, DESCRIPTOR, 0, &count, NULL), 0);
	assert_int_equal(count, 1);
	assert_int_equal(cudnn.get(heuristics, 202, DESCRIPTOR, 1, &count, &configuration), 0);
	assert_int_equal(cudnn.destroy(heuristics), 0);
	give(plan, 401, configuration);
	assert_int_equal(cudnn.finalize(plan), 0);
	return plan;
}

static void *plan_of(void *graph) { return plan_by(graph, 0); }

static void *pack_of(int64_t count, const int64_t *ids, void *const *addresses)
{
	void *pack = create(PACK);

	set_numbers(pack, 1000, count, ids);
	assert_int_equal(cudnn.set(pack, 1001, POINTER, count, addresses), 0);
	assert_int_equal(cudnn.finalize(pack), 0);
	return pack;
}

static void attributes_are_given_back_by_count(void **state)
{
	void *made = tensor('t', outputs);
	int64_t number[6] = {-1, -1, -1, -1, -1, -1};
	int64_t count = -1;
	int type = -1;

	(void)state;
	assert_int_equal(cudnn.get(made, 902, INT64, 0, &count, NULL), 0);
	assert_int_equal(count, 4);
	assert_int_equal(cudnn.get(made, 902, INT64, 2, &count, number), 0);
	assert_int_equal(count, 4);
	assert_int_equal(number[1], 16);
	assert_int_equal(number[2], -1); /* two were asked for */
	assert_int_equal(cudnn.get(made, 902, INT64, 6, &count, number), 0);
	assert_memory_equal(number, outputs, sizeof outputs);
	assert_int_equal(number[4], -1);
	assert_int_equal(cudnn.get(made, 901, DATA_TYPE, 1, NULL, &type), 0);
	assert_int_equal(type, 2);
	assert_int_equal(cudnn.get(made, 905, INT64, 1, &count, number), 0); /* never set */
	assert_int_equal(count, 0);
	assert_int_equal(cudnn.get(made, 901, INT64, 1, &count, number), ATTRIBUTE_TYPE);
	assert_int_equal(cudnn.get(made, 700, INT64, 1, &count, number), DESCRIPTOR_TYPE);
	assert_int_equal(cudnn.destroy(made), 0);
}

static void a_descriptor_changes_until_it_is_finalized(void **state)
{
	void *made = tensor_begin('t', outputs);
	void *graph = create(GRAPH);
	void *unknown = NULL;
	int64_t count = -1;

	(void)state;
	assert_int_equal(cudnn.get(made, 902, INT64, 0, &count, NULL), NOT_INITIALIZED);
	assert_int_equal(cudnn.set(graph, 801, DESCRIPTOR, 1, &made), NOT_FINALIZED);
	set_numbers(made, 902, 4, images);
	assert_int_equal(cudnn.finalize(made), 0);
	assert_int_equal(cudnn.set(made, 902, INT64, 4, outputs), NOT_INITIALIZED);
	assert_int_equal(cudnn.set(made, 902, 99, 4, outputs), NOT_INITIALIZED);
	assert_int_equal(cudnn.set(graph, 802, 99, 1, outputs), ATTRIBUTE_TYPE);
	assert_int_equal(cudnn.set(graph, 802, INT64, 1, NULL), BAD_PARAM);
	assert_int_equal(cudnn.set(NULL, 802, INT64, 1, outputs), NULL_POINTER);
	assert_int_equal(cudnn.create(999, &unknown), NOT_SUPPORTED);
	assert_null(unknown);
	assert_int_equal(cudnn.destroy(graph), 0);
	assert_int_equal(cudnn.destroy(made), 0);
	assert_int_equal(cudnn.destroy(NULL), 0);
}

static void a_tensor_that_makes_no_sense_is_refused(void **state)
{
	void *made = tensor_begin('t', outputs);

	(void)state;
	set_numbers(made, 903, 3, outputs);
	assert_int_equal(cudnn.finalize(made), SHAPE_MISMATCH);
	set_numbers(made, 903, 4, outputs);
	set_numbers(made, 902, 4, (int64_t[]){8, 0, 32, 32});
	assert_int_equal(cudnn.finalize(made), BAD_PARAM);
	set_numbers(made, 902, 4, outputs);
	set_numbers(made, 900, 1, (int64_t[]){12});
	assert_int_equal(cudnn.finalize(made), BAD_PARAM);
	set_numbers(made, 900, 1, (int64_t[]){1});
	set_enumerator(made, 901, DATA_TYPE, 77);
	assert_int_equal(cudnn.finalize(made), BAD_PARAM);
	set_enumerator(made, 901, DATA_TYPE, 9);
	assert_int_equal(cudnn.finalize(made), 0);
	assert_int_equal(cudnn.destroy(made), 0);
}

static void a_convolution_of_other_shapes_is_refused(void **state)
{
	static const int64_t other_channels[4] = {16, 2, 3, 3};
	static const int64_t other_batch[4] = {4, 16, 32, 32};
	static const int64_t other_filters[4] = {8, 8, 32, 32};
	static const int64_t other_length[4] = {8, 16, 31, 32};
	static const int64_t *const wrong[] = {other_batch, other_filters, other_length};
	void *operation;

	(void)state;
	for (int i = 0; i < 3; i++) {
		operation = forward_begin(images, filters, tensor('y', wrong[i]));
		assert_int_equal(cudnn.finalize(operation), SHAPE_MISMATCH);
		cudnn.destroy(operation);
	}
	operation = forward_begin(images, other_channels, tensor('y', outputs));
	assert_int_equal(cudnn.finalize(operation), SHAPE_MISMATCH);
	cudnn.destroy(operation);
	operation = create(FORWARD);
	assert_int_equal(cudnn.finalize(operation), BAD_PARAM);
	cudnn.destroy(operation);
}

static void a_graph_of_something_else_is_refused(void **state)
{
	void *graph = create(GRAPH);
	void *operation = forward_begin(images, filters, tensor('x', outputs)); /* the input's id */

	(void)state;
	assert_int_equal(cudnn.finalize(graph), BAD_PARAM);
	give(graph, 801, tensor('x', images));
	assert_int_equal(cudnn.finalize(graph), DESCRIPTOR_TYPE);
	assert_int_equal(cudnn.finalize(operation), 0);
	give(graph, 801, operation);
	assert_int_equal(cudnn.finalize(graph), DUPLICATED);
	cudnn.destroy(graph);
}

static void an_engine_has_no_knobs(void **state)
{
	void *plan;
	void *configuration = create(CONFIGURATION);
	void *engine = create(ENGINE);
	void *wrong = create(PLAN);
	int64_t count = -1;
	int64_t number = -1;

	(void)state;
	fake_begin();
	plan = plan_of(graph_of(forward_begin(images, filters, tensor('y', outputs))));
	assert_int_equal(cudnn.get(plan, 402, INT64, 1, NULL, &number), 0);
	assert_int_equal(number, 2 * (8 * 3 * 1024 + 16 * 27 + 8 * 16 * 1024) + 512);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_string_equal(fake.function, "cudnnBackendExecute(convolution)");
	assert_int_equal(fake.low, number);
	assert_true(fake.high == UINT64_MAX);
	assert_int_equal(cudnn.get(plan, 401, DESCRIPTOR, 1, &count, &wrong), DESCRIPTOR_TYPE);
	assert_int_equal(cudnn.get(plan, 401, DESCRIPTOR, 1, &count, &configuration), 0);
	assert_int_equal(cudnn.get(configuration, 300, DESCRIPTOR, 1, &count, &engine), 0);
	assert_int_equal(cudnn.get(engine, 1301, INT64, 1, &count, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(cudnn.get(engine, 1303, NOTE, 10, &count, NULL), 0);
	assert_int_equal(count, 0);
	assert_int_equal(cudnn.get(configuration, 302, DESCRIPTOR, 10, &count, NULL), 0);
	assert_int_equal(count, 0);
	assert_int_equal(cudnn.get(plan, 405, TEXT, 0, &count, NULL), NOT_SUPPORTED);
	cudnn.destroy(plan);
	cudnn.destroy(configuration);
	cudnn.destroy(engine);
	/* If there is no memory for the workspace, PyTorch asks for the mode FALLBACK. */
	plan = plan_by(graph_of(forward_begin(images, filters, tensor('y', outputs))), 2);
	assert_int_equal(cudnn.get(plan, 402, INT64, 1, &count, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	cudnn.destroy(plan);
	cudnn.destroy(wrong);
}

/* The six workspaces that FakeGPU (FanBB2333/FakeGPU 7d5cf83, fakegpu/data/workspace_profiles.json) measured, and
 * convolutions that need none. */
static void usual_workspaces_are_those_measured(void **state)
{
	static const struct {
		int capability, type; /* 0 float, 1 double, 2 half, 9 bfloat16 */
		bool channels_last;
		int64_t images[4], channels, bytes, kernel; /* 0: 3 x 3 */
	} cases[] = {
		{86, 0, false, {2, 64, 128, 128}, 64, 8536576},   {86, 0, false, {4, 128, 64, 64}, 128, 8978944},
		{86, 9, false, {2, 64, 128, 128}, 64, 8462848},   {120, 0, false, {2, 64, 128, 128}, 64, 16925184},
		{120, 0, false, {4, 128, 64, 64}, 128, 17367552}, {120, 9, false, {2, 64, 128, 128}, 64, 8462848},
		{80, 2, false, {2, 64, 128, 128}, 64, 8462848},   {86, 0, true, {2, 64, 128, 128}, 64, 0},
		{120, 9, true, {2, 64, 128, 128}, 64, 0},         {75, 0, false, {2, 64, 128, 128}, 64, 0},
		{80, 1, false, {2, 64, 128, 128}, 64, 0},         {86, 0, false, {2, 64, 128, 128}, 64, 0, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t side = cases[i].kernel ? cases[i].kernel : 3, bytes = -1;
		int64_t filter[4] = {cases[i].channels, cases[i].channels, side, side};
		void *plan;

		fake_begin();
		fake.capability = cases[i].capability;
		tensors.type = cases[i].type;
		tensors.is_float = cases[i].type == 0;
		tensors.channels_last = cases[i].channels_last;
		padding = side / 2;
		plan = plan_of(graph_of(forward_begin(cases[i].images, filter, tensor('y', cases[i].images))));
		padding = 1;
		assert_int_equal(cudnn.get(plan, 402, INT64, 1, NULL, &bytes), 0);
		assert_int_equal(bytes, cases[i].bytes);
		assert_int_equal(fake.low, bytes);
		assert_int_equal(fake.high == UINT64_MAX, !cases[i].channels_last);
		cudnn.destroy(plan);
	}
	memset(&tensors, 0, sizeof tensors);
}

/* A plan runs again with the same addresses while PyTorch times it to choose one. */
static void a_benchmark_may_choose_any_workspace(void **state)
{
	static const int64_t ids[] = {'x', 'y', 'w'};
	void *addresses[] = {(void *)0x1000, (void *)0x2000, (void *)0x3000};
	void *handle = NULL;
	void *plan;
	void *packs[] = {pack_of(3, ids, addresses), pack_of(3, ids, addresses)};

	(void)state;
	fake_begin();
	assert_int_equal(cudnn.create_handle(&handle), 0);
	tensors.channels_last = true;
	plan = plan_of(graph_of(forward_begin(images, filters, tensor('y', outputs))));
	tensors.channels_last = false;
	assert_int_equal(cudnn.execute(handle, plan, packs[0]), 0);
	assert_int_equal(cudnn.execute(handle, plan, packs[1]), 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 1);
	assert_int_equal(cudnn.execute(handle, plan, packs[1]), 0);
	assert_int_equal(fake.tallies[GAP_WORKSPACE], 2);
	assert_true(fake.high == UINT64_MAX);
	cudnn.destroy(plan);
	cudnn.destroy(packs[0]);
	cudnn.destroy(packs[1]);
	cudnn.destroy_handle(handle);
}

static void small_convolutions_count_what_was_measured(void **state)
{
	static const int64_t one[4] = {1, 1, 3, 3};

	(void)state;
	fake_begin();
	cudnn.destroy(plan_of(graph_of(forward_begin(one, one, tensor('y', one)))));
	assert_true(fake.high == UINT64_MAX); /* planes, as its strides say */
	tensors.channels_last = true;
	cudnn.destroy(plan_of(graph_of(forward_begin(one, one, tensor('y', one)))));
	tensors.channels_last = false;
	assert_int_equal(fake.high, 205 << 10);
}

static void another_engine_is_refused(void **state)
{
	void *engine = create(ENGINE);

	(void)state;
	fake_begin();
	give(engine, 1300, graph_of(forward_begin(images, filters, tensor('y', outputs))));
	set_numbers(engine, 1301, 1, (int64_t[]){3});
	assert_int_equal(cudnn.finalize(engine), NOT_SUPPORTED);
	assert_int_equal(fake.tallies[GAP_REFUSED], 1);
	set_numbers(engine, 1301, 1, (int64_t[]){0});
	assert_int_equal(cudnn.finalize(engine), 0);
	cudnn.destroy(engine);
}

static void a_plan_goes_to_the_handles_stream(void **state)
{
	static const int64_t ids[] = {'x', 'y', 'w'};
	void *addresses[] = {(void *)0x1000, (void *)0x2000, (void *)0x3000};
	void *handle = NULL;
	void *plan;
	void *pack = pack_of(3, ids, addresses);
	void *short_pack = pack_of(2, ids, addresses);

	(void)state;
	fake_begin();
	assert_int_equal(cudnn.create_handle(&handle), 0);
	assert_int_equal(cudnn.set_stream(handle, &handle), 0);
	plan = plan_of(graph_of(forward_begin(images, filters, tensor('y', outputs))));
	assert_int_equal(cudnn.execute(handle, plan, pack), 0);
	assert_int_equal(fake.launches, 1);
	assert_ptr_equal(fake.launch_stream, &handle);
	assert_int_equal(fake.tallies[GAP_VALUES], 1);
	assert_string_equal(fake.function, "cudnnBackendExecute(convolution)");
	assert_int_equal(fake.forgets, 1); /* the output reads as zeros, the input stays */
	assert_int_equal(fake.forgotten_at, 0x2000);
	assert_int_equal(fake.forgotten, 2 * 8 * 16 * 1024);
	assert_int_equal(cudnn.execute(handle, plan, short_pack), BAD_PARAM);
	assert_int_equal(cudnn.execute(handle, pack, pack), NOT_FINALIZED);
	assert_int_equal(cudnn.execute(NULL, plan, pack), BAD_PARAM);
	assert_int_equal(fake.launches, 1);
	cudnn.destroy(plan);
	cudnn.destroy(pack);
	cudnn.destroy(short_pack);
	cudnn.destroy_handle(handle);
}

static void a_pack_has_an_address_for_each_id(void **state)
{
	void *pack = create(PACK);
	void *address = NULL;

	(void)state;
	set_numbers(pack, 1000, 2, (int64_t[]){1, 2});
	assert_int_equal(cudnn.set(pack, 1001, POINTER, 1, &address), 0);
	assert_int_equal(cudnn.finalize(pack), SIZE_INSUFFICIENT);
	cudnn.destroy(pack);
}

/* Backward of a transposed convolution: the same shapes, the other way round. */
static void gradients_have_the_shapes_of_the_forward_pass(void **state)
{
	static const int64_t ids[] = {'x', 'y', 'w'};
	void *addresses[] = {(void *)0x1000, (void *)0x2000, (void *)0x3000};
	void *operation = create(BACKWARD_DATA);
	void *handle = NULL;
	void *plan;
	void *pack = pack_of(3, ids, addresses);

	(void)state;
	fake_begin();
	assert_int_equal(cudnn.create_handle(&handle), 0);
	give(operation, 708, convolution());
	give(operation, 709, tensor('w', filters));
	give(operation, 710, tensor('x', images));
	give(operation, 711, tensor('y', outputs));
	plan = plan_of(graph_of(operation));
	assert_int_equal(cudnn.execute(handle, plan, pack), 0);
	assert_int_equal(fake.forgotten_at, 0x1000);
	assert_int_equal(fake.forgotten, 2 * 8 * 3 * 1024);
	cudnn.destroy(plan);
	cudnn.destroy(pack);
	cudnn.destroy_handle(handle);
}

static void *product(void *a, void *b, void *c)
{
	void *operation = create(OPERATION_MATMUL);
	void *matmul = create(MATMUL);

	set_enumerator(matmul, 1500, DATA_TYPE, 0);
	assert_int_equal(cudnn.finalize(matmul), 0);
	give(operation, 1520, a);
	give(operation, 1521, b);
	give(operation, 1522, c);
	give(operation, 1523, matmul);
	assert_int_equal(cudnn.finalize(operation), 0);
	return operation;
}

/* Two products with an intermediate between them: it needs no address, and is the largest workspace of the plan. */
static void an_attention_counts_its_scores(void **state)
{
	static const int64_t heads[4] = {2, 4, 128, 64};
	static const int64_t transposed[4] = {2, 4, 64, 128};
	static const int64_t scores[4] = {2, 4, 128, 128};
	static const int64_t ids[] = {'q', 'k', 'v', 'o'};
	void *addresses[] = {(void *)0x1000, (void *)0x2000, (void *)0x3000, (void *)0x4000};
	void *operations[2] = {product(tensor('q', heads), tensor('k', transposed), virtual_tensor('s', scores)),
			       product(virtual_tensor('s', scores), tensor('v', heads), tensor('o', heads))};
	void *graph = create(GRAPH);
	void *handle = NULL;
	void *plan;
	void *pack = pack_of(4, ids, addresses);

	(void)state;
	fake_begin();
	assert_int_equal(cudnn.create_handle(&handle), 0);
	assert_int_equal(cudnn.set(graph, 801, DESCRIPTOR, 2, operations), 0);
	assert_int_equal(cudnn.finalize(graph), 0);
	plan = plan_of(graph);
	assert_string_equal(fake.function, "cudnnBackendExecute(attention)");
	assert_int_equal(fake.high, 2 * (4 * 2 * 4 * 128 * 64 + 2 * 4 * 128 * 128));
	assert_int_equal(cudnn.execute(handle, plan, pack), 0);
	assert_int_equal(fake.forgets, 1);
	assert_int_equal(fake.forgotten_at, 0x4000);
	cudnn.destroy(operations[0]);
	cudnn.destroy(operations[1]);
	cudnn.destroy(plan);
	cudnn.destroy(pack);
	cudnn.destroy_handle(handle);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(attributes_are_given_back_by_count),
		cmocka_unit_test(a_descriptor_changes_until_it_is_finalized),
		cmocka_unit_test(a_tensor_that_makes_no_sense_is_refused),
		cmocka_unit_test(a_convolution_of_other_shapes_is_refused),
		cmocka_unit_test(a_graph_of_something_else_is_refused),
		cmocka_unit_test(an_engine_has_no_knobs),
		cmocka_unit_test(usual_workspaces_are_those_measured),
		cmocka_unit_test(a_benchmark_may_choose_any_workspace),
		cmocka_unit_test(small_convolutions_count_what_was_measured),
		cmocka_unit_test(another_engine_is_refused),
		cmocka_unit_test(a_plan_goes_to_the_handles_stream),
		cmocka_unit_test(a_pack_has_an_address_for_each_id),
		cmocka_unit_test(gradients_have_the_shapes_of_the_forward_pass),
		cmocka_unit_test(an_attention_counts_its_scores),
	};

	load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
