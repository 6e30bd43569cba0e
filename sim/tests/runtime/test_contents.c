/* Contents of device memory against a shadow array, under random writes, sets, moves and forgets. The seed is
 * printed; NEAP_SEED repeats a run. */
#include "base/units.h"
#include "sim/runtime/runtime.h"
#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

/* Stand-ins for contents.c: no gates, a device with or without bytes, and with or without a shared part. */
static bool keeps = true;
static uint64_t gate_address;
static uint64_t shared_start, shared_bytes;

bool runtime_keeps_bytes(void) { return keeps; }
void gate_open_range(uint64_t address, size_t bytes)
{
	(void)bytes;
	gate_address = address;
}

bool runtime_shared(uint64_t address, uint64_t bytes, uint64_t *ret_start, uint64_t *ret_bytes)
{
	uint64_t start = address > shared_start ? address : shared_start, end = address + bytes;

	if (end > shared_start + shared_bytes)
		end = shared_start + shared_bytes;
	if (start >= end)
		return false;
	*ret_start = start;
	*ret_bytes = end - start;
	return true;
}

static bool kept; /* whether a block of PyTorch's may have contents to forget */
void runtime_keep(enum runtime_kept what, bool on)
{
	assert_int_equal(what, KEPT_CONTENTS);
	kept = on;
}

#define CAPACITY 16384

static uint64_t base; /* shared memory, as the simulator's */
#define BASE base

static uint64_t random_state;

static void check(const unsigned char *shadow)
{
	unsigned char got[CAPACITY];
	size_t start = next_random(&random_state) % CAPACITY,
	       bytes = next_random(&random_state) % (CAPACITY - start + 1), i;
	bool any = false;

	memset(got, 0xee, sizeof got);
	contents_read(BASE + start, got, bytes);
	assert_memory_equal(got, shadow + start, bytes);
	for (i = 0; i < bytes; i++)
		any = any || shadow[start + i] != 0;
	if (any)
		assert_true(contents_hold(BASE + start, bytes) && kept);
}

static void step(unsigned char *shadow)
{
	size_t start = next_random(&random_state) % CAPACITY,
	       bytes = next_random(&random_state) % (CAPACITY - start + 1), other, i;
	unsigned char data[CAPACITY];

	switch (next_random(&random_state) % 5) {
	case 0:
	case 1:
		for (i = 0; i < bytes; i++)
			data[i] = (unsigned char)(next_random(&random_state) % 4); /* with zeros in it */
		assert_true(contents_write(BASE + start, data, bytes));
		memcpy(shadow + start, data, bytes);
		break;
	case 2:
		contents_forget(BASE + start, bytes);
		memset(shadow + start, 0, bytes);
		break;
	case 3:
		i = next_random(&random_state) % 3;
		contents_set(BASE + start, (int)i, bytes);
		memset(shadow + start, (int)i, bytes);
		break;
	default:
		other = next_random(&random_state) % (CAPACITY - bytes + 1);
		assert_true(contents_move(BASE + other, BASE + start, bytes));
		memmove(shadow + other, shadow + start, bytes);
	}
}

static void follows_shadow(void **unused)
{
	unsigned char shadow[CAPACITY] = {0};

	(void)unused;
	random_state = test_seed();
	for (int operation = 0; operation < 20000; operation++) {
		if (operation == 10000) { /* the contents stay */
			shared_start = BASE + 3000;
			shared_bytes = 9000;
			contents_share();
			assert_memory_equal((void *)(uintptr_t)shared_start, shadow + 3000, shared_bytes);
		}
		step(shadow);
		check(shadow);
	}
	assert_memory_equal((void *)(uintptr_t)shared_start, shadow + 3000,
			    shared_bytes); /* as another process sees it */
	contents_forget(BASE, CAPACITY);
	memset(shadow, 0, CAPACITY);
	check(shadow);
	assert_true(kept); /* another process may store bytes there */
	shared_bytes = 0;
	assert_false(contents_hold(BASE, CAPACITY));
}

static void zeros_are_not_kept(void **unused)
{
	static const unsigned char zeros[64];

	(void)unused;
	assert_true(contents_write(BASE, zeros, sizeof zeros));
	assert_false(contents_hold(BASE, sizeof zeros) || kept);
	assert_true(contents_write(BASE, "x", 1));
	assert_true(contents_hold(BASE, 1) && kept);
	assert_true(contents_write(BASE, zeros, 1));
	assert_false(contents_hold(BASE, 1) || kept);
}

static void without_backing_small_writes_stay(void **unused)
{
	static unsigned char data[70000], got[70000];

	(void)unused;
	keeps = false;
	memset(data, 7, sizeof data);
	assert_true(contents_write(BASE, data, 65536));
	assert_true(contents_hold(BASE, 1));
	assert_true(contents_write(BASE, data, 65537)); /* dropped, with the old contents */
	contents_read(BASE, got, sizeof got);
	assert_int_equal(got[0] | got[65535], 0);
	keeps = true;
}

/* A piece stored after memory became shared, but before the call of contents_share. */
static void what_comes_late_is_shared(void **unused)
{
	char byte = 0;

	(void)unused;
	assert_true(contents_write(BASE, "old", 3));
	shared_start = BASE;
	shared_bytes = 2;
	assert_true(contents_hold(BASE, 2));
	assert_true(contents_write(BASE + 1, "n", 1));
	contents_share();
	assert_memory_equal((void *)(uintptr_t)BASE, "on", 2);
	contents_read(BASE + 2, &byte, 1);
	assert_int_equal(byte, 'd');
	contents_release(BASE, 3); /* the others keep theirs */
	assert_memory_equal((void *)(uintptr_t)BASE, "on", 2);
	shared_bytes = 0;
	assert_false(contents_hold(BASE, 3));
}

static void a_read_opens_gates(void **unused)
{
	char byte;

	(void)unused;
	contents_read(BASE + 5, &byte, 1);
	assert_int_equal(gate_address, BASE + 5);
	(void)contents_hold(BASE + 6, 1);
	assert_int_equal(gate_address, BASE + 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeros_are_not_kept),
		cmocka_unit_test(follows_shadow),
		cmocka_unit_test(without_backing_small_writes_stay),
		cmocka_unit_test(what_comes_late_is_shared),
		cmocka_unit_test(a_read_opens_gates),
	};
	void *memory = mmap(NULL, CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return 1;
	base = (uint64_t)(uintptr_t)memory;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
