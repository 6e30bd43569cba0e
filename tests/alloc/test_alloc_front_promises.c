/* What the front (src/alloc/front) promises, one promise a test. One thread makes the requests and knows whether a
 * lane or the core serves each. A test fails if the lines that keep its promise are removed. */
#include "alloc/agent.h"
#include "alloc/front/front.h"
#include "harness.h"

#define PAGE  (2 * MIB)
#define BLOCK 4096

/* Requests that lanes have served since the allocator's lock was last taken. */
static int64_t hits(const struct world *world)
{
	const struct neap_front *front = &world->alloc->front;
	int64_t sum = 0;
	for (uint32_t i = 0; i < front->count; i++)
		sum += front->lanes[i]->takes[NEAP_CLASS_LARGE].blocks +
		       front->lanes[i]->takes[NEAP_CLASS_SMALL].blocks;
	return sum;
}

static uint64_t take_hit(struct world *world, size_t bytes, void *stream)
{
	int64_t before = hits(world);
	uint64_t address = take(world, bytes, stream);
	assert_int_equal(hits(world), before + 1);
	return address;
}

static struct neap_lane *lane_of(const struct world *world, void *stream)
{
	const struct neap_front *front = &world->alloc->front;
	for (uint32_t i = 0; i < front->count; i++)
		if (front->streams[i] == stream)
			return front->lanes[i];
	fail_msg("the stream has no lane");
	return NULL;
}

/* Allocates and frees `count` blocks, at most 16, until the stream's bin has them. A block of another size stays live
 * and is returned. */
static uint64_t fill_bin(struct world *world, size_t bytes, int count, void *stream)
{
	uint64_t blocks[16], live = take(world, 512, stream);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < count; i++)
			blocks[i] = take(world, bytes, stream);
		for (int i = 0; i < count; i++)
			give(world, blocks[i]);
	}
	world_look(world);
	assert_true(lane_of(world, stream)->binned_bytes >= bytes * (uint64_t)count);
	return live;
}

/* Both streams get a page before the bins are filled, because getting one empties the bins. Both have worked lately,
 * so that both get headroom. */
static void fill_bins(struct world *world, size_t bytes, int count, void *const streams[2])
{
	for (int i = 0; i < 2; i++)
		take(world, 512, streams[i]);
	for (int i = 0; i < 2; i++)
		fill_bin(world, bytes, count, streams[i]);
	for (int i = 0; i < 2; i++)
		give(world, take(world, bytes, streams[i]));
}

static struct neap_tag_bytes tag_now(struct world *world, const char *name)
{
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2], found = {0};
	size_t count = neap_tag_stats(world->alloc, tags, COUNT(tags));
	for (size_t i = 0; i < count; i++)
		if (strcmp(tags[i].tag, name) == 0)
			found = tags[i];
	return found;
}

/* A tag's peak is exact even if other tags had more, which gives all of them together headroom. */
static void tag_has_room_of_its_own(void **state)
{
	struct world *world = *state;
	uint64_t blocks[8];
	fill_bin(world, BLOCK, 8, NULL);
	for (int i = 0; i < 8; i++) {
		neap_tag_set(i < 2 ? "few" : "many");
		blocks[i] = take(world, BLOCK, NULL);
	}
	for (int i = 0; i < 8; i++)
		give(world, blocks[i]);
	assert_int_equal(tag_now(world, "few").peak_bytes, 2 * BLOCK);
	neap_tag_set("few");
	for (int i = 0; i < 2; i++)
		take_hit(world, BLOCK, NULL);
	for (int i = 2; i < 5; i++)
		take(world, BLOCK, NULL);
	assert_int_equal(tag_now(world, "few").live_bytes, 5 * BLOCK);
	assert_int_equal(tag_now(world, "few").peak_bytes, 5 * BLOCK);
	neap_tag_set(NULL);
	world_check(world);
}

/* Has `count` more blocks live at once. */
static void peak(struct world *world, int count, size_t bytes)
{
	uint64_t blocks[8];
	for (int i = 0; i < count; i++)
		blocks[i] = take(world, bytes, NULL);
	for (int i = 0; i < count; i++)
		give(world, blocks[i]);
}

/* Each of two lanes has half of the headroom, whichever figure reaches its peak first: each has served two requests
 * by itself when a third would be too much for both together. */
