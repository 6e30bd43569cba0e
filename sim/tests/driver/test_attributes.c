/* Attributes of devices and contexts. */
#include "sim_test.h"

#include <stdio.h>
#include <string.h>

static int attribute(CUdevice_attribute which)
{
	int value = -77;

	assert_ok(t.cuda.cuDeviceGetAttribute(&value, which, 0));
	return value;
}

/* From NVIDIA's tables and the output of deviceQuery on such devices. */
static void each_model_says_what_it_is(void **state)
{
	static const struct {
		const char *device;
		int major, minor, multiprocessors, threads, blocks, shared, optin, l2, bus;
	} models[] = {
		{"v100-16gb", 7, 0, 80, 2048, 32, 98304, 98304, 6291456, 4096},
		{"t4-16gb", 7, 5, 40, 1024, 16, 65536, 65536, 4194304, 256},
		{"a100-80gb", 8, 0, 108, 2048, 32, 167936, 166912, 41943040, 5120},
		{"rtx3090-24gb", 8, 6, 82, 1536, 16, 102400, 101376, 6291456, 384},
		{"rtx4090-24gb", 8, 9, 128, 1536, 24, 102400, 101376, 75497472, 384},
		{"h100-80gb", 9, 0, 132, 2048, 32, 233472, 232448, 52428800, 5120},
		{"b200-180gb", 10, 0, 148, 2048, 32, 233472, 232448, 132644864, 7680},
		{"rtx5090-32gb", 12, 0, 170, 1536, 24, 102400, 101376, 100663296, 512},
	};

	(void)state;
	for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
		sim_begin("models", models[i].device);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), models[i].major);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), models[i].minor);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), models[i].multiprocessors);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), models[i].threads);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR), models[i].blocks);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
				 models[i].shared);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), models[i].optin);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), models[i].l2);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH), models[i].bus);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), models[i].major >= 9);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 49152);
		assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
		sim_end();
	}
}

/* Every documented attribute has an answer; refused features answer 0. */
static void no_attribute_is_unknown(void **state)
{
	int value;

	(void)state;
	sim_begin("attributes", "mem=256MiB");
#define X(type, name, number)                                                                                        \
	if (strcmp(#type, "CUdevice_attribute") == 0)                                                                \
		assert_ok(t.cuda.cuDeviceGetAttribute(&value, number, 0));
#include "device/cuda_constants.h"
#undef X
	assert_answer(t.cuda.cuDeviceGetAttribute(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuDeviceGetAttribute(&value, 100000, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuDeviceGetAttribute(&value, 1, 1), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED), 0);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 0);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
	sim_end();
	sim_begin("attributes", "mem=256MiB,vmm=off");
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
	assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED), 0);
	sim_end();
}

static void devices_are_found_by_their_place(void **state)
{
	CUuuid uuid, older;
	CUdevice device = -1;
	char id[32];
	int major, minor, value;

	(void)state;
	sim_begin("place", "3xa100-40gb");
	assert_ok(t.cuda.cuDeviceGetPCIBusId(id, sizeof id, 2));
	assert_ok(t.cuda.cuDeviceGetByPCIBusId(&device, id));
	assert_int_equal(device, 2);
	assert_ok(t.cuda.cuDeviceGetByPCIBusId(&device, strchr(id, ':') + 1)); /* without the domain */
	assert_int_equal(device, 2);
	assert_answer(t.cuda.cuDeviceGetByPCIBusId(&device, "0000:7F:00.0"), CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuDeviceGetByPCIBusId(&device, "nowhere"), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuDeviceGetUuid(&uuid, 1));
	assert_ok(t.cuda.cuDeviceGetUuid_v1(&older, 1));
	assert_memory_equal(&uuid, &older, sizeof uuid);
	assert_ok(t.cuda.cuDeviceComputeCapability(&major, &minor, 0));
	assert_int_equal(major * 10 + minor, 80);
	assert_ok(t.cuda.cuDeviceCanAccessPeer(&value, 0, 1));
	assert_int_equal(value, 1);
	assert_ok(t.cuda.cuDeviceCanAccessPeer(&value, 1, 1));
	assert_int_equal(value, 0);
	assert_answer(t.cuda.cuDeviceCanAccessPeer(&value, 0, 3), CUDA_ERROR_INVALID_DEVICE);
	assert_ok(t.cuda.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 2));
	assert_int_equal(value, 1);
	assert_answer(t.cuda.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
		      CUDA_ERROR_INVALID_DEVICE);
	sim_end();
	sim_begin("place", "2xrtx4090-24gb"); /* a GeForce has no peers */
	assert_ok(t.cuda.cuDeviceCanAccessPeer(&value, 0, 1));
	assert_int_equal(value, 0);
	sim_end();
}

