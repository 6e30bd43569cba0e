/* Streams, events, detected errors, asynchronous copies, pools, capture, faults. */
#include "sim_test.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct scene {
	CUstream a, b;
	CUevent event;
	CUdeviceptr memory;
};

static struct scene begin(const char *name, const char *options)
{
	struct scene scene;

	sim_begin(name, options);
	assert_ok(t.cuda.cuStreamCreate(&scene.a, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&scene.b, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuEventCreate(&scene.event, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuMemAlloc(&scene.memory, PAGE));
	return scene;
}

static void end(struct scene *scene)
{
	t.sim->forgive();
	t.sim->hold(0);
	assert_ok(t.cuda.cuMemFree(scene->memory));
	assert_ok(t.cuda.cuEventDestroy(scene->event));
	assert_ok(t.cuda.cuStreamDestroy(scene->a));
	assert_ok(t.cuda.cuStreamDestroy(scene->b));
	sim_end();
}

static struct neap_sim_fault_report report(void)
{
	struct neap_sim_fault_report result;

	t.sim->report(&result);
	return result;
}

static void a_race_is_detected_and_sticks(void **state)
{
	struct scene s = begin("race", "mem=256MiB");
	CUdeviceptr address;

	(void)state;
	assert_ok(sim_kernel(s.a, "writer", s.memory, 4096, 1));
	assert_ok(sim_kernel(s.b, "elsewhere", s.memory + 4096, 4096, 1));
	assert_ok(sim_kernel(s.a, "reader", s.memory + 8192, 64, 0));
	assert_ok(sim_kernel(s.b, "reader too", s.memory + 8192, 64, 0));
	assert_answer(sim_kernel(s.b, "late", s.memory + 4000, 200, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(report().races, 1);
	assert_non_null(strstr(report().text, "writer"));
	assert_non_null(strstr(report().text, "late"));
	assert_answer(t.cuda.cuMemAlloc(&address, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_answer(t.cuda.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_int_equal(report().races, 0);
	assert_ok(t.cuda.cuCtxSynchronize());
	end(&s);
}

static void an_event_orders(void **state)
{
	struct scene s = begin("event", "mem=256MiB");

	(void)state;
	assert_ok(sim_kernel(s.a, "writer", s.memory, 4096, 1));
	assert_ok(t.cuda.cuEventRecord(s.event, s.a));
	assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.event, 0));
	assert_ok(sim_kernel(s.b, "late", s.memory, 4096, 1));
	assert_ok(t.cuda.cuStreamSynchronize(s.b));
	assert_ok(sim_kernel(s.a, "again", s.memory, 4096, 1)); /* ordered by the host's wait */
	assert_int_equal(report().races, 0);
	end(&s);
}

static void a_race_through_two_addresses_is_one(void **state)
{
	struct scene s = begin("aliasrace", "mem=256MiB");
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(2 * PAGE);

	(void)state;
	sim_map_at(range, PAGE, handle);
	sim_map_at(range + PAGE, PAGE, handle);
	assert_ok(sim_kernel(s.a, "one", range, 512, 1));
	assert_answer(sim_kernel(s.b, "other", range + PAGE, 512, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	end(&s);
}

static void memory_taken_from_under_work_is_detected(void **state)
{
	struct scene s = begin("unmap", "mem=256MiB");
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(2 * PAGE);

	(void)state;
	sim_map_at(range, PAGE, handle);
	sim_map_at(range + PAGE, PAGE, handle);
	t.sim->hold(1);
	assert_ok(sim_kernel(s.a, "busy", range + 100, 8, 0));
	assert_ok(t.cuda.cuMemUnmap(range + PAGE, PAGE)); /* the other address may be unmapped */
	assert_answer(t.cuda.cuMemUnmap(range, PAGE), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(report().illegal_addresses, 1);
	assert_non_null(strstr(report().text, "busy"));
	t.sim->forgive();
	assert_answer(sim_access(range, PAGE, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_answer(t.cuda.cuMemFree(s.memory), CUDA_ERROR_NOT_READY); /* it would wait, and time is held */
	t.sim->hold(0);
	assert_ok(t.cuda.cuStreamSynchronize(s.a));
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	assert_int_equal(report().illegal_addresses, 0);
	end(&s);
}

static void work_on_what_is_not_there_is_detected(void **state)
{
	struct scene s = begin("illegal", "mem=256MiB");
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(2 * PAGE);

	(void)state;
	assert_answer(sim_kernel(s.a, "k", range, 8, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_non_null(strstr(report().text, "not mapped"));
	t.sim->forgive();
	assert_ok(t.cuda.cuMemMap(range, PAGE, 0, handle, 0));
	assert_answer(sim_kernel(s.a, "k", range, 8, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_non_null(strstr(report().text, "without access"));
	t.sim->forgive();
	assert_answer(t.cuda.cuMemsetD8(range, 0, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(sim_access(range, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ));
	assert_ok(sim_kernel(s.a, "k", range, 8, 0));
	assert_answer(sim_kernel(s.a, "k", range, 8, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_answer(sim_kernel(s.a, "k", range + PAGE - 8, 16, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	CUdeviceptr small;
	assert_ok(t.cuda.cuMemAlloc(&small, 600));
	assert_ok(sim_kernel(s.a, "k", small, 1024, 1));
	assert_answer(sim_kernel(s.a, "k", small + 1000, 100, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_non_null(strstr(report().text, "beyond the end"));
	t.sim->forgive();
	assert_ok(t.cuda.cuMemFree(small));
	assert_answer(sim_kernel(s.a, "k", small, 8, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_answer(t.cuda.cuMemsetD8(small, 0, 8), CUDA_ERROR_INVALID_VALUE); /* and the error does not stick */
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	end(&s);
}

static void count_up(void *argument) { ++*(int *)argument; }

struct handshake {
	sem_t begun, may_end;
};

static void shake_hands(void *argument)
{
	struct handshake *handshake = argument;

	sem_post(&handshake->begun);
	sem_wait(&handshake->may_end);
}

/* As on a GPU, and calls that do not wait return meanwhile. */
static void a_host_function_runs_without_a_call_that_waits(void **state)
{
	struct scene s = begin("goes_on", "mem=256MiB");
	struct neap_sim_kernel kernel = {.name = "k", .duration_ns = 1000000000};
	struct handshake handshake;
	struct timespec limit;

	(void)state;
	assert_int_equal(sem_init(&handshake.begun, 0, 0) | sem_init(&handshake.may_end, 0, 0), 0);
	assert_ok(t.sim->launch(s.a, &kernel));
	assert_ok(t.cuda.cuLaunchHostFunc(s.a, shake_hands, &handshake));
	assert_ok(t.cuda.cuEventRecord(s.event, s.a));
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 60; /* against hanging alone */
	assert_int_equal(sem_timedwait(&handshake.begun, &limit), 0);
	assert_answer(t.cuda.cuEventQuery(s.event), CUDA_ERROR_NOT_READY);
	sem_post(&handshake.may_end);
	assert_ok(t.cuda.cuEventSynchronize(s.event));
	assert_ok(t.cuda.cuEventQuery(s.event));
	sem_destroy(&handshake.begun);
	sem_destroy(&handshake.may_end);
	end(&s);
}

static void work_happens_when_the_clock_says(void **state)
{
	struct scene s = begin("clock", "mem=256MiB");
	int ran = 0;
	struct neap_sim_kernel kernel = {.name = "k", .duration_ns = 1000000, .function = count_up, .argument = &ran};

	(void)state;
	t.sim->hold(1);
	assert_ok(t.sim->launch(s.a, &kernel));
	assert_ok(t.cuda.cuLaunchHostFunc(s.a, count_up, &ran));
	assert_ok(t.cuda.cuEventRecord(s.event, s.a));
	assert_answer(t.cuda.cuEventQuery(s.event), CUDA_ERROR_NOT_READY);
	assert_answer(t.cuda.cuStreamQuery(s.a), CUDA_ERROR_NOT_READY);
	assert_ok(t.cuda.cuStreamQuery(s.b));
	assert_int_equal(ran, 0);
	t.sim->step(999999);
	assert_answer(t.cuda.cuEventSynchronize(s.event), CUDA_ERROR_NOT_READY);
	assert_int_equal(ran, 0);
	t.sim->step(2000000);
	assert_ok(t.cuda.cuEventQuery(s.event));
	assert_int_equal(ran, 2);
	t.sim->hold(0);
	uint64_t before = t.sim->now_ns();
	assert_ok(t.sim->launch(s.a, &kernel));
	assert_ok(t.cuda.cuStreamSynchronize(s.a));
	assert_int_equal(ran, 3);
	assert_true(t.sim->now_ns() >= before + 1000000);
	t.sim->latency("cuCtxSynchronize", 5000000);
	before = t.sim->now_ns();
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_true(t.sim->now_ns() - before >= 5000000);
	end(&s);
}

static void pinned_copies_are_asynchronous_and_pageable_are_not(void **state)
{
	struct scene s = begin("async", "mem=256MiB");
	unsigned char *pinned, pageable[16];

	(void)state;
	assert_ok(t.cuda.cuMemHostAlloc((void **)&pinned, 4096, 0));
	t.sim->hold(1);
	memset(pinned, 1, 16);
	memset(pageable, 9, sizeof pageable);
	assert_ok(t.cuda.cuMemcpyHtoDAsync(s.memory, pinned, 16, s.a));
	assert_ok(t.cuda.cuMemcpyHtoDAsync(s.memory + 16, pageable, 16, s.a));
	memset(pinned, 2, 16);                /* too early: the copy is not done */
	memset(pageable, 3, sizeof pageable); /* free to change: it was taken at the call */
	t.sim->hold(0);
	assert_ok(t.cuda.cuMemcpyDtoHAsync(pageable, s.memory, 16, s.a)); /* waits */
	assert_int_equal(pageable[0], 2);
	assert_ok(t.cuda.cuMemcpyDtoHAsync(pageable, s.memory + 16, 16, s.a));
	assert_int_equal(pageable[0], 9);
	assert_ok(t.cuda.cuMemsetD8Async(s.memory, 7, 16, s.a));
	t.sim->hold(1);
	assert_ok(t.cuda.cuMemcpyDtoHAsync(pinned, s.memory, 16, s.a));
	assert_int_equal(pinned[0], 2);
	assert_answer(t.cuda.cuMemcpyDtoH(pageable, s.memory + 512, 16), CUDA_ERROR_NOT_READY);
	memset(pageable, 5, sizeof pageable);
	t.sim->hold(0);
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_int_equal(pinned[0], 7);
	assert_int_equal(pageable[0], 5); /* a copy whose wait failed does not happen later */
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_answer(t.cuda.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
	end(&s);
}

static void a_pool_is_ordered_by_streams(void **state)
{
	struct scene s = begin("pool", "mem=256MiB");
	CUdeviceptr address, again;
	CUmemoryPool pool;
	cuuint64_t threshold = UINT64_MAX, bytes;

	(void)state;
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuDeviceGetDefaultMemPool(&pool, 0));
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	assert_ok(t.cuda.cuMemAllocAsync(&address, 1000, s.a));
	assert_ok(t.cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
	assert_int_equal(bytes, PAGE);
	assert_ok(sim_kernel(s.a, "use", address, 1000, 1));
	assert_answer(sim_kernel(s.b, "unordered", address, 1000, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuMemFreeAsync(address, s.a));
	assert_answer(t.cuda.cuMemFreeAsync(address, s.a), CUDA_ERROR_INVALID_VALUE);
	assert_answer(sim_kernel(s.a, "after", address, 8, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuMemAllocAsync(&again, 2000, s.b)); /* the same block, ordered by the pool */
	assert_int_equal(again, address);
	assert_ok(sim_kernel(s.b, "use", again, 2000, 1));
	assert_ok(t.cuda.cuMemFreeAsync(again, s.b));
	assert_ok(t.cuda.cuStreamSynchronize(s.b));
	assert_int_equal(sim_free_bytes(), before - PAGE); /* kept: below the threshold */
	assert_ok(t.cuda.cuMemPoolTrimTo(pool, 0));
	assert_int_equal(sim_free_bytes(), before);
	threshold = 0;
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	assert_ok(t.cuda.cuMemAllocAsync(&address, 1000, s.a));
	assert_ok(t.cuda.cuMemFreeAsync(address, s.a));
	assert_ok(t.cuda.cuStreamSynchronize(s.a));
	assert_int_equal(sim_free_bytes(), before);
	end(&s);
}

static void capture_forbids_what_the_driver_forbids(void **state)
{
	struct scene s = begin("capture", "mem=256MiB");
	CUstreamCaptureStatus status;
	CUgraph graph = NULL;
	CUdeviceptr address;
	int ran = 0;

	(void)state;
	assert_ok(t.cuda.cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_ok(t.cuda.cuStreamIsCapturing(s.a, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_ok(t.cuda.cuStreamIsCapturing(s.b, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	assert_ok(t.cuda.cuLaunchHostFunc(s.a, count_up, &ran));
	assert_ok(t.cuda.cuEventRecord(s.event, s.a));
	assert_ok(t.cuda.cuStreamWaitEvent(s.b, s.event, 0));
	assert_ok(t.cuda.cuStreamIsCapturing(s.b, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_ok(t.cuda.cuStreamEndCapture(s.a, &graph));
	assert_ok(t.cuda.cuStreamSynchronize(s.a));
	assert_int_equal(ran, 0); /* captured, not run */
	assert_ok(t.cuda.cuGraphDestroy(graph));
	assert_answer(t.cuda.cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);

	assert_ok(t.cuda.cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_ok(t.cuda.cuStreamIsCapturing(s.a, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	assert_answer(t.cuda.cuStreamEndCapture(s.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);

	assert_ok(t.cuda.cuStreamBeginCapture(s.a, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_ok(t.cuda.cuMemAlloc(&address, 8));
	assert_ok(t.cuda.cuMemFree(address));
	assert_answer(t.cuda.cuStreamSynchronize(s.a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_answer(t.cuda.cuStreamEndCapture(s.a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	end(&s);
}

static void handles_that_are_not_ours_are_refused(void **state)
{
	struct scene s = begin("handles", "mem=256MiB");
	CUstream stream;
	CUevent event;

	(void)state;
	assert_ok(t.cuda.cuStreamCreate(&stream, 0));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	assert_answer(t.cuda.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventRecord((CUevent)(uintptr_t)&s, s.a), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuStreamCreate(&stream, 8), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuEventCreate(&event, 64), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuCtxSetCurrent((CUcontext)(uintptr_t)&s), CUDA_ERROR_INVALID_CONTEXT);
	end(&s);
}

static void calls_fail_on_demand_and_are_counted(void **state)
{
	struct scene s = begin("faults", "mem=256MiB");
	CUdeviceptr address;
	uint64_t before = t.sim->calls("cuMemAlloc"), all = t.sim->calls("*");

	(void)state;
	assert_ok(t.sim->fault("cuMemAlloc", 1, 2, CUDA_ERROR_OUT_OF_MEMORY));
	assert_ok(t.cuda.cuMemAlloc(&address, 8));
	assert_ok(t.cuda.cuMemFree(address));
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_OUT_OF_MEMORY);
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(t.cuda.cuMemAlloc(&address, 8));
	assert_ok(t.cuda.cuMemFree(address));
	assert_int_equal(t.sim->calls("cuMemAlloc") - before, 4);
	assert_int_equal(t.sim->calls("cuMemAlloc_v2") - before, 4);
	assert_int_equal(t.sim->calls("*") - all, 6);
	assert_int_equal(t.sim->calls("cuNothing"), 0);
	assert_int_equal(report().injected, 2);
	assert_ok(t.sim->fault("*", 0, 0, CUDA_ERROR_UNKNOWN));
	assert_answer(t.cuda.cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	assert_answer(t.cuda.cuStreamQuery(s.a), CUDA_ERROR_UNKNOWN);
	assert_ok(t.sim->fault(NULL, 0, 0, 0));
	assert_ok(t.cuda.cuStreamQuery(s.a));
	assert_answer(t.sim->fault("cuNothing", 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.sim->fault("cuInit", 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	end(&s);
}

static void the_environment_sets_faults_latency_and_the_log(void **state)
{
	char path[] = "/tmp/neap-sim-log-XXXXXX", line[256];
	const char *message;
	CUdeviceptr address;
	int fd = mkstemp(path), found = 0;
	FILE *file;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	sim_name_world("environment", "mem=256MiB");
	setenv("NEAP_SIM_FAULT", "cuMemAlloc:skip=1:count=1:code=2;cuMemFree:code=999", 1);
	setenv("NEAP_SIM_LATENCY", "cuMemAlloc:ns=123456789", 1);
	setenv("NEAP_SIM_LOG", path, 1);
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	uint64_t before = t.sim->now_ns();
	assert_ok(t.cuda.cuMemAlloc(&address, 8));
	assert_true(t.sim->now_ns() - before >= 123456789);
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_OUT_OF_MEMORY);
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_UNKNOWN);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		found += strstr(line, " cuMemAlloc CUDA_ERROR_OUT_OF_MEMORY\n") != NULL;
	fclose(file);
	unlink(path);
	assert_int_equal(found, 1);
	sim_end();

	setenv("NEAP_SIM_FAULT", "cuMemAlloc:skip=x", 1);
	assert_answer(t.cuda.cuInit(0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &message));
	assert_non_null(strstr(message, "NEAP_SIM_FAULT"));
	unsetenv("NEAP_SIM_FAULT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_race_is_detected_and_sticks),
		cmocka_unit_test(an_event_orders),
		cmocka_unit_test(a_race_through_two_addresses_is_one),
		cmocka_unit_test(memory_taken_from_under_work_is_detected),
		cmocka_unit_test(work_on_what_is_not_there_is_detected),
		cmocka_unit_test(a_host_function_runs_without_a_call_that_waits),
		cmocka_unit_test(work_happens_when_the_clock_says),
		cmocka_unit_test(pinned_copies_are_asynchronous_and_pageable_are_not),
		cmocka_unit_test(a_pool_is_ordered_by_streams),
		cmocka_unit_test(capture_forbids_what_the_driver_forbids),
		cmocka_unit_test(handles_that_are_not_ours_are_refused),
		cmocka_unit_test(calls_fail_on_demand_and_are_counted),
		cmocka_unit_test(the_environment_sets_faults_latency_and_the_log),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