static void lanes_share_what_room_there_is(void **state)
{
	static const struct {
		size_t bytes; /* of each request */
		struct {
			int count;
			size_t bytes;
		} peaks[2];
	} rows[] = {
		{BLOCK, {{4, BLOCK}, {1, MIB}}}, /* blocks */
		{513, {{4, 1024}, {8, 512}}},    /* bytes */
		{1024, {{8, 513}}},              /* bytes asked for */
	};
	struct world *world = *state;
	void *streams[2] = {NULL, stream_new(world)};
	for (size_t row = 0; row < COUNT(rows); row++) {
		fill_bins(world, rows[row].bytes, 6, streams);
		neap_reset_peak_stats(world->alloc);
		for (int i = 0; i < 2; i++)
			peak(world, rows[row].peaks[i].count, rows[row].peaks[i].bytes);
		for (int i = 0; i < 2; i++)
			give(world, take(world, rows[row].bytes, streams[i]));
		for (int i = 0; i < 4; i++)
			take_hit(world, rows[row].bytes, streams[i % 2]);
		for (int i = 0; i < 2; i++)
			take(world, rows[row].bytes, streams[i]);
		world_look(world);
	}
}

/* The same for a tag, when other tags had more. */
static void lanes_share_a_tags_room(void **state)
{
	struct world *world = *state;
	void *streams[2] = {NULL, stream_new(world)};
	fill_bins(world, BLOCK, 6, streams);
	peak(world, 8, BLOCK);
	neap_tag_set("both");
	peak(world, 4, BLOCK);
	for (int i = 0; i < 2; i++)
		give(world, take(world, BLOCK, streams[i]));
	assert_int_equal(tag_now(world, "both").peak_bytes, 4 * BLOCK);
	for (int i = 0; i < 4; i++)
		take_hit(world, BLOCK, streams[i % 2]);
	for (int i = 0; i < 2; i++)
		take(world, BLOCK, streams[i]);
	assert_int_equal(tag_now(world, "both").peak_bytes, 6 * BLOCK);
	neap_tag_set(NULL);
	world_look(world);
}

/* A name that is new to the allocator gets its bytes counted, even if the bin has a block. */
static void new_tag_is_counted(void **state)
{
	struct world *world = *state;
	fill_bin(world, BLOCK, 4, NULL);
	take_hit(world, BLOCK, NULL);
	neap_tag_set("new");
	uint64_t block = take(world, BLOCK, NULL);
	neap_tag_set(NULL);
	assert_int_equal(tag_now(world, "new").live_bytes, BLOCK);
	give(world, block);
	assert_int_equal(tag_now(world, "new").live_bytes, 0);
	world_check(world);
}

/* The lowest and the highest figures since the program last asked are exact, even if the peak is higher. */
static void extremes_are_exact(void **state)
{
	struct world *world = *state;
	uint64_t blocks[4], lowest = 0, highest = 0, before = 0;
	fill_bin(world, BLOCK, 8, NULL);
	for (int i = 0; i < 4; i++)
		blocks[i] = take(world, BLOCK, NULL);
	neap_take_extremes(world->alloc, &lowest, &before);
	before = (uint64_t)metric(world, NEAP_METRIC_ALLOCATED_BYTES);
	for (int i = 0; i < 3; i++)
		give(world, blocks[i]);
	for (int i = 0; i < 3; i++)
		blocks[i] = take(world, BLOCK, NULL);
	neap_take_extremes(world->alloc, &lowest, &highest);
	assert_int_equal(lowest, before - 3 * BLOCK);
	assert_int_equal(highest, before);
	for (int i = 0; i < 3; i++)
		take(world, BLOCK, NULL);
	for (int i = 0; i < 3; i++)
		give(world, blocks[i]);
	neap_take_extremes(world->alloc, &lowest, &highest);
	assert_int_equal(lowest, before);
	assert_int_equal(highest, before + 3 * BLOCK);
	world_check(world);
}

/* The core frees the last live block of a stream and records an event behind it: afterwards the program may destroy
 * the stream, and its memory is still known to be idle. */
static void last_block_closes_its_stream(void **state)
{
	struct world *world = *state;
	struct neap_given_back given = {0};
	void *stream = stream_new(world);
	take(world, 512, NULL);
	uint64_t live = fill_bin(world, 2 * PAGE, 2, stream), block = take_hit(world, 2 * PAGE, stream);
	give(world, live);
	uint64_t records = world->sim->calls("cuEventRecord");
	give(world, block);
	assert_int_equal(world->sim->calls("cuEventRecord"), records + 1);
	assert_int_equal(world->cuda->cuStreamSynchronize(stream), 0);
	assert_int_equal(world->cuda->cuStreamDestroy(stream), 0);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK);
	assert_true(given.bytes >= 4 * PAGE && !given.more);
	world_check(world);
}

