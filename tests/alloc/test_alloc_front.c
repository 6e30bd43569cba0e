/* The fast path of requests (src/alloc/front): several threads allocate and free on several streams, and free what
 * others allocated. Each keeps a ledger of its own. After each phase every counter equals the sum of the ledgers, no
 * two blocks overlapped meanwhile, and the peak lies between what was held at once and what could have been.
 *
 * NEAP_LONG=1: 10^8 operations. NEAP_SEED=N repeats a run's choices.
 */
#include "harness.h"

#include "alloc/agent.h"
#include "base/map.h"
#include "neap/trace.h"
#include "trace/record.h"

#include <pthread.h>
#include <semaphore.h>

#define HANDS   4
#define STREAMS 3 /* fewer than hands: two share a lane */
#define SLOTS   256
#define PHASES  8
#define BURST   400
#ifdef __SANITIZE_THREAD__ /* slows the test down twenty times, but reports a race even if it seldom does harm */
#define ROUNDS 10000
#else
#define ROUNDS 40000
#endif

struct slot {
	uint64_t address; /* 0: nothing; taken by an atomic exchange */
	uint64_t bytes;
};

struct game {
	struct world world;
	struct neap_published page;
	void *streams[STREAMS];
	struct slot shared[SLOTS]; /* any hand puts blocks in and takes them out */
	uint64_t rounds, seed;
	uint64_t read; /* copies that the reader received */
	int stop;
};

struct hand {
	struct game *game;
	pthread_t thread;
	int number;
	uint64_t random;
	int64_t blocks, bytes, requested; /* allocated less freed; the sum over all hands is what is live */
	uint64_t takes, gives;
	const char *wrong;
};

static uint64_t rounded(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

/* Few sizes, as in a training, so that bins fill. Now and then a size that no other request has. */
static uint64_t pick_bytes(struct hand *hand)
{
	static const uint64_t sizes[] = {1, 512, 513, 4096, 40000, 262144, 1 << 20, (1 << 20) + 1, 3 << 20};
	uint64_t random = random_next(&hand->random);
	if (random % 64 == 0)
		return 1 + random_next(&hand->random) % (2 << 20);
	return sizes[(random >> 32) % (sizeof sizes / sizeof sizes[0])];
}

static void give_back(struct hand *hand, struct slot slot)
{
	if (neap_free(hand->game->world.alloc, slot.address))
		hand->wrong = "neap_free refused a live block";
	hand->blocks--;
	hand->bytes -= (int64_t)rounded(slot.bytes);
	hand->requested -= (int64_t)slot.bytes;
	hand->gives++;
}

/* A slot is owned by the thread that exchanged its address for 1. */
static void play(struct hand *hand)
{
	struct game *game = hand->game;
	struct slot *slot = &game->shared[random_next(&hand->random) % SLOTS], mine = {0};
	uint64_t held = __atomic_exchange_n(&slot->address, 1, __ATOMIC_ACQUIRE);
	if (held == 1)
		return;
	mine = (struct slot){held, slot->bytes};
	if (held)
		give_back(hand, mine);
	mine = (struct slot){0};
	if (!held || random_next(&hand->random) % 2) {
		struct neap_error err = {0};
		mine.bytes = pick_bytes(hand);
		void *stream = game->streams[(unsigned)hand->number % STREAMS];
		if (neap_malloc(game->world.alloc, mine.bytes, stream, &mine.address, &err)) {
			hand->wrong = "neap_malloc failed";
			mine.address = 0;
		} else {
			hand->blocks++;
			hand->bytes += (int64_t)rounded(mine.bytes);
			hand->requested += (int64_t)mine.bytes;
			hand->takes++;
		}
	}
	slot->bytes = mine.bytes;
	__atomic_store_n(&slot->address, mine.address, __ATOMIC_RELEASE);
}

/* Allocates and frees so many times in a row that the thread becomes the owner of its stream's lane, unless another
 * thread interferes: that one then takes the lane from its owner. */
static void burst(struct hand *hand)
{
	void *stream = hand->game->streams[(unsigned)hand->number % STREAMS];
	for (int i = 0; i < BURST && !hand->wrong; i++) {
		struct slot mine = {.bytes = 4096};
		if (neap_malloc(hand->game->world.alloc, mine.bytes, stream, &mine.address, NULL)) {
			hand->wrong = "neap_malloc failed in a burst";
			return;
		}
		hand->blocks++;
		hand->bytes += (int64_t)rounded(mine.bytes);
		hand->requested += (int64_t)mine.bytes;
		hand->takes++;
		give_back(hand, mine);
	}
}

static void *hammer(void *argument)
{
	struct hand *hand = argument;
	uint64_t freed = 0;
	const char *const tags[] = {NULL, "activations", "weights", NULL};
	neap_tag_set(tags[hand->number % 4]);
	for (uint64_t round = 0; !hand->wrong && round < hand->game->rounds; round++) {
		play(hand);
		if (round % 1024 == 0)
			burst(hand);
		if (round % 20000 == 5000 && neap_empty_cache(hand->game->world.alloc, &freed, NULL))
			hand->wrong = "neap_empty_cache";
	}
	return NULL;
}

static const char *consistent(const struct neap_stats *stats)
{
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++) {
		const struct neap_stat *pools = stats->metric[metric];
		if (pools[0].current != pools[1].current + pools[2].current)
			return "all is not large + small";
		for (int pool = 0; pool < NEAP_CLASS_COUNT; pool++)
			if (pools[pool].allocated - pools[pool].freed != pools[pool].current ||
			    pools[pool].peak < pools[pool].current || pools[pool].current < 0)
				return "current is not allocated - freed, or above its peak";
	}
	if (stats->metric[NEAP_METRIC_ACTIVE_BYTES][0].current > stats->metric[NEAP_METRIC_RESERVED_BYTES][0].current)
		return "active is above reserved";
	return NULL;
}

