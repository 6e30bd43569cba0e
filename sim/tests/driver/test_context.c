/* Contexts: primary ones, those of cuCtxCreate, and each thread's stack of them. */
#include "sim_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void contexts_are_counted_and_stacked(void **state)
{
	CUcontext a, b, current;
	CUdevice device;
	CUdeviceptr address;
	unsigned int flags;
	int active;

	(void)state;
	sim_begin("contexts", "mem=256MiB,gpus=2");
	a = t.context;
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&b, 0));
	assert_ptr_equal(a, b);
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxGetState(1, &flags, &active));
	assert_int_equal(active, 0);
	assert_answer(t.cuda.cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&b, 1));
	assert_ok(t.cuda.cuCtxPushCurrent(b));
	assert_ok(t.cuda.cuCtxGetDevice(&device));
	assert_int_equal(device, 1);
	assert_ok(t.cuda.cuMemAlloc(&address, 8)); /* on device 1, and never freed: the context's end frees it */
	assert_ok(t.cuda.cuCtxPopCurrent(&current));
	assert_ptr_equal(current, b);
	assert_ok(t.cuda.cuCtxGetCurrent(&current));
	assert_ptr_equal(current, a);
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	assert_answer(t.cuda.cuCtxSetCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(t.cuda.cuCtxSetCurrent(NULL));
	assert_answer(t.cuda.cuMemAlloc(&address, 8), CUDA_ERROR_INVALID_CONTEXT);
	assert_answer(t.cuda.cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
	sim_end();
}

static void a_context_that_does_not_fit_is_out_of_memory(void **state)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUcontext context;

	(void)state;
	sim_name_world("nofit", "mem=64MiB,context=8MiB,reserved=0");
	assert_ok(t.cuda.cuInit(0));
	assert_ok(t.cuda.cuMemCreate(&handle, 58 * MIB, &prop, 0));
	assert_answer(t.cuda.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&context, 0));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(0));
}