/* While freed blocks wait for other streams, some requests go to the core, however often a bin has a block. */
static void hits_do_not_hold_up_pending_frees(void **state)
{
	struct world *world = *state;
	void *other = stream_new(world);
	int served = 0;                           /* by the lane */
	give(world, take(world, 4 * PAGE, NULL)); /* so that the peak is not in the way */
	uint64_t waiting = take(world, 2 * PAGE, NULL);
	fill_bin(world, BLOCK, 4, NULL);
	assert_int_equal(neap_record_stream(world->alloc, waiting, other), NEAP_OK);
	world->sim->hold(1);
	touch(world, other, waiting, 2 * PAGE, 0, 1000000);
	give(world, waiting);
	assert_int_equal(metric(world, NEAP_METRIC_ACTIVE_BYTES) - metric(world, NEAP_METRIC_ALLOCATED_BYTES),
			 2 * PAGE);
	world->sim->step(2000000);
	for (int i = 0; i < 64; i++) {
		int64_t before = hits(world);
		uint64_t block = take(world, BLOCK, NULL);
		served += hits(world) == before + 1;
		give(world, block);
	}
	assert_in_range(served, 48, 63);
	assert_int_equal(metric(world, NEAP_METRIC_ACTIVE_BYTES), metric(world, NEAP_METRIC_ALLOCATED_BYTES));
	world->sim->hold(0);
	world_check(world);
}

static void none_is_given(struct world *world)
{
	struct neap_given_back given = {0};
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK);
	assert_int_equal(given.bytes, 0);
	assert_true(given.more);
}

/* A bin's blocks wait for the work that was queued before the lane got them. `last`: they were the stream's last live
 * ones, which the core puts into the bin. */
static void emptied_bin_waits(struct world *world, bool last)
{
	struct neap_given_back given = {0};
	void *stream = stream_new(world);
	take(world, 512, NULL);
	uint64_t live = fill_bin(world, 2 * PAGE, 1, stream);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK); /* all of it is known to be complete */
	if (last)
		give(world, live);
	uint64_t block = take(world, 2 * PAGE, stream);
	world->sim->hold(1);
	touch(world, stream, block, 2 * PAGE, 1, 1000000);
	give(world, block);
	assert_true(lane_of(world, stream)->level[NEAP_CLASS_LARGE].blocks == (last ? 0 : -1));
	none_is_given(world);
	world->sim->step(2000000);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK);
	assert_true(given.bytes >= 2 * PAGE);
	world->sim->hold(0);
	world_check(world);
}

static void emptied_bin_waits_for_its_lane(void **state) { emptied_bin_waits(*state, false); }

static void emptied_bin_waits_for_the_core(void **state) { emptied_bin_waits(*state, true); }

/* Memory that was freed in a lane only: the device waits before it is unmapped. */
static void lanes_frees_are_waited_for(void **state)
{
	struct world *world = *state;
	uint64_t freed = 0;
	fill_bin(world, 2 * PAGE, 1, NULL);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	uint64_t block = take(world, 2 * PAGE, NULL);
	touch(world, NULL, block, 2 * PAGE, 1, 1000000000);
	give(world, block);
	assert_int_equal(lane_of(world, NULL)->level[NEAP_CLASS_LARGE].blocks, -1);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 2 * PAGE);
	world_check(world);
}

static int filter_calls;

static bool all_streams(void *context, void *stream)
{
	(void)context, (void)stream;
	filter_calls++;
	return true;
}

/* While a private pool is open its filter sees each request, and the pool serves the request. The lane never gets
 * that block, not even if it is freed after the pool was closed. */
static void pool_is_private(void **state)
{
	struct world *world = *state;
	struct neap_block_info info;
	void *fresh = stream_new(world); /* it has no lane yet */
	fill_bin(world, BLOCK, 4, NULL);
	take_hit(world, BLOCK, NULL);
	assert_int_equal(neap_pool_begin(world->alloc, 1, 2, all_streams, NULL, NULL), NEAP_OK);
	filter_calls = 0;
	uint64_t block = take(world, BLOCK, NULL), others = take(world, BLOCK, fresh);
	assert_true(filter_calls > 0);
	assert_int_equal(neap_block_at(world->alloc, block, &info), NEAP_OK);
	assert_true(info.pool_high == 1 && info.pool_low == 2);
	assert_int_equal(neap_pool_end(world->alloc, 1, 2), NEAP_OK);
	for (int i = 0; i < 2; i++) {
		fill_bin(world, BLOCK, 4, i ? fresh : NULL);
		give(world, i ? others : block);
		assert_int_equal(neap_block_at(world->alloc, take(world, BLOCK, i ? fresh : NULL), &info), NEAP_OK);
		assert_true(info.pool_high == 0 && info.pool_low == 0);
	}
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_OK);
	world_check(world);
}

/* Bins hold a small part of the memory, whether the core or the lane puts blocks into them. */
static void bins_are_bounded(void **state)
{
	struct world *world = *state;
	uint64_t blocks[10], most = neap_front_headroom_bytes(world->alloc);
	assert_in_range(most, 3 * 8 * MIB, 4 * 8 * MIB - 1);
	fill_bin(world, 8 * MIB, 2, NULL);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 10; i++)
			blocks[i] = take(world, 8 * MIB, NULL);
		for (int i = 0; i < 10; i++) {
			give(world, blocks[i]);
			if (round % 2)
				world_look(world); /* computes the limit again, from what is in the bins */
		}
		world_look(world);
		assert_in_range(lane_of(world, NULL)->binned_bytes, 8 * MIB, most);
	}
	world_check(world);
}