static void *look(void *argument)
{
	struct game *game = argument;
	struct neap_published copy;
	const char *wrong = NULL;
	while (!__atomic_load_n(&game->stop, __ATOMIC_RELAXED)) {
		if (neap_published_read(&game->page, &copy) != NEAP_OK)
			continue;
		game->read++;
		if (!wrong)
			wrong = consistent(&copy.stats);
	}
	return (void *)wrong;
}

static void phase(struct game *game, struct hand *hands)
{
	struct neap_stats stats;
	struct neap_published copy;
	int64_t blocks = 0, bytes = 0, requested = 0;
	uint64_t takes = 0, gives = 0;
	for (int i = 0; i < HANDS; i++)
		assert_int_equal(pthread_create(&hands[i].thread, NULL, hammer, &hands[i]), 0);
	for (int i = 0; i < HANDS; i++) {
		pthread_join(hands[i].thread, NULL);
		if (hands[i].wrong)
			fail_msg("%s", hands[i].wrong);
		blocks += hands[i].blocks;
		bytes += hands[i].bytes;
		requested += hands[i].requested;
		takes += hands[i].takes;
		gives += hands[i].gives;
	}
	assert_int_equal(neap_published_read(&game->page, &copy),
			 NEAP_OK); /* includes what lanes did since the last lock */
	neap_get_stats(game->world.alloc, &stats);
	assert_memory_equal(&copy.stats, &stats, sizeof stats);
	if (consistent(&stats))
		fail_msg("%s", consistent(&stats));
	assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATION][0].current, blocks);
	assert_int_equal(stats.metric[NEAP_METRIC_ACTIVE][0].current, blocks);
	assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATED_BYTES][0].current, bytes);
	assert_int_equal(stats.metric[NEAP_METRIC_REQUESTED_BYTES][0].current, requested);
	assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATION][0].allocated, takes);
	assert_int_equal(stats.metric[NEAP_METRIC_ALLOCATION][0].freed, gives);
	assert_int_equal(neap_alloc_serial(game->world.alloc), takes);
	assert_true(stats.metric[NEAP_METRIC_ALLOCATION][0].peak <= SLOTS + HANDS);
	world_check(&game->world);
}

/* Live blocks of the ledger do not overlap. */
static int by_address(const void *left, const void *right)
{
	const struct slot *a = left, *b = right;
	return a->address < b->address ? -1 : a->address > b->address;
}

static void check_apart(const struct game *game)
{
	struct slot live[SLOTS];
	size_t count = 0;
	for (size_t i = 0; i < SLOTS; i++)
		if (game->shared[i].address)
			live[count++] = game->shared[i];
	qsort(live, count, sizeof live[0], by_address);
	for (size_t i = 1; i < count; i++)
		assert_true(live[i - 1].address + rounded(live[i - 1].bytes) <= live[i].address);
}

