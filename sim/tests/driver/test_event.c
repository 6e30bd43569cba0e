/* Attributes of streams and events; time between events; callbacks; records and waits. */
#include "sim_test.h"

#include <math.h>
#include <stdint.h>

static void a_stream_says_what_it_is(void **state)
{
	unsigned long long ids[5];
	unsigned int flags = 77;
	int priority, least, greatest;
	CUstream plain, urgent;
	CUcontext context, second;
	CUdevice device;

	(void)state;
	sim_begin("streams", "2xh100-80gb");
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_ok(t.cuda.cuStreamCreate(&plain, CU_STREAM_DEFAULT));
	assert_ok(t.cuda.cuCtxSetCurrent(second));
	assert_ok(t.cuda.cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -100));
	assert_ok(t.cuda.cuStreamGetPriority(urgent, &priority));
	assert_int_equal(priority, greatest); /* the highest there is */
	assert_ok(t.cuda.cuStreamGetPriority(plain, &priority));
	assert_int_equal(priority, least);
	assert_ok(t.cuda.cuStreamGetFlags(urgent, &flags));
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	assert_ok(t.cuda.cuStreamGetFlags(NULL, &flags));
	assert_int_equal(flags, CU_STREAM_DEFAULT);
	assert_ok(t.cuda.cuStreamGetDevice(plain, &device));
	assert_int_equal(device, 0);
	assert_ok(t.cuda.cuStreamGetDevice(NULL, &device));
	assert_int_equal(device, 1); /* of the current context */
	assert_ok(t.cuda.cuStreamGetCtx(plain, &context));
	assert_ptr_equal(context, t.context);
	assert_ok(t.cuda.cuStreamGetCtx(CU_STREAM_PER_THREAD, &context));
	assert_ptr_equal(context, second);
	assert_ok(t.cuda.cuStreamGetId(plain, &ids[0]));
	assert_ok(t.cuda.cuStreamGetId(urgent, &ids[1]));
	assert_ok(t.cuda.cuStreamGetId(NULL, &ids[2]));
	assert_ok(t.cuda.cuStreamGetId(CU_STREAM_PER_THREAD, &ids[3]));
	assert_ok(t.cuda.cuStreamDestroy(urgent));
	assert_ok(t.cuda.cuStreamCreateWithPriority(&urgent, 0, 0));
	assert_ok(t.cuda.cuStreamGetId(urgent, &ids[4])); /* not the old one's, wherever it is */
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			assert_true(ids[i] != ids[k]);
	assert_ok(t.cuda.cuStreamDestroy(urgent));
	assert_answer(t.cuda.cuStreamGetId(urgent, &ids[0]), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuStreamGetFlags(urgent, &flags), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuStreamCreateWithPriority(&urgent, 2, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuStreamDestroy(plain));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	sim_end();
}

static void sleep_on(CUstream stream, uint64_t ns)
{
	struct neap_sim_kernel kernel = {.name = "sleep", .duration_ns = ns};

	assert_ok(t.sim->launch(stream, &kernel));
}

