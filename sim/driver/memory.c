/* Address ranges: the virtual-memory half of the driver.
 *
 *   reservation  |-----------------------------------|   host address space, inaccessible
 *   mappings     |  handle 7  |        |  handle 9   |   each a whole handle, file-backed, at offset 0
 *   access            rw                    none
 *
 * A device address is a host address: a handle mapped twice shows the same bytes at both. With backing=none addresses
 * are only numbers, and nothing is mapped.
 *
 * Invariants: reservations are disjoint; mappings are disjoint, each inside one reservation; handle->mappings counts
 * its mappings; reservation->mappings those inside it. A mapping that work in flight touches is never removed: that
 * is the detected error, and it leaves everything in place.
 */
#include "sim/driver/state.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Overlapping ranges are "equal": the tree finds any range that overlaps a given one. */
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

/* -- addresses --------------------------------------------------------------------------------------------------- */

/* The region of device addresses. Linux puts libraries, stacks and allocations above the region. A program that is
 * loaded at low addresses lies below it.
 *
 * Allocations lie side by side from the region's start, each in the lowest free place, as with NVIDIA's driver. The
 * program's own reservations begin above them. Each gets higher addresses than the last, at a distance that detects
 * overruns. Freed addresses are not reused until the end of the region is reached, so that use after free is
 * detected. Then the search restarts at the bottom. */
#define REGION_START   (2ull << 44)
#define RESERVED_START (REGION_START + (1ull << 42))
#define REGION_END     (5ull << 44)
#define GAP            SIM_PAGE_BYTES
/* A reservation fails after this many places that the host already uses. */
#define PLACES_TRIED 64

bool sim_address_ours(uint64_t address) { return address >= REGION_START && address < REGION_END; }

static uint64_t round_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) / alignment * alignment;
}

/* Puts inaccessible pages there, to keep the addresses. False: the host refuses. */
static bool take_host(uint64_t start, uint64_t bytes)
{
#ifdef __SANITIZE_THREAD__ /* has its shadow memory at these addresses */
	if (!sim.spec.no_backing && sim_address_ours(start))
		return false;
#endif
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

/* Returns the first free place at or after `from` with that distance to its neighbours; 0: there is none before the
 * region's end. */
static uint64_t find_place(uint64_t from, uint64_t bytes, uint64_t alignment, uint64_t gap)
{
	const struct sim_range *other;

	for (from = round_up(from, alignment); from <= REGION_END - bytes;
	     from = round_up(other->start + other->bytes + gap, alignment)) {
		other = sim_ranges_find(&sim.reservations, from - gap, bytes + 2 * gap);
		if (!other)
			return from;
	}
	return 0;
}

static uint64_t take_rising(uint64_t bytes, uint64_t alignment)
{
	uint64_t start = sim.next_address ? sim.next_address : RESERVED_START;
	bool again = false;

	if (bytes > REGION_END - REGION_START - alignment)
		return 0;
	for (int i = 0; i < PLACES_TRIED; i++) {
		uint64_t place = find_place(start, bytes, alignment, GAP);

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

static uint64_t take_lowest(uint64_t bytes)
{
	uint64_t from = sim.full_to ? sim.full_to : REGION_START, place;

	if (bytes > REGION_END - REGION_START)
		return 0;
	for (int i = 0; i < PLACES_TRIED && (place = find_place(from, bytes, SIM_PAGE_BYTES, 0)) != 0; i++) {
		if (take_host(place, bytes)) {
			if (place == from)
				sim.full_to = place + bytes;
			return place;
		}
		from = place + (1ull << 30);
	}
	return 0;
}

/* Reserves an address that the host chooses, if the region is not free, as under valgrind. */
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

/* Reserves exactly this address; 0: not possible. */
static uint64_t take_wanted(uint64_t wanted, uint64_t bytes)
{
	if (wanted == 0 || wanted + bytes < wanted || sim_ranges_find(&sim.reservations, wanted, bytes) ||
	    (sim.spec.no_backing && (!sim_address_ours(wanted) || !sim_address_ours(wanted + bytes - 1))))
		return 0;
	return take_host(wanted, bytes) ? wanted : 0;
}

/* Adds a reservation at addresses that the host has granted; `start` 0: the host granted none. */
static CUresult add_reservation(uint64_t start, uint64_t bytes, struct sim_reservation **ret_reservation)
{
	struct sim_reservation *reservation = start ? calloc(1, sizeof *reservation) : NULL;

	if (reservation) {
		reservation->range = (struct sim_range){start, bytes};
		if (sim_ranges_add(&sim.reservations, &reservation->range)) {
			*ret_reservation = reservation;
			return CUDA_SUCCESS;
		}
		free(reservation);
	}
	if (start != 0 && !sim.spec.no_backing)
		munmap(host(start), bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, struct sim_reservation **ret_reservation)
{
	uint64_t start = take_wanted(wanted, bytes);

	if (start == 0)
		start = take_rising(bytes, alignment);
	if (start == 0)
		start = take_anywhere(bytes, alignment);
	return add_reservation(start, bytes, ret_reservation);
}

CUresult sim_reserve_lowest(uint64_t bytes, struct sim_reservation **ret_reservation)
{
	uint64_t start = take_lowest(bytes);

	if (start == 0)
		start = take_anywhere(bytes, SIM_PAGE_BYTES);
	return add_reservation(start, bytes, ret_reservation);
}

void sim_unreserve(struct sim_reservation *reservation)
{
	uint64_t start = reservation->range.start;

	if (!sim.spec.no_backing)
		munmap(host(start), reservation->range.bytes);
	if (start < sim.full_to && sim_address_ours(start))
		sim.full_to = start;
	sim_ranges_remove(&sim.reservations, &reservation->range);
	free(reservation);
}

static int protection(CUmemAccess_flags access)
{
	if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return PROT_READ | PROT_WRITE;
	return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

CUmemAccess_flags sim_map_widest(const struct sim_mapping *mapping)
{
	CUmemAccess_flags widest = CU_MEM_ACCESS_FLAGS_PROT_NONE;

	for (uint32_t i = 0; i < SIM_DEVICE_LIMIT; i++)
		widest |= mapping->access[i];
	return widest;
}

CUresult sim_map(struct sim_reservation *reservation, uint64_t address, struct sim_handle *handle, bool open)
{
	struct sim_mapping *mapping = malloc(sizeof *mapping);

	if (!mapping)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*mapping = (struct sim_mapping){.range = {address, handle->bytes},
					.handle = handle,
					.reservation = reservation,
					.valid_bytes = handle->bytes};
	if (open)
		mapping->access[handle->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (!sim_ranges_add(&sim.mappings, &mapping->range)) {
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!sim.spec.no_backing &&
	    mmap(host(address), handle->bytes, protection(sim_map_widest(mapping)), MAP_SHARED | MAP_FIXED,
		 sim_physical_file(handle), (off_t)handle->file_offset) == MAP_FAILED) {
		sim_ranges_remove(&sim.mappings, &mapping->range);
		free(mapping);
		return CUDA_ERROR_OUT_OF_MEMORY; /* the host's limit on mappings (vm.max_map_count) */
	}
	handle->mappings++;
	reservation->mappings++;
	return CUDA_SUCCESS;
}

bool sim_map_protect(uint64_t start, uint64_t bytes, CUmemAccess_flags access)
{
	return sim.spec.no_backing || mprotect(host(start), bytes, protection(access)) == 0;
}

bool sim_map_cover(const struct sim_mapping *mapping)
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
