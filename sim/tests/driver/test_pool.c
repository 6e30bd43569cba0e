/* Pools of stream-ordered memory, and memory of other devices. */
#include "sim_test.h"

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
	uint64_t value = 0; /* some are ints */

	assert_ok(t.cuda.cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

static const CUmemPoolProps on_device = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
					 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void a_program_has_pools_of_its_own(void **state)
{
	CUmemPoolProps properties = on_device;
	CUmemoryPool pool, first, now;
	cuuint64_t zero = 0, threshold = UINT64_MAX;
	CUdeviceptr a, b, c;
	int off = 0;

	(void)state;
	sim_begin("pools", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuDeviceGetDefaultMemPool(&first, 0));
	assert_ok(t.cuda.cuMemPoolCreate(&pool, &properties));
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 0);
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&a, 3 * PAGE, pool, NULL));
	assert_ok(t.cuda.cuDeviceSetMemPool(0, pool));
	assert_ok(t.cuda.cuDeviceGetMemPool(&now, 0));
	assert_ptr_equal(now, pool);
	assert_ok(t.cuda.cuMemAllocAsync(&b, PAGE, NULL));
	assert_ok(t.cuda.cuMemFreeAsync(a, NULL));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), PAGE);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4 * PAGE);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * PAGE);
	assert_int_equal(attribute(first, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), PAGE);
	assert_answer(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &threshold),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemPoolTrimTo(pool, 0));
	assert_int_equal(sim_free_bytes(), before - PAGE);

	/* It is freed with its last allocation; meanwhile the device uses its default pool again. */
	assert_answer(t.cuda.cuMemPoolDestroy(first), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemPoolDestroy(pool));
	assert_answer(t.cuda.cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAllocFromPoolAsync(&c, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuDeviceGetMemPool(&now, 0));
	assert_ptr_equal(now, first);
	assert_ok(t.cuda.cuMemsetD8(b, 1, PAGE)); /* still there */
	assert_ok(t.cuda.cuMemFreeAsync(b, NULL));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

/* Memory that a pool only caches makes room for an allocation outside the pool. */
static void pools_give_way(void **state)
{
	CUmemPoolProps properties = on_device;
	cuuint64_t threshold = UINT64_MAX;
	CUdeviceptr cached, large;
	CUmemoryPool pool;

	(void)state;
	sim_begin("give-way", "mem=256MiB");
	assert_ok(t.cuda.cuMemPoolCreate(&pool, &properties));
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	uint64_t half = sim_free_bytes() / PAGE / 2 * PAGE;
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&cached, half, pool, NULL));
	assert_answer(t.cuda.cuMemAlloc(&large, half + 2 * PAGE), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(t.cuda.cuMemFreeAsync(cached, NULL));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), half);
	assert_ok(t.cuda.cuMemAlloc(&large, half + 2 * PAGE));
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	assert_ok(t.cuda.cuMemFree(large));
	assert_ok(t.cuda.cuMemPoolDestroy(pool));
	sim_end();
}

/* Only a free block of exactly the same size is reused. */
static void blocks_of_a_size_are_reused(void **state)
{
	CUmemPoolProps properties = on_device;
	cuuint64_t threshold = UINT64_MAX;
	CUdeviceptr large, smaller, again;
	CUmemoryPool pool;

	(void)state;
	sim_begin("reuse", "mem=256MiB");
	assert_ok(t.cuda.cuMemPoolCreate(&pool, &properties));
	assert_ok(t.cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&large, 3 * PAGE, pool, NULL));
	assert_ok(t.cuda.cuMemFreeAsync(large, NULL));
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&smaller, 2 * PAGE, pool, NULL));
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 5 * PAGE);
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&again, 3 * PAGE, pool, NULL));
	assert_int_equal(again, large);
	assert_int_equal(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 5 * PAGE);
	assert_ok(t.cuda.cuMemFreeAsync(smaller, NULL));
	assert_ok(t.cuda.cuMemFreeAsync(again, NULL));
	assert_ok(t.cuda.cuMemPoolDestroy(pool));
	sim_end();
}

