/* PyTorch's policy in cases small enough to work out by hand. Addresses are counted from the first segment's. */

#include "torch_world.h"

#include <stdlib.h>

static void test_segments_by_size(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	take(&world, 1);
	take(&world, MIB); /* fits into the rest of the small segment */
	expect_log(&world, "+2M");
	take(&world, MIB); /* does not fit: 512 bytes are used */
	expect_log(&world, "+2M");
	take(&world, MIB + 1);
	expect_log(&world, "+20M");
	take(&world, 10 * MIB - 512); /* below 10 MiB: of the shared segment */
	expect_log(&world, "");
	take(&world, 10 * MIB);
	expect_log(&world, "+10M");
	take(&world, 11 * MIB);
	expect_log(&world, "+12M");
	take(&world, 100 * MIB + 1);
	expect_log(&world, "+102M");
	assert_int_equal(usage(&world).stats.num_device_alloc, 6);
	close_world(&world);
}

static void test_split_rule(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	/* A rest of 1 MiB or less is not split off in the large pool, and counts as allocated. */
	void *a = take(&world, 11 * MIB);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_ALLOCATED_BYTES][0].current, 12 * MIB);
	give(&world, a);
	a = take(&world, 11 * MIB - 512); /* leaves 1 MiB + 512: split */
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_ALLOCATED_BYTES][0].current, 11 * MIB - 512);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_INACTIVE_SPLIT_BYTES][0].current, MIB + 512);
	/* In the small pool 512 bytes are enough. */
	void *b = take(&world, 2 * MIB - 512 - MIB);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_INACTIVE_SPLIT][NEAP_CLASS_SMALL].current, 1);
	void *c = take(&world, MIB);
	assert_int_equal(at(c), at(b) + MIB - 512);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_INACTIVE_SPLIT_BYTES][NEAP_CLASS_SMALL].current, 512);
	close_world(&world);
}

static void test_best_fit_and_merge(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	void *block[5]; /* 2, 4, 3, 4, 7 MiB fill a segment of 20 */
	static const uint64_t size[5] = {2, 4, 3, 4, 7};
	for (size_t i = 0; i < 5; i++)
		block[i] = take(&world, size[i] * MIB);
	expect_log(&world, "+20M");
	give(&world, block[1]);
	give(&world, block[3]);
	void *b = take(&world, 3 * MIB); /* the lower of two of 4 MiB; the rest of 1 MiB stays with it */
	assert_int_equal(at(b), 2 * MIB);
	give(&world, b);
	b = take(&world, 2 * MIB);
	assert_int_equal(at(b), 2 * MIB);
	b = take(&world, 2 * MIB); /* the best fit is now its rest */
	assert_int_equal(at(b), 4 * MIB);
	give(&world, block[2]); /* 3 MiB, joins the 4 MiB above */
	b = take(&world, 7 * MIB);
	assert_int_equal(at(b), 6 * MIB);
	expect_log(&world, "");
	close_world(&world);
}

static void test_streams_and_pools_are_apart(void **state)
{
	struct world world;
	void *block = NULL;
	(void)state;
	open_world(&world, "", 0);
	give(&world, take(&world, 30 * MIB));
	take_on(&world, 30 * MIB, 7);
	expect_log(&world, "+30M +30M");
	assert_int_equal(world.policy->alloc(world.policy, 30 * MIB, 0, 3, &block, NULL), NEAP_OK);
	expect_log(&world, "+30M");
	give(&world, block); /* a private pool keeps its memory */
	assert_int_equal(world.policy->empty_cache(world.policy, NULL), NEAP_OK);
	expect_log(&world, "-30M");
	close_world(&world);
}

