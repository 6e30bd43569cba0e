/* Stream capture: work becomes nodes; which calls are forbidden, and for which threads. */
#include "sim_test.h"

#include <pthread.h>
#include <string.h>

struct scene {
	CUstream a, b, c; /* non-blocking */
	CUstream blocking;
	CUevent e, f;
	CUdeviceptr memory;
};

static struct scene begin(const char *name)
{
	struct scene scene;

	sim_begin(name, "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&scene.a, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&scene.b, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&scene.c, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&scene.blocking, CU_STREAM_DEFAULT));
	assert_ok(t.cuda.cuEventCreate(&scene.e, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuEventCreate(&scene.f, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuMemAlloc(&scene.memory, PAGE));
	return scene;
}

static void end(struct scene *scene)
{
	assert_ok(t.cuda.cuMemFree(scene->memory));
	assert_ok(t.cuda.cuEventDestroy(scene->e));
	assert_ok(t.cuda.cuEventDestroy(scene->f));
	assert_ok(t.cuda.cuStreamDestroy(scene->a));
	assert_ok(t.cuda.cuStreamDestroy(scene->b));
	assert_ok(t.cuda.cuStreamDestroy(scene->c));
	assert_ok(t.cuda.cuStreamDestroy(scene->blocking));
	sim_end();
}

static CUstreamCaptureStatus status(CUstream stream)
{
	CUstreamCaptureStatus seen = 77;

	assert_ok(t.cuda.cuStreamIsCapturing(stream, &seen));
	return seen;
}

static void kernel(CUstream stream)
{
	struct neap_sim_kernel nothing = {.name = "nothing"};

	assert_ok(t.sim->launch(stream, &nothing));
}

static CUresult try_kernel(CUstream stream)
{
	struct neap_sim_kernel nothing = {.name = "nothing"};

	return t.sim->launch(stream, &nothing);
}

static size_t node_count(CUgraph graph)
{
	size_t count = 0;

	assert_ok(t.cuda.cuGraphGetNodes(graph, NULL, &count));
	return count;
}

static void start(CUstream stream, CUstreamCaptureMode mode) { assert_ok(t.cuda.cuStreamBeginCapture(stream, mode)); }

/* Ends a capture that must have been spoiled. */
static void expect_spoiled(CUstream stream)
{
	CUgraph graph = (CUgraph)(uintptr_t)77;

	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	assert_answer(try_kernel(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_answer(t.cuda.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);
	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_ok(try_kernel(stream)); /* an ordinary stream again */
}

static void finish(CUstream stream, size_t nodes)
{
	CUgraph graph;

	assert_ok(t.cuda.cuStreamEndCapture(stream, &graph));
	assert_int_equal(node_count(graph), nodes);
	assert_ok(t.cuda.cuGraphDestroy(graph));
}

static void forks_and_joins_become_edges(void **state)
{
	struct scene s = begin("fork");
	CUgraphNode nodes[8], from[8], to[8], roots[2];
	const CUgraphNode *dependencies;
	const CUgraphEdgeData *edges;
	cuuint64_t id = 0, other = 0;
	CUgraph graph, seen;
	size_t count = 8;

	(void)state;
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	kernel(s.a); /* 0 */
	assert_ok(t.cuda.cuEventRecord(s.e, s.a));
	assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.e, 0));
	assert_int_equal(status(s.b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(status(s.c), CU_STREAM_CAPTURE_STATUS_NONE);
	kernel(s.a); /* 1 */
	kernel(s.b); /* 2 */
	kernel(s.b); /* 3 */
	assert_ok(t.cuda.cuEventRecord(s.f, s.b));
	assert_ok(t.cuda.cuStreamWaitEvent(s.a, s.f, 0));
	CUstreamCaptureStatus is;
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v3(s.a, &is, &id, &seen, &dependencies, &edges, &count));
	assert_int_equal(is, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(count, 2); /* 1 and 3 */
	assert_int_equal(edges[1].type, 0);
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v2(s.b, &is, &other, NULL, NULL, &count));
	assert_int_equal(id, other);
	assert_int_equal(count, 1);
	kernel(s.a); /* 4 */
	assert_ok(t.cuda.cuStreamEndCapture(s.a, &graph));
	assert_ptr_equal(graph, seen);
	assert_int_equal(status(s.b), CU_STREAM_CAPTURE_STATUS_NONE);

	count = 8;
	assert_ok(t.cuda.cuGraphGetNodes(graph, nodes, &count));
	assert_int_equal(count, 5);
	assert_null(nodes[5]);
	count = 2;
	assert_ok(t.cuda.cuGraphGetRootNodes(graph, roots, &count));
	assert_int_equal(count, 1);
	assert_ptr_equal(roots[0], nodes[0]);
	count = 8;
	assert_ok(t.cuda.cuGraphGetEdges_v1(graph, from, to, &count));
	assert_int_equal(count, 5); /* 0-1, 0-2, 2-3, 1-4, 3-4 */
	assert_ok(t.cuda.cuGraphNodeGetDependencies_v2(nodes[4], NULL, NULL, &count));
	assert_int_equal(count, 2);
	assert_ok(t.cuda.cuGraphNodeGetDependentNodes_v1(nodes[0], NULL, &count));
	assert_int_equal(count, 2);
	assert_ok(t.cuda.cuGraphDestroy(graph));
	end(&s);
}

static void a_fork_that_is_not_joined_is_an_error(void **state)
{
	struct scene s = begin("unjoined");
	CUgraph graph;

	(void)state;
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
		kernel(s.a);
		assert_ok(t.cuda.cuEventRecord(s.e, s.a));
		assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.e, 0));
		kernel(s.b);
		if (destroyed) {
			assert_ok(t.cuda.cuStreamDestroy(s.b));
			assert_ok(t.cuda.cuStreamCreate(&s.b, CU_STREAM_NON_BLOCKING));
		}
		assert_answer(t.cuda.cuStreamEndCapture(s.a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
		assert_null(graph);
		assert_int_equal(status(s.a), CU_STREAM_CAPTURE_STATUS_NONE);
		assert_int_equal(status(s.b), CU_STREAM_CAPTURE_STATUS_NONE);
	}
	/* A stream that waited and did nothing has nothing to join. */
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	kernel(s.a);
	assert_ok(t.cuda.cuEventRecord(s.e, s.a));
	assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.e, 0));
	kernel(s.a);
	finish(s.a, 2);
	end(&s);
}

static void captures_are_apart(void **state)
{
	struct scene s = begin("apart");
	CUstreamCaptureStatus is;
	cuuint64_t one = 0, two = 0;
	CUgraph graph;

	(void)state;
	start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
	start(s.b, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_answer(t.cuda.cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v3(s.a, &is, &one, NULL, NULL, NULL, NULL));
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v3(s.b, &is, &two, NULL, NULL, NULL, NULL));
	assert_true(one != two);
	kernel(s.a);
	kernel(s.b);
	assert_answer(t.cuda.cuStreamSynchronize(s.b), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* spoils b's alone */
	expect_spoiled(s.b);
	kernel(s.a);
	finish(s.a, 2);

	/* A wait that would merge two spoils both. */
	start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
	start(s.b, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_ok(t.cuda.cuEventRecord(s.e, s.a));
	assert_answer(t.cuda.cuStreamWaitEvent(s.b, s.e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	expect_spoiled(s.a);
	expect_spoiled(s.b);

	/* It ends where it began. */
	start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_ok(t.cuda.cuEventRecord(s.e, s.a));
	assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.e, 0));
	assert_answer(t.cuda.cuStreamEndCapture(s.b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	expect_spoiled(s.a);
	assert_answer(t.cuda.cuStreamEndCapture(s.a, &graph), CUDA_ERROR_ILLEGAL_STATE);
	assert_answer(t.cuda.cuStreamEndCapture(s.a, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
		      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end(&s);
}

/* Each call that may be unsafe, and each that always is. */
static void unsafe_calls_spoil_a_capture(void **state)
{
	struct scene s = begin("unsafe");
	CUstreamCaptureMode mode;
	CUdeviceptr address;
	void *pinned = NULL;
	char byte;

	(void)state;
	for (int call = 0; call < 9; call++) {
		start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
		CUresult result = call == 0   ? t.cuda.cuMemAlloc(&address, 8)
				  : call == 1 ? t.cuda.cuMemFree(s.memory)
				  : call == 2 ? t.cuda.cuMemHostAlloc(&pinned, 8, 0)
				  : call == 3 ? t.cuda.cuEventQuery(s.f) /* of no capture */
				  : call == 4 ? t.cuda.cuEventSynchronize(s.f)
				  : call == 5 ? t.cuda.cuStreamSynchronize(NULL)
				  : call == 6 ? t.cuda.cuMemcpyDtoH(&byte, s.memory, 1)
				  : call == 7 ? t.cuda.cuCtxSynchronize()
					      : t.cuda.cuStreamQuery(s.c);
		if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
			fail_msg("call %d: %d", call, result);
		expect_spoiled(s.a);
	}
	/* The calls of PyTorch's expandable segments are allowed while a graph is captured. */
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(PAGE);
	sim_map_at(range, PAGE, handle);
	finish(s.a, 0);
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, PAGE));

	/* A relaxed thread, or a relaxed capture, may make unsafe calls, but not query captured work. */
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		if (relaxed)
			assert_ok(t.cuda.cuThreadExchangeStreamCaptureMode(&mode));
		start(s.a, relaxed ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_RELAXED);
		assert_ok(t.cuda.cuMemAlloc(&address, 8));
		assert_ok(t.cuda.cuMemFree(address));
		assert_ok(t.cuda.cuEventQuery(s.f));
		assert_ok(t.cuda.cuEventRecord(s.e, s.a));
		assert_answer(t.cuda.cuEventQuery(s.e), CUDA_ERROR_CAPTURED_EVENT);
		expect_spoiled(s.a);
		assert_answer(t.cuda.cuEventSynchronize(s.e), CUDA_ERROR_CAPTURED_EVENT); /* also afterwards */
		assert_answer(t.cuda.cuStreamWaitEvent(s.b, s.e, 0), CUDA_ERROR_CAPTURED_EVENT);
		start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
		assert_answer(t.cuda.cuStreamQuery(s.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		expect_spoiled(s.a);
		start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
		assert_answer(t.cuda.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		expect_spoiled(s.a);
		assert_ok(t.cuda.cuEventRecord(s.e, s.a)); /* an ordinary event again */
		assert_ok(t.cuda.cuEventSynchronize(s.e));
		if (relaxed)
			assert_ok(t.cuda.cuThreadExchangeStreamCaptureMode(&mode));
	}
	assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED); /* the mode set before */
	mode = 77;
	assert_answer(t.cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
	end(&s);
}

static void a_wait_crosses_no_border(void **state)
{
	struct scene s = begin("border");

	(void)state;
	assert_ok(t.cuda.cuEventRecord(s.f, s.c));
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_answer(t.cuda.cuStreamWaitEvent(s.a, s.f, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	expect_spoiled(s.a);
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_ok(t.cuda.cuEventRecord(s.e, s.a));
	assert_answer(t.cuda.cuStreamWaitEvent(NULL, s.e, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	expect_spoiled(s.a);
	/* Unless it is marked external: then nodes record and wait at each launch. */
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_ok(t.cuda.cuStreamWaitEvent(s.a, s.f, CU_EVENT_WAIT_EXTERNAL));
	assert_ok(t.cuda.cuEventRecordWithFlags(s.f, s.a, CU_EVENT_RECORD_EXTERNAL));
	finish(s.a, 2);
	assert_ok(t.cuda.cuEventQuery(s.f)); /* not recorded in a capture */
	end(&s);
}

/* While a stream that waits for the null stream is captured, the null stream is unusable. */
static void the_null_stream_is_no_way_around(void **state)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct scene s = begin("implicit");
	CUstreamCaptureStatus is;

	(void)state;
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	kernel(NULL); /* s.a does not wait for it */
	finish(s.a, 0);
	start(s.blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_answer(t.cuda.cuStreamIsCapturing(NULL, &is), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_answer(t.cuda.cuStreamGetCaptureInfo_v3(NULL, &is, NULL, NULL, NULL, NULL, NULL),
		      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(status(s.blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking spoils nothing */
	assert_answer(try_kernel(NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	expect_spoiled(s.blocking);
	start(s.blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_answer(t.cuda.cuEventRecord(s.e, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	expect_spoiled(s.blocking);
	start(s.blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_ok(t.cuda.cuThreadExchangeStreamCaptureMode(&relaxed));
	assert_answer(t.cuda.cuStreamSynchronize(NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_ok(t.cuda.cuThreadExchangeStreamCaptureMode(&relaxed));
	expect_spoiled(s.blocking);
	end(&s);
}

/* -- other threads ----------------------------------------------------------------------------------------------- */

struct elsewhere {
	struct scene *scene;
	CUstreamCaptureMode mode;
	CUresult alloc, end;
	CUstream ends; /* NULL: it allocates */
};

static void *work_elsewhere(void *argument)
{
	struct elsewhere *elsewhere = argument;
	CUdeviceptr address = 0;
	CUgraph graph;

	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuThreadExchangeStreamCaptureMode(&elsewhere->mode));
	if (elsewhere->ends) {
		elsewhere->end = t.cuda.cuStreamEndCapture(elsewhere->ends, &graph);
		return NULL;
	}
	elsewhere->alloc = t.cuda.cuMemAlloc(&address, 8);
	if (elsewhere->alloc == CUDA_SUCCESS)
		assert_ok(t.cuda.cuMemFree(address));
	return NULL;
}

static struct elsewhere run_elsewhere(struct elsewhere elsewhere)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, work_elsewhere, &elsewhere), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return elsewhere;
}

static void modes_say_whom_it_concerns(void **state)
{
	static const struct {
		CUstreamCaptureMode capture, thread;
		int allowed;
	} cases[] = {
		{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, 0},
		{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1},
		{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, 1},
		{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, 1},
		{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED, 1},
		{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, 1},
	};
	struct scene s = begin("threads");
	CUdeviceptr address;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		start(s.a, cases[i].capture);
		struct elsewhere elsewhere = run_elsewhere((struct elsewhere){.scene = &s, .mode = cases[i].thread});
		assert_answer(elsewhere.alloc,
			      cases[i].allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		if (cases[i].allowed)
			finish(s.a, 0);
		else
			expect_spoiled(s.a);
	}
	/* A thread-local capture restricts its own thread. */
	start(s.a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	expect_spoiled(s.a);
	/* Only that thread ends it, unless it is relaxed. */
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	struct elsewhere wrong = run_elsewhere((struct elsewhere){.scene = &s, .ends = s.a});
	assert_answer(wrong.end, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	finish(s.a, 0);
	start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
	struct elsewhere right = run_elsewhere((struct elsewhere){.scene = &s, .ends = s.a});
	assert_answer(right.end, CUDA_SUCCESS);
	assert_int_equal(status(s.a), CU_STREAM_CAPTURE_STATUS_NONE);
	end(&s);
}

static void dependencies_can_be_changed(void **state)
{
	struct scene s = begin("dependencies");
	const CUgraphNode *seen;
	CUstreamCaptureStatus is;
	CUgraphNode empty, first;
	CUgraph graph, same;
	size_t count;

	(void)state;
	assert_ok(t.cuda.cuGraphCreate(&graph, 0));
	assert_ok(t.cuda.cuGraphAddEmptyNode(&empty, graph, NULL, 0));
	assert_ok(t.cuda.cuStreamBeginCaptureToGraph(s.a, graph, &empty, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_answer(t.cuda.cuStreamBeginCaptureToGraph(s.b, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL),
		      CUDA_ERROR_INVALID_VALUE); /* it is under way */
	assert_answer(t.cuda.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	kernel(s.a);
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v2(s.a, &is, NULL, &same, &seen, &count));
	assert_ptr_equal(same, graph);
	first = seen[0];
	assert_ok(t.cuda.cuGraphNodeGetDependencies_v1(first, NULL, &count));
	assert_int_equal(count, 1);
	assert_ok(t.cuda.cuStreamUpdateCaptureDependencies_v2(s.a, &empty, NULL, 1,
							      CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	assert_ok(t.cuda.cuStreamUpdateCaptureDependencies_v1(s.a, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	assert_ok(t.cuda.cuStreamUpdateCaptureDependencies_v1(s.a, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	assert_ok(t.cuda.cuStreamGetCaptureInfo_v2(s.a, &is, NULL, NULL, &seen, &count));
	assert_int_equal(count, 2);
	assert_answer(t.cuda.cuStreamUpdateCaptureDependencies_v1(s.b, &first, 1, 0), CUDA_ERROR_ILLEGAL_STATE);
	/* Work that is cut off on purpose needs no join. */
	assert_ok(t.cuda.cuStreamUpdateCaptureDependencies_v1(s.a, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	assert_ok(t.cuda.cuStreamEndCapture(s.a, &same));
	assert_ptr_equal(same, graph);
	assert_int_equal(node_count(graph), 2);
	assert_ok(t.cuda.cuGraphDestroy(graph));
	end(&s);
}

static void CUDAAPI nothing(CUstream stream, CUresult result, void *data) { (void)stream, (void)result, (void)data; }

static void what_cannot_be_captured_is_refused(void **state)
{
	struct scene s = begin("refused");
	CUdeviceptr address;

	(void)state;
	start(s.a, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_answer(t.cuda.cuMemAllocAsync(&address, 64, s.a), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(status(s.a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_answer(t.cuda.cuStreamAddCallback(s.a, nothing, NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	expect_spoiled(s.a);
	/* Destroying the stream on which a capture began drops the capture; so does the end of the context. */
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	kernel(s.a);
	assert_ok(t.cuda.cuStreamDestroy(s.a));
	assert_ok(t.cuda.cuMemAlloc(&address, 8));
	assert_ok(t.cuda.cuMemFree(address));
	assert_ok(t.cuda.cuStreamCreate(&s.a, CU_STREAM_NON_BLOCKING));
	end(&s);

	s = begin("dropped");
	start(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	kernel(s.a);
	sim_end();
	s = begin("dropped");
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forks_and_joins_become_edges),
		cmocka_unit_test(a_fork_that_is_not_joined_is_an_error),
		cmocka_unit_test(captures_are_apart),
		cmocka_unit_test(unsafe_calls_spoil_a_capture),
		cmocka_unit_test(a_wait_crosses_no_border),
		cmocka_unit_test(the_null_stream_is_no_way_around),
		cmocka_unit_test(modes_say_whom_it_concerns),
		cmocka_unit_test(dependencies_can_be_changed),
		cmocka_unit_test(what_cannot_be_captured_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
