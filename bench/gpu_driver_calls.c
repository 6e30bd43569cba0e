/* bench/gpu_driver_calls.c: measures single calls: on an idle device, by the size of a handle, and while a kernel
 * runs. */
#include "gpu_driver.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 1000

/* A call that is timed; false stops the part. */
#define TIMED(times, bench, call)                                                                                    \
	do {                                                                                                         \
		uint64_t began_ = now_ns();                                                                          \
		CUresult result_ = (bench)->cuda->call;                                                              \
		times_add((times), began_);                                                                          \
		if (!ok((bench), result_, #call))                                                                    \
			return false;                                                                                \
	} while (0)

enum small {
	S_RECORD,
	S_QUERY,
	S_WAIT,
	S_EVENT_SYNCHRONIZE,
	S_STREAM_SYNCHRONIZE,
	S_STREAM_QUERY,
	S_CONTEXT_SYNCHRONIZE,
	S_GET_INFO,
	S_GET_CURRENT,
	S_SET_CURRENT,
	S_ATTRIBUTE,
	S_EVENT_CREATE,
	S_EVENT_DESTROY,
	S_CAPTURING,
	S_LAUNCH,
	S_LAUNCH_AND_WAIT,
	S_COUNT
};

static const char *const small_names[S_COUNT] = {
	[S_RECORD] = "cuEventRecord",
	[S_QUERY] = "cuEventQuery, ready",
	[S_WAIT] = "cuStreamWaitEvent",
	[S_EVENT_SYNCHRONIZE] = "cuEventSynchronize, ready",
	[S_STREAM_SYNCHRONIZE] = "cuStreamSynchronize, idle",
	[S_STREAM_QUERY] = "cuStreamQuery, idle",
	[S_CONTEXT_SYNCHRONIZE] = "cuCtxSynchronize, idle",
	[S_GET_INFO] = "cuMemGetInfo",
	[S_GET_CURRENT] = "cuCtxGetCurrent",
	[S_SET_CURRENT] = "cuCtxSetCurrent",
	[S_ATTRIBUTE] = "cuDeviceGetAttribute",
	[S_EVENT_CREATE] = "cuEventCreate",
	[S_EVENT_DESTROY] = "cuEventDestroy",
	[S_CAPTURING] = "cuStreamIsCapturing",
	[S_LAUNCH] = "cuLaunchKernel",
	[S_LAUNCH_AND_WAIT] = "cuLaunchKernel and cuStreamSynchronize",
};

static bool small_round(struct bench *bench, struct times times[S_COUNT], CUstream stream, CUevent event,
			CUfunction kernel)
{
	CUstreamCaptureStatus capturing = 0;
	CUcontext context = NULL;
	size_t bytes = 0, total = 0;
	CUevent other = NULL;
	uint64_t zero = 0;
	int value = 0;

	TIMED(&times[S_EVENT_CREATE], bench, cuEventCreate(&other, CU_EVENT_DISABLE_TIMING));
	TIMED(&times[S_EVENT_DESTROY], bench, cuEventDestroy(other));
	TIMED(&times[S_RECORD], bench, cuEventRecord(event, stream));
	TIMED(&times[S_WAIT], bench, cuStreamWaitEvent(stream, event, 0));
	TIMED(&times[S_STREAM_SYNCHRONIZE], bench, cuStreamSynchronize(stream));
	TIMED(&times[S_QUERY], bench, cuEventQuery(event));
	TIMED(&times[S_EVENT_SYNCHRONIZE], bench, cuEventSynchronize(event));
	TIMED(&times[S_STREAM_QUERY], bench, cuStreamQuery(stream));
	TIMED(&times[S_CONTEXT_SYNCHRONIZE], bench, cuCtxSynchronize());
	TIMED(&times[S_GET_CURRENT], bench, cuCtxGetCurrent(&context));
	TIMED(&times[S_SET_CURRENT], bench, cuCtxSetCurrent(context));
	TIMED(&times[S_ATTRIBUTE], bench,
	      cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, bench->device));
	if (bench->cuda->cuStreamIsCapturing)
		TIMED(&times[S_CAPTURING], bench, cuStreamIsCapturing(stream, &capturing));
	TIMED(&times[S_GET_INFO], bench, cuMemGetInfo(&bytes, &total));
	if (!kernel)
		return true;
	void *parameters[] = {&zero};
	TIMED(&times[S_LAUNCH], bench, cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
	if (!ok(bench, bench->cuda->cuStreamSynchronize(stream), "cuStreamSynchronize"))
		return false;
	uint64_t began = now_ns();
	if (!spin(bench, kernel, stream, 0) ||
	    !ok(bench, bench->cuda->cuStreamSynchronize(stream), "cuStreamSynchronize"))
		return false;
	times_add(&times[S_LAUNCH_AND_WAIT], began);
	return true;
}

void part_small(struct bench *bench)
{
	struct times *times = calloc(S_COUNT, sizeof *times);
	CUstream stream = NULL;
	CUevent event = NULL;
	bool good = times != NULL;

	if (!good || !bench_open(bench) ||
	    !ok(bench, bench->cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate") ||
	    !ok(bench, bench->cuda->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"))
		return free(times);
	CUfunction kernel = spinning_kernel(bench);
	for (int i = 0; i < ROUNDS && good; i++)
		good = small_round(bench, times, stream, event, kernel);
	for (int i = 0; i < S_COUNT; i++)
		times_report(&times[i], bench->out, small_names[i]);
	free(times);
}

/* -- pages ------------------------------------------------------------------------------------------------------ */

enum page { P_CREATE, P_MAP, P_ACCESS, P_UNMAP, P_RELEASE, P_MAP_AGAIN, P_TOUCH, P_COUNT };

static const char *const page_names[P_COUNT] = {"cuMemCreate",
						"cuMemMap",
						"cuMemSetAccess",
						"cuMemUnmap",
						"cuMemRelease",
						"cuMemMap, of a handle that was unmapped",
						"cuMemsetD8, first touch and wait"};

static CUmemAllocationProp on_device(CUdevice device)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

/* Times the calls for `count` handles of `size` bytes, side by side in one reservation. */
static bool page_calls(struct bench *bench, struct times times[P_COUNT], size_t size, size_t count, CUdeviceptr base,
		       CUmemGenericAllocationHandle *handles, uint64_t *ret_all_access_ns)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, bench->device},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const CUmemAllocationProp wanted = on_device(bench->device);

	for (size_t i = 0; i < count; i++) {
		CUdeviceptr at = base + i * size;
		TIMED(&times[P_CREATE], bench, cuMemCreate(&handles[i], size, &wanted, 0));
		TIMED(&times[P_MAP], bench, cuMemMap(at, size, 0, handles[i], 0));
		TIMED(&times[P_ACCESS], bench, cuMemSetAccess(at, size, &access, 1));
		uint64_t began = now_ns();
		if (!ok(bench, bench->cuda->cuMemsetD8(at, 1, size), "cuMemsetD8") ||
		    !ok(bench, bench->cuda->cuCtxSynchronize(), "cuCtxSynchronize"))
			return false;
		times_add(&times[P_TOUCH], began);
	}
	for (size_t i = 0; i < count; i++)
		TIMED(&times[P_UNMAP], bench, cuMemUnmap(base + i * size, size));
	for (size_t i = 0; i < count; i++)
		TIMED(&times[P_MAP_AGAIN], bench, cuMemMap(base + i * size, size, 0, handles[i], 0));
	uint64_t began = now_ns();
	if (!ok(bench, bench->cuda->cuMemSetAccess(base, size * count, &access, 1), "cuMemSetAccess"))
		return false;
	*ret_all_access_ns = now_ns() - began;
	began = now_ns();
	if (!ok(bench, bench->cuda->cuMemUnmap(base, size * count), "cuMemUnmap"))
		return false;
	for (size_t i = 0; i < count; i++)
		TIMED(&times[P_RELEASE], bench, cuMemRelease(handles[i]));
	return true;
}

static bool pages_of(struct bench *bench, size_t mib)
{
	static CUmemGenericAllocationHandle handles[1024];
	struct times *times = calloc(P_COUNT, sizeof *times);
	size_t size = mib * MIB, count = 2048 / mib;
	uint64_t all_access_ns = 0;
	CUdeviceptr base = 0;
	char key[32];

	if (!times)
		return false;
	snprintf(key, sizeof key, "%zu MiB", mib);
	report_object(bench->out, key);
	uint64_t began = now_ns();
	bool good = ok(bench, bench->cuda->cuMemAddressReserve(&base, size * count, 0, 0, 0), "cuMemAddressReserve");
	report_number(bench->out, "cuMemAddressReserve_us", (double)(now_ns() - began) / 1e3);
	good = good && page_calls(bench, times, size, count, base, handles, &all_access_ns);
	for (int i = 0; i < P_COUNT; i++)
		times_report(&times[i], bench->out, page_names[i]);
	report_count(bench->out, "handles", count);
	report_number(bench->out, "cuMemSetAccess_of_all_us", (double)all_access_ns / 1e3);
	if (good) {
		began = now_ns();
		good = ok(bench, bench->cuda->cuMemAddressFree(base, size * count), "cuMemAddressFree");
		report_number(bench->out, "cuMemAddressFree_us", (double)(now_ns() - began) / 1e3);
	}
	report_close(bench->out);
	free(times);
	return good;
}

static bool plain_of(struct bench *bench, size_t mib)
{
	struct times *times = calloc(2, sizeof *times);
	char key[48];

	if (!times)
		return false;
	for (int i = 0; i < 64; i++) {
		CUdeviceptr at = 0;
		TIMED(&times[0], bench, cuMemAlloc(&at, mib * MIB));
		TIMED(&times[1], bench, cuMemFree(at));
	}
	snprintf(key, sizeof key, "cuMemAlloc, %zu MiB", mib);
	times_report(&times[0], bench->out, key);
	snprintf(key, sizeof key, "cuMemFree, %zu MiB", mib);
	times_report(&times[1], bench->out, key);
	free(times);
	return true;
}

void part_pages(struct bench *bench)
{
	static const size_t sizes[] = {2, 4, 8, 16, 20, 32, 64};
	static const size_t plain[] = {2, 20, 200, 2000};

	if (!bench_open(bench))
		return;
	if (!neap_driver_capabilities(bench->driver)->virtual_memory)
		snprintf(bench->failed, sizeof bench->failed, "the driver has no virtual memory management");
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !bench->failed[0]; i++)
		pages_of(bench, sizes[i]);
	for (size_t i = 0; i < sizeof plain / sizeof plain[0] && !bench->failed[0]; i++)
		plain_of(bench, plain[i]);
}

/* -- while a kernel runs ---------------------------------------------------------------------------------------- */

/* Finds which calls wait for running work: makes each call while a kernel of 20 ms runs, and reports how long it
 * took. The kernel does not use the call's memory. */
#define BUSY_NS 20000000ull

struct busy {
	CUdeviceptr base, mapped, plain;
	CUmemGenericAllocationHandle handle, other;
	CUevent event;
	CUstream stream;
};

static CUresult busy_create(struct bench *b, struct busy *s)
{
	const CUmemAllocationProp wanted = on_device(b->device);

	return b->cuda->cuMemCreate(&s->other, 2 * MIB, &wanted, 0);
}
static CUresult busy_map(struct bench *b, struct busy *s)
{
	return b->cuda->cuMemMap(s->base, 2 * MIB, 0, s->other, 0);
}
static CUresult busy_access(struct bench *b, struct busy *s)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, b->device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return b->cuda->cuMemSetAccess(s->base, 2 * MIB, &access, 1);
}
static CUresult busy_unmap(struct bench *b, struct busy *s) { return b->cuda->cuMemUnmap(s->base, 2 * MIB); }
static CUresult busy_release(struct bench *b, struct busy *s) { return b->cuda->cuMemRelease(s->other); }
static CUresult busy_alloc(struct bench *b, struct busy *s) { return b->cuda->cuMemAlloc(&s->plain, 64 * MIB); }
static CUresult busy_free(struct bench *b, struct busy *s) { return b->cuda->cuMemFree(s->plain); }
static CUresult busy_record(struct bench *b, struct busy *s) { return b->cuda->cuEventRecord(s->event, s->stream); }
static CUresult busy_query(struct bench *b, struct busy *s)
{
	CUresult result = b->cuda->cuEventQuery(s->event);

	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}
static CUresult busy_info(struct bench *b, struct busy *s)
{
	size_t bytes = 0, total = 0;

	(void)s;
	return b->cuda->cuMemGetInfo(&bytes, &total);
}
static CUresult busy_synchronize(struct bench *b, struct busy *s) { return b->cuda->cuStreamSynchronize(s->stream); }

static const struct {
	const char *name;
	CUresult (*call)(struct bench *bench, struct busy *state);
} busy_calls[] = {
	{"cuMemCreate", busy_create},
	{"cuMemMap", busy_map},
	{"cuMemSetAccess", busy_access},
	{"cuMemUnmap", busy_unmap},
	{"cuMemRelease", busy_release},
	{"cuMemAlloc", busy_alloc},
	{"cuMemFree", busy_free},
	{"cuEventRecord", busy_record},
	{"cuEventQuery", busy_query},
	{"cuMemGetInfo", busy_info},
	{"cuStreamSynchronize", busy_synchronize},
};

void part_busy(struct bench *bench)
{
	struct busy state = {0};
	CUfunction kernel;

	if (!bench_open(bench) || !(kernel = spinning_kernel(bench)) ||
	    !ok(bench, bench->cuda->cuStreamCreate(&state.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate") ||
	    !ok(bench, bench->cuda->cuEventCreate(&state.event, CU_EVENT_DISABLE_TIMING), "cuEventCreate") ||
	    !ok(bench, bench->cuda->cuMemAddressReserve(&state.base, 2 * MIB, 0, 0, 0), "cuMemAddressReserve"))
		return;
	report_number(bench->out, "kernel_us", (double)BUSY_NS / 1e3);
	for (size_t i = 0; i < sizeof busy_calls / sizeof busy_calls[0]; i++) {
		if (!spin(bench, kernel, state.stream, BUSY_NS))
			return;
		uint64_t began = now_ns();
		CUresult result = busy_calls[i].call(bench, &state);
		report_number(bench->out, busy_calls[i].name, (double)(now_ns() - began) / 1e3);
		if (!ok(bench, result, busy_calls[i].name) ||
		    !ok(bench, bench->cuda->cuStreamSynchronize(state.stream), "cuStreamSynchronize"))
			return;
	}
}
