/* Host memory that devices reach: pinned (cuMemHostAlloc), registered (cuMemHostRegister) and managed
 * (cuMemAllocManaged). All of it is ordinary pages here and takes no device memory. On a GPU, managed memory moves to
 * the device when used there. Advice and prefetches are stored, for queries. */
#include "sim/driver/state.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST_ALLOC_FLAGS    7u  /* portable, mapped, write-combined */
#define HOST_REGISTER_FLAGS 15u /* portable, mapped, I/O memory, read-only */
#define IO_MEMORY           4u

struct sim_host *sim_host_at(uint64_t address) { return (struct sim_host *)sim_ranges_find(&sim.hosts, address, 1); }

/* Returns the memory of that kind that starts at the address, or NULL. */
static struct sim_host *start_of(uint64_t address, enum sim_host_kind kind)
{
	struct sim_host *memory = sim_host_at(address);

	return memory && memory->range.start == address && memory->kind == kind ? memory : NULL;
}

/* NULL: host out of memory, or the range overlaps another. Lock held. */
static struct sim_host *host_create(uint64_t start, uint64_t bytes, enum sim_host_kind kind, unsigned int flags,
				    CUcontext context)
{
	struct sim_host *memory = malloc(sizeof *memory);

	if (!memory)
		return NULL;
	*memory = (struct sim_host){.range = {start, bytes},
				    .space = ++sim.next_id,
				    .kind = kind,
				    .flags = flags,
				    .context = context,
				    .preferred = {CU_MEM_LOCATION_TYPE_INVALID, SIM_NOWHERE},
				    .fetched = {CU_MEM_LOCATION_TYPE_INVALID, SIM_NOWHERE}};
	if (!sim_ranges_add(&sim.hosts, &memory->range)) {
		free(memory);
		return NULL;
	}
	return memory;
}

/* Lock held. */
static void host_free(struct sim_host *memory)
{
	sim_engine_forget(sim.engine, memory->space);
	sim_ranges_remove(&sim.hosts, &memory->range);
	if (memory->kind != SIM_HOST_REGISTERED)
		munmap((void *)(uintptr_t)memory->range.start, memory->range.bytes);
	free(memory);
}

