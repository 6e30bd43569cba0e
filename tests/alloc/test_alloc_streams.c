/* Memory that one stream cached serves another stream: pages move behind an event. The simulator reports a page that
 * is unmapped too early. */
#include "harness.h"

/* Pages move from one stream to another behind an event, without waiting for the device and without memory from the
 * driver. */
static void test_pages_move(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t kept = take(world, 1 * MIB, one), other = take(world, 1 * MIB, two);
	uint64_t a = take(world, 200 * MIB, one), c = take(world, 30 * MIB, one);
	touch(world, one, a, 200 * MIB, 1, 1000000);
	give(world, a);
	uint64_t syncs = world->sim->calls("cuCtxSynchronize"), releases = world->sim->calls("cuMemRelease");
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 234 * MIB); /* of 240 */
	uint64_t b = take(world, 150 * MIB, two);
	touch(world, two, b, 150 * MIB, 1, 1000);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 240 * MIB);
	world_check(world);
	uint64_t d = take(world, 56 * MIB, one); /* all that is left */
	assert_int_equal(world->sim->calls("cuMemRelease"), releases);
	assert_int_equal(world->sim->calls("cuCtxSynchronize"), syncs);
	touch(world, one, d, 56 * MIB, 1, 1000);
	touch(world, one, c, 30 * MIB, 1, 1000);
	give(world, b);
	give(world, c);
	give(world, d);
	give(world, kept);
	give(world, other);
	world_check(world);
}

/* Cached memory outlives its stream: giving it back never touches the handle. */
static void test_destroyed_stream(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t freed = 0;
	uint64_t a = take(world, 200 * MIB, one);
	touch(world, one, a, 200 * MIB, 1, 1000);
	assert_int_equal(world->cuda->cuStreamSynchronize(one), 0);
	give(world, a);
	assert_int_equal(world->cuda->cuStreamDestroy(one), 0);
	a = take(world, 200 * MIB, two);
	touch(world, two, a, 200 * MIB, 1, 1000);
	give(world, a);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 240 * MIB); /* new pages first, then those of the destroyed stream */
	world_check(world);
}

/* A stream whose last block was freed may be destroyed: its event was recorded then. */
static void test_closed_stream(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t other = take(world, 1 * MIB, two), a = take(world, 200 * MIB, one);
	touch(world, one, a, 200 * MIB, 1, 1000000);
	give(world, a);
	assert_int_equal(world->cuda->cuStreamDestroy(one), 0);
	uint64_t syncs = world->sim->calls("cuCtxSynchronize"), waits = world->sim->calls("cuEventSynchronize");
	a = take(world, 200 * MIB, two);
	touch(world, two, a, 200 * MIB, 1, 1000);
	assert_int_equal(world->sim->calls("cuCtxSynchronize"), syncs);
	assert_int_equal(world->sim->calls("cuEventSynchronize"), waits + 1);
	give(world, a);
	give(world, other);
	world_check(world);
}

/* Streams that take turns with much memory come to share it: nothing is mapped any more, each waits for the other on
 * the device only, and no byte is touched by both at once. */
static void test_turns(void **state)
{
	struct world *world = *state;
	void *streams[2] = {stream_new(world), stream_new(world)};
	uint64_t kept[2] = {take(world, 1 * MIB, streams[0]), take(world, 3 * MIB, streams[1])}, maps = 0, syncs = 0;
	for (int turn = 0; turn < 20; turn++) {
		void *stream = streams[turn % 2];
		uint64_t large = take(world, 150 * MIB, stream), other = take(world, 20 * MIB, stream);
		touch(world, stream, large, 150 * MIB, 1, 1000000);
		touch(world, stream, other, 20 * MIB, 1, 1000000);
		give(world, large);
		give(world, other);
		world_check(world);
		if (turn == 9) {
			maps = world->sim->calls("cuMemMap") + world->sim->calls("cuMemUnmap");
			syncs = world->sim->calls("cuCtxSynchronize") + world->sim->calls("cuEventSynchronize");
		}
	}
	assert_int_equal(world->sim->calls("cuMemMap") + world->sim->calls("cuMemUnmap"), maps);
	assert_int_equal(world->sim->calls("cuCtxSynchronize") + world->sim->calls("cuEventSynchronize"), syncs);
	/* A request for nearly everything separates them again: all but the kept memory is available. */
	uint64_t all = take(world, 230 * MIB, streams[1]);
	touch(world, streams[1], all, 230 * MIB, 1, 1000);
	world_check(world);
	give(world, all);
	give(world, kept[0]);
	give(world, kept[1]);
	world_check(world);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_pages_move), TEST(test_destroyed_stream),
					   TEST(test_closed_stream), TEST(test_turns)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
