/* Random malloc, free, record_stream and empty_cache over several streams, with kernels that touch the blocks while
 * they are queued far behind: the simulator reports a race or an access to unmapped memory where the allocator gave
 * bytes away too early. A ledger of our own says what is live; the invariants are checked after every operation.
 *
 * Usage: test_alloc_random [SPEC [roomy]]    (of the simulated device, on which memory is tight unless it is roomy;
 * NEAP_SEED=N repeats a run)
 */
#include "harness.h"

#define STREAMS 4
#define MOST    96

struct shadow {
	uint64_t address, bytes;
	int stream;
	uint32_t used_on; /* bits of streams that were recorded */
};

struct game {
	struct world world;
	uint64_t random, live_bytes, ooms;
	void *streams[STREAMS];
	struct shadow blocks[MOST];
	size_t count;
};

static const char *spec = "mem=96MiB,reserved=0,context=8MiB";
static bool roomy; /* enough for all, so that streams come to share what they cache */

static uint64_t pick(struct game *game, uint64_t below) { return random_next(&game->random) % below; }

/* How many pages hold bytes of live blocks. Blocks do not overlap, but may share pages. */
static uint64_t live_pages(const struct game *game, uint64_t page)
{
	uint64_t seen[MOST * (24 + 2)];
	size_t count = 0;
	for (size_t i = 0; i < game->count; i++) {
		const struct shadow *block = &game->blocks[i];
		for (uint64_t at = block->address / page; at * page < block->address + block->bytes; at++) {
			size_t same = 0;
			while (same < count && seen[same] != at)
				same++;
			seen[same] = at;
			count += same == count;
		}
	}
	return count;
}

/* Out of memory must mean that the pages without a live byte, whichever stream cached them, are too few. */
static void check_refusal(const struct game *game, uint64_t bytes)
{
	const struct neap_device_info *info = neap_device_info(game->world.device);
	uint64_t page = info->page_bytes, limit = info->total_bytes - neap_device_context_bytes(game->world.device);
	double fraction = neap_get_fraction(game->world.alloc);
	if (!page) /* segments leave only as a whole */
		return;
	if (fraction < 1 && (uint64_t)(fraction * (double)info->total_bytes) < limit)
		limit = (uint64_t)(fraction * (double)info->total_bytes);
	uint64_t live = live_pages(game, page);
	if (live + (bytes + page - 1) / page <= limit / page)
		fail_msg("%llu bytes were refused while only %llu of %llu pages held live bytes",
			 (unsigned long long)bytes, (unsigned long long)live, (unsigned long long)(limit / page));
}

static void play_take(struct game *game)
{
	struct neap_error err = {0};
	if (game->count == MOST)
		return;
	uint64_t limit = pick(game, 3) ? 64 * 1024 : pick(game, 3) ? 3 * MIB : 24 * MIB;
	struct shadow block = {.bytes = 1 + pick(game, limit), .stream = (int)pick(game, STREAMS)};
	enum neap_status status =
		neap_malloc(game->world.alloc, block.bytes, game->streams[block.stream], &block.address, &err);
	if (status == NEAP_EOOM) {
		game->ooms++;
		check_refusal(game, block.bytes);
		return;
	}
	if (status)
		fail_msg("%s", err.message);
	for (size_t i = 0; i < game->count; i++)
		assert_true(block.address + block.bytes <= game->blocks[i].address ||
			    game->blocks[i].address + game->blocks[i].bytes <= block.address);
	game->live_bytes += block.bytes;
	game->blocks[game->count++] = block;
	touch(&game->world, game->streams[block.stream], block.address, block.bytes, 1, pick(game, 1000000));
}

static void play_give(struct game *game, size_t index)
{
	struct shadow block = game->blocks[index];
	game->blocks[index] = game->blocks[--game->count];
	game->live_bytes -= block.bytes;
	give(&game->world, block.address);
}

/* Another stream reads the block behind what its own stream has queued. */
static void play_share(struct game *game, size_t index)
{
	struct shadow *block = &game->blocks[index];
	int stream = (int)pick(game, STREAMS);
	const struct neap_cuda *cuda = game->world.cuda;
	CUevent event;
	if (stream == block->stream)
		return;
	assert_int_equal(cuda->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
	assert_int_equal(cuda->cuEventRecord(event, game->streams[block->stream]), 0);
	assert_int_equal(cuda->cuStreamWaitEvent(game->streams[stream], event, 0), 0);
	assert_int_equal(cuda->cuEventDestroy(event), 0);
	touch(&game->world, game->streams[stream], block->address, block->bytes, 0, pick(game, 3000000));
	assert_int_equal(neap_record_stream(game->world.alloc, block->address, game->streams[stream]), NEAP_OK);
	block->used_on |= 1u << stream;
}

static void play_fraction(struct game *game)
{
	static const double fractions[] = {1, 1, 0.75, 0.5};
	assert_int_equal(neap_set_fraction(game->world.alloc, fractions[pick(game, 4)], NULL), NEAP_OK);
}

static void test_random(void **state)
{
	struct game *game = *state;
	struct neap_stats stats;
	uint64_t freed = 0;
	for (int step = 0; step < 4000; step++) {
		uint64_t what = pick(game, 100);
		if (what < 45)
			play_take(game);
		else if (what < 80 && game->count)
			play_give(game, pick(game, game->count));
		else if (what < 97 && game->count)
			play_share(game, pick(game, game->count));
		else if (what < 99)
			assert_int_equal(neap_empty_cache(game->world.alloc, &freed, NULL), NEAP_OK);
		else
			play_fraction(game);
		world_check(&game->world);
		neap_get_stats(game->world.alloc, &stats);
		assert_int_equal(stats.metric[NEAP_METRIC_REQUESTED_BYTES][NEAP_CLASS_ALL].current, game->live_bytes);
		assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATION][NEAP_CLASS_ALL].current, game->count);
	}
	while (game->count)
		play_give(game, 0);
	assert_int_equal(neap_empty_cache(game->world.alloc, &freed, NULL), NEAP_OK);
	neap_get_stats(game->world.alloc, &stats);
	assert_int_equal(stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current, 0);
	assert_int_equal(stats.num_ooms, game->ooms);
	/* The run was tight enough to be worth it. */
	assert_true(roomy || (game->ooms > 0 && stats.num_alloc_retries > 0));
	world_check(&game->world);
}

static int setup(void **state)
{
	struct game *game = calloc(1, sizeof *game);
	world_open(&game->world, spec);
	world_alloc(&game->world, 0);
	game->random = test_seed();
	for (int i = 1; i < STREAMS; i++)
		game->streams[i] = stream_new(&game->world); /* 0 is the default stream */
	*state = game;
	return 0;
}

static int teardown(void **state)
{
	struct game *game = *state;
	world_close(&game->world);
	free(game);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		spec = argv[1];
	roomy = argc > 2 && strcmp(argv[2], "roomy") == 0;
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_random, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
