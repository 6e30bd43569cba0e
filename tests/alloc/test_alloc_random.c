/* Random malloc, free, record_stream and empty_cache over several streams. Kernels that touch the blocks are queued
 * far behind: if the allocator gave bytes away too early, the simulator reports a race or an access to unmapped
 * memory. A ledger of the test knows what is live; the invariants are checked after every operation.
 *
 * Usage: test_alloc_random [SPEC [roomy | few]]. SPEC is the simulated device, on which memory is tight unless the
 * second argument is `roomy`. NEAP_SEED=N repeats a run.
 *
 * `few`: few sizes, and the bins stay as they are, so that the front serves a good part of the requests.
 */
#include "alloc/agent.h"
#include "alloc/front/front.h"
#include "harness.h"

#define STREAMS 4
#define MOST    96

struct shadow {
	uint64_t address, bytes;
	int stream;
	uint32_t used_on; /* bits of the recorded streams */
};

struct game {
	struct world world;
	uint64_t random, live_bytes, ooms;
	uint64_t takes, hits; /* hits: those of the front */
	void *streams[STREAMS];
	struct shadow blocks[MOST];
	size_t count;
	bool calm; /* few: the device is not full */
};

static const char *spec = "mem=96MiB,reserved=0,context=8MiB";
static bool roomy; /* enough memory for all, so that streams come to share what they cache */
static bool few;

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

/* Out of memory is right only if there are too few pages without a live byte, whichever stream cached them. */
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

static uint64_t pick_bytes(struct game *game)
{
	static const uint64_t sizes[] = {1000, 40000, MIB, 3 * MIB, 9 * MIB};
	uint64_t limit = pick(game, 3) ? 64 * 1024 : pick(game, 3) ? 3 * MIB : 24 * MIB;
	return few ? sizes[pick(game, game->calm ? 4 : 5)] : 1 + pick(game, limit);
}

/* Requests that lanes have served since the allocator's lock was last taken. */
static uint64_t hits_now(const struct game *game)
{
	const struct neap_front *front = &game->world.alloc->front;
	uint64_t hits = 0;
	for (uint32_t i = 0; i < front->count; i++)
		hits += (uint64_t)(front->lanes[i]->takes[NEAP_CLASS_LARGE].blocks +
				   front->lanes[i]->takes[NEAP_CLASS_SMALL].blocks);
	return hits;
}

static void take_bytes(struct game *game, uint64_t bytes)
{
	struct neap_error err = {0};
	struct shadow block = {.bytes = bytes, .stream = (int)pick(game, STREAMS)};
	uint64_t hits = hits_now(game);
	enum neap_status status =
		neap_malloc(game->world.alloc, block.bytes, game->streams[block.stream], &block.address, &err);
	game->takes++;
	game->hits += hits_now(game) == hits + 1;
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

static void play_take(struct game *game)
{
	if (game->count < MOST)
		take_bytes(game, pick_bytes(game));
}

static void play_give(struct game *game, size_t index)
{
	struct shadow block = game->blocks[index];
	game->blocks[index] = game->blocks[--game->count];
	game->live_bytes -= block.bytes;
	give(&game->world, block.address);
}

/* Another stream reads the block after the work that its own stream has queued. */
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

/* Takes large blocks until memory runs out, with half of what was live in the cache. */
static void play_out(struct game *game)
{
	uint64_t ooms = game->ooms;
	while (game->count > MOST / 2)
		play_give(game, 0);
	while (game->ooms == ooms && game->count < MOST)
		take_bytes(game, 9 * MIB);
}

static void play(struct game *game)
{
	uint64_t what = pick(game, 100), freed = 0;
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
}

/* Allocates and frees much while memory is plentiful, then takes all there is, and so on: the memory that lanes got
 * has to move. */
static void play_few(struct game *game, int step)
{
	struct neap_given_back given;
	uint64_t what = pick(game, 1000), freed = 0;
	game->calm = step % 500 < 350;
	uint64_t most = game->calm ? MOST / 4 : MOST;
	if (what < 20 && game->count)
		play_share(game, pick(game, game->count));
	else if (what < 22)
		neap_give_back(game->world.alloc, &given, NULL); /* or it cannot give back, and says so */
	else if (step % 500 == 0)
		assert_int_equal(neap_empty_cache(game->world.alloc, &freed, NULL), NEAP_OK);
	else if (what < 24)
		play_fraction(game);
	else if (game->count && pick(game, 2 * most) < game->count + most / 2)
		play_give(game, pick(game, game->count));
	else
		play_take(game);
}

static void check(struct game *game)
{
	struct neap_stats stats;
	if (few)
		world_look(&game->world);
	else
		world_check(&game->world);
	neap_get_stats(game->world.alloc, &stats);
	assert_int_equal(stats.metric[NEAP_METRIC_REQUESTED_BYTES][NEAP_CLASS_ALL].current, game->live_bytes);
	assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATION][NEAP_CLASS_ALL].current, game->count);
}

static void test_random(void **state)
{
	struct game *game = *state;
	struct neap_stats stats;
	uint64_t freed = 0;
	for (int step = 0; step < (few ? 20000 : 4000); step++) {
		if (few)
			play_few(game, step);
		else
			play(game);
		/* Between two checks lanes continue as long as they may. */
		if (!few || pick(game, 8) == 0)
			check(game);
	}
	printf("%llu of %llu requests were served by the front\n", (unsigned long long)game->hits,
	       (unsigned long long)game->takes);
	assert_true(game->hits >= (few ? game->takes / 5 : 0));
	if (!roomy)
		play_out(game);
	check(game);
	while (game->count)
		play_give(game, 0);
	assert_int_equal(neap_empty_cache(game->world.alloc, &freed, NULL), NEAP_OK);
	neap_get_stats(game->world.alloc, &stats);
	assert_int_equal(stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current, 0);
	assert_int_equal(stats.num_ooms, game->ooms);
	/* Memory must have been tight enough for the test to mean something. */
	assert_true(roomy || (game->ooms > 0 && stats.num_alloc_retries > 0));
	world_check(&game->world);
}

static int setup(void **state)
{
	struct game *game = calloc(1, sizeof *game);
	struct neap_error err = {0};
	struct neap_alloc_options options = {.observer = &game->world.observer, .no_plan = few};
	world_open(&game->world, spec);
	if (neap_alloc_create(game->world.device, &options, &game->world.alloc,
			      &err)) /* a plan would close the front */
		fail_msg("%s", err.message);
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
	few = argc > 2 && strcmp(argv[2], "few") == 0;
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_random, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
