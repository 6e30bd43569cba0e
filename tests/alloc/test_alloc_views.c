/* Blocks of views: made of ends of pages when nothing else is left, without a driver call the second time, ordered
 * behind other streams' work, counted once. The simulator identifies bytes by their page, so it reports a race
 * between two addresses of the same bytes, and work on an address that is no longer mapped.
 *
 * NEAP_SEED=N repeats a run of the random program.
 */
#include "alloc/agent.h"
#include "harness.h"

#define BLOCKS  18
#define STREAMS 3
#define MOST    40
#define PAGE    (2 * MIB)

static const char spec[] = "mem=64MiB,reserved=0,context=8MiB";

/* All 28 pages: eighteen blocks of 3 MiB side by side, and one of 2 MiB. */
static void fill(struct world *world, void *stream, uint64_t at[BLOCKS])
{
	for (int i = 0; i < BLOCKS; i++) {
		at[i] = take(world, 3 * MIB, stream);
		assert_int_equal(at[i], at[0] + 3 * MIB * (uint64_t)i);
	}
	take(world, 2 * MIB, stream);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 56 * MIB);
}

/* Frees 1 MiB at the end of a page and 1 MiB at the beginning of another, each next to a whole page. */
static void make_ends(struct world *world, const uint64_t at[BLOCKS])
{
	give(world, at[1]);
	give(world, at[4]);
}

static bool at_home(const uint64_t at[BLOCKS], uint64_t address)
{
	return address >= at[0] && address < at[0] + 3 * MIB * BLOCKS;
}

static uint64_t page_calls(const struct world *world)
{
	static const char *const names[] = {"cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemCreate",
					    "cuMemRelease"};
	uint64_t calls = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		calls += world->sim->calls(names[i]);
	return calls;
}

struct sums {
	uint64_t mapped, at;
	int odd; /* unmapped blocks that are not whole pages: their bytes are in a view */
};

static void add(void *context, const struct neap_block_info *info)
{
	struct sums *sums = context;
	assert_true(info->address >= sums->at);
	sums->at = info->address + info->bytes;
	if (info->state != NEAP_BLOCK_UNMAPPED)
		sums->mapped += info->bytes;
	else if (info->bytes % PAGE)
		sums->odd++;
}

/* The sums of snapshots and recordings equal what is reserved, except for spare pages. Returns whether a view is in
 * use. */
static bool sums_check(struct world *world)
{
	struct sums sums = {0};
	uint64_t mapped = 0;
	neap_each_block(world->alloc, add, &sums);
	uint64_t spare = (uint64_t)metric(world, NEAP_METRIC_RESERVED_BYTES) - sums.mapped;
	assert_true(spare <= 56 * MIB && spare % PAGE == 0); /* pages that are mapped nowhere */
	for (size_t i = 0; i < world->events.count && world->events.count < EVENTS_KEPT; i++) {
		const struct neap_event *event = &world->events.list[i];
		if (event->kind == NEAP_EVENT_SEGMENT_MAP)
			mapped += event->segment.bytes;
		if (event->kind == NEAP_EVENT_SEGMENT_UNMAP)
			mapped -= event->segment.bytes;
	}
	if (world->events.count < EVENTS_KEPT)
		assert_int_equal(mapped, sums.mapped);
	return sums.odd > 0;
}

static void test_again(void **state)
{
	struct world *world = *state;
	struct neap_block_info info;
	uint64_t at[BLOCKS];
	fill(world, NULL, at);
	make_ends(world, at);
	uint64_t maps = world->sim->calls("cuMemMap");
	uint64_t wide = take(world, 6 * MIB, NULL);
	assert_false(at_home(at, wide));
	assert_int_equal(world->sim->calls("cuMemMap") - maps, 4);
	assert_int_equal(metric(world, NEAP_METRIC_ALLOCATED_BYTES), 56 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 56 * MIB);
	assert_int_equal(neap_block_at(world->alloc, wide, &info), NEAP_OK);
	assert_int_equal(info.bytes, 6 * MIB);
	touch(world, NULL, wide, 6 * MIB, 1, 1000);
	assert_true(sums_check(world));
	world_check(world);
	uint64_t calls = page_calls(world);
	for (int round = 0; round < 3; round++) {
		give(world, wide);
		world_check(world);
		assert_false(sums_check(world));
		/* A request for a little less than the view has gets it, too. */
		assert_int_equal(take(world, 6 * MIB - (size_t)round * 100000, NULL), wide);
		world_check(world);
	}
	give(world, wide);
	assert_int_equal(page_calls(world), calls);
	/* The bytes that it was made of are free at their own addresses. */
	assert_int_equal(take(world, 3 * MIB, NULL), at[1]);
	assert_int_equal(take(world, 3 * MIB, NULL), at[4]);
	world_check(world);
}

