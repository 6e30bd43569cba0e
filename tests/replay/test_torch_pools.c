/* PyTorch's policy: private pools, and settings of later releases, in cases small enough to work out by hand. */
#include "torch_world.h"

#include <stdlib.h>

static void *take_from(struct world *world, uint64_t bytes, uint32_t pool)
{
	void *block = NULL;
	assert_int_equal(world->policy->alloc(world->policy, bytes, 0, pool, &block, NULL), NEAP_OK);
	return block;
}

static void expect_reserved(struct world *world, uint32_t pool, enum neap_pool_class class, int64_t current,
			    int64_t peak, int64_t freed)
{
	struct neap_stat reserved[NEAP_CLASS_COUNT];
	assert_true(neap_torch_pool_reserved(world->policy, pool, reserved));
	assert_int_equal(reserved[class].current, current);
	assert_int_equal(reserved[class].peak, peak);
	assert_int_equal(reserved[class].allocated, current + freed);
	assert_int_equal(reserved[class].freed, freed);
}

/* A private pool is flushed once the program has released it: after the default pool, or alone. */
static void test_private_pools(void **state)
{
	struct world world;
	const struct neap_torch_pool whole = {.whole = true};
	(void)state;
	open_as(&world, 15, "", 0, false);
	give(&world, take_from(&world, 30 * MIB, 1));
	give(&world, take_from(&world, 1, 1));
	give(&world, take(&world, 40 * MIB));
	expect_log(&world, "+30M +2M +40M");
	assert_int_equal(neap_torch_flushable(world.policy, UINT32_MAX), 40 * MIB);
	world.policy->empty_cache(world.policy, NULL);
	expect_log(&world, "-40M"); /* the pool is in use */
	expect_reserved(&world, 1, NEAP_CLASS_ALL, 32 * MIB, 32 * MIB, 0);
	expect_reserved(&world, 1, NEAP_CLASS_SMALL, 2 * MIB, 2 * MIB, 0);
	assert_int_equal(neap_torch_pool_release(world.policy, 1, NULL), NEAP_OK);
	give(&world, take(&world, 40 * MIB));
	world.policy->empty_cache(world.policy, NULL);
	expect_log(&world, "+40M -40M -2M -30M");
	expect_reserved(&world, 1, NEAP_CLASS_ALL, 0, 32 * MIB, 32 * MIB);
	expect_reserved(&world, 1, NEAP_CLASS_LARGE, 0, 30 * MIB, 30 * MIB);
	assert_false(neap_torch_pool_reserved(world.policy, 2, (struct neap_stat[NEAP_CLASS_COUNT]){{0}}));
	give(&world, take_from(&world, 30 * MIB, 2));
	give(&world, take(&world, 40 * MIB));
	assert_int_equal(neap_torch_pool_release(world.policy, 2, NULL), NEAP_OK);
	assert_int_equal(neap_torch_pool_empty(world.policy, 2, NULL), NEAP_OK);
	expect_log(&world, "+30M +40M -30M");
	assert_int_equal(neap_torch_pool(world.policy, 3, &whole, NULL), NEAP_OK);
	take_from(&world, 2 * MIB, 3);
	take_from(&world, 2 * MIB, 3); /* the first request took the whole segment */
	expect_log(&world, "+20M +20M");
	close_world(&world);
}

static void test_capture_and_rejection(void **state)
{
	struct world world;
	(void)state;
	open_as(&world, 15, "", 100, false);
	give(&world, take(&world, 60 * MIB));
	neap_torch_capture(world.policy);
	refuse(&world, 70 * MIB);
	expect_log(&world, "+60M oom 70M"); /* nothing was flushed */
	assert_int_equal(usage(&world).stats.num_alloc_retries, 0);
	take(&world, 70 * MIB); /* the next request may */
	expect_log(&world, "-60M +70M");
	close_world(&world);
	open_as(&world, 15, "throw_on_cudamalloc_oom:True", 100, false);
	give(&world, take(&world, 60 * MIB));
	refuse(&world, 70 * MIB);
	expect_log(&world, "+60M"); /* neither freed nor reported out of memory */
	assert_int_equal(usage(&world).rejections, 1);
	assert_int_equal(usage(&world).stats.num_ooms, 0);
	close_world(&world);
}

/* The limit of a fraction: cut off or rounded. Since 2.10 a fraction of all is no limit. */
static void test_fractions(void **state)
{
	struct world world;
	(void)state;
	for (unsigned minor = 12; minor <= 13; minor++) {
		open_as(&world, minor, "per_process_memory_fraction:0.599999997", 100, false); /* 60 MiB less 0.3 B */
		if (minor == 12)
			refuse(&world, 60 * MIB);
		else
			take(&world, 60 * MIB);
		close_world(&world);
	}
	for (unsigned minor = 9; minor <= 10; minor++) {
		open_as(&world, minor, "per_process_memory_fraction:1,garbage_collection_threshold:0.1", 100, false);
		give(&world, take(&world, 30 * MIB));
		take(&world, 40 * MIB);
		expect_log(&world, minor == 9 ? "+30M -30M +40M" : "+30M +40M");
		close_world(&world);
	}
}

static void test_large_segments(void **state)
{
	struct world world;
	(void)state;
	open_as(&world, 15, "large_segment_size_mb:64", 0, false);
	take(&world, 2 * MIB);
	take(&world, 10 * MIB - 512);
	take(&world, 12 * MIB); /* also from the shared one */
	expect_log(&world, "+64M");
	close_world(&world);
	open_as(&world, 15, "large_segment_size_mb:64,expandable_segments:True", 300, false);
	take(&world, 70 * MIB);
	expect_log(&world, "m+128M");
	close_world(&world);
	open_as(&world, 15, "expandable_segments:True,expandable_segments_reserve:0.1", 300, false);
	take(&world, 40 * MIB); /* all of one reserve */
	take(&world, 20 * MIB); /* of another */
	expect_log(&world, "m+40M m+20M");
	assert_int_equal(usage(&world).calls.reserves, 2);
	refuse(&world, 60 * MIB); /* none is large enough */
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_pools),
		cmocka_unit_test(test_capture_and_rejection),
		cmocka_unit_test(test_fractions),
		cmocka_unit_test(test_large_segments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
