/* Device memory: the virtual-memory calls, allocations, accounting, misuse. */
#include "sim_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void starts_with_a_context_and_its_cost(void **state)
{
	struct sim_view view;
	size_t free_bytes, total;

	(void)state;
	sim_begin("context", "mem=256MiB,context=10MiB,reserved=6MiB");
	assert_ok(t.cuda.cuMemGetInfo(&free_bytes, &total));
	assert_int_equal(total, 250 * MIB);
	assert_int_equal(free_bytes, 240 * MIB);
	sim_read(&view);
	assert_true(view.exists);
	assert_int_equal(view.process_count, 1);
	assert_int_equal(view.processes[0].context_bytes[0], 10 * MIB);
	assert_int_equal(view.devices[0].used_bytes, 10 * MIB);
	sim_end();
}

static void one_handle_at_two_addresses_is_one_memory(void **state)
{
	(void)state;
	sim_begin("alias", "mem=256MiB");
	CUmemGenericAllocationHandle handle = sim_make(2 * PAGE);
	CUdeviceptr range = sim_reserve_range(8 * PAGE);
	sim_map_at(range, 2 * PAGE, handle);
	sim_map_at(range + 4 * PAGE, 2 * PAGE, handle);

	uint64_t before = sim_free_bytes();
	unsigned char *one = (unsigned char *)(uintptr_t)range, *other = one + 4 * PAGE;
	one[12345] = 0x5a;
	other[3 * PAGE / 2] = 0xa5;
	assert_int_equal(other[12345], 0x5a);
	assert_int_equal(one[3 * PAGE / 2], 0xa5);
	assert_int_equal(other[0], 0);

	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_int_equal(other[12345], 0x5a);
	assert_ok(t.cuda.cuMemRelease(handle)); /* still mapped once: the memory stays */
	assert_int_equal(other[12345], 0x5a);
	assert_int_equal(sim_free_bytes(), before);
	assert_ok(t.cuda.cuMemUnmap(range + 4 * PAGE, 2 * PAGE));
	assert_int_equal(sim_free_bytes(), before + 2 * PAGE);
	assert_ok(t.cuda.cuMemAddressFree(range, 8 * PAGE));
	sim_end();
}