static void test_record_stream(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	void *a = take(&world, 30 * MIB), *b = take(&world, 50 * MIB);
	expect_log(&world, "+30M +50M");
	assert_int_equal(world.policy->record_stream(world.policy, a, 1, NULL), NEAP_OK);
	assert_int_equal(world.policy->record_stream(world.policy, a, 1, NULL), NEAP_OK);
	assert_int_equal(world.policy->record_stream(world.policy, a, 2, NULL), NEAP_OK);
	assert_int_equal(world.policy->record_stream(world.policy, b, 0, NULL), NEAP_OK); /* its own */
	world.policy->at(world.policy, 100);
	give(&world, a);
	give(&world, b);
	assert_int_equal(usage(&world).events_recorded, 2);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_ACTIVE_BYTES][0].current, 30 * MIB);
	assert_int_equal(usage(&world).stats.metric[NEAP_METRIC_ALLOCATED_BYTES][0].current, 0);
	b = take(&world, 50 * MIB); /* reusable at once */
	world.policy->at(world.policy, 109);
	void *c = take(&world, 30 * MIB); /* a still waits */
	expect_log(&world, "+30M");
	world.policy->at(world.policy, 110);
	a = take(&world, 30 * MIB);
	assert_int_equal(at(a), 0);
	give(&world, c);
	expect_log(&world, "");
	/* Out of memory, or an emptied cache, waits for the events. */
	assert_int_equal(world.policy->record_stream(world.policy, a, 1, NULL), NEAP_OK);
	give(&world, a);
	assert_int_equal(world.policy->empty_cache(world.policy, NULL), NEAP_OK);
	assert_int_equal(usage(&world).synchronizations, 3);
	expect_log(&world, "-30M -30M");
	close_world(&world);
}

static void test_held_frees(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	void *a = take(&world, 30 * MIB), *b = take(&world, 32 * MIB);
	assert_int_equal(world.policy->free_held(world.policy, a, 5, NULL), NEAP_OK);
	assert_int_equal(world.policy->free_held(world.policy, b, 6, NULL), NEAP_OK);
	world.policy->complete(world.policy, 6);
	world.policy->complete(world.policy, 6);
	world.policy->complete(world.policy, 7);
	world.log[0] = '\0';
	take(&world, 32 * MIB);
	expect_log(&world, "");
	take(&world, 30 * MIB);
	expect_log(&world, "+30M");
	assert_int_equal(world.policy->empty_cache(world.policy, NULL), NEAP_OK);
	expect_log(&world, "-30M");
	close_world(&world);
}

static void test_out_of_memory(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 100);
	void *a = take(&world, 40 * MIB), *b = take(&world, 40 * MIB);
	give(&world, a);
	void *c = take(&world, 20 * MIB); /* splits a */
	expect_log(&world, "+40M +40M");
	refuse(&world, 30 * MIB); /* 20 free on the device, 20 in the rest of a's segment */
	expect_log(&world, "oom 30M");
	give(&world, b);
	take(&world, 60 * MIB); /* b's segment goes back, a's is in use */
	expect_log(&world, "-40M +60M");
	struct neap_policy_usage used = usage(&world);
	assert_int_equal(used.stats.num_ooms, 1);
	assert_int_equal(used.stats.num_alloc_retries, 2);
	assert_int_equal(used.calls.failed_allocs, 3);
	assert_int_equal(used.stats.metric[NEAP_METRIC_RESERVED_BYTES][0].peak, 100 * MIB);
	give(&world, c);
	refuse(&world, 1ull << 61);
	close_world(&world);
}

static void test_fraction_and_garbage(void **state)
{
	struct world world;
	(void)state;
	/* Allowed: 100 MiB; collected above 50. */
	open_world(&world, "per_process_memory_fraction:0.1,garbage_collection_threshold:0.5", 1000);
	void *a = take(&world, 20 * MIB), *b = take(&world, 30 * MIB), *c = take(&world, 12 * MIB);
	give(&world, a);
	give(&world, c);
	for (int i = 0; i < 2; i++) /* c is young again */
		give(&world, take(&world, 12 * MIB));
	world.log[0] = '\0';
	give(&world, b);
	/* 62 MiB are reserved. Blocks that have been free for longer than the average go, and that is enough. */
	take(&world, 40 * MIB);
	expect_log(&world, "-20M +40M");
	refuse(&world, 90 * MIB);
	assert_int_equal(usage(&world).stats.num_ooms, 1);
	close_world(&world);

	/* Without a fraction the threshold has no effect. */
	open_world(&world, "garbage_collection_threshold:0.5", 100);
	give(&world, take(&world, 60 * MIB));
	take(&world, 10 * MIB);
	world.log[0] = '\0';
	take(&world, 40 * MIB);
	expect_log(&world, "");
	close_world(&world);
}

