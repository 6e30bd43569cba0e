/* Host memory that devices reach: pinned, registered, managed; and attributes of pointers. */
#include "sim_test.h"

#include <stdlib.h>
#include <string.h>

static CUdeviceptr number(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

static int attribute(CUpointer_attribute which, CUdeviceptr address)
{
	int value = -77;

	assert_ok(t.cuda.cuPointerGetAttribute(&value, which, address));
	return value;
}

static uint64_t wide(CUpointer_attribute which, CUdeviceptr address)
{
	uint64_t value = 77;

	assert_ok(t.cuda.cuPointerGetAttribute(&value, which, address));
	return value;
}

static void pages_are_registered_once(void **state)
{
	unsigned char *pages = aligned_alloc(4096, 16384), *pinned;
	CUdeviceptr address, memory;
	CUstream stream;
	unsigned int flags = 77;

	(void)state;
	assert_non_null(pages);
	sim_begin("register", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_answer(t.cuda.cuMemHostUnregister(pages), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_ok(t.cuda.cuMemHostRegister(pages, 8192, 3));
	assert_answer(t.cuda.cuMemHostRegister(pages + 4096, 8192, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_answer(t.cuda.cuMemHostRegister(NULL, 8192, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostRegister(pages + 8192, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostRegister(pages + 8192, 4096, 16), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostRegister(pages + 8192, 4096, 4), CUDA_ERROR_NOT_SUPPORTED);
	assert_answer(t.cuda.cuMemHostRegister((void *)(uintptr_t)memory, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostRegister((void *)(uintptr_t)(memory + PAGE / 2), PAGE, 0),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemHostGetDevicePointer(&address, pages + 10, 0));
	assert_int_equal(address, number(pages + 10));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number(pages)), CU_MEMORYTYPE_HOST);
	assert_answer(t.cuda.cuMemHostGetFlags(&flags, pages), CUDA_ERROR_INVALID_VALUE); /* not cuMemHostAlloc's */
	/* A copy from there is asynchronous, as with pinned memory. */
	t.sim->hold(1);
	pages[0] = 1;
	assert_ok(t.cuda.cuMemcpyHtoDAsync(memory, pages, 4096, stream));
	pages[0] = 2;
	t.sim->hold(0);
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_int_equal(*(unsigned char *)(uintptr_t)memory, 2);
	assert_answer(t.cuda.cuMemHostUnregister(pages + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_ok(t.cuda.cuMemHostUnregister(pages));
	pages[0] = 3; /* the pages are the program's */
	assert_answer(t.cuda.cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, number(pages)),
		      CUDA_ERROR_INVALID_VALUE);

	assert_ok(t.cuda.cuMemHostAlloc((void **)&pinned, 100, 5));
	assert_ok(t.cuda.cuMemHostGetFlags(&flags, pinned));
	assert_int_equal(flags, 5);
	assert_ok(t.cuda.cuMemHostGetDevicePointer(&address, pinned, 0));
	assert_answer(t.cuda.cuMemHostGetDevicePointer(&address, pages, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostUnregister(pinned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_ok(t.cuda.cuMemAllocHost((void **)&pinned, 100));
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_ok(t.cuda.cuMemFree(memory));
	assert_answer(t.cuda.cuMemHostRegister((void *)(uintptr_t)memory, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemHostRegister((void *)4096, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(sim_free_bytes(), before);
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
	free(pages);
}

static void managed_memory_is_the_hosts(void **state)
{
	CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 7};
	CUdeviceptr address, base;
	CUstream stream;
	size_t bytes;
	int list[4], value;

	(void)state;
	sim_begin("managed", "2xh100-80gb");
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_answer(t.cuda.cuMemAllocManaged(&address, 100, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(
		t.cuda.cuMemAllocManaged(&address, 200ull << 30, CU_MEM_ATTACH_GLOBAL)); /* more than a device has */
	assert_int_equal(sim_free_bytes(), before);
	*(unsigned char *)(uintptr_t)(address + 77) = 5;
	assert_ok(t.cuda.cuMemsetD8Async(address + 78, 6, 1, stream));
	assert_ok(sim_kernel(stream, "kernel", address, 1 << 20, 1));
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_int_equal(*(unsigned char *)(uintptr_t)(address + 77), 5);
	assert_int_equal(*(unsigned char *)(uintptr_t)(address + 78), 6);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, address), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CU_MEMORYTYPE_DEVICE);
	assert_ok(t.cuda.cuMemGetAddressRange(&base, &bytes, address + 1000));
	assert_int_equal(base, address);
	assert_int_equal(bytes, 200ull << 30);

	assert_ok(t.cuda.cuMemPrefetchAsync_v2(address, 1 << 20, device, 0, stream));
	assert_ok(t.cuda.cuMemAdvise_v1(address, 1 << 20, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	assert_ok(t.cuda.cuMemAdvise_v2(address, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
	assert_ok(t.cuda.cuMemAdvise_v1(address, 1 << 20, CU_MEM_ADVISE_SET_ACCESSED_BY, -1));
	assert_ok(t.cuda.cuMemAdvise_v1(address, 1 << 20, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
	assert_ok(t.cuda.cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, 64));
	assert_int_equal(value, 1);
	assert_ok(
		t.cuda.cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, 64));
	assert_int_equal(value, 1);
	assert_ok(t.cuda.cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, address,
						64));
	assert_int_equal(value, CU_MEM_LOCATION_TYPE_DEVICE);
	assert_ok(t.cuda.cuMemRangeGetAttribute(list, 16, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, 64));
	assert_int_equal(list[0], -1);
	assert_int_equal(list[1], 0);
	assert_int_equal(list[2], -2); /* no more */
	assert_ok(t.cuda.cuMemAdvise_v1(address, 64, CU_MEM_ADVISE_UNSET_ACCESSED_BY, -1));
	assert_ok(t.cuda.cuMemRangeGetAttribute(list, 4, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, 64));
	assert_int_equal(list[0], 0);
	assert_ok(t.cuda.cuMemPrefetchAsync_v1(address, 64, -1, stream));
	assert_answer(t.cuda.cuMemPrefetchAsync_v1(address, 64, 5, stream), CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuMemAdvise_v2(address, 64, CU_MEM_ADVISE_SET_ACCESSED_BY, nowhere),
		      CUDA_ERROR_INVALID_DEVICE);
	assert_answer(t.cuda.cuMemPrefetchAsync_v1(number(&value), 4, 0, stream), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemRangeGetAttribute(&value, 4, 77, address, 64), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, 64),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_SINGLE));
	assert_answer(t.cuda.cuStreamAttachMemAsync(NULL, address, 0, CU_MEM_ATTACH_SINGLE),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_answer(t.cuda.cuMemFree(address + 4096), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(address));
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_HOST)); /* goes with the context */
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

static void pointers_say_what_they_are(void **state)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_HOST_POINTER};
	unsigned int type = 7;
	int ordinal = 7, sync = 1;
	size_t size = 7;
	void *host_pointer = &type, *data[] = {&type, &ordinal, &size, &host_pointer};
	CUdeviceptr a, b, pooled;
	CUcontext second;
	CUmemoryPool pool;
	void *pinned;

	(void)state;
	sim_begin("pointers", "2xh100-80gb");
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuCtxSetCurrent(second));
	assert_ok(t.cuda.cuMemAlloc(&a, 1000));
	assert_ok(t.cuda.cuMemHostAlloc(&pinned, 1000, 0));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuMemAlloc(&b, 1000));
	assert_ok(t.cuda.cuMemAllocAsync(&pooled, 1000, NULL));
	assert_ok(t.cuda.cuDeviceGetMemPool(&pool, 0));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, number(pinned)), 1);
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_CONTEXT, a), number(second));
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 5), a + 5);
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_HOST_POINTER, number(pinned)), number(pinned));
	assert_answer(t.cuda.cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, a),
		      CUDA_ERROR_INVALID_VALUE);
	assert_true(wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, a) != wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, a), wide(CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 999));
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled), number(pool));
	assert_int_equal(wide(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pooled), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, a), 0);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, a), 1);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, b), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, a),
			 CU_MEM_ACCESS_FLAGS_PROT_NONE); /* no peer */
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a), 0);
	assert_ok(t.cuda.cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a), 1);
	assert_answer(t.cuda.cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_IS_MANAGED, a),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, number(pinned)),
		      CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_P2P_TOKENS, a),
		      CUDA_ERROR_NOT_SUPPORTED);
	assert_answer(t.cuda.cuPointerGetAttribute(&size, 77, a), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 1000),
		      CUDA_ERROR_INVALID_VALUE); /* beyond its end */

	assert_ok(t.cuda.cuPointerGetAttributes(4, which, data, a));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(ordinal, 1);
	assert_int_equal(size, 1000);
	assert_null(host_pointer);
	assert_ok(t.cuda.cuPointerGetAttributes(4, which, data, number(&type))); /* not CUDA's: zeros, and no error */
	assert_int_equal(type, 0);
	assert_int_equal(size, 0);
	which[0] = 77;
	assert_answer(t.cuda.cuPointerGetAttributes(4, which, data, a), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFreeAsync(pooled, NULL));
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_ok(t.cuda.cuMemFree(a));
	assert_ok(t.cuda.cuMemFree(b));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	sim_end();
}

