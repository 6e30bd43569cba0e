/* What device memory holds, against a shadow array, under random writes, sets, moves and forgetting. The seed is
 * printed; NEAP_TEST_SEED repeats a run. */
#include "base/units.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* contents.c's world: no gates, and a device that keeps bytes or not. */
static bool keeps = true;
static uint64_t gate_address;

bool runtime_keeps_bytes(void) { return keeps; }
void gate_open_range(uint64_t address, size_t bytes)
{
	(void)bytes;
	gate_address = address;
}

#define BASE 0x7f0000000000ull
#define ROOM 4096

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void check(const unsigned char *shadow)
{
	unsigned char got[ROOM];
	size_t start = next_random() % ROOM, bytes = next_random() % (ROOM - start + 1), i;
	bool any = false;

	memset(got, 0xee, sizeof(got));
	contents_read(BASE + start, got, bytes);
	assert_memory_equal(got, shadow + start, bytes);
	for (i = 0; i < bytes; i++)
		any = any || shadow[start + i] != 0;
	if (any)
		assert_true(contents_hold(BASE + start, bytes));
}

static void step(unsigned char *shadow)
{
	size_t start = next_random() % ROOM, bytes = next_random() % (ROOM - start + 1), other, i;
	unsigned char data[ROOM];

	switch (next_random() % 5) {
	case 0:
	case 1:
		for (i = 0; i < bytes; i++)
			data[i] = (unsigned char)(next_random() % 4); /* with zeros in it */
		assert_true(contents_write(BASE + start, data, bytes));
		memcpy(shadow + start, data, bytes);
		break;
	case 2:
		contents_forget(BASE + start, bytes);
		memset(shadow + start, 0, bytes);
		break;
	case 3:
		i = next_random() % 3;
		contents_set(BASE + start, (int)i, bytes);
		memset(shadow + start, (int)i, bytes);
		break;
	default:
		other = next_random() % (ROOM - bytes + 1);
		assert_true(contents_move(BASE + other, BASE + start, bytes));
		memmove(shadow + other, shadow + start, bytes);
	}
}

static void follows_shadow(void **unused)
{
	unsigned char shadow[ROOM] = {0};
	const char *given = getenv("NEAP_TEST_SEED");

	(void)unused;
	if (!given || neap_u64_parse(given, &state, NULL) != 0)
		state = (uint64_t)time(NULL) * 2654435761u;
	state |= 1;
	print_message("seed %" PRIu64 "\n", state);
	for (int operation = 0; operation < 20000; operation++) {
		step(shadow);
		check(shadow);
	}
	contents_forget(BASE, ROOM);
	assert_false(contents_hold(BASE, ROOM));
}

static void zeros_are_not_kept(void **unused)
{
	static const unsigned char zeros[64];

	(void)unused;
	assert_true(contents_write(BASE, zeros, sizeof(zeros)));
	assert_false(contents_hold(BASE, sizeof(zeros)));
	assert_true(contents_write(BASE, "x", 1));
	assert_true(contents_hold(BASE, 1));
	assert_true(contents_write(BASE, zeros, 1));
	assert_false(contents_hold(BASE, 1));
}

static void without_backing_small_writes_stay(void **unused)
{
	static unsigned char data[70000], got[70000];

	(void)unused;
	keeps = false;
	memset(data, 7, sizeof(data));
	assert_true(contents_write(BASE, data, 65536));
	assert_true(contents_hold(BASE, 1));
	assert_true(contents_write(BASE, data, 65537)); /* dropped, with what was there */
	contents_read(BASE, got, sizeof(got));
	assert_int_equal(got[0] | got[65535], 0);
	keeps = true;
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
		cmocka_unit_test(follows_shadow),
		cmocka_unit_test(zeros_are_not_kept),
		cmocka_unit_test(without_backing_small_writes_stay),
		cmocka_unit_test(a_read_opens_gates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