static void test_max_split(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "max_split_size_mb:32", 200);
	void *a = take(&world, 64 * MIB);
	assert_int_equal(usage(&world).stats.oversize_allocations.current, 1);
	assert_int_equal(usage(&world).stats.oversize_segments.current, 1);
	give(&world, a);
	expect_log(&world, "+64M");
	take(&world, 10 * MIB); /* never split an oversize block */
	expect_log(&world, "+10M");
	take(&world, 40 * MIB); /* 24 MiB would be lost, and that is more than 20 */
	expect_log(&world, "+40M");
	void *b = take(&world, 44 * MIB + 512); /* within 20 MiB: as a whole */
	expect_log(&world, "");
	assert_int_equal(at(b), at(a));
	give(&world, b);
	close_world(&world);

	/* One block that is large enough is freed before anything is waited for. */
	open_world(&world, "max_split_size_mb:32", 130);
	give(&world, take(&world, 100 * MIB));
	take(&world, 50 * MIB);
	expect_log(&world, "+100M -100M +50M");
	assert_int_equal(usage(&world).stats.num_sync_all_streams, 0);
	assert_int_equal(usage(&world).stats.num_alloc_retries, 0);
	close_world(&world);

	/* Several blocks, the largest first, until there is enough. */
	open_world(&world, "max_split_size_mb:32", 200);
	void *block[4];
	static const uint64_t size[4] = {40, 60, 50, 36};
	for (size_t i = 0; i < 4; i++)
		block[i] = take(&world, size[i] * MIB);
	for (size_t i = 0; i < 4; i++)
		give(&world, block[i]);
	world.log[0] = '\0';
	take(&world, 104 * MIB);
	expect_log(&world, "-60M -50M +104M");
	close_world(&world);
}

static void test_expandable(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "expandable_segments:True", 200);
	void *a = take(&world, 30 * MIB);
	expect_log(&world, "m+40M");      /* in pages of 20 MiB */
	void *b = take(&world, 25 * MIB); /* 10 MiB of it are there */
	expect_log(&world, "m+20M");
	assert_int_equal(at(b), at(a) + 30 * MIB);
	give(&world, a);
	void *c = take(&world, 35 * MIB); /* 30 free in front of b, 5 behind it: the end grows */
	expect_log(&world, "m+40M");
	assert_int_equal(at(c), at(b) + 25 * MIB);
	void *small = take(&world, 1);
	expect_log(&world, "m+2M");
	struct neap_policy_usage used = usage(&world);
	assert_int_equal(used.stats.metric[NEAP_METRIC_SEGMENT][0].current, 0);
	assert_int_equal(used.stats.metric[NEAP_METRIC_INACTIVE_SPLIT][0].allocated, 0);
	assert_int_equal(used.calls.reserves, 2);
	assert_int_equal(used.calls.creates, 6);
	assert_int_equal(used.stats.num_device_alloc, 4); /* a mapping is one */
	/* 98 MiB left, 120 wanted: the whole page of a goes, which is enough with the end's rest. */
	take(&world, 105 * MIB);
	expect_log(&world, "m-20M m+100M");
	assert_int_equal(usage(&world).stats.num_alloc_retries, 1);
	give(&world, small);
	give(&world, b);
	give(&world, c);
	/* The hole left by a's page is filled before the end grows. */
	take(&world, 20 * MIB);
	expect_log(&world, "");
	close_world(&world);
}

static void test_expandable_goes_whole(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "expandable_segments:True", 64);
	give(&world, take(&world, 30 * MIB));
	assert_int_equal(world.policy->empty_cache(world.policy, NULL), NEAP_OK);
	expect_log(&world, "m+40M m-40M");
	assert_int_equal(usage(&world).calls.address_frees, 1);
	refuse(&world, 70 * MIB);
	take(&world, 60 * MIB);
	expect_log(&world, "oom 70M m+60M");
	close_world(&world);
}

