/* A map against a shadow array, under random puts, replacements and removals. The seed is printed; NEAP_SEED
 * repeats a run. */
#include "base/map.h"
#include "base/units.h"
#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEYS 600

static uint64_t random_state;

static uint64_t key_of(size_t i) { return (uint64_t)i << 21; /* what addresses look like */ }

static void check_against(const struct neap_map *map, const uint64_t *shadow, const bool *present)
{
	size_t count = 0, cursor = 0, seen = 0;

	for (size_t i = 0; i < KEYS; i++) {
		uint64_t value = 77;
		assert_int_equal(neap_map_get(map, key_of(i), &value), present[i]);
		assert_true(value == (present[i] ? shadow[i] : 77));
		count += present[i];
	}
	assert_int_equal(map->count, count);
	assert_true(map->count <= map->capacity / 4 * 3);
	for (const struct neap_map_slot *slot; (slot = neap_map_next(map, &cursor)); seen++) {
		assert_true(present[slot->key >> 21]);
		assert_true(slot->value == shadow[slot->key >> 21]);
	}
	assert_int_equal(seen, count);
}

static void map_follows_shadow(void **unused)
{
	struct neap_map map = {0};
	uint64_t shadow[KEYS];
	bool present[KEYS] = {false};

	(void)unused;
	random_state = test_seed();
	for (int operation = 0; operation < 20000; operation++) {
		uint64_t value = next_random(&random_state);
		size_t i = next_random(&random_state) % KEYS;
		/* Alternates between mostly growing and mostly shrinking. */
		bool put = next_random(&random_state) % 100 < (operation / 2000 % 2 ? 30u : 70u);
		if (put) {
			assert_true(neap_map_put(&map, key_of(i), value));
			shadow[i] = value;
			present[i] = true;
		} else {
			uint64_t removed = 0;
			assert_int_equal(neap_map_remove(&map, key_of(i), &removed), present[i]);
			assert_true(removed == (present[i] ? shadow[i] : 0));
			present[i] = false;
		}
		if (operation % 97 == 0)
			check_against(&map, shadow, present);
	}
	check_against(&map, shadow, present);
	neap_map_fini(&map);
	assert_int_equal(map.count, 0);
}

static void empty_map_answers(void **unused)
{
	struct neap_map map = {0};
	uint64_t value = 5;
	size_t cursor = 0;

	(void)unused;
	assert_false(neap_map_get(&map, 0, &value));
	assert_false(neap_map_remove(&map, 0, &value));
	assert_int_equal(value, 5);
	assert_null(neap_map_next(&map, &cursor));
	assert_true(neap_map_put(&map, 0, 9)); /* zero is a key like any other */
	assert_true(neap_map_get(&map, 0, &value));
	assert_int_equal(value, 9);
	neap_map_fini(&map);
	neap_map_fini(&map);
	neap_map_fini(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_follows_shadow),
		cmocka_unit_test(empty_map_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
