/* Packing: which experiments may run together, and the invariant over random series. */
#include "series/packing.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#define WHOLE                                                                                                        \
	{                                                                                                            \
		NEAP_NEEDS_DEVICE, 0                                                                                 \
	}
#define BYTES(n)                                                                                                     \
	{                                                                                                            \
		NEAP_NEEDS_BYTES, n                                                                                  \
	}

static void test_table(void **state)
{
	(void)state;
	static const struct {
		struct neap_packing_device devices[2];
		struct neap_needs needs;
		size_t only, chosen;
	} rows[] = {
		{{{100, 0, 0, false}, {200, 0, 0, false}}, BYTES(50), NEAP_PACKING_ANY, 1}, /* the most room */
		{{{100, 0, 0, false}, {200, 150, 1, false}}, BYTES(50), NEAP_PACKING_ANY, 0},
		{{{100, 60, 1, false}, {200, 150, 1, false}}, BYTES(50), NEAP_PACKING_ANY, 1}, /* exactly */
		{{{100, 60, 1, false}, {200, 150, 1, false}}, BYTES(51), NEAP_PACKING_ANY, 2},
		{{{100, 0, 0, false}, {200, 150, 1, false}}, BYTES(51), 1, 2}, /* the other would be enough, but */
		{{{100, 0, 0, false}, {200, 0, 0, false}}, BYTES(50), 0, 0},
		{{{100, 0, 1, true}, {200, 0, 1, true}},
		 BYTES(1),
		 NEAP_PACKING_ANY,
		 2}, /* beside one that needs all */
		{{{100, 1, 1, false}, {200, 1, 1, false}}, WHOLE, NEAP_PACKING_ANY, 2},
		{{{100, 0, 0, false}, {200, 1, 1, false}}, WHOLE, NEAP_PACKING_ANY, 0},
		{{{100, 0, 0, false}, {200, 0, 0, false}},
		 BYTES(500),
		 NEAP_PACKING_ANY,
		 1}, /* its supervisor reports it */
		{{{100, 0, 1, false}, {200, 1, 1, false}}, BYTES(500), NEAP_PACKING_ANY, 2},
		{{{100, 90, 1, true}, {200, 90, 1, true}}, {NEAP_NEEDS_NONE, 0}, NEAP_PACKING_ANY, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t chosen = neap_packing_choose(rows[i].devices, 2, &rows[i].needs, rows[i].only);
		if (chosen != rows[i].chosen)
			fail_msg("row %zu: chose %zu, not %zu", i, chosen, rows[i].chosen);
	}
	assert_int_equal(neap_packing_choose(NULL, 0, &(struct neap_needs)BYTES(1), NEAP_PACKING_ANY), 0);
}

static void test_random(void **state)
{
	(void)state;
	unsigned seed = 20261121;
	for (int round = 0; round < 500; round++) {
		struct neap_packing_device devices[3] = {{.bytes = 100}, {.bytes = 80}, {.bytes = 60}};
		for (int i = 0; i < 20; i++) {
			struct neap_needs needs = {(enum neap_needs_kind)(1 + (rand_r(&seed) % 8 == 0)),
						   (uint64_t)(rand_r(&seed) % 70)};
			size_t at = neap_packing_choose(devices, 3, &needs, NEAP_PACKING_ANY);
			if (at < 3)
				neap_packing_add(&devices[at], &needs);
		}
		for (size_t i = 0; i < 3; i++) {
			assert_true(devices[i].running <= 1 || devices[i].taken_bytes <= devices[i].bytes);
			assert_true(!devices[i].whole || devices[i].running == 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_random)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