static void test_refused(void **state)
{
	struct world world;
	(void)state;
	open_world(&world, "", 0);
	give(&world, take(&world, 30 * MIB));
	neap_torch_refuse(world.policy, 1);
	take(&world, 40 * MIB);
	expect_log(&world, "+30M -30M +40M");
	give(&world, take(&world, 1));
	neap_torch_refuse(world.policy, 3);
	refuse(&world, 60 * MIB);
	world.log[0] = '\0';
	take(&world, 60 * MIB); /* the refusals end with the request */
	expect_log(&world, "+60M");
	close_world(&world);
}

/* Two equal free segments: by address the lower one is taken, by age the one made first. */
static void test_ties_of_segments(void **state)
{
	static const struct {
		unsigned minor;
		bool falling, first;
	} cases[] = {{11, false, true}, {11, true, false}, {12, false, true}, {12, true, true}, {15, true, true}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct world world;
		open_as(&world, cases[i].minor, "", 0, cases[i].falling);
		void *a = take(&world, 12 * MIB), *b = take(&world, 12 * MIB);
		uint64_t wanted = at(cases[i].first ? a : b);
		give(&world, a);
		give(&world, b);
		assert_int_equal(at(take(&world, 11 * MIB)), wanted);
		close_world(&world);
	}
}

/* A block cut from the older segment after the newer one was made: 2.12 counts blocks, later ones segments. */
static void test_ties_of_blocks(void **state)
{
	(void)state;
	for (unsigned minor = 12; minor <= 13; minor++) {
		struct world world;
		void *old[5], *new[5];
		open_as(&world, minor, "", 0, false);
		for (size_t i = 0; i < 5; i++)
			old[i] = take(&world, 4 * MIB);
		for (size_t i = 0; i < 5; i++)
			new[i] = take(&world, 4 * MIB);
		expect_log(&world, "+20M +20M");
		give(&world, old[0]);
		give(&world, old[1]);
		old[0] = take(&world, 4 * MIB);
		take(&world, 4 * MIB);
		give(&world, old[0]);
		give(&world, new[4]);
		assert_int_equal(at(take(&world, 4 * MIB)), minor == 12 ? 36 * MIB : 0);
		close_world(&world);
	}
}

/* Segments from before the recording: the recorded choices show their age. */
static void test_ages_are_learned(void **state)
{
	struct world world;
	(void)state;
	open_as(&world, 15, "", 0, false);
	for (uint64_t i = 0; i < 3; i++) {
		struct neap_torch_piece piece = {.size = 12 * MIB, .state = NEAP_TORCH_FREE};
		struct neap_torch_segment segment = {
			.address = BASE + i * 16 * MIB, .large = true, .pieces = &piece, .piece_count = 1};
		assert_int_equal(neap_torch_restore(world.policy, &segment, NULL), NEAP_OK);
	}
	neap_torch_learn(world.policy, 12 * MIB, 0, 0, BASE + 32 * MIB); /* the third before the first */
	neap_torch_learn_freed(world.policy, BASE + 16 * MIB, BASE);     /* the second before the first */
	void *third = take(&world, 12 * MIB);
	assert_int_equal(at(third), 32 * MIB);
	assert_int_equal(at(take(&world, 12 * MIB)), 16 * MIB);
	assert_int_equal(at(take(&world, 12 * MIB)), 0);
	take(&world, 12 * MIB); /* made during the recording: newer than all of them */
	expect_log(&world, "+12M");
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segments_by_size),
		cmocka_unit_test(test_split_rule),
		cmocka_unit_test(test_best_fit_and_merge),
		cmocka_unit_test(test_streams_and_pools_are_apart),
		cmocka_unit_test(test_record_stream),
		cmocka_unit_test(test_held_frees),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_fraction_and_garbage),
		cmocka_unit_test(test_max_split),
		cmocka_unit_test(test_expandable),
		cmocka_unit_test(test_expandable_goes_whole),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_ties_of_segments),
		cmocka_unit_test(test_ties_of_blocks),
		cmocka_unit_test(test_ages_are_learned),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