/* The same on behalf of another process, for which nothing waits here. */
static void test_other_process(void **state)
{
	struct world *world = *state;
	struct neap_given_back given = {0};
	uint64_t at[BLOCKS], before = 0, after = 0, total = 0;
	fill(world, NULL, at);
	make_ends(world, at);
	uint64_t wide = take(world, 6 * MIB, NULL);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK);
	assert_int_equal(given.bytes, 0);
	world_check(world);
	give(world, wide);
	assert_int_equal(neap_device_memory(world->device, &before, &total, NULL), NEAP_OK);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_OK);
	assert_int_equal(given.bytes, 4 * MIB);
	assert_int_equal(neap_device_memory(world->device, &after, &total, NULL), NEAP_OK);
	assert_int_equal(after - before, 4 * MIB);
	world_check(world);
}

/* Pages that were given back are in no view any more; the pages of a view in use stay. */
static void test_give_back(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS], freed = 0, before = 0, after = 0, total = 0;
	fill(world, NULL, at);
	make_ends(world, at);
	uint64_t wide = take(world, 6 * MIB, NULL);
	touch(world, NULL, wide, 6 * MIB, 1, 1000000);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 0);
	touch(world, NULL, wide, 6 * MIB, 1, 1000000);
	give(world, wide);
	world_check(world);
	assert_int_equal(neap_device_memory(world->device, &before, &total, NULL), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 4 * MIB);
	assert_int_equal(neap_device_memory(world->device, &after, &total, NULL), NEAP_OK);
	assert_int_equal(after - before, 4 * MIB);
	world_check(world);
}

/* A page moves to the small class: it leaves the view, and the view's other pages stay. */
static void test_move(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS];
	fill(world, NULL, at);
	make_ends(world, at);
	uint64_t wide = take(world, 6 * MIB, NULL);
	give(world, wide);
	uint64_t small = take(world, MIB / 2, NULL), others = take(world, MIB, NULL);
	world_check(world);
	give(world, small);
	give(world, others);
	uint64_t maps = world->sim->calls("cuMemMap");
	assert_false(at_home(at, take(world, 6 * MIB, NULL)));
	assert_true(world->sim->calls("cuMemMap") - maps < 4);
	world_check(world);
}

/* Bytes that another stream freed and still works on, and a block that another stream still uses when it is freed. */
static void test_order(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t at[BLOCKS];
	fill(world, one, at);
	touch(world, one, at[1], 3 * MIB, 1, 5000000);
	touch(world, one, at[4], 3 * MIB, 1, 5000000);
	make_ends(world, at);
	uint64_t wide = take(world, 6 * MIB, two);
	touch(world, two, wide, 6 * MIB, 1, 5000000);
	world_check(world);
	assert_int_equal(neap_record_stream(world->alloc, wide, one), NEAP_OK);
	CUevent event;
	assert_int_equal(world->cuda->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
	assert_int_equal(world->cuda->cuEventRecord(event, two), 0);
	assert_int_equal(world->cuda->cuStreamWaitEvent(one, event, 0), 0);
	assert_int_equal(world->cuda->cuEventDestroy(event), 0);
	touch(world, one, wide, 6 * MIB, 0, 5000000);
	give(world, wide);
	world_check(world);
	for (int round = 0; round < 4; round++) {
		void *stream = round % 2 ? one : two;
		wide = take(world, 6 * MIB, stream);
		touch(world, stream, wide, 6 * MIB, 1, 5000000);
		world_check(world);
		give(world, wide);
	}
	touch(world, one, take(world, 3 * MIB, one), 3 * MIB, 1, 1000);
	world_check(world);
}

/* If the whole page of the suffix became free, the prefix is used completely and the page is cut: its rest stays next
 * to the bytes before it. */
static void test_cut(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS];
	fill(world, NULL, at);
	make_ends(world, at);
	uint64_t wide = take(world, 6 * MIB, NULL);
	give(world, wide);
	give(world, at[0]);
	assert_int_equal(take(world, 13 * MIB / 2, NULL), wide - MIB / 2);
	assert_int_equal(take(world, 5 * MIB / 2, NULL), at[0]);
	world_check(world);
}