static void run_game(const struct neap_observer *observer)
{
	struct game *game = calloc(1, sizeof *game);
	struct hand hands[HANDS] = {0};
	struct neap_error err = {0};
	struct neap_alloc_options options = {.observer = observer};
	const char *seed = getenv("NEAP_SEED"), *is_long = getenv("NEAP_LONG");
	pthread_t reader;
	void *wrong = NULL;
	assert_non_null(game);
	game->seed = seed ? strtoull(seed, NULL, 10) : (uint64_t)getpid();
	game->rounds = is_long ? 100000000ull / HANDS / PHASES : ROUNDS;
	print_message("NEAP_SEED=%llu\n", (unsigned long long)game->seed);
	world_open(&game->world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	options.published = &game->page;
	if (neap_alloc_create(game->world.device, &options, &game->world.alloc, &err))
		fail_msg("%s", err.message);
	for (int i = 0; i < STREAMS; i++)
		game->streams[i] = i ? stream_new(&game->world) : NULL;
	assert_int_equal(pthread_create(&reader, NULL, look, game), 0);
	for (int i = 0; i < HANDS; i++)
		hands[i] = (struct hand){.game = game, .number = i, .random = game->seed * HANDS + (uint64_t)i};
	for (int i = 0; i < PHASES; i++) {
		phase(game, hands);
		check_apart(game);
	}
	for (size_t i = 0; i < SLOTS; i++)
		if (game->shared[i].address)
			give(&game->world, game->shared[i].address);
	assert_int_equal(metric(&game->world, NEAP_METRIC_ALLOCATED_BYTES), 0);
	__atomic_store_n(&game->stop, 1, __ATOMIC_RELAXED);
	pthread_join(reader, &wrong);
	if (wrong)
		fail_msg("a copy of the page: %s", (const char *)wrong);
	world_check(&game->world);
	world_close(&game->world);
	free(game);
}

static void test_ledgers(void **state)
{
	(void)state;
	run_game(NULL);
}

/* What a block's next event must be. */
static uint16_t after(uint16_t kind)
{
	return kind == NEAP_EVENT_ALLOC            ? NEAP_EVENT_FREE_REQUESTED
	       : kind == NEAP_EVENT_FREE_REQUESTED ? NEAP_EVENT_FREE_COMPLETED
						   : NEAP_EVENT_ALLOC;
}

/* At each address allocations and frees alternate with the same bytes; no event comes twice, and none is missing. */
static void check_events(const struct neap_record *record)
{
	struct neap_map last = {0}; /* address -> index + 1 of its last event */
	size_t checked = 0;
	for (size_t i = 0; i < record->allocation_count; i++) {
		const struct neap_event *event = &record->allocations[i];
		const struct neap_event_allocation *what = neap_event_as_allocation(event);
		uint64_t before = 0;
		assert_true(!i || event->time_ns >= event[-1].time_ns);
		if (!what || event->kind == NEAP_EVENT_RECORD_STREAM)
			continue;
		if (neap_map_get(&last, what->address, &before)) {
			const struct neap_event *previous = &record->allocations[before - 1];
			assert_int_equal(event->kind, after(previous->kind));
			assert_true(event->kind == NEAP_EVENT_ALLOC ||
				    (what->bytes == previous->allocation.bytes &&
				     what->requested_bytes == previous->allocation.requested_bytes));
			checked++;
		}
		assert_true(neap_map_put(&last, what->address, i + 1));
	}
	assert_true(checked > 10000);
	neap_map_fini(&last);
}

static void test_ledgers_recorded(void **state)
{
	char path[] = "/tmp/neap-front-XXXXXX";
	struct neap_recorder *recorder = NULL;
	struct neap_record record;
	struct neap_error err = {0};
	(void)state;
	assert_true(close(mkstemp(path)) == 0);
	if (neap_recorder_create(path, 64, 65536, &recorder, &err))
		fail_msg("%s", err.message);
	run_game(neap_recorder_observer(recorder));
	neap_recorder_destroy(recorder);
	if (neap_record_read(path, &record, &err))
		fail_msg("%s", err.message);
	assert_int_equal(record.torn, 0);
	check_events(&record);
	neap_record_fini(&record);
	unlink(path);
}

/* What the program may not do with a block in a bin, and what a lane may not do with a block that another stream
 * uses. */
static void test_slots(void **state)
{
	struct world world;
	struct neap_error err = {0};
	uint64_t blocks[8];
	(void)state;
	world_open(&world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	if (neap_alloc_create(world.device, NULL, &world.alloc, &err))
		fail_msg("%s", err.message);
	void *other = stream_new(&world);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 8; i++)
			blocks[i] = take(&world, 4096, NULL);
		for (int i = round < 3 ? 0 : 4; i < 8; i++)
			give(&world, blocks[i]);
	}
	uint64_t address = blocks[7]; /* in a bin, and 4 are live */
	assert_int_equal(neap_free(world.alloc, address), NEAP_EINVAL);
	assert_int_equal(neap_record_stream(world.alloc, address, other), NEAP_EINVAL);
	assert_int_equal(metric(&world, NEAP_METRIC_ALLOCATION), 4);
	assert_int_equal(take(&world, 4096, NULL), address);
	assert_int_equal(neap_record_stream(world.alloc, address, other), NEAP_OK);
	world_check(&world);
	give(&world, address);
	assert_int_equal(metric(&world, NEAP_METRIC_ALLOCATION), 4);
	assert_int_equal(metric(&world, NEAP_METRIC_ACTIVE), 5); /* it waits for the other stream */
	assert_int_equal(neap_free(world.alloc, address), NEAP_EINVAL);
	for (int i = 0; i < 4; i++)
		give(&world, blocks[i]);
	world_check(&world);
	world_close(&world);
}