static void what_a_pool_cannot_be_is_refused(void **state)
{
	CUmemPoolProps properties = on_device;
	CUdeviceptr a, b;
	CUmemoryPool pool;

	(void)state;
	sim_begin("nopool", "mem=256MiB");
	properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	assert_answer(t.cuda.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
	properties = on_device, properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
	assert_answer(t.cuda.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_NOT_SUPPORTED);
	properties = on_device, properties.location.id = 1;
	assert_answer(t.cuda.cuMemPoolCreate(&pool, &properties), CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
	properties = on_device, properties.maxSize = 4 * PAGE;
	assert_ok(t.cuda.cuMemPoolCreate(&pool, &properties));
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&a, 3 * PAGE, pool, NULL));
	assert_answer(t.cuda.cuMemAllocFromPoolAsync(&b, 2 * PAGE, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(t.cuda.cuMemFreeAsync(a, NULL));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&b, 2 * PAGE, pool, NULL));
	assert_ok(t.cuda.cuMemFree(b)); /* the other call may free it, too */
	assert_ok(t.cuda.cuMemPoolDestroy(pool));
	assert_answer(t.cuda.cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
	/* A pool that is destroyed with the context. */
	assert_ok(t.cuda.cuMemPoolCreate(&pool, &properties));
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&a, 3 * PAGE, pool, NULL));
	sim_end();
}

/* -- two devices ------------------------------------------------------------------------------------------------- */

struct pair {
	CUcontext second;
	CUstream stream; /* of the second device */
};

static struct pair begin_pair(const char *name, const char *devices)
{
	struct pair pair;

	sim_begin(name, devices);
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&pair.second, 1));
	assert_ok(t.cuda.cuCtxSetCurrent(pair.second));
	assert_ok(t.cuda.cuStreamCreate(&pair.stream, CU_STREAM_NON_BLOCKING));
	return pair;
}

static void end_pair(struct pair *pair)
{
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuStreamDestroy(pair->stream));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	sim_end();
}

/* A kernel of the second device over memory of the first. */
static void expect_access(struct pair *pair, CUdeviceptr address, int write, int allowed)
{
	CUresult result = sim_kernel(pair->stream, "far", address, 64, write);

	assert_answer(result, allowed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuStreamSynchronize(pair->stream));
}