static void rows_are_wide_enough(void **state)
{
	CUdeviceptr address;
	cuuint64_t bytes = 7;
	size_t pitch = 0;

	(void)state;
	sim_begin("pitch", "mem=256MiB");
	assert_ok(t.cuda.cuMemAllocPitch(&address, &pitch, 513, 10, 4));
	assert_int_equal(pitch, 1024);
	assert_ok(t.cuda.cuMemsetD2D8(address, pitch, 1, 513, 10));
	assert_ok(t.cuda.cuMemFree(address));
	assert_answer(t.cuda.cuMemAllocPitch(&address, &pitch, 513, 10, 3), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAllocPitch(&address, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAllocPitch(&address, &pitch, 1 << 20, 1 << 20, 4), CUDA_ERROR_OUT_OF_MEMORY);
	/* Graphs have no memory of their own. */
	assert_ok(t.cuda.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &bytes));
	assert_int_equal(bytes, 0);
	assert_ok(t.cuda.cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &bytes));
	assert_answer(t.cuda.cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes),
		      CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuDeviceGraphMemTrim(0));
	assert_answer(t.cuda.cuDeviceGraphMemTrim(1), CUDA_ERROR_INVALID_DEVICE);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_registered_once),
		cmocka_unit_test(managed_memory_is_the_hosts),
		cmocka_unit_test(pointers_say_what_they_are),
		cmocka_unit_test(rows_are_wide_enough),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
