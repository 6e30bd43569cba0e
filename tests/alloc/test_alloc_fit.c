/* Which of two holes serves a request: the smaller one, until many requests leave thin remainders; then the lower
 * one. */
#include "harness.h"

/* Lets `count` requests of `bytes` come and go; where the last one was. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fit)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