static void peers_are_let_in(void **state)
{
	struct pair pair = begin_pair("peers", "2xh100-80gb");
	CUdeviceptr address, own;

	(void)state;
	assert_ok(t.cuda.cuMemAlloc(&own, PAGE));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuMemAlloc(&address, PAGE));
	assert_ok(t.cuda.cuCtxSetCurrent(pair.second));
	expect_access(&pair, own, 1, 1);
	expect_access(&pair, address, 0, 0);
	assert_ok(t.cuda.cuMemcpyDtoDAsync(own, address, 64, pair.stream)); /* a copy needs no peer access */
	assert_answer(t.cuda.cuCtxEnablePeerAccess(t.context, 1), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuCtxEnablePeerAccess(pair.second, 0), CUDA_ERROR_INVALID_CONTEXT); /* itself */
	assert_answer(t.cuda.cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	assert_answer(t.cuda.cuCtxDisablePeerAccess(t.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	assert_ok(t.cuda.cuCtxEnablePeerAccess(t.context, 0));
	assert_answer(t.cuda.cuCtxEnablePeerAccess(t.context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	expect_access(&pair, address, 1, 1);
	/* Access is one-way. */
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_answer(sim_kernel(NULL, "back", own, 64, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
	t.sim->forgive();
	assert_ok(t.cuda.cuCtxSetCurrent(pair.second));
	assert_ok(t.cuda.cuCtxDisablePeerAccess(t.context));
	expect_access(&pair, address, 0, 0);
	assert_ok(t.cuda.cuMemFree(own));
	assert_ok(t.cuda.cuMemFree(address));
	end_pair(&pair);

	pair = begin_pair("nopeers", "2xrtx4090-24gb");
	assert_answer(t.cuda.cuCtxEnablePeerAccess(t.context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	end_pair(&pair);
}

static void virtual_memory_has_access_of_each_device(void **state)
{
	CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
				  {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
	struct pair pair = begin_pair("vmmpeers", "2xh100-80gb");
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(PAGE);
	unsigned long long flags;

	(void)state;
	assert_ok(t.cuda.cuMemMap(range, PAGE, 0, handle, 0));
	assert_ok(t.cuda.cuMemSetAccess(range, PAGE, &both[0], 1));
	expect_access(&pair, range, 0, 0);
	assert_ok(t.cuda.cuMemSetAccess(range, PAGE, both, 2));
	expect_access(&pair, range, 0, 1);
	expect_access(&pair, range, 1, 0); /* reading only */
	assert_ok(t.cuda.cuMemGetAccess(&flags, &both[1].location, range));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
	*(volatile char *)(uintptr_t)range = 1; /* the host may do what one device may */
	/* Memory of the first device that only the second may use. */
	both[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE, both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	assert_ok(t.cuda.cuMemSetAccess(range, PAGE, both, 2));
	expect_access(&pair, range, 1, 1);
	assert_ok(t.cuda.cuMemsetD8Async(range, 1, 64, pair.stream));
	t.sim->hold(1);
	assert_ok(sim_kernel(pair.stream, "busy", range, 64, 1));
	both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
	assert_answer(t.cuda.cuMemSetAccess(range, PAGE, both, 2), CUDA_ERROR_ILLEGAL_ADDRESS); /* work uses it */
	t.sim->forgive();
	t.sim->hold(0);
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, PAGE));
	end_pair(&pair);

	pair = begin_pair("vmmnopeers", "2xrtx4090-24gb");
	handle = sim_make(PAGE);
	range = sim_reserve_range(PAGE);
	assert_ok(t.cuda.cuMemMap(range, PAGE, 0, handle, 0));
	assert_answer(t.cuda.cuMemSetAccess(range, PAGE, &both[1], 1), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, PAGE));
	end_pair(&pair);
}

static void pools_let_peers_in(void **state)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemLocation first = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	struct pair pair = begin_pair("poolpeers", "2xh100-80gb");
	CUmemAccess_flags flags = 77;
	CUdeviceptr address;
	CUmemoryPool pool;

	(void)state;
	assert_ok(t.cuda.cuDeviceGetDefaultMemPool(&pool, 0));
	assert_ok(t.cuda.cuMemAllocFromPoolAsync(&address, 64, pool, pair.stream)); /* of the first device */
	expect_access(&pair, address, 0, 0);
	assert_ok(t.cuda.cuMemPoolGetAccess(&flags, pool, &access.location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	assert_ok(t.cuda.cuMemPoolSetAccess(pool, &access, 1));
	expect_access(&pair, address, 1, 1);
	assert_ok(t.cuda.cuMemPoolGetAccess(&flags, pool, &access.location));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_ok(t.cuda.cuMemPoolGetAccess(&flags, pool, &first));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	access.location.id = 0, access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	assert_answer(t.cuda.cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_VALUE); /* it keeps its own */
	access.location.id = 5;
	assert_answer(t.cuda.cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	assert_ok(t.cuda.cuMemFreeAsync(address, pair.stream));
	end_pair(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_has_pools_of_its_own),
		cmocka_unit_test(blocks_of_a_size_are_reused),
		cmocka_unit_test(pools_give_way),
		cmocka_unit_test(what_a_pool_cannot_be_is_refused),
		cmocka_unit_test(peers_are_let_in),
		cmocka_unit_test(virtual_memory_has_access_of_each_device),
		cmocka_unit_test(pools_let_peers_in),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