/* A kept view does not shrink for a block that needs less: it serves its own size again, without mapping. */
static void test_size(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS];
	fill(world, NULL, at);
	for (int i = 1; i < 15; i += 3)
		give(world, at[i]);
	uint64_t wide = take(world, 12 * MIB, NULL);
	assert_false(at_home(at, wide));
	give(world, wide);
	uint64_t first = take(world, 3 * MIB, NULL), second = take(world, 3 * MIB, NULL);
	assert_true(at_home(at, first) && at_home(at, second));
	uint64_t maps = world->sim->calls("cuMemMap");
	give(world, take(world, 8 * MIB, NULL));
	assert_int_equal(world->sim->calls("cuMemMap"), maps + 5);
	give(world, first);
	give(world, second);
	assert_int_equal(take(world, 12 * MIB, NULL), wide);
	assert_int_equal(world->sim->calls("cuMemMap"), maps + 5);
	world_check(world);
}

/* A view's pages stay mapped until the work on its last block has completed. */
static void test_busy(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS];
	fill(world, NULL, at);
	make_ends(world, at);
	give(world, at[7]);
	uint64_t wide = take(world, 6 * MIB, NULL);
	world->sim->hold(1);
	touch(world, NULL, wide, 6 * MIB, 1, 1000000);
	give(world, wide);
	uint64_t wider = take(world, 7 * MIB, NULL); /* of as many pages, two of them the same */
	assert_false(at_home(at, wider) || (wider >= wide - PAGE && wider < wide + 8 * MIB));
	world->sim->step(2000000);
	world->sim->hold(0);
	world_check(world);
}

static bool never(void *context, void *stream)
{
	(void)context;
	(void)stream;
	return false;
}

/* A graph may be under capture: no view is made, and no kept view is used. */
static void test_pools(void **state)
{
	struct world *world = *state;
	uint64_t at[BLOCKS], wide = 0;
	fill(world, NULL, at);
	make_ends(world, at);
	for (int round = 0; round < 2; round++) {
		uint64_t maps = world->sim->calls("cuMemMap");
		assert_int_equal(neap_pool_begin(world->alloc, 0, 1, never, NULL, NULL), NEAP_OK);
		assert_int_not_equal(neap_malloc(world->alloc, 6 * MIB, NULL, &wide, NULL), NEAP_OK);
		assert_int_equal(world->sim->calls("cuMemMap"), maps);
		assert_int_equal(neap_pool_end(world->alloc, 0, 1), NEAP_OK);
		assert_int_equal(neap_pool_release(world->alloc, 0, 1), NEAP_OK);
		give(world, take(world, 6 * MIB, NULL));
		world_check(world);
	}
}

struct shadow {
	uint64_t address, bytes;
	int stream;
};

/* On a device that is always nearly full, with a check after every operation. */
static void test_random(void **state)
{
	struct world *world = *state;
	struct shadow blocks[MOST];
	void *streams[STREAMS] = {NULL, stream_new(world), stream_new(world)};
	uint64_t random = test_seed(), freed = 0;
	size_t count = 0;
	int views = 0;
	for (int step = 0; step < 3000; step++) {
		uint64_t what = random_next(&random) % 100;
		size_t which = count ? random_next(&random) % count : 0;
		struct shadow *block = &blocks[which];
		if (what < 55 && count < MOST) {
			struct shadow fresh = {.bytes = (1 + random_next(&random) % 14) * 500000,
					       .stream = (int)(random_next(&random) % STREAMS)};
			if (neap_malloc(world->alloc, fresh.bytes, streams[fresh.stream], &fresh.address, NULL))
				continue;
			touch(world, streams[fresh.stream], fresh.address, fresh.bytes, 1,
			      random_next(&random) % 1000000);
			blocks[count++] = fresh;
		} else if (what < 98 && count) {
			if (what < 65)
				assert_int_equal(neap_record_stream(world->alloc, block->address,
								    streams[(block->stream + 1) % STREAMS]),
						 NEAP_OK);
			give(world, block->address);
			*block = blocks[--count];
		} else if (what == 99) {
			assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
		}
		world_check(world);
		views += sums_check(world);
	}
	assert_true(views > 100);
	while (count)
		give(world, blocks[--count].address);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 0);
	world_check(world);
}

static int setup(void **state)
{
	struct world *world = calloc(1, sizeof *world);
	world_open(world, spec);
	world_alloc(world, 0);
	*state = world;
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	free(*state);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_again), TEST(test_give_back), TEST(test_other_process), TEST(test_move), TEST(test_order),
		TEST(test_pools), TEST(test_cut),       TEST(test_size),          TEST(test_busy), TEST(test_random)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