static CUresult allocate(size_t bytes, enum sim_host_kind kind, unsigned int flags, uint64_t *ret_start)
{
	/* Managed memory may be larger than the host's: only touched pages use memory. */
	int kept = MAP_PRIVATE | MAP_ANONYMOUS | (kind == SIM_HOST_MANAGED ? MAP_NORESERVE : 0);
	struct sim_host *memory = NULL;
	CUcontext context = sim_current_context();
	void *area;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kept, -1, 0);
	if (area == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&sim.lock);
	memory = host_create((uint64_t)(uintptr_t)area, bytes, kind, flags, context);
	pthread_mutex_unlock(&sim.lock);
	if (!memory) {
		munmap(area, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_start = (uint64_t)(uintptr_t)area;
	return CUDA_SUCCESS;
}

/* Waits for all work, as the driver does, then removes the memory. `unknown`: the error to return if no memory of
 * that kind starts there. */
static CUresult take_away(uint64_t start, enum sim_host_kind kind, const char *what, CUresult unknown)
{
	CUresult result = sim_synchronize_all();
	struct sim_host *memory;

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	memory = start_of(start, kind);
	if (!memory)
		result = unknown;
	else if (!sim_flight_clear(what, start, memory->range.bytes))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	else
		host_free(memory);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* -- pinned ------------------------------------------------------------------------------------------------------ */

CUresult sim_cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	CUresult result;
	uint64_t start;

	if (!pointer || bytes == 0 || flags > HOST_ALLOC_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	result = allocate(bytes, SIM_HOST_PINNED, flags, &start);
	if (result == CUDA_SUCCESS)
		*pointer = (void *)(uintptr_t)start;
	return result;
}

CUresult sim_cuMemAllocHost(void **pointer, size_t bytes) { return sim_cuMemHostAlloc(pointer, bytes, 0); }

CUresult sim_cuMemFreeHost(void *pointer)
{
	return take_away((uint64_t)(uintptr_t)pointer, SIM_HOST_PINNED, "cuMemFreeHost", CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_host *memory;

	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	memory = sim_host_at((uint64_t)(uintptr_t)pointer);
	if (memory && memory->kind == SIM_HOST_PINNED) {
		*flags = memory->flags;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Devices use the same addresses as the host. */
CUresult sim_cuMemHostGetDevicePointer(CUdeviceptr *address, void *pointer, unsigned int flags)
{
	const struct sim_host *memory;
	bool known;

	if (!address || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	memory = sim_host_at((uint64_t)(uintptr_t)pointer);
	known = memory && memory->kind != SIM_HOST_MANAGED;
	pthread_mutex_unlock(&sim.lock);
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uint64_t)(uintptr_t)pointer;
	return CUDA_SUCCESS;
}

/* -- registered -------------------------------------------------------------------------------------------------- */

/* Whether this process has mapped the whole range. Freed device memory is not mapped. */
static bool is_mapped(uint64_t start, uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = start / page * page;

	return msync((void *)(uintptr_t)first, start + bytes - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

CUresult sim_cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
	uint64_t start = (uint64_t)(uintptr_t)pointer;
	CUcontext context = sim_current_context();
	CUresult result = CUDA_SUCCESS;

	if (!pointer || bytes == 0 || start + bytes < start || flags > HOST_REGISTER_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & IO_MEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim.lock);
	if (sim_ranges_find(&sim.hosts, start, bytes))
		result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (sim_ranges_find(&sim.reservations, start, bytes) || !is_mapped(start, bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!host_create(start, bytes, SIM_HOST_REGISTERED, flags, context))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemHostUnregister(void *pointer)
{
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	return take_away((uint64_t)(uintptr_t)pointer, SIM_HOST_REGISTERED, "cuMemHostUnregister",
			 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/* -- managed ----------------------------------------------------------------------------------------------------- */

CUresult sim_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	CUresult result;
	uint64_t start;

	if (!address || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	result = allocate(bytes, SIM_HOST_MANAGED, flags, &start);
	if (result == CUDA_SUCCESS)
		*address = start;
	return result;
}

CUresult sim_managed_free(uint64_t start)
{
	return take_away(start, SIM_HOST_MANAGED, "cuMemFree", CUDA_ERROR_INVALID_VALUE);
}

struct doomed {
	CUcontext context;
	struct sim_host *found;
};

static void find_doomed(const void *node, VISIT visit, void *context)
{
	struct sim_host *memory = *(struct sim_host *const *)node;
	struct doomed *doomed = context;

	if ((visit == postorder || visit == leaf) && memory->context == doomed->context &&
	    (!doomed->context->primary || memory->kind == SIM_HOST_MANAGED))
		doomed->found = memory;
}

void sim_host_drop(CUcontext context)
{
	for (;;) {
		struct doomed doomed = {context, NULL};

		twalk_r(sim.hosts.root, find_doomed, &doomed);
		if (!doomed.found)
			return;
		host_free(doomed.found);
	}
}

/* Returns the managed allocation that contains the whole range, or NULL. Lock held. */
static struct sim_host *managed_over(uint64_t start, uint64_t bytes)
{
	struct sim_host *memory = sim_host_at(start);

	if (!memory || memory->kind != SIM_HOST_MANAGED || bytes == 0 ||
	    bytes > memory->range.start + memory->range.bytes - start)
		return NULL;
	return memory;
}

/* Whether the place is a device of this process, or the host. */
static bool place_known(CUmemLocation place)
{
	if (place.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return sim_device_known(place.id);
	return place.type >= CU_MEM_LOCATION_TYPE_HOST && place.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUmemLocation place_of(CUdevice device)
{
	return device == SIM_HOST_ITSELF ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
					 : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,
				   CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_host *memory;
	bool capturing = false;
	uint32_t number;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!place_known(location))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim.lock);
	memory = managed_over(address, bytes);
	if (memory)
		result = sim_stream_enter(stream, &number, &capturing);
	if (result == CUDA_SUCCESS && capturing)
		result = CUDA_ERROR_NOT_SUPPORTED;
	else if (result == CUDA_SUCCESS)
		memory->fetched = location;
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS ? sim_launch(stream, "cuMemPrefetchAsync", 0) : result;
}

CUresult sim_cuMemPrefetchAsync_v1(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
	return sim_cuMemPrefetchAsync_v2(address, bytes, place_of(device), 0, stream);
}

/* Lock held. */
static CUresult advise(struct sim_host *memory, CUmem_advise advice, CUmemLocation location)
{
	uint32_t bit = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << location.id : SIM_ACCESSED_BY_HOST;

	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		memory->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
		return CUDA_SUCCESS;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		memory->preferred = (CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, SIM_NOWHERE};
		return CUDA_SUCCESS;
	default:
		break;
	}
	if (!place_known(location))
		return CUDA_ERROR_INVALID_DEVICE;
	if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
		memory->preferred = location;
	else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY)
		memory->accessed_by |= bit;
	else if (advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		memory->accessed_by &= ~bit;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Advice on a part of an allocation applies to the whole. */
CUresult sim_cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_host *memory;

	pthread_mutex_lock(&sim.lock);
	memory = managed_over(address, bytes);
	if (memory)
		result = advise(memory, advice, location);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemAdvise_v1(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
	return sim_cuMemAdvise_v2(address, bytes, advice, place_of(device));
}

/* The older attributes name the host by a number. */
static int number_of(CUmemLocation place)
{
	if (place.type == CU_MEM_LOCATION_TYPE_INVALID)
		return SIM_NOWHERE;
	return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : SIM_HOST_ITSELF;
}

/* Fills the array with the devices that access it, and the rest with "nowhere". Lock held. */
static void list_accessors(const struct sim_host *memory, int *list, size_t capacity)
{
	size_t count = 0;

	if (memory->accessed_by & SIM_ACCESSED_BY_HOST && count < capacity)
		list[count++] = SIM_HOST_ITSELF;
	for (int i = 0; i < SIM_DEVICE_LIMIT && count < capacity; i++)
		if (memory->accessed_by & (1u << i))
			list[count++] = i;
	while (count < capacity)
		list[count++] = SIM_NOWHERE;
}

CUresult sim_cuMemRangeGetAttribute(void *data, size_t data_bytes, CUmem_range_attribute attribute,
				    CUdeviceptr address, size_t bytes)
{
	const struct sim_host *memory;
	bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
	CUresult result = CUDA_SUCCESS;

	if (!data || data_bytes < sizeof(int) || data_bytes % sizeof(int) != 0 ||
	    (!list && data_bytes != sizeof(int)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	memory = managed_over(address, bytes);
	if (!memory || attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
	    attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (list) {
		list_accessors(memory, data, data_bytes / sizeof(int));
	} else {
		const int values[] = {
			[CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY] = memory->read_mostly,
			[CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION] = number_of(memory->preferred),
			[CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION] = number_of(memory->fetched),
			[CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE] = memory->preferred.type,
			[CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID] = memory->preferred.id,
			[CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE] = memory->fetched.type,
			[CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID] = memory->fetched.id,
		};

		memcpy(data, &values[attribute], sizeof(int));
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Here the call has no effect: the host may use managed memory at any time. */
CUresult sim_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct sim_host *memory;
	bool capturing = false;
	uint32_t number;

	pthread_mutex_lock(&sim.lock);
	memory = sim_host_at(address);
	if (memory && memory->kind == SIM_HOST_MANAGED && memory->range.start == address &&
	    (bytes == 0 || bytes == memory->range.bytes) && flags >= CU_MEM_ATTACH_GLOBAL &&
	    flags <= CU_MEM_ATTACH_SINGLE && flags != 3 &&
	    !(flags == CU_MEM_ATTACH_SINGLE && sim_null_stream(stream)))
		result = sim_stream_enter(stream, &number, &capturing);
	pthread_mutex_unlock(&sim.lock);
	return result == CUDA_SUCCESS && capturing ? CUDA_ERROR_NOT_SUPPORTED : result;
}