static size_t limit(CUlimit which)
{
	size_t value = 77;

	assert_ok(t.cuda.cuCtxGetLimit(&value, which));
	return value;
}

static void a_context_keeps_what_it_is_set_to(void **state)
{
	unsigned long long id, other;
	unsigned int flags, version;
	CUcontext second;
	CUdevice device;
	CUfunc_cache cache;
	size_t value;
	int least, greatest, active;

	(void)state;
	sim_begin("settings", "2xh100-80gb");
	assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 1024);
	assert_ok(t.cuda.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
	assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 4096);
	assert_ok(t.cuda.cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1ull << 40));
	assert_int_equal(limit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE), 39321600); /* the device's limit */
	assert_answer(t.cuda.cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_answer(t.cuda.cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 129), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuCtxSetLimit(77, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_ok(t.cuda.cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
	assert_ok(t.cuda.cuCtxGetCacheConfig(&cache));
	assert_int_equal(cache, CU_FUNC_CACHE_PREFER_L1);
	assert_ok(t.cuda.cuCtxGetStreamPriorityRange(&least, &greatest));
	assert_int_equal(least, 0);
	assert_true(greatest < 0);

	assert_ok(t.cuda.cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
	assert_ok(t.cuda.cuCtxGetFlags(&flags));
	assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	assert_ok(t.cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_int_equal(flags, CU_CTX_SCHED_BLOCKING_SYNC);
	assert_answer(t.cuda.cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD),
		      CUDA_ERROR_INVALID_VALUE);

	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuCtxGetId(NULL, &id));
	assert_ok(t.cuda.cuCtxGetId(second, &other));
	assert_true(id != other);
	assert_ok(t.cuda.cuCtxGetDevice_v2(&device, second));
	assert_int_equal(device, 1);
	assert_ok(t.cuda.cuCtxSynchronize_v2(second));
	assert_ok(t.cuda.cuCtxGetApiVersion(second, &version));
	assert_ok(t.cuda.cuDevicePrimaryCtxReset(1));
	assert_answer(t.cuda.cuCtxSynchronize_v2(second), CUDA_ERROR_INVALID_CONTEXT);
	assert_answer(t.cuda.cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
	sim_end();
	sim_begin("settings", "2xh100-80gb"); /* a new context */
	assert_int_equal(limit(CU_LIMIT_STACK_SIZE), 1024);
	sim_end();
}

static void a_reset_takes_everything_of_the_context(void **state)
{
	CUdeviceptr address;
	CUstream stream;
	int active;
	unsigned int flags;

	(void)state;
	sim_begin("reset", "mem=256MiB");
	assert_ok(t.cuda.cuMemAlloc(&address, PAGE));
	assert_ok(t.cuda.cuStreamCreate(&stream, 0));
	assert_ok(t.cuda.cuDevicePrimaryCtxReset(0));
	assert_ok(t.cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
	assert_int_equal(active, 0);
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&t.context, 0));
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_model_says_what_it_is),
		cmocka_unit_test(no_attribute_is_unknown),
		cmocka_unit_test(devices_are_found_by_their_place),
		cmocka_unit_test(a_context_keeps_what_it_is_set_to),
		cmocka_unit_test(a_reset_takes_everything_of_the_context),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