/* Everything that it allocates, creates and loads ends with it; the primary context's stays. */
static void a_context_owns_what_was_made_in_it(void **state)
{
	CUcontext made, found, popped;
	CUdeviceptr address, in_pool, primarys;
	CUstream stream, other;
	CUevent event;
	CUmodule module;
	CUlibrary library;
	uint64_t free_before, id, owner;
	unsigned int flags;
	void *pinned;

	(void)state;
	sim_begin("own", "mem=256MiB,context=20MiB");
	assert_ok(t.cuda.cuMemAlloc(&primarys, MIB));
	free_before = sim_free_bytes();
	assert_ok(t.cuda.cuCtxCreate(&made, CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST, 0));
	assert_int_equal(sim_free_bytes(), free_before - 20 * MIB); /* it costs what a primary one does */
	assert_ok(t.cuda.cuCtxGetCurrent(&found));
	assert_ptr_equal(found, made);
	assert_ok(t.cuda.cuCtxGetFlags(&flags));
	assert_int_equal(flags, CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST);
	assert_ok(t.cuda.cuCtxGetId(NULL, (unsigned long long *)&id));
	assert_true(id > 1);
	assert_ok(t.cuda.cuMemAlloc(&address, MIB));
	assert_ok(t.cuda.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
	assert_int_equal(owner, (uintptr_t)made);
	assert_ok(t.cuda.cuMemHostAlloc(&pinned, 4096, 0));
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamGetCtx(stream, &found));
	assert_ptr_equal(found, made);
	assert_ok(t.cuda.cuMemAllocAsync(&in_pool, 3, stream));
	assert_ok(t.cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	assert_ok(t.cuda.cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.visible .entry f()\n{\n}\n"));
	assert_ok(t.cuda.cuLibraryLoadData(&library, ".version 8.0\n.target sm_90\n.visible .entry f()\n{\n}\n", NULL,
					   NULL, 0, NULL, NULL, 0));
	assert_ok(t.cuda.cuLibraryGetModule(&module, library));
	/* Another context's event does not go with this one's streams. */
	assert_ok(t.cuda.cuCtxPushCurrent(t.context));
	assert_ok(t.cuda.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	assert_answer(t.cuda.cuEventRecord(event, other), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(t.cuda.cuStreamDestroy(other));
	assert_ok(t.cuda.cuCtxPopCurrent(&popped));
	assert_ok(t.cuda.cuCtxDestroy(made)); /* it was current: it is popped */
	assert_ok(t.cuda.cuCtxGetCurrent(&found));
	assert_ptr_equal(found, t.context);
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
	assert_answer(t.cuda.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(t.cuda.cuLibraryUnload(library)); /* it belongs to no context */
	assert_ok(t.cuda.cuMemFree(in_pool));       /* nor does this */
	assert_int_equal(sim_free_bytes(), free_before);
	assert_ok(t.cuda.cuMemFree(primarys));
	sim_end();
}

static void each_form_of_creation_checks_its_arguments(void **state)
{
	CUctxCreateParams parameters = {0};
	CUcontext first, second, third;
	unsigned long long ids[3];

	(void)state;
	sim_begin("forms", "mem=256MiB,context=20MiB");
	assert_answer(t.cuda.cuCtxCreate(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuCtxCreate(&first, 3, 0), CUDA_ERROR_INVALID_VALUE); /* two ways to wait */
	assert_answer(t.cuda.cuCtxCreate(&first, 0, 1), CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuCtxCreate_v3(&first, (CUexecAffinityParam *)(uintptr_t)&parameters, 1, 0, 0),
		      CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
	assert_answer(t.cuda.cuCtxDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuCtxDestroy(t.context), CUDA_ERROR_INVALID_CONTEXT); /* a primary one */
	assert_ok(t.cuda.cuCtxCreate(&first, 0, 0));
	assert_ok(t.cuda.cuCtxCreate_v3(&second, NULL, 0, 0, 0));
	assert_ok(t.cuda.cuCtxCreate_v4(&third, &parameters, 0, 0));
	parameters.cigParams = (CUctxCigParam *)(uintptr_t)&parameters;
	assert_answer(t.cuda.cuCtxCreate_v4(&third, &parameters, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(t.cuda.cuCtxGetId(first, &ids[0]));
	assert_ok(t.cuda.cuCtxGetId(second, &ids[1]));
	assert_ok(t.cuda.cuCtxGetId(third, &ids[2]));
	assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
	/* Below the top of the stack it stays, and has ended. */
	assert_ok(t.cuda.cuCtxDestroy(second));
	assert_answer(t.cuda.cuCtxDestroy(second), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(t.cuda.cuCtxDestroy(third));
	assert_answer(t.cuda.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_ok(t.cuda.cuCtxPopCurrent(&second));
	assert_ok(t.cuda.cuCtxDestroy(first));
	sim_end();
}

static void *use_ended(void *context)
{
	CUcontext other;
	CUdeviceptr address;

	assert_ok(t.cuda.cuCtxPushCurrent(context));
	assert_ok(t.cuda.cuCtxDestroy(context));
	assert_ok(t.cuda.cuCtxCreate(&other, 0, 0)); /* in the same memory, perhaps */
	assert_ok(t.cuda.cuMemAlloc(&address, MIB));
	assert_ok(t.cuda.cuCtxPopCurrent(NULL));
	return other;
}

/* A thread's current context is destroyed by another thread: it does not take the next context for it. */
static void an_ended_context_stays_current_elsewhere(void **state)
{
	CUcontext context;
	CUdeviceptr address;
	pthread_t thread;
	void *other;

	(void)state;
	sim_begin("elsewhere", "mem=256MiB,context=20MiB");
	assert_ok(t.cuda.cuCtxCreate(&context, 0, 0));
	assert_int_equal(pthread_create(&thread, NULL, use_ended, context), 0);
	assert_int_equal(pthread_join(thread, &other), 0);
	assert_answer(t.cuda.cuMemAlloc(&address, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_ok(t.cuda.cuCtxSetCurrent(other));
	assert_ok(t.cuda.cuMemAlloc(&address, MIB));
	assert_ok(t.cuda.cuCtxDestroy(other));
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_counted_and_stacked),
		cmocka_unit_test(a_context_that_does_not_fit_is_out_of_memory),
		cmocka_unit_test(a_context_owns_what_was_made_in_it),
		cmocka_unit_test(each_form_of_creation_checks_its_arguments),
		cmocka_unit_test(an_ended_context_stays_current_elsewhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
