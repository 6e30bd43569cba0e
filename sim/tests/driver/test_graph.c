/* Graphs: queries, launches, updates, clones, user objects. */
#include "sim_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void CUDAAPI count_up(void *data) { ++*(int *)data; }

static CUgraph captured(CUstream stream)
{
	CUgraph graph = NULL;

	assert_ok(t.cuda.cuStreamEndCapture(stream, &graph));
	return graph;
}

static CUstream begin(const char *name, const char *options)
{
	CUstream stream;

	sim_begin(name, options);
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void end(CUstream stream)
{
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

static void a_launch_does_what_was_captured(void **state)
{
	CUstream stream = begin("launch", "mem=256MiB");
	struct neap_sim_kernel kernel = {.name = "slow", .duration_ns = 4000000};
	unsigned char source[64], *device;
	CUdeviceptr memory;
	CUgraphExec executable;
	CUgraph graph;
	int ran = 0;

	(void)state;
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	device = (unsigned char *)(uintptr_t)memory;
	memset(source, 1, sizeof source);
	assert_ok(t.cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(t.sim->launch(stream, &kernel));
	assert_ok(t.sim->launch(stream, &kernel));
	assert_ok(t.cuda.cuMemcpyHtoDAsync(memory, source, sizeof source, stream));
	assert_ok(t.cuda.cuMemcpyDtoDAsync(memory + 64, memory, 64, stream));
	assert_ok(t.cuda.cuMemsetD8Async(memory + 100, 9, 4, stream));
	assert_ok(t.cuda.cuLaunchHostFunc(stream, count_up, &ran));
	graph = captured(stream);
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_int_equal(ran, 0); /* captured, not run */
	assert_int_equal(device[0], 0);

	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&executable, graph,
						     CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	assert_ok(t.cuda.cuGraphDestroy(graph)); /* the executable one has its own */
	assert_ok(t.cuda.cuGraphUpload(executable, stream));
	memset(source, 2, sizeof source); /* read at the launch */
	uint64_t before = t.sim->now_ns();
	assert_ok(t.cuda.cuGraphLaunch(executable, stream));
	assert_answer(t.cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_true(t.sim->now_ns() - before >= 8000000); /* the sum of its nodes' times */
	assert_int_equal(ran, 1);
	assert_int_equal(device[0], 2);
	assert_int_equal(device[64], 2);
	assert_int_equal(device[100], 9);
	memset(source, 3, sizeof source);
	assert_ok(t.cuda.cuGraphLaunch(executable, stream));
	assert_ok(t.cuda.cuGraphLaunch(executable, stream));
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_int_equal(ran, 3);
	assert_int_equal(device[64], 3);

	/* Memory freed by then is detected. */
	assert_ok(t.cuda.cuMemFree(memory));
	assert_true(t.cuda.cuGraphLaunch(executable, stream) != CUDA_SUCCESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuGraphExecDestroy(executable));
	assert_answer(t.cuda.cuGraphExecDestroy(executable), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_VALUE);
	end(stream);
}

/* Launches of one executable graph follow each other on any streams; the stream comes before and after it. */
static void launches_are_ordered(void **state)
{
	CUstream a = begin("order", "mem=256MiB"), b;
	CUgraphExec executable;
	CUdeviceptr memory;
	CUgraph graph;

	(void)state;
	assert_ok(t.cuda.cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_ok(t.cuda.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(sim_kernel(a, "in the graph", memory, 64, 1));
	graph = captured(a);
	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&executable, graph, 0));
	assert_ok(sim_kernel(a, "before", memory, 64, 1));
	assert_ok(t.cuda.cuGraphLaunch(executable, a));
	assert_ok(t.cuda.cuGraphLaunch(executable, b)); /* after the launch on a */
	assert_ok(sim_kernel(b, "after", memory, 64, 0));
	assert_answer(sim_kernel(a, "unordered", memory, 64, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuGraphExecDestroy(executable));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(b));
	end(a);
}

static void external_events_are_recorded_at_each_launch(void **state)
{
	CUstream a = begin("external", "mem=256MiB"), b;
	CUgraphExec executable;
	CUdeviceptr memory;
	CUevent event;
	CUgraph graph;

	(void)state;
	assert_ok(t.cuda.cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_ok(t.cuda.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(sim_kernel(a, "writer", memory, 64, 1));
	assert_ok(t.cuda.cuEventRecordWithFlags(event, a, CU_EVENT_RECORD_EXTERNAL));
	graph = captured(a);
	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&executable, graph, 0));
	assert_ok(t.cuda.cuGraphLaunch(executable, a));
	assert_ok(t.cuda.cuStreamWaitEvent(b, event, 0));
	assert_ok(sim_kernel(b, "reader", memory, 64, 0)); /* ordered by it */
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuEventDestroy(event));
	assert_answer(t.cuda.cuGraphLaunch(executable, a), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGraphExecDestroy(executable));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(b));
	end(a);
}

static void a_graph_within_a_graph(void **state)
{
	CUstream stream = begin("child", "mem=256MiB");
	CUgraphExec inner, outer;
	CUgraph graph, whole;
	CUgraphNode node;
	CUgraphNodeType type;
	size_t count = 1;
	int ran = 0;

	(void)state;
	assert_ok(t.cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(t.cuda.cuLaunchHostFunc(stream, count_up, &ran));
	graph = captured(stream);
	assert_ok(t.cuda.cuGraphInstantiate_v2(&inner, graph, NULL, NULL, 0));
	assert_ok(t.cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(t.cuda.cuGraphLaunch(inner, stream));
	whole = captured(stream);
	assert_ok(t.cuda.cuGraphGetNodes(whole, &node, &count));
	assert_int_equal(count, 1);
	assert_ok(t.cuda.cuGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	assert_ok(t.cuda.cuGraphExecDestroy(inner));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&outer, whole, 0));
	assert_ok(t.cuda.cuGraphLaunch(outer, stream));
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_int_equal(ran, 1);
	assert_ok(t.cuda.cuGraphExecDestroy(outer));
	assert_ok(t.cuda.cuGraphDestroy(whole));
	assert_answer(t.cuda.cuGraphNodeGetType(node, &type), CUDA_ERROR_INVALID_VALUE);
	end(stream);
}

static void graphs_are_built_copied_and_drawn(void **state)
{
	CUstream stream = begin("build", "mem=256MiB");
	char path[] = "/tmp/neap-dot-XXXXXX", text[1024] = "";
	CUgraphNode a, b, c, list[4], twice[2];
	CUgraph graph, clone;
	size_t count;
	FILE *file;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_answer(t.cuda.cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGraphCreate(&graph, 0));
	assert_ok(t.cuda.cuGraphAddEmptyNode(&a, graph, NULL, 0));
	assert_ok(t.cuda.cuGraphAddEmptyNode(&b, graph, &a, 1));
	assert_ok(t.cuda.cuGraphClone(&clone, graph));
	assert_ok(t.cuda.cuGraphAddEmptyNode(&c, graph, &b, 1));
	assert_ok(t.cuda.cuGraphGetNodes(clone, NULL, &count));
	assert_int_equal(count, 2); /* not what came later */
	assert_ok(t.cuda.cuGraphGetNodes(clone, list, &count));
	assert_true(list[0] != a);
	count = 1;
	assert_ok(t.cuda.cuGraphNodeGetDependencies_v1(list[1], twice, &count));
	assert_ptr_equal(twice[0], list[0]); /* its edges connect its own nodes */
	assert_answer(t.cuda.cuGraphAddEmptyNode(&c, clone, &a, 1), CUDA_ERROR_INVALID_VALUE); /* another graph's */
	twice[0] = twice[1] = list[1];
	assert_answer(t.cuda.cuGraphAddEmptyNode(&c, clone, twice, 2), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof text - 1, file) > 0);
	fclose(file);
	unlink(path);
	assert_int_equal(strncmp(text, "digraph ", 8), 0);
	assert_non_null(strstr(text, "node_1 -> node_2;"));
	assert_non_null(strstr(text, "}\n"));
	assert_answer(t.cuda.cuGraphDebugDotPrint(graph, "/nowhere/at/all", 0), CUDA_ERROR_OPERATING_SYSTEM);
	assert_ok(t.cuda.cuGraphDestroy(clone));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_answer(t.cuda.cuGraphGetNodes(graph, NULL, &count), CUDA_ERROR_INVALID_VALUE);
	end(stream);
}

static CUgraph two_kernels(CUstream stream, uint64_t duration_ns)
{
	struct neap_sim_kernel kernel = {.name = "kernel", .duration_ns = duration_ns};

	assert_ok(t.cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(t.sim->launch(stream, &kernel));
	assert_ok(t.sim->launch(stream, &kernel));
	return captured(stream);
}

static void an_update_keeps_the_shape(void **state)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
	CUstream stream = begin("update", "mem=256MiB");
	CUgraphExecUpdateResultInfo outcome;
	CUgraph fast = two_kernels(stream, 10), slow = two_kernels(stream, 50000000), other;
	CUgraphExec executable;
	CUgraphNode node;
	cuuint64_t flags = 77;

	(void)state;
	assert_ok(t.cuda.cuGraphInstantiateWithParams(&executable, fast, &parameters));
	assert_int_equal(parameters.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
	assert_ok(t.cuda.cuGraphExecGetFlags(executable, &flags));
	assert_int_equal(flags, 0); /* the upload is not a lasting flag */
	assert_ok(t.cuda.cuGraphExecUpdate_v2(executable, slow, &outcome));
	assert_int_equal(outcome.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	uint64_t before = t.sim->now_ns();
	assert_ok(t.cuda.cuGraphLaunch(executable, stream));
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_true(t.sim->now_ns() - before >= 100000000);
	assert_ok(t.cuda.cuGraphCreate(&other, 0));
	assert_ok(t.cuda.cuGraphAddEmptyNode(&node, other, NULL, 0));
	assert_answer(t.cuda.cuGraphExecUpdate_v2(executable, other, &outcome), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(outcome.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	assert_ok(t.cuda.cuGraphAddEmptyNode(&node, other, &node, 1));
	assert_answer(t.cuda.cuGraphExecUpdate_v2(executable, other, &outcome), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(outcome.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
	assert_non_null(outcome.errorNode);
	assert_answer(t.cuda.cuGraphInstantiateWithFlags(&executable, other, 16), CUDA_ERROR_INVALID_VALUE);
	assert_answer(
		t.cuda.cuGraphInstantiateWithFlags(&executable, other, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
		CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(t.cuda.cuGraphExecDestroy(executable));
	assert_ok(t.cuda.cuGraphDestroy(fast));
	assert_ok(t.cuda.cuGraphDestroy(slow));
	assert_ok(t.cuda.cuGraphDestroy(other));
	end(stream);
}

/* A destructor runs when the last reference is dropped: the program's, a graph's, an executable one's, a launch's. */
static void user_objects_are_destroyed_once(void **state)
{
	CUstream stream = begin("objects", "mem=256MiB");
	CUgraph graph = two_kernels(stream, 1000000), clone;
	CUgraphExec executable;
	CUuserObject object;
	int destroyed = 0;

	(void)state;
	assert_answer(t.cuda.cuUserObjectCreate(&object, &destroyed, count_up, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuUserObjectCreate(&object, &destroyed, count_up, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuUserObjectCreate(&object, &destroyed, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	assert_ok(t.cuda.cuUserObjectRetain(object, 2));
	assert_answer(t.cuda.cuUserObjectRelease(object, 4), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuUserObjectRelease(object, 2));
	assert_ok(t.cuda.cuGraphRetainUserObject(graph, object, 2, 0));
	assert_answer(t.cuda.cuGraphRetainUserObject(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE),
		      CUDA_ERROR_INVALID_VALUE); /* the program has one only */
	assert_ok(t.cuda.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	assert_answer(t.cuda.cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE); /* it has none left */
	assert_answer(t.cuda.cuGraphReleaseUserObject(graph, object, 4), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGraphReleaseUserObject(graph, object, 1));
	assert_ok(t.cuda.cuGraphClone(&clone, graph));
	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&executable, graph, 0));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_ok(t.cuda.cuGraphDestroy(clone));
	assert_int_equal(destroyed, 0);
	t.sim->hold(1);
	assert_ok(t.cuda.cuGraphLaunch(executable, stream));
	assert_ok(t.cuda.cuGraphExecDestroy(executable));
	assert_int_equal(destroyed, 0); /* its launch is under way */
	t.sim->step(2000000);
	assert_ok(t.cuda.cuStreamQuery(stream));
	assert_int_equal(destroyed, 1);
	t.sim->hold(0);

	/* Without a graph, and with one that is destroyed with the context. */
	assert_ok(t.cuda.cuUserObjectCreate(&object, &destroyed, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	assert_ok(t.cuda.cuUserObjectRelease(object, 1));
	assert_int_equal(destroyed, 2);
	assert_ok(t.cuda.cuUserObjectCreate(&object, &destroyed, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	graph = two_kernels(stream, 10);
	assert_ok(t.cuda.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	assert_ok(t.cuda.cuGraphInstantiateWithFlags(&executable, graph, 0));
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_int_equal(destroyed, 2);
	sim_end();
	assert_int_equal(destroyed, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_launch_does_what_was_captured),
		cmocka_unit_test(launches_are_ordered),
		cmocka_unit_test(external_events_are_recorded_at_each_launch),
		cmocka_unit_test(a_graph_within_a_graph),
		cmocka_unit_test(graphs_are_built_copied_and_drawn),
		cmocka_unit_test(an_update_keeps_the_shape),
		cmocka_unit_test(user_objects_are_destroyed_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
