/* replay/paper.c: the functions of a driver that only counts. Functions that need no work on the device succeed; all
 * others are refused. */
#include "replay/paper.h"

#include "base/error.h"
#include "base/units.h"
#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_PAGE_BYTES (2 * NEAP_MIB)
#define FIRST_ADDRESS    (1ull << 40)
#define LAST_ADDRESS     (1ull << 63)

/* The device that the thread has open: see the header. CUDA's interface has no argument for it. */
static _Thread_local struct neap_paper *open_paper;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* REQUIRED functions must exist; of the OPTIONAL ones only those below do. */
#define REFUSE_REQUIRED(name, parameters)                                                                            \
	static CUresult refuse_##name parameters { return CUDA_ERROR_NOT_SUPPORTED; }
#define REFUSE_OPTIONAL(name, parameters)
#define X(need, name, symbol, parameters) REFUSE_##need(name, parameters)
#include "device/cuda_functions.h"
#undef X

static CUresult init(unsigned int flags) { return CUDA_SUCCESS; }

static CUresult count_devices(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int length, CUdevice device)
{
	snprintf(name, (size_t)length, "paper");
	return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
	memset(uuid, 0, sizeof *uuid);
	return CUDA_SUCCESS;
}

static CUresult get_total(size_t *bytes, CUdevice device)
{
	*bytes = open_paper->room_bytes;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	*value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && open_paper->page_bytes;
	return CUDA_SUCCESS;
}

static CUresult get_granularity(size_t *bytes, const CUmemAllocationProp *properties,
				CUmemAllocationGranularity_flags option)
{
	*bytes = open_paper->page_bytes;
	return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)(void *)open_paper;
	return CUDA_SUCCESS;
}

static CUresult release(CUdevice device) { return CUDA_SUCCESS; }

static CUresult get_current(CUcontext *context)
{
	*context = open_paper->current;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
	open_paper->current = context;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
	*context = open_paper->current;
	open_paper->current = NULL;
	return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
	open_paper->synchronizations++;
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *free_bytes, size_t *total_bytes)
{
	*free_bytes = open_paper->room_bytes - open_paper->used_bytes;
	*total_bytes = open_paper->room_bytes;
	return CUDA_SUCCESS;
}

static CUresult use(uint64_t bytes)
{
	if (bytes > open_paper->room_bytes - open_paper->used_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	open_paper->used_bytes += bytes;
	if (open_paper->used_bytes > open_paper->peak_bytes)
		open_paper->peak_bytes = open_paper->used_bytes;
	return CUDA_SUCCESS;
}

static CUresult place(CUdeviceptr *address, size_t bytes)
{
	if (bytes > LAST_ADDRESS - open_paper->next_address)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = open_paper->next_address;
	open_paper->next_address += (bytes + PLAIN_PAGE_BYTES - 1) / PLAIN_PAGE_BYTES * PLAIN_PAGE_BYTES;
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
			unsigned long long flags)
{
	open_paper->calls.reserves++;
	return place(address, bytes);
}

static CUresult unreserve(CUdeviceptr address, size_t bytes)
{
	open_paper->calls.address_frees++;
	return CUDA_SUCCESS;
}

/* A handle stands for one page. All pages have one size, so the handle is just a number. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
		       unsigned long long flags)
{
	CUresult result = use(bytes);

	if (result == CUDA_SUCCESS) {
		*handle = ++open_paper->next_handle;
		open_paper->calls.creates++;
	} else {
		open_paper->calls.failed_creates++;
	}
	return result;
}

static CUresult give_back(CUmemGenericAllocationHandle handle)
{
	open_paper->calls.releases++;
	open_paper->used_bytes -= open_paper->page_bytes;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		    unsigned long long flags)
{
	open_paper->calls.maps++;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
	open_paper->calls.unmaps++;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	open_paper->calls.accesses++;
	return CUDA_SUCCESS;
}

static CUresult plain_alloc(CUdeviceptr *address, size_t bytes)
{
	CUresult result = use(bytes);

	if (result != CUDA_SUCCESS) {
		open_paper->calls.failed_allocs++;
		return result;
	}
	open_paper->calls.allocs++;
	result = place(address, bytes);
	if (result == CUDA_SUCCESS && neap_map_put(&open_paper->plain, *address, bytes))
		return CUDA_SUCCESS;
	open_paper->used_bytes -= bytes;
	return CUDA_ERROR_UNKNOWN; /* the host's memory has run out, not the device's */
}

