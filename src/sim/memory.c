/* Address ranges: the virtual-memory half of the driver.
 *
 *   reservation  |-----------------------------------|   host address space, inaccessible
 *   mappings     |  handle 7  |        |  handle 9   |   each a whole handle, file-backed, at offset 0
 *   access            rw                    none
 *
 * A device address is a host address: mapping one handle twice shows the same bytes at both. With backing=none the
 * addresses are numbers, and nothing is mapped.
 *
 * Invariants: reservations are disjoint; mappings are disjoint, each inside one reservation; handle->mappings counts
 * its mappings; reservation->mappings those inside it. A mapping that work in flight touches is never taken away:
 * that is the detected error, and it leaves everything in place.
 */
#include "sim/state.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Overlapping ranges are "equal": the tree finds whatever lies over a given range. */
static int compare(const void *left, const void *right)
{
	const struct sim_range *a = left, *b = right;

	if (a->start + a->bytes <= b->start)
		return -1;
	return b->start + b->bytes <= a->start;
}

struct sim_range *sim_ranges_find(const struct sim_ranges *ranges, uint64_t start, uint64_t bytes)
{
	struct sim_range wanted = {start, bytes};
	void *found;

	if (bytes == 0 || start + bytes < start)
		return NULL;
	found = tfind(&wanted, &ranges->root, compare);
	return found ? *(struct sim_range **)found : NULL;
}

bool sim_ranges_add(struct sim_ranges *ranges, struct sim_range *range)
{
	void *node = tsearch(range, &ranges->root, compare);

	return node && *(struct sim_range **)node == range;
}

void sim_ranges_remove(struct sim_ranges *ranges, struct sim_range *range)
{
	(void)tdelete(range, &ranges->root, compare);
}

static void *host(uint64_t address) { return (void *)(uintptr_t)address; }

/* -- addresses -----------------------------------------------------------------------------------------------------
 */

/* Where device memory has its addresses: below those that Linux gives to libraries, stacks and allocations, above
 * those of a program that is loaded low. They rise from one reservation to the next; what was freed is not given out
 * again until the region's end was reached, so that use after free is seen. Then it starts over at the bottom. */
#define REGION_START (2ull << 44)
#define REGION_END   (5ull << 44)
/* Between two reservations: running over an end is seen. */
#define GAP SIM_PAGE_BYTES
/* How many places that the host occupies itself are passed over. */
#define PLACES_TRIED 64

bool sim_address_ours(uint64_t address) { return address >= REGION_START && address < REGION_END; }

static uint64_t round_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) / alignment * alignment;
}

/* True when the host has put inaccessible pages there. */
static bool take_host(uint64_t start, uint64_t bytes)
{
	void *area;

	if (sim.spec.no_backing)
		return true;
	area = mmap(host(start), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
		    -1, 0);
	if (area == host(start))
		return true;
	if (area != MAP_FAILED)
		munmap(area, bytes); /* a kernel that does not know MAP_FIXED_NOREPLACE */
	return false;
}

/* The first place at or after `from` that no reservation takes; 0: none before the region's end. */
static uint64_t find_place(uint64_t from, uint64_t bytes, uint64_t alignment)
{
	const struct sim_range *other;

	for (from = round_up(from, alignment); from <= REGION_END - bytes;
	     from = round_up(other->start + other->bytes + GAP, alignment)) {
		other = sim_ranges_find(&sim.reservations, from - GAP, bytes + 2 * GAP);
		if (!other)
			return from;
	}
	return 0;
}

static uint64_t take_rising(uint64_t bytes, uint64_t alignment)
{
	uint64_t start = sim.next_address ? sim.next_address : REGION_START;
	bool again = false;

	if (bytes > REGION_END - REGION_START - alignment)
		return 0;
	for (int i = 0; i < PLACES_TRIED; i++) {
		uint64_t place = find_place(start, bytes, alignment);

		if (place == 0 && again)
			return 0;
		if (place == 0) {
			again = true;
			start = REGION_START;
		} else if (take_host(place, bytes)) {
			sim.next_address = place + bytes + GAP;
			return place;
		} else {
			start = place + (1ull << 30);
		}
	}
	return 0;
}

/* Where the host chooses: its region has no room for us, as under valgrind. */
static uint64_t take_anywhere(uint64_t bytes, uint64_t alignment)
{
	uint64_t whole = bytes + alignment, start, end;
	char *area;

	if (sim.spec.no_backing)
		return 0;
	area = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return 0;
	start = round_up((uint64_t)(uintptr_t)area, alignment);
	end = (uint64_t)(uintptr_t)area + whole;
	if (start > (uint64_t)(uintptr_t)area)
		munmap(area, start - (uint64_t)(uintptr_t)area);
	if (end > start + bytes)
		munmap(host(start + bytes), end - start - bytes);
	return start;
}