/* A lane that has slots of a recorder writes nothing into them once there is another observer and that recorder is
 * gone. */
static void test_observer_exchanged(void **state)
{
	char path[] = "/tmp/neap-front-XXXXXX";
	struct neap_recorder *recorders[2] = {NULL, NULL};
	struct neap_record record;
	struct world world;
	struct neap_error err = {0};
	(void)state;
	assert_true(close(mkstemp(path)) == 0);
	world_open(&world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	if (neap_alloc_create(world.device, NULL, &world.alloc, &err))
		fail_msg("%s", err.message);
	for (int i = 0; i < 2; i++) {
		if (neap_recorder_create(path, 64, 4096, &recorders[i], &err))
			fail_msg("%s", err.message);
		neap_observe(world.alloc, neap_recorder_observer(recorders[i]));
		if (i)
			neap_recorder_destroy(recorders[0]);
		for (int pair = 0; pair < 5; pair++)
			give(&world, take(&world, 4096, NULL));
	}
	neap_observe(world.alloc, NULL);
	neap_recorder_destroy(recorders[1]);
	if (neap_record_read(path, &record, &err))
		fail_msg("%s", err.message);
	assert_int_equal(record.allocation_count, 3 * 5);
	assert_int_equal(record.torn, 0);
	neap_record_fini(&record);
	world_close(&world);
	unlink(path);
}

/* A thread that is held up in its own lane, as the observer of a hit is. */
static struct {
	pthread_t owner, other;
	struct neap_alloc *alloc;
	unsigned events;
	enum neap_status given;
	sem_t entered; /* by the other thread */
	bool together;
} held_up;

static void *enter_lane(void *nothing)
{
	struct neap_given_back given;
	uint64_t address = 0;
	held_up.given = neap_give_back(held_up.alloc, &given, NULL);
	sem_post(&held_up.entered);
	if (!neap_malloc(held_up.alloc, 4096, NULL, &address, NULL))
		neap_free(held_up.alloc, address);
	sem_post(&held_up.entered);
	return nothing;
}

static void hold_up(void *context, const struct neap_event *event)
{
	struct timespec until;
	(void)context, (void)event;
	if (!pthread_equal(pthread_self(), held_up.owner) || ++held_up.events != 3000)
		return;
	assert_int_equal(pthread_create(&held_up.other, NULL, enter_lane, NULL), 0);
	sem_wait(&held_up.entered); /* it gave up */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	held_up.together = sem_timedwait(&held_up.entered, &until) == 0;
}

/* A thread took the lane from its owner, then stopped waiting for it: the next thread still waits for that owner. */
static void test_given_up(void **state)
{
	static const struct neap_observer observer = {.event = hold_up, .concurrent = true};
	struct neap_alloc_options options = {.observer = &observer};
	struct world world;
	struct neap_error err = {0};
	(void)state;
	world_open(&world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	if (neap_alloc_create(world.device, &options, &world.alloc, &err))
		fail_msg("%s", err.message);
	uint64_t live = take(&world, 4096, NULL);
	held_up.owner = pthread_self();
	held_up.alloc = world.alloc;
	assert_int_equal(sem_init(&held_up.entered, 0, 0), 0);
	for (int i = 0; i < 3000; i++)
		give(&world, take(&world, 4096, NULL));
	assert_int_equal(pthread_join(held_up.other, NULL), 0);
	assert_int_equal(held_up.given, NEAP_EBUSY);
	assert_false(held_up.together);
	give(&world, live);
	world_check(&world);
	sem_destroy(&held_up.entered);
	world_close(&world);
}

/* Two threads share the allocator, the other thread's stream, and `held`: the allocated bytes in the first thread's
 * last event. */
static struct {
	struct world world;
	pthread_t owner;
	void *stream;
	uint64_t held;
} beside;

static void note_held(void *context, const struct neap_event *event)
{
	(void)context;
	if (pthread_equal(pthread_self(), beside.owner))
		beside.held = event->held.allocated_bytes;
}

/* Allocates and frees `most` blocks on the stream, again and again until this thread owns the stream's lane. Then
 * allocates `kept` blocks and keeps them. */
static void own_lane(void *stream, size_t most, size_t kept)
{
	uint64_t blocks[16];
	for (size_t i = 0; i < most; i++)
		blocks[i] = take(&beside.world, 4096, stream);
	for (size_t i = 0; i < most; i++)
		give(&beside.world, blocks[i]);
	for (int i = 0; i < 1000; i++)
		give(&beside.world, take(&beside.world, 4096, stream));
	for (size_t i = 0; i < kept; i++)
		take(&beside.world, 4096, stream);
}

static void *keep_three(void *nothing)
{
	own_lane(beside.stream, 4, 3); /* few calls of the core, so that the other lane's headroom stays */
	return nothing;
}

/* An event also counts what other threads' lanes hold at the event's time. */
static void test_held_beside(void **state)
{
	static const struct neap_observer observer = {.event = note_held, .concurrent = true};
	struct neap_alloc_options options = {.observer = &observer};
	struct neap_error err = {0};
	pthread_t other;
	(void)state;
	world_open(&beside.world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	if (neap_alloc_create(beside.world.device, &options, &beside.world.alloc, &err))
		fail_msg("%s", err.message);
	beside.owner = pthread_self();
	beside.stream = stream_new(&beside.world);
	uint64_t live = take(&beside.world, 4096, NULL);
	take(&beside.world, 4096, beside.stream);
	own_lane(NULL, 16, 0);
	assert_int_equal(pthread_create(&other, NULL, keep_three, NULL), 0);
	pthread_join(other, NULL);
	for (int i = 0; i < 200; i++) /* one reading of the clock serves 64 events */
		give(&beside.world, take(&beside.world, 4096, NULL));
	assert_int_equal(beside.held, 5 * 4096);
	assert_int_equal(metric(&beside.world, NEAP_METRIC_ALLOCATED_BYTES), 5 * 4096);
	give(&beside.world, live);
	world_close(&beside.world);
}

/* The same calls with and without the fast path: one thread leaves exactly the same counters, peaks included.
 */
static void one_thread(const struct neap_observer *observer, uint64_t seed, struct neap_stats *ret_stats)
{
	struct world world;
	struct neap_alloc_options options = {.observer = observer};
	struct neap_error err = {0};
	uint64_t live[64] = {0}, random = seed;
	world_open(&world, "mem=4GiB,reserved=0,context=8MiB,backing=none");
	if (neap_alloc_create(world.device, &options, &world.alloc, &err))
		fail_msg("%s", err.message);
	for (int i = 0; i < 50000; i++) {
		size_t slot = random_next(&random) % 64;
		uint64_t bytes = 512 * (1 + random_next(&random) % 8) - random_next(&random) % 512;
		if (live[slot])
			give(&world, live[slot]);
		live[slot] = random_next(&random) % 3 ? take(&world, bytes, NULL) : 0;
		if (i % 10000 == 9999)
			neap_reset_peak_stats(world.alloc);
	}
	neap_get_stats(world.alloc, ret_stats);
	uint64_t lowest, highest;
	neap_take_extremes(world.alloc, &lowest, &highest);
	assert_int_equal(lowest, 0);
	assert_true(highest >= (uint64_t)ret_stats->metric[NEAP_METRIC_ALLOCATED_BYTES][0].peak);
	world_check(&world);
	world_close(&world);
}

static void ignore_event(void *context, const struct neap_event *event)
{
	(void)context;
	(void)event;
}

static void test_same_counters(void **state)
{
	static const struct neap_observer one_at_a_time = {.event = ignore_event};
	static const enum neap_metric same[] = {NEAP_METRIC_ALLOCATION, NEAP_METRIC_ALLOCATED_BYTES,
						NEAP_METRIC_ACTIVE, NEAP_METRIC_ACTIVE_BYTES,
						NEAP_METRIC_REQUESTED_BYTES};
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct neap_stats fast, slow;
		one_thread(NULL, seed, &fast);
		one_thread(&one_at_a_time, seed, &slow); /* such an observer keeps every request in the core */
		for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
			assert_memory_equal(fast.metric[same[i]], slow.metric[same[i]], sizeof fast.metric[same[i]]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ledgers),      cmocka_unit_test(test_ledgers_recorded),
		cmocka_unit_test(test_slots),        cmocka_unit_test(test_observer_exchanged),
		cmocka_unit_test(test_given_up),     cmocka_unit_test(test_held_beside),
		cmocka_unit_test(test_same_counters)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
