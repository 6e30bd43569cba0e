#include "bench/heap.h"
#include "base/error.h"
#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t take(struct neap_bench_heap *heap, size_t bytes, unsigned stream)
{
	uint64_t address = 0;
	return neap_malloc(heap->alloc, bytes, heap->streams[stream], &address, NULL) ? 0 : address;
}

static void give(struct neap_bench_heap *heap, uint64_t address) { neap_free(heap->alloc, address); }

static uint64_t glibc_take(struct neap_bench_heap *heap, size_t bytes, unsigned stream)
{
	(void)heap;
	(void)stream;
	return (uint64_t)(uintptr_t)malloc(bytes);
}

static void glibc_give(struct neap_bench_heap *heap, uint64_t address)
{
	(void)heap;
	free((void *)(uintptr_t)address);
}

static uint64_t empty_take(struct neap_bench_heap *heap, size_t bytes, unsigned stream)
{
	(void)heap;
	(void)stream;
	return bytes;
}

static void empty_give(struct neap_bench_heap *heap, uint64_t address)
{
	(void)heap;
	(void)address;
}

struct neap_bench_heap neap_bench_heap_glibc(void)
{
	return (struct neap_bench_heap){.take = glibc_take, .give = glibc_give};
}

struct neap_bench_heap neap_bench_heap_empty(void)
{
	return (struct neap_bench_heap){.take = empty_take, .give = empty_give};
}

static enum neap_status open_device(struct neap_bench_heap *heap, struct neap_error *err)
{
	char spec[96];
	snprintf(spec, sizeof spec, "mem=2TiB,backing=none,world=bench-%d", (int)getpid());
	if (setenv("NEAP_SIM", spec, 1) != 0)
		return neap_fail(err, NEAP_ENOMEM, "no memory to name the simulated device");
	enum neap_status status = neap_driver_open(NEAP_BACKEND_SIM, &heap->driver, err);
	if (!status)
		status = neap_device_open(heap->driver, 0, &heap->device, err);
	return status;
}

/* Stream 0 is the default one. */
static enum neap_status make_streams(struct neap_bench_heap *heap, struct neap_error *err)
{
	const struct neap_cuda *cuda = neap_driver_cuda(heap->driver);
	struct neap_device_guard guard = {0};
	enum neap_status status = neap_device_enter(heap->device, &guard, err);
	for (unsigned i = 1; !status && i < NEAP_BENCH_STREAMS; i++) {
		CUstream stream = NULL;
		CUresult result = cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
		status = neap_cuda_fail(cuda, result, err, "cuStreamCreate");
		heap->streams[i] = stream;
	}
	if (guard.device)
		neap_device_leave(&guard);
	return status;
}

enum neap_status neap_bench_heap_open(const struct neap_observer *observer, struct neap_bench_heap *ret_heap,
				      struct neap_error *err)
{
	struct neap_bench_heap heap = {.take = take, .give = give};
	struct neap_alloc_options options = {.observer = observer};
	enum neap_status status = open_device(&heap, err);
	if (!status)
		status = make_streams(&heap, err);
	if (!status)
		status = neap_alloc_create(heap.device, &options, &heap.alloc, err);
	if (status)
		neap_bench_heap_close(&heap);
	else
		*ret_heap = heap;
	return status;
}

void neap_bench_heap_close(struct neap_bench_heap *heap)
{
	neap_alloc_destroy(heap->alloc);
	if (heap->device)
		neap_device_close(heap->device);
	if (heap->driver)
		neap_driver_close(heap->driver);
	*heap = (struct neap_bench_heap){0};
}