static void misuse_of_virtual_memory_is_refused(void **state)
{
	CUdeviceptr other;
	CUmemGenericAllocationHandle made;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	(void)state;
	sim_begin("misuse", "mem=256MiB");
	assert_answer(t.cuda.cuMemAddressReserve(&other, PAGE + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAddressReserve(&other, PAGE, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAddressReserve(&other, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemCreate(&made, PAGE / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemCreate(&made, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemCreate(&made, 512 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	prop.location.id = 1;
	assert_answer(t.cuda.cuMemCreate(&made, PAGE, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
	prop.location.id = 0;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	assert_answer(t.cuda.cuMemCreate(&made, PAGE, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);

	CUmemGenericAllocationHandle handle = sim_make(2 * PAGE);
	CUdeviceptr range = sim_reserve_range(4 * PAGE);
	assert_answer(t.cuda.cuMemMap(range, PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemMap(range, 2 * PAGE, PAGE, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemMap(range + 512, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemMap(range + 3 * PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemMap(range, 2 * PAGE, 0, handle + 77, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemUnmap(range, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemMap(range, 2 * PAGE, 0, handle, 0));
	assert_answer(t.cuda.cuMemMap(range + PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemUnmap(range, PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_answer(sim_access(range, PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
	assert_answer(sim_access(range, 3 * PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
	assert_answer(sim_access(range, 2 * PAGE, 2), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAddressFree(range, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_answer(t.cuda.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemMap(range + 2 * PAGE, 2 * PAGE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_answer(t.cuda.cuMemUnmap(range, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAddressFree(range, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemAddressFree(range, 4 * PAGE));
	assert_answer(t.cuda.cuMemAddressFree(range, 4 * PAGE), CUDA_ERROR_INVALID_VALUE);
	sim_end();
}

/* A handle retained by its address is the same one, and is held once more. */
static void handles_are_found_by_their_addresses(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
			    seen;
	CUmemGenericAllocationHandle handle, again;
	unsigned long long flags = 77, types = 0;
	CUdeviceptr address, start;
	size_t bytes;
	int mapped = -1;

	(void)state;
	sim_begin("retain", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	assert_ok(t.cuda.cuMemCreate(&handle, 2 * PAGE, &prop, 0));
	CUdeviceptr range = sim_reserve_range(8 * PAGE);
	assert_ok(t.cuda.cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, range));
	assert_int_equal(mapped, 0);
	sim_map_at(range + 2 * PAGE, 2 * PAGE, handle);
	assert_ok(t.cuda.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 3 * PAGE)));
	assert_int_equal(again, handle);
	assert_answer(t.cuda.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)range), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemGetAllocationPropertiesFromHandle(&seen, handle));
	assert_int_equal(seen.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	assert_int_equal(seen.location.id, 0);
	assert_ok(t.cuda.cuMemGetAccess(&flags, &prop.location, range + 2 * PAGE));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_answer(t.cuda.cuMemGetAccess(&flags, &prop.location, range), CUDA_ERROR_INVALID_VALUE);
	/* The whole reservation, and the mapping. */
	assert_ok(t.cuda.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + 3 * PAGE));
	assert_int_equal(start, range);
	assert_ok(t.cuda.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, range + 3 * PAGE));
	assert_int_equal(start, range + 2 * PAGE);
	assert_ok(t.cuda.cuMemGetAddressRange(&address, &bytes, range + 3 * PAGE));
	assert_int_equal(address, range + 2 * PAGE);
	assert_int_equal(bytes, 2 * PAGE);
	assert_ok(t.cuda.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, range + 2 * PAGE));
	assert_int_equal(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	assert_ok(t.cuda.cuMemUnmap(range + 2 * PAGE, 2 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_int_equal(sim_free_bytes(), before - 2 * PAGE); /* held once more */
	sim_map_at(range, 2 * PAGE, handle);
	assert_ok(t.cuda.cuMemUnmap(range, 2 * PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_int_equal(sim_free_bytes(), before);
	assert_answer(t.cuda.cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemAddressFree(range, 8 * PAGE));
	sim_end();
}

static void allocations_count_and_are_described(void **state)
{
	CUdeviceptr address = 0, base = 0;
	size_t bytes = 0;
	unsigned int type = 0;
	int ordinal = -1;

	(void)state;
	sim_begin("alloc", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	assert_answer(t.cuda.cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemAlloc(&address, 1ull << 40), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(t.cuda.cuMemAlloc(&address, PAGE + 1000));
	assert_int_equal(sim_free_bytes(), before - 2 * PAGE);
	assert_ok(t.cuda.cuMemGetAddressRange(&base, &bytes, address + 5));
	assert_int_equal(base, address);
	assert_int_equal(bytes, PAGE + 1000);
	assert_ok(t.cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_ok(t.cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
	assert_int_equal(ordinal, 0);
	assert_answer(
		t.cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
		CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemUnmap(address, 2 * PAGE), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemFree(address + 512), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(address));
	assert_answer(t.cuda.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(0));
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

static void copies_and_sets_move_bytes(void **state)
{
	unsigned char there[3000], back[3000];
	CUdeviceptr a, b;
	size_t i;

	(void)state;
	sim_begin("copies", "mem=256MiB");
	for (i = 0; i < sizeof there; i++)
		there[i] = (unsigned char)(i * 7);
	assert_ok(t.cuda.cuMemAlloc(&a, sizeof there));
	assert_ok(t.cuda.cuMemAlloc(&b, sizeof there));
	assert_ok(t.cuda.cuMemcpyHtoD(a, there, sizeof there));
	assert_ok(t.cuda.cuMemcpyDtoD(b, a, sizeof there));
	assert_ok(t.cuda.cuMemsetD8(b + 10, 0xee, 5));
	assert_ok(t.cuda.cuMemsetD32(b + 100, 0x01020304, 2));
	assert_ok(t.cuda.cuMemcpyDtoH(back, b, sizeof back));
	memset(there + 10, 0xee, 5);
	memcpy(there + 100, "\x04\x03\x02\x01\x04\x03\x02\x01", 8);
	assert_memory_equal(there, back, sizeof back);
	assert_answer(t.cuda.cuMemsetD32(b + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.cuda.cuMemcpyDtoH(back, 4096, 16), CUDA_ERROR_INVALID_VALUE);
	assert_ok(t.cuda.cuMemFree(a));
	assert_ok(t.cuda.cuMemFree(b));
	sim_end();
}

/* Without bytes memory reads as zeros; order and misuse are still checked. */
static void without_backing_there_are_addresses_only(void **state)
{
	struct neap_sim_kernel kernel = {.name = "computes", .function = free};
	unsigned char bytes[4096], *pinned;
	CUdeviceptr address = 0, other;
	CUstream stream, second;

	(void)state;
	sim_begin("numbers", "h200-141gb,backing=none");
	assert_ok(t.cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	assert_ok(t.cuda.cuMemAlloc(&address, 100ull << 30));
	assert_ok(t.cuda.cuMemAlloc(&other, 10ull << 30));
	memset(bytes, 0x5a, sizeof bytes);
	assert_ok(t.cuda.cuMemcpyHtoD(address, bytes, sizeof bytes));
	assert_ok(t.cuda.cuMemsetD8(address, 1, 100ull << 30));
	assert_ok(t.cuda.cuMemcpyDtoD(other, address, 10ull << 30));
	assert_ok(t.cuda.cuMemcpyDtoH(bytes, address, sizeof bytes));
	for (size_t i = 0; i < sizeof bytes; i++)
		assert_int_equal(bytes[i], 0);
	assert_ok(t.cuda.cuMemHostAlloc((void **)&pinned, sizeof bytes, 0));
	assert_ok(t.cuda.cuMemsetD8((CUdeviceptr)(uintptr_t)pinned, 3, sizeof bytes)); /* it has bytes */
	assert_ok(t.cuda.cuMemcpy((CUdeviceptr)(uintptr_t)bytes, (CUdeviceptr)(uintptr_t)pinned, sizeof bytes));
	assert_int_equal(bytes[77], 3);
	assert_answer(t.cuda.cuMemcpyDtoH(bytes, other + (10ull << 30), 1), CUDA_ERROR_INVALID_VALUE);
	assert_answer(t.sim->launch(stream, &kernel), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(sim_kernel(stream, "touch", address, 1 << 20, 1));
	assert_answer(t.cuda.cuMemsetD8Async(address, 1, 1, second), CUDA_ERROR_ILLEGAL_ADDRESS); /* a race */
	t.sim->forgive();
	assert_ok(t.cuda.cuStreamSynchronize(stream));
	assert_ok(t.cuda.cuMemFreeHost(pinned));
	assert_ok(t.cuda.cuMemFree(address));
	assert_ok(t.cuda.cuMemFree(other));
	CUmemGenericAllocationHandle handle = sim_make(PAGE);
	CUdeviceptr range = sim_reserve_range(2 * PAGE);
	sim_map_at(range, PAGE, handle);
	assert_ok(t.cuda.cuMemUnmap(range, PAGE));
	assert_ok(t.cuda.cuMemRelease(handle));
	assert_ok(t.cuda.cuMemAddressFree(range, 2 * PAGE));
	assert_ok(t.cuda.cuStreamDestroy(stream));
	assert_ok(t.cuda.cuStreamDestroy(second));
	sim_end();
}

#ifndef __SANITIZE_THREAD__ /* the sanitizer's own books are where these addresses rise */
/* NVIDIA's driver leaves no gaps either, and takes the lowest free place. */
static void allocations_lie_side_by_side(void **state)
{
	static const char *const backings[] = {"mem=256MiB", "mem=256MiB,backing=none"};
	CUdeviceptr addresses[6];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		sim_begin("beside", backings[i]);
		for (size_t k = 0; k < 6; k++)
			assert_ok(t.cuda.cuMemAlloc(&addresses[k], 2 * PAGE - 1000));
		for (size_t k = 1; k < 6; k++)
			assert_int_equal(addresses[k], addresses[0] + 2 * k * PAGE);
		assert_ok(t.cuda.cuMemFree(addresses[3]));
		assert_ok(t.cuda.cuMemFree(addresses[1]));
		assert_ok(t.cuda.cuMemAlloc(&addresses[1], PAGE));
		assert_int_equal(addresses[1], addresses[0] + 2 * PAGE);
		assert_ok(t.cuda.cuMemAlloc(&addresses[3], 2 * PAGE)); /* does not fit beside it */
		assert_int_equal(addresses[3], addresses[0] + 6 * PAGE);
		for (size_t k = 0; k < 6; k++)
			assert_ok(t.cuda.cuMemFree(addresses[k]));
		sim_end();
	}
}

static void addresses_rise(void **state)
{
	static const char *const backings[] = {"mem=256MiB", "mem=256MiB,backing=none"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		CUdeviceptr address, last = 0, wanted;

		sim_begin("rising", backings[i]);
		for (int k = 0; k < 40; k++) {
			address = sim_reserve_range(8 * PAGE);
			assert_ok(
				t.cuda.cuMemAddressFree(address, 8 * PAGE)); /* and is not given out again at once */
			assert_int_equal(address % PAGE, 0);
			assert_true(address > last);
			last = address;
		}
		assert_ok(t.cuda.cuMemAddressReserve(&wanted, PAGE, 0, last + 100 * PAGE, 0));
		assert_int_equal(wanted, last + 100 * PAGE);
		assert_ok(t.cuda.cuMemAddressReserve(&address, 2 * PAGE, 0, wanted, 0)); /* taken: elsewhere */
		assert_true(address != wanted);
		assert_ok(t.cuda.cuMemAddressFree(address, 2 * PAGE));
		assert_ok(t.cuda.cuMemAddressFree(wanted, PAGE));
		sim_end();
	}
}

/* At the region's end addresses restart at the bottom, and skip those in use. */
static void addresses_start_over(void **state)
{
	CUdeviceptr kept, address, first = 0, last = 0;
	int fell = 0;

	(void)state;
	sim_begin("around", "mem=256MiB,backing=none");
	assert_ok(t.cuda.cuMemAlloc(&kept, PAGE));
	for (int k = 0; k < 12; k++) {
		address = sim_reserve_range(8ull << 40);
		fell += address < last;
		last = address;
		first = first ? first : address;
		assert_true(kept + PAGE <= address || address + (8ull << 40) <= kept);
		assert_ok(t.cuda.cuMemAddressFree(address, 8ull << 40));
	}
	assert_true(fell > 0);
	assert_ok(t.cuda.cuMemFree(kept));
	sim_end();
}
#endif

static void a_device_without_virtual_memory_says_so(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int value = 1;

	(void)state;
	sim_begin("novmm", "mem=256MiB,vmm=off");
	assert_ok(t.cuda.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	assert_int_equal(value, 0);
	assert_answer(t.cuda.cuMemCreate(&handle, PAGE, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_answer(t.cuda.cuMemAddressReserve(&address, PAGE, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(t.cuda.cuMemAlloc(&address, 5));
	assert_ok(t.cuda.cuMemFree(address));
	sim_end();
}

/* -- random operations against books of our own ------------------------------------------------------------------ */

#define SLOTS   24
#define HANDLES 24

struct books {
	CUdeviceptr range;
	int mapped[SLOTS];                             /* handle at this slot of the range; -1: none */
	CUmemGenericAllocationHandle handles[HANDLES]; /* 0: none */
	int released[HANDLES], maps[HANDLES];
	uint64_t charged;
};

static void settle(struct books *books, int handle)
{
	if (books->released[handle] && books->maps[handle] == 0) {
		books->handles[handle] = 0;
		books->charged -= PAGE;
	}
}

static void random_step(struct books *books, unsigned int *seed)
{
	int handle = rand_r(seed) % HANDLES, slot = rand_r(seed) % SLOTS;
	CUdeviceptr address = books->range + (uint64_t)slot * PAGE;
	int usable = books->handles[handle] != 0 && !books->released[handle];
	CUmemGenericAllocationHandle name = books->handles[handle];

	switch (rand_r(seed) % 5) {
	case 0:
		if (books->handles[handle] == 0) {
			books->handles[handle] = sim_make(PAGE);
			books->released[handle] = books->maps[handle] = 0;
			books->charged += PAGE;
		}
		return;
	case 1:
		if (name)
			assert_answer(t.cuda.cuMemRelease(name), usable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
		if (usable) {
			books->released[handle] = 1;
			settle(books, handle);
		}
		return;
	case 2:
	case 3:
		if (!usable || books->mapped[slot] >= 0) {
			assert_answer(t.cuda.cuMemMap(address, PAGE, 0, name, 0), CUDA_ERROR_INVALID_VALUE);
			return;
		}
		sim_map_at(address, PAGE, name);
		((volatile uint64_t *)(uintptr_t)address)[handle + 1] = name;
		books->mapped[slot] = handle;
		books->maps[handle]++;
		return;
	default:
		if (books->mapped[slot] < 0) {
			assert_answer(t.cuda.cuMemUnmap(address, PAGE), CUDA_ERROR_INVALID_VALUE);
			return;
		}
		handle = books->mapped[slot];
		assert_int_equal(((volatile uint64_t *)(uintptr_t)address)[handle + 1], books->handles[handle]);
		assert_ok(t.cuda.cuMemUnmap(address, PAGE));
		books->mapped[slot] = -1;
		books->maps[handle]--;
		settle(books, handle);
	}
}

static void random_operations_match_the_books(void **state)
{
	unsigned int seed =
		getenv("NEAP_TEST_SEED") ? (unsigned int)atoi(getenv("NEAP_TEST_SEED")) : (unsigned int)time(NULL);
	struct books books = {0};
	int i;

	(void)state;
	print_message("NEAP_TEST_SEED=%u\n", seed);
	sim_begin("random", "mem=256MiB");
	uint64_t before = sim_free_bytes();
	books.range = sim_reserve_range(SLOTS * PAGE);
	for (i = 0; i < SLOTS; i++)
		books.mapped[i] = -1;
	for (i = 0; i < 4000; i++) {
		random_step(&books, &seed);
		assert_int_equal(sim_free_bytes(), before - books.charged);
	}
	for (i = 0; i < SLOTS; i++)
		if (books.mapped[i] >= 0)
			assert_ok(t.cuda.cuMemUnmap(books.range + (uint64_t)i * PAGE, PAGE));
	for (i = 0; i < HANDLES; i++)
		if (books.handles[i] && !books.released[i])
			assert_ok(t.cuda.cuMemRelease(books.handles[i]));
	assert_ok(t.cuda.cuMemAddressFree(books.range, SLOTS * PAGE));
	assert_int_equal(sim_free_bytes(), before);
	sim_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(starts_with_a_context_and_its_cost),
		cmocka_unit_test(one_handle_at_two_addresses_is_one_memory),
		cmocka_unit_test(misuse_of_virtual_memory_is_refused),
		cmocka_unit_test(handles_are_found_by_their_addresses),
		cmocka_unit_test(allocations_count_and_are_described),
		cmocka_unit_test(copies_and_sets_move_bytes),
		cmocka_unit_test(without_backing_there_are_addresses_only),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(allocations_lie_side_by_side),
		cmocka_unit_test(addresses_rise),
		cmocka_unit_test(addresses_start_over),
#endif
		cmocka_unit_test(a_device_without_virtual_memory_says_so),
		cmocka_unit_test(random_operations_match_the_books),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