static CUresult plain_free(CUdeviceptr address)
{
	uint64_t bytes = 0;

	if (!neap_map_remove(&open_paper->plain, address, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	open_paper->calls.frees++;
	open_paper->synchronizations++;
	open_paper->used_bytes -= bytes;
	return CUDA_SUCCESS;
}

/* What a CUevent points to. */
struct paper_event {
	uint64_t ready, token;
	bool held;
};

static CUresult event_create(CUevent *event, unsigned int flags)
{
	struct paper_event *made = calloc(1, sizeof *made);

	if (!made)
		return CUDA_ERROR_UNKNOWN;
	*event = (CUevent)(void *)made;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	free((void *)event);
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	struct paper_event *recorded = (struct paper_event *)(void *)event;

	*recorded = (struct paper_event){.ready = open_paper->now + open_paper->event_delay,
					 .token = open_paper->token,
					 .held = open_paper->holding};
	open_paper->events_recorded++;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	const struct paper_event *asked = (const struct paper_event *)(void *)event;

	if (asked->held ? neap_map_get(&open_paper->held, asked->token, NULL) : asked->ready > open_paper->now)
		return CUDA_ERROR_NOT_READY;
	return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent event)
{
	struct paper_event *asked = (struct paper_event *)(void *)event;

	if (event_query(event) == CUDA_ERROR_NOT_READY) {
		open_paper->synchronizations++;
		asked->held = false;
		asked->ready = open_paper->now;
	}
	return CUDA_SUCCESS;
}

/* Streams do no work on paper, so there is nothing to delay. */
static CUresult stream_wait(CUstream stream, CUevent event, unsigned int flags)
{
	open_paper->stream_waits++;
	return CUDA_SUCCESS;
}

#pragma GCC diagnostic pop

static const struct neap_cuda table = {
#define REQUIRED_REFUSED(name) .name = refuse_##name,
#define OPTIONAL_REFUSED(name)
#define X(need, name, symbol, parameters) need##_REFUSED(name)
#include "device/cuda_functions.h"
#undef X
};

static struct neap_cuda make_table(uint64_t page_bytes)
{
	struct neap_cuda cuda = table;

	cuda.cuInit = init;
	cuda.cuDeviceGetCount = count_devices;
	cuda.cuDeviceGet = get_device;
	cuda.cuDeviceGetName = get_name;
	cuda.cuDeviceGetUuid = get_uuid;
	cuda.cuDeviceTotalMem = get_total;
	cuda.cuDeviceGetAttribute = get_attribute;
	cuda.cuDevicePrimaryCtxGetState = get_state;
	cuda.cuDevicePrimaryCtxRetain = retain;
	cuda.cuDevicePrimaryCtxRelease = release;
	cuda.cuCtxGetCurrent = get_current;
	cuda.cuCtxPushCurrent = push;
	cuda.cuCtxPopCurrent = pop;
	cuda.cuCtxSynchronize = synchronize;
	cuda.cuMemGetInfo = get_info;
	cuda.cuMemAlloc = plain_alloc;
	cuda.cuMemFree = plain_free;
	cuda.cuEventCreate = event_create;
	cuda.cuEventDestroy = event_destroy;
	cuda.cuEventRecord = event_record;
	cuda.cuEventQuery = event_query;
	cuda.cuEventSynchronize = event_synchronize;
	cuda.cuStreamWaitEvent = stream_wait;
	if (!page_bytes)
		return cuda;
	cuda.cuMemAddressReserve = reserve;
	cuda.cuMemAddressFree = unreserve;
	cuda.cuMemCreate = create;
	cuda.cuMemRelease = give_back;
	cuda.cuMemMap = map;
	cuda.cuMemUnmap = unmap;
	cuda.cuMemSetAccess = set_access;
	cuda.cuMemGetAllocationGranularity = get_granularity;
	return cuda;
}

enum neap_status neap_paper_open(struct neap_paper *paper, uint64_t room_bytes, uint64_t page_bytes,
				 struct neap_error *err)
{
	struct neap_cuda cuda = make_table(page_bytes);

	if (open_paper)
		return neap_fail(err, NEAP_EBUSY, "a device on paper is open already in this thread");
	*paper = (struct neap_paper){
		.room_bytes = room_bytes, .page_bytes = page_bytes, .next_address = FIRST_ADDRESS};
	open_paper = paper;
	enum neap_status status = neap_driver_wrap(&cuda, NULL, &paper->driver, err);
	if (!status)
		status = neap_device_open(paper->driver, 0, &paper->device, err);
	if (status)
		neap_paper_close(paper);
	return status;
}

void neap_paper_close(struct neap_paper *paper)
{
	if (open_paper != paper)
		return;
	neap_device_close(paper->device);
	neap_driver_close(paper->driver);
	neap_map_fini(&paper->plain);
	neap_map_fini(&paper->held);
	*paper = (struct neap_paper){0};
	open_paper = NULL;
}
