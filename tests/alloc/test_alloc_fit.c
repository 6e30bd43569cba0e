/* Which of two holes serves a request: the smaller one, but the lower one once many requests have left thin
 * remainders. On a full device a hole of the other class may serve it, too. */
#include "harness.h"

/* `count` requests of `bytes` come and go. Returns the address of the last one. */
static uint64_t repeat(struct world *world, size_t bytes, int count)
{
	uint64_t address = 0;
	for (int i = 0; i < count; i++) {
		address = take(world, bytes, NULL);
		give(world, address);
	}
	world_check(world);
	return address;
}

static void test_fit(void **state)
{
	struct world world;
	uint64_t at[4];
	const size_t sizes[4] = {6 * MIB, 2 * MIB, 5 * MIB, 2 * MIB}, thin = 5 * MIB - 300 * 1024;
	(void)state;
	world_open(&world, "mem=64MiB,reserved=0,context=8MiB");
	world_alloc(&world, 0);
	for (int i = 0; i < 4; i++)
		at[i] = take(&world, sizes[i], NULL);
	give(&world, at[0]);
	give(&world, at[2]);
	assert_int_equal(repeat(&world, thin, 100), at[2]);
	assert_int_equal(repeat(&world, 5 * MIB, 3000), at[2]);
	assert_int_equal(repeat(&world, thin, 100), at[2]); /* a few thin ones change nothing */
	assert_int_equal(repeat(&world, thin, 4000), at[0]);
	assert_int_equal(repeat(&world, 6 * MIB, 500), at[0]);
	assert_int_equal(repeat(&world, thin, 1), at[0]);
	repeat(&world, 5 * MIB, 20000);
	assert_int_equal(repeat(&world, thin, 1), at[2]);
	/* Small requests are always served by the smallest. */
	uint64_t small[4];
	for (int i = 0; i < 4; i++)
		small[i] = take(&world, (size_t)(600 - 50 * i) * 1024, NULL);
	give(&world, small[0]);
	give(&world, small[2]);
	assert_int_equal(repeat(&world, 490 * 1024, 4000), small[2]);
	give(&world, at[1]);
	give(&world, at[3]);
	give(&world, small[1]);
	give(&world, small[3]);
	world_check(&world);
	world_close(&world);
}

/* On a full device an end of a page serves requests of either class, and belongs to the other class again
 * afterwards. */
static void test_page_ends(void **state)
{
	struct world world;
	struct neap_error err = {0};
	uint64_t small[8], address = 0;
	(void)state;
	world_open(&world, "mem=64MiB,reserved=0,context=8MiB");
	world_alloc(&world, 0);
	for (int i = 0; i < 8; i++)
		small[i] = take(&world, MIB / 2, NULL); /* two pages */
	uint64_t large = take(&world, 51 * MIB + MIB / 4, NULL);
	assert_int_equal(metric(&world, NEAP_METRIC_RESERVED_BYTES), 56 * MIB); /* all there is */
	uint64_t between = take(&world, MIB / 2, NULL);
	assert_int_equal(between, large + 51 * MIB + MIB / 4);
	assert_int_equal(neap_malloc(world.alloc, MIB / 2, NULL, &address, &err), NEAP_EOOM);
	for (int i = 2; i < 6; i++) /* from the middle of one page to the middle of the next */
		give(&world, small[i]);
	uint64_t wide = take(&world, 2 * MIB - MIB / 4, NULL);
	assert_int_equal(wide, small[2]);
	world_check(&world);
	give(&world, wide);
	give(&world, between);
	for (int i = 2; i < 6; i++)
		assert_int_equal(take(&world, MIB / 2, NULL), small[i]);
	world_check(&world);
	for (int i = 0; i < 8; i++)
		give(&world, small[i]);
	give(&world, large);
	uint64_t all = take(&world, 56 * MIB, NULL);
	give(&world, all);
	world_check(&world);
	world_close(&world);
}

#define SMALL_BLOCKS 3001 /* odd: the last one stays */
#define SMALL_TAKES  600

struct hole {
	uint64_t address, bytes;
};

/* The smallest that holds `bytes`, the lowest of equals. */
static struct hole *best_hole(struct hole *holes, size_t count, uint64_t bytes)
{
	struct hole *best = NULL;
	for (size_t i = 0; i < count; i++)
		if (holes[i].bytes >= bytes && (!best || holes[i].bytes < best->bytes ||
						(holes[i].bytes == best->bytes && holes[i].address < best->address)))
			best = &holes[i];
	return best;
}

/* Many free blocks are kept in a tree for each size. The block that serves is the same as with one list of them
 * all. */
static void test_many_small(void **state)
{
	static uint64_t at[SMALL_BLOCKS], taken[SMALL_TAKES];
	static struct hole holes[SMALL_BLOCKS / 2 + 1];
	struct world world;
	uint64_t random = test_seed(), end = 0;
	size_t count = 0;
	(void)state;
	world_open(&world, "mem=256MiB,reserved=0,context=8MiB");
	world_alloc(&world, 0);
	for (size_t i = 0; i < SMALL_BLOCKS; i++) {
		uint64_t bytes = (1 + random_next(&random) % 13) * 3 * 512;
		at[i] = take(&world, bytes, NULL);
		assert_true(!end || at[i] == end);
		end = at[i] + bytes;
		if (i % 2)
			holes[count++] = (struct hole){at[i], bytes};
	}
	holes[count++] = (struct hole){end, 2 * MIB - end % (2 * MIB)}; /* the rest of the last page */
	for (size_t i = 1; i < SMALL_BLOCKS; i += 2)
		give(&world, at[i]);
	world_check(&world);
	for (size_t i = 0; i < SMALL_TAKES; i++) {
		uint64_t bytes = (1 + random_next(&random) % 30) * 512; /* all find a hole */
		struct hole *best = best_hole(holes, count, bytes);
		taken[i] = take(&world, bytes, NULL);
		assert_true(best && taken[i] == best->address);
		best->address += bytes;
		best->bytes -= bytes;
		if (i % 50 == 0)
			world_check(&world);
	}
	for (size_t i = 0; i < SMALL_TAKES; i++)
		give(&world, taken[i]);
	world_check(&world);
	for (size_t i = 0; i < SMALL_BLOCKS; i += 2)
		give(&world, at[i]);
	world_check(&world);
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fit), cmocka_unit_test(test_page_ends),
					   cmocka_unit_test(test_many_small)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
