/* Copies and sets of rows and layers, between all kinds of memory. */
#include "sim_test.h"

#include <stdlib.h>
#include <string.h>

static CUdeviceptr number(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

static void addresses_tell_where_memory_is(void **state)
{
	unsigned char pageable[256], *pinned, back[256];
	CUdeviceptr a, b;
	CUcontext second;

	(void)state;
	sim_begin("unified", "2xh100-80gb");
	assert_ok(t.cuda.cuDevicePrimaryCtxRetain(&second, 1));
	assert_ok(t.cuda.cuMemAlloc(&a, 256));
	assert_ok(t.cuda.cuCtxSetCurrent(second));
	assert_ok(t.cuda.cuMemAlloc(&b, 256));
	assert_ok(t.cuda.cuMemHostAlloc((void **)&pinned, 256, 0));
	for (int i = 0; i < 256; i++)
		pageable[i] = (unsigned char)(i ^ 0x5a);
	assert_ok(t.cuda.cuMemcpy(number(pinned), number(pageable), 256));
	assert_ok(t.cuda.cuMemcpyAsync(a, number(pinned), 256, NULL));
	assert_ok(t.cuda.cuMemcpyPeer(b, second, a, t.context, 256));
	assert_ok(t.cuda.cuMemcpyPeerAsync(a, t.context, b, second, 128, NULL));
	assert_ok(t.cuda.cuMemcpyAsync(number(back), b, 256, NULL)); /* pageable: done when it returns */
	assert_memory_equal(back, pageable, 256);
	assert_answer(t.cuda.cuMemcpyPeer(b, second, a, (CUcontext)(uintptr_t)pinned, 8), CUDA_ERROR_INVALID_CONTEXT);
	assert_answer(t.cuda.cuMemcpyPeer(b, second, number(pageable), t.context, 8), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemcpyHtoD(number(pageable), back, 8), CUDA_ERROR_INVALID_VALUE);
#ifndef __SANITIZE_THREAD__ /* there device memory is among the host's: nothing tells the two apart */
	assert_answer(t.cuda.cuMemcpy(a + 64 * PAGE, number(back), 8),
		      CUDA_ERROR_INVALID_VALUE); /* nothing is there */
#endif
	assert_ok(t.cuda.cuMemcpy(0, 0, 0));
	assert_answer(t.cuda.cuMemcpy(a, 0, 8), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_ok(t.cuda.cuMemFree(b));
	assert_ok(t.cuda.cuCtxSetCurrent(t.context));
	assert_ok(t.cuda.cuMemFree(a));
	assert_ok(t.cuda.cuDevicePrimaryCtxRelease(1));
	sim_end();
}

static void rows_and_layers_are_copied(void **state)
{
	unsigned char image[6 * 40], back[6 * 40];
	CUDA_MEMCPY2D rows = {0};
	CUDA_MEMCPY3D layers = {0};
	CUdeviceptr memory;
	CUstream stream;

	(void)state;
	sim_begin("rows", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	for (size_t i = 0; i < sizeof image; i++)
		image[i] = (unsigned char)i;
	/* A part of 10 by 3 bytes at (5, 2), to (1, 1) of rows of 64. */
	rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.srcHost = image, rows.srcPitch = 40;
	rows.srcXInBytes = 5, rows.srcY = 2;
	rows.dstMemoryType = CU_MEMORYTYPE_DEVICE, rows.dstDevice = memory, rows.dstPitch = 64;
	rows.dstXInBytes = 1, rows.dstY = 1;
	rows.WidthInBytes = 10, rows.Height = 3;
	assert_ok(t.cuda.cuMemcpy2D(&rows));
	for (size_t y = 0; y < 3; y++)
		assert_memory_equal((char *)(uintptr_t)memory + (y + 1) * 64 + 1, image + (y + 2) * 40 + 5, 10);
	assert_int_equal(*(unsigned char *)(uintptr_t)(memory + 64 + 11), 0); /* and no more */
	rows.srcPitch = 14;
	assert_answer(t.cuda.cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
	rows.srcPitch = 40, rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	assert_answer(t.cuda.cuMemcpy2DUnaligned(&rows), CUDA_ERROR_NOT_SUPPORTED);
	rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED, rows.Height = 0;
	assert_ok(t.cuda.cuMemcpy2DAsync(&rows, stream));

	/* Two layers of 3 rows of 8 bytes, out of layers of 4 rows of 16. */
	assert_ok(t.cuda.cuMemcpyHtoD(memory, image, sizeof image));
	layers.srcMemoryType = CU_MEMORYTYPE_DEVICE, layers.srcDevice = memory, layers.srcPitch = 16,
	layers.srcHeight = 4;
	layers.srcZ = 1, layers.srcY = 1;
	layers.dstMemoryType = CU_MEMORYTYPE_HOST, layers.dstHost = back, layers.dstPitch = 8, layers.dstHeight = 3;
	layers.WidthInBytes = 8, layers.Height = 3, layers.Depth = 2;
	assert_ok(t.cuda.cuMemcpy3DAsync(&layers, stream));
	for (size_t z = 0; z < 2; z++)
		for (size_t y = 0; y < 3; y++)
			assert_memory_equal(back + (z * 3 + y) * 8, image + ((z + 1) * 4 + y + 1) * 16, 8);
	layers.srcHeight = 3;
	assert_answer(t.cuda.cuMemcpy3D(&layers), CUDA_ERROR_INVALID_VALUE);
	layers.srcHeight = 4, layers.srcLOD = 1;
	assert_answer(t.cuda.cuMemcpy3D(&layers), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	sim_end();
}

/* Rows next to each other are separate: two streams may work on the two halves of the same rows. */
static void only_the_rows_are_touched(void **state)
{
	CUdeviceptr memory;
	CUstream a, b;

	(void)state;
	sim_begin("halves", "mem=256MiB");
	assert_ok(t.cuda.cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuMemAlloc(&memory, PAGE));
	assert_ok(t.cuda.cuMemsetD2D8Async(memory, 64, 1, 32, 100, a));
	assert_ok(t.cuda.cuMemsetD2D16Async(memory + 32, 64, 0x0202, 16, 100, b));
	assert_answer(t.cuda.cuMemsetD2D32Async(memory + 28, 64, 3, 2, 2, b), CUDA_ERROR_ILLEGAL_ADDRESS); /* a's */
	t.sim->forgive();
	assert_ok(t.cuda.cuCtxSynchronize());
	for (size_t row = 0; row < 100; row++)
		for (size_t i = 0; i < 64; i++)
			assert_int_equal(((unsigned char *)(uintptr_t)memory)[row * 64 + i], i < 32 ? 1 : 2);
	assert_ok(t.cuda.cuMemsetD2D32(memory, 64, 0x01020304, 2, 3));
	assert_ok(t.cuda.cuMemsetD16(memory + 8, 0x0506, 2));
	assert_ok(t.cuda.cuMemsetD16Async(memory + 12, 0x0708, 1, a));
	assert_ok(t.cuda.cuMemsetD2D8(memory + 192, 64, 7, 3, 1));
	assert_ok(t.cuda.cuMemsetD2D16(memory + 256, 64, 7, 3, 1));
	assert_ok(t.cuda.cuCtxSynchronize());
	assert_memory_equal((void *)(uintptr_t)(memory), "\4\3\2\1\4\3\2\1\6\5\6\5\x8\x7\1", 15);
	assert_memory_equal((void *)(uintptr_t)(memory + 128), "\4\3\2\1\4\3\2\1\1", 9);
	assert_answer(t.cuda.cuMemsetD16(memory + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemsetD2D32(memory, 62, 1, 2, 2), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemsetD2D8(memory, 16, 1, 17, 2), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemsetD2D8(memory, 0, 1, 0, 5));
	assert_answer(t.cuda.cuMemsetD8(4096, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(memory));
	assert_ok(t.cuda.cuStreamDestroy(a));
	assert_ok(t.cuda.cuStreamDestroy(b));
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_tell_where_memory_is),
		cmocka_unit_test(rows_and_layers_are_copied),
		cmocka_unit_test(only_the_rows_are_touched),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