static void time_passes_between_events(void **state)
{
	CUevent start, end, untimed, never;
	CUstream stream;
	float ms = -1;

	(void)state;
	sim_begin("elapsed", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuEventCreate(&start, CU_EVENT_DEFAULT));
	assert_ok(t.cuda.cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
	assert_ok(t.cuda.cuEventCreate(&never, CU_EVENT_DEFAULT));
	assert_ok(t.cuda.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuEventRecord(start, stream));
	assert_ok(t.cuda.cuEventRecord(untimed, stream));
	t.sim->hold(1);
	sleep_on(stream, 7000000);
	assert_ok(t.cuda.cuEventRecord(end, stream));
	assert_answer(t.cuda.cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
	t.sim->step(7000000);
	assert_ok(t.cuda.cuEventElapsedTime(&ms, start, end));
	assert_true(fabsf(ms - 7.0f) < 0.1f);
	assert_ok(t.cuda.cuEventElapsedTime_v2(&ms, end, start));
	assert_true(fabsf(ms + 7.0f) < 0.1f);
	t.sim->hold(0);
	assert_answer(t.cuda.cuEventElapsedTime(&ms, start, never), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventElapsedTime(&ms, start, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventElapsedTime(NULL, start, end), CUDA_ERROR_INVALID_VALUE);
	/* Time passes on an idle stream, too: a program that divides by the elapsed time must not divide by 0. */
	assert_ok(t.cuda.cuEventRecord(start, stream));
	assert_ok(t.cuda.cuEventRecord(end, stream));
	assert_ok(t.cuda.cuEventElapsedTime(&ms, start, end));
	assert_true(ms > 0);
	assert_ok(t.cuda.cuEventDestroy(start));
	assert_ok(t.cuda.cuEventDestroy(end));
	assert_ok(t.cuda.cuEventDestroy(never));
	assert_ok(t.cuda.cuEventDestroy(untimed));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

static void flags_of_events_are_checked(void **state)
{
	CUevent event, far;
	CUcontext second;
	CUstream stream;

	(void)state;
	sim_begin("eventflags", "2xh100-80gb");
	assert_answer(t.cuda.cuEventCreate(&event, 8), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	assert_answer(t.cuda.cuEventRecordWithFlags(event, NULL, 2), CUDA_ERROR_INVALID_VALUE);
	/* External records and waits exist only in captures. */
	assert_answer(t.cuda.cuEventRecordWithFlags(event, NULL, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuStreamWaitEvent(NULL, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuEventRecordWithFlags(event, NULL, CU_EVENT_RECORD_DEFAULT));
	/* An event and its stream must be of one device; a wait may be for another device's event. */
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuCtxSetCurrent(second));
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuEventCreate(&far, CU_EVENT_DEFAULT));
	assert_answer(t.cuda.cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(t.cuda.cuEventRecord(far, stream));
	assert_ok(t.cuda.cuStreamWaitEvent(stream, event, 0));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	assert_ok(t.cuda.cuEventDestroy(far));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	assert_ok(t.cuda.cuEventDestroy(event));
	sim_end();
}

static CUstream called_for;
static int calls;

static void CUDAAPI count_call(CUstream stream, CUresult status, void *data)
{
	assert_int_equal(status, CUDA_SUCCESS);
	called_for = stream;
	calls += *(int *)data;
}

static void callbacks_are_called_once(void **state)
{
	CUstream stream;
	int by = 5;

	(void)state;
	calls = 0;
	sim_begin("callback", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	t.sim->hold(1);
	sleep_on(stream, 1000);
	assert_ok(t.cuda.cuStreamAddCallback(stream, count_call, &by, 0));
	assert_answer(t.cuda.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	assert_int_equal(calls, 0);
	t.sim->step(1000);
	assert_ok(t.cuda.cuStreamQuery(stream));
	assert_int_equal(calls, 5);
	assert_ptr_equal(called_for, stream);
	assert_answer(t.cuda.cuStreamAddCallback(stream, NULL, &by, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuStreamAddCallback(stream, count_call, &by, 1), CUDA_ERROR_INVALID_VALUE);
	t.sim->hold(0);
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

/* A thread's own default stream is the null stream here. */
static void the_stream_of_a_thread_is_a_barrier(void **state)
{
	CUstream stream;
	CUdeviceptr memory;

	(void)state;
	sim_begin("perthread", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_ok(sim_kernel(stream, "writer", memory, 64, 1));
	assert_ok(t.cuda.cuMemsetD8Async(memory, 1, 64, CU_STREAM_PER_THREAD));
	assert_ok(t.cuda.cuMemsetD8Async(memory, 2, 64, CU_STREAM_LEGACY));
	assert_ok(t.cuda.cuStreamSynchronize(CU_STREAM_PER_THREAD));
	assert_int_equal(*(unsigned char *)(uintptr_t)memory, 2);
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_says_what_it_is),
		cmocka_unit_test(time_passes_between_events),
		cmocka_unit_test(flags_of_events_are_checked),
		cmocka_unit_test(callbacks_are_called_once),
		cmocka_unit_test(the_stream_of_a_thread_is_a_barrier),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