/* Exactly there, if that is possible. */
static uint64_t take_wanted(uint64_t wanted, uint64_t bytes)
{
	if (wanted == 0 || wanted + bytes < wanted || sim_ranges_find(&sim.reservations, wanted, bytes) ||
	    (sim.spec.no_backing && (!sim_address_ours(wanted) || !sim_address_ours(wanted + bytes - 1))))
		return 0;
	return take_host(wanted, bytes) ? wanted : 0;
}

CUresult sim_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, struct sim_reservation **ret_reservation)
{
	struct sim_reservation *reservation = calloc(1, sizeof(*reservation));
	uint64_t start;

	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	start = take_wanted(wanted, bytes);
	if (start == 0)
		start = take_rising(bytes, alignment);
	if (start == 0)
		start = take_anywhere(bytes, alignment);
	reservation->range = (struct sim_range){start, bytes};
	if (start == 0 || !sim_ranges_add(&sim.reservations, &reservation->range)) {
		if (start != 0 && !sim.spec.no_backing)
			munmap(host(start), bytes);
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_reservation = reservation;
	return CUDA_SUCCESS;
}

void sim_unreserve(struct sim_reservation *reservation)
{
	if (!sim.spec.no_backing)
		munmap(host(reservation->range.start), reservation->range.bytes);
	sim_ranges_remove(&sim.reservations, &reservation->range);
	free(reservation);
}

static int protection(CUmemAccess_flags access)
{
	if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return PROT_READ | PROT_WRITE;
	return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

CUresult sim_map(struct sim_reservation *reservation, uint64_t address, struct sim_handle *handle,
		 CUmemAccess_flags access)
{
	struct sim_mapping *mapping = malloc(sizeof(*mapping));

	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*mapping = (struct sim_mapping){.range = {address, handle->bytes},
					.handle = handle,
					.reservation = reservation,
					.valid_bytes = handle->bytes,
					.access = access};
	if (!sim_ranges_add(&sim.mappings, &mapping->range)) {
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!sim.spec.no_backing && mmap(host(address), handle->bytes, protection(access), MAP_SHARED | MAP_FIXED,
					 sim_physical_file(), (off_t)handle->file_offset) == MAP_FAILED) {
		sim_ranges_remove(&sim.mappings, &mapping->range);
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY; /* the host's limit on mappings (vm.max_map_count) */
	}
	handle->mappings++;
	reservation->mappings++;
	return CUDA_SUCCESS;
}

/* Puts inaccessible pages back; true when the host let us. */
static bool cover(const struct sim_mapping *mapping)
{
	return sim.spec.no_backing ||
	       mmap(host(mapping->range.start), mapping->range.bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void sim_unmap(struct sim_mapping *mapping)
{
	struct sim_handle *handle = mapping->handle;

	mapping->reservation->mappings--;
	sim_ranges_remove(&sim.mappings, &mapping->range);
	free(mapping);
	handle->mappings--;
	sim_physical_settle(handle);
}

struct sim_mapping *sim_mapping_at(uint64_t address)
{
	return (struct sim_mapping *)sim_ranges_find(&sim.mappings, address, 1);
}

/* -- the calls -------------------------------------------------------------------------------------------------- */

static bool page_aligned(uint64_t value) { return value % SIM_PAGE_BYTES == 0; }

/* A location that names a device of ours. */
static bool location_known(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       (uint32_t)location->id < sim.device_count;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
				 unsigned long long flags)
{
	struct sim_reservation *reservation;
	CUresult result;

	if (sim.spec.no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!address || bytes == 0 || !page_aligned(bytes) || (alignment & (alignment - 1)) != 0 || flags != 0 ||
	    bytes > SIM_MEMORY_LIMIT || alignment > SIM_MEMORY_LIMIT)
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SIM_PAGE_BYTES)
		alignment = SIM_PAGE_BYTES;
	pthread_mutex_lock(&sim.lock);
	result = sim_reserve(bytes, alignment, wanted % alignment == 0 ? wanted : 0, &reservation);
	if (result == CUDA_SUCCESS)
		*address = reservation->range.start;
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	struct sim_reservation *reservation;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (reservation && reservation->kind == SIM_RESERVED && reservation->range.start == address &&
	    reservation->range.bytes == bytes && reservation->mappings == 0) {
		sim_unreserve(reservation);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	if (sim.spec.no_vmm)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!location_known(&properties->location))
		return CUDA_ERROR_INVALID_DEVICE;
	if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE || properties->allocFlags.compressionType)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
					   CUmemAllocationGranularity_flags option)
{
	CUresult result = check_properties(properties);

	if (result != CUDA_SUCCESS)
		return result;
	if (!bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = SIM_PAGE_BYTES;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
			 unsigned long long flags)
{
	CUresult result = check_properties(properties);
	struct sim_handle *made;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || bytes == 0 || !page_aligned(bytes) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = sim_physical_create((uint32_t)properties->location.id, bytes, &made);
	if (result == CUDA_SUCCESS) {
		made->exported = true;
		*handle = made->id;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* The program's handle, while it holds it. */
static struct sim_handle *held_handle(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle = sim_physical_find(id);

	return handle && handle->exported && !handle->released ? handle : NULL;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle id)
{
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim.lock);
	handle = held_handle(id);
	if (handle) {
		handle->released = true;
		sim_physical_settle(handle);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

CUresult sim_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
		      unsigned long long flags)
{
	struct sim_reservation *reservation;
	struct sim_handle *handle;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	if (bytes == 0 || !page_aligned(address) || offset != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	handle = held_handle(id);
	reservation = (struct sim_reservation *)sim_ranges_find(&sim.reservations, address, 1);
	if (handle && bytes == handle->bytes && reservation && reservation->kind == SIM_RESERVED &&
	    bytes <= reservation->range.start + reservation->range.bytes - address &&
	    !sim_ranges_find(&sim.mappings, address, bytes))
		result = sim_map(reservation, address, handle, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* True when whole mappings of cuMemMap, one after another, fill the range exactly. */
static bool wholly_mapped(uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes;

	if (bytes == 0 || end < address)
		return false;
	while (address < end) {
		const struct sim_mapping *mapping = sim_mapping_at(address);

		if (!mapping || mapping->range.start != address || mapping->reservation->kind != SIM_RESERVED)
			return false;
		address += mapping->range.bytes;
	}
	return address == end;
}

CUresult sim_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t at, end = address + bytes;

	pthread_mutex_lock(&sim.lock);
	if (!wholly_mapped(address, bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!sim_flight_clear("cuMemUnmap", address, bytes))
		result = CUDA_ERROR_ILLEGAL_ADDRESS;
	for (at = address; result == CUDA_SUCCESS && at < end;) {
		struct sim_mapping *mapping = sim_mapping_at(at);

		at += mapping->range.bytes;
		if (!cover(mapping))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else
			sim_unmap(mapping);
	}
	pthread_mutex_unlock(&sim.lock);
	return result;
}

/* Lock held; the range is wholly mapped. */
static CUresult set_access(uint64_t address, uint64_t bytes, CUmemAccess_flags flags)
{
	uint64_t at, end = address + bytes;

	for (at = address; at < end;) {
		const struct sim_mapping *mapping = sim_mapping_at(at);

		if ((flags & mapping->access) != mapping->access &&
		    !sim_flight_clear("cuMemSetAccess", at, mapping->range.bytes))
			return CUDA_ERROR_ILLEGAL_ADDRESS;
		at += mapping->range.bytes;
	}
	if (!sim.spec.no_backing && mprotect(host(address), bytes, protection(flags)) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (at = address; at < end;) {
		struct sim_mapping *mapping = sim_mapping_at(at);

		mapping->access = flags;
		at += mapping->range.bytes;
	}
	return CUDA_SUCCESS;
}

/* Access for another device than the memory's own (peer access) is not simulated. */
static CUresult check_access(uint64_t address, const CUmemAccessDesc *access, size_t count)
{
	size_t i;

	if (!wholly_mapped(address, sim_mapping_at(address) ? sim_mapping_at(address)->range.bytes : 0))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		if (!location_known(&access[i].location) || (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
							     access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
							     access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			return CUDA_ERROR_INVALID_VALUE;
		if ((uint32_t)access[i].location.id != sim_mapping_at(address)->handle->device)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	CUresult result;
	uint64_t at;

	if (!access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim.lock);
	result = wholly_mapped(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (at = address; result == CUDA_SUCCESS && at < address + bytes; at += sim_mapping_at(at)->range.bytes)
		result = check_access(at, access, count);
	if (result == CUDA_SUCCESS)
		result = set_access(address, bytes, access[count - 1].flags);
	pthread_mutex_unlock(&sim.lock);
	return result;
}