/* When the device is nearly full, bins are emptied and stay closed: their bytes are for everyone. */
static void bins_are_shut_when_memory_is_short(void **state)
{
	struct world *world = *state;
	fill_bin(world, BLOCK, 4, NULL);
	take_hit(world, BLOCK, NULL);
	uint64_t large = take(world, 220 * MIB, NULL);
	assert_int_equal(lane_of(world, NULL)->binned_bytes, 0);
	for (int i = 0; i < 4; i++)
		give(world, take(world, BLOCK, NULL));
	assert_int_equal(hits(world), 0);
	assert_int_equal(lane_of(world, NULL)->binned_bytes, 0);
	give(world, large);
	world_check(world);
}

struct seen {
	uint64_t held[64];
	size_t count;
};

static void see(void *context, const struct neap_event *event)
{
	struct seen *seen = context;
	if (event->kind == NEAP_EVENT_ALLOC && seen->count < COUNT(seen->held))
		seen->held[seen->count++] = event->allocation.held.allocated_bytes;
}

/* The events of one lane count what the other lanes have done since the lock was taken. */
static void events_count_all_lanes(void **state)
{
	struct world *world = *state;
	struct seen seen = {0};
	const struct neap_observer observer = {.event = see, .context = &seen, .concurrent = true};
	void *streams[2] = {NULL, stream_new(world)};
	fill_bins(world, BLOCK, 8, streams);
	uint64_t held = (uint64_t)metric(world, NEAP_METRIC_ALLOCATED_BYTES);
	neap_observe(world->alloc, &observer);
	for (int i = 0; i < 6; i++)
		take_hit(world, BLOCK, streams[i % 2]);
	neap_observe(world->alloc, NULL);
	assert_int_equal(seen.count, 6);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(seen.held[i], held + (i + 1) * BLOCK);
	world_check(world);
}

static void no_change(void *context, const struct neap_alloc_change *change)
{
	*(int *)context += change->kind == NEAP_EVENT_ALLOC;
}

/* A watcher of blocks sees every block. */
static void watcher_sees_all(void **state)
{
	struct world *world = *state;
	int changes = 0;
	const struct neap_watcher watcher = {.changed = no_change, .context = &changes, .blocks = true};
	fill_bin(world, BLOCK, 8, NULL);
	neap_watch(world->alloc, &watcher);
	assert_int_equal(lane_of(world, NULL)->binned_bytes, 0); /* no lane serves any more, so no bin has blocks */
	for (int i = 0; i < 8; i++)
		take(world, BLOCK, NULL);
	neap_watch(world->alloc, NULL);
	assert_int_equal(changes, 8);
	world_check(world);
}

/* When large sizes share a bin, a block of one size never serves another. */
static void bin_is_of_one_size(void **state)
{
	struct world *world = *state;
	struct neap_lane *lane = NULL;
	uint64_t bytes = PAGE, other = 0;
	fill_bin(world, bytes, 2, NULL);
	lane = lane_of(world, NULL);
	for (uint64_t size = bytes + BLOCK_ALIGNMENT; !other && size < 64 * MIB; size += BLOCK_ALIGNMENT)
		other = lane_bin(lane, size) == lane_bin(lane, bytes) ? size : 0;
	assert_true(other > bytes);
	uint64_t smaller = take(world, bytes, NULL);
	give(world, smaller);
	uint64_t larger = take(world, other, NULL);
	assert_true(larger != smaller);
	touch(world, NULL, larger, other, 1, 1000);
	give(world, larger);
	world_check(world);
}

static int open_world(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	struct neap_alloc_options options = {.no_plan = true};
	world_open(world, "mem=256MiB,reserved=0,context=16MiB");
	if (neap_alloc_create(world->device, &options, &world->alloc, NULL))
		return -1;
	*state = world;
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tag_has_room_of_its_own),
		TEST(lanes_share_what_room_there_is),
		TEST(lanes_share_a_tags_room),
		TEST(new_tag_is_counted),
		TEST(extremes_are_exact),
		TEST(last_block_closes_its_stream),
		TEST(hits_do_not_hold_up_pending_frees),
		TEST(emptied_bin_waits_for_its_lane),
		TEST(emptied_bin_waits_for_the_core),
		TEST(lanes_frees_are_waited_for),
		TEST(pool_is_private),
		TEST(bins_are_bounded),
		TEST(bins_are_shut_when_memory_is_short),
		TEST(events_count_all_lanes),
		TEST(watcher_sees_all),
		TEST(bin_is_of_one_size),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
