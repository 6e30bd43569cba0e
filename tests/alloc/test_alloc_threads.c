/* Several threads work on one allocator while others read its published counters and empty its cache. Readers get
 * consistent copies: the equations between counters hold in every one. Run it under the thread sanitizer too. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 3
#define ROUNDS  1500

struct shared {
	struct world world;
	struct neap_published page;
	void *streams[THREADS];
	int number, stop;     /* atomic, as the rest */
	uint64_t reads, ooms; /* reads: copies that a reader received */
};

/* A thread and what it holds. It has a current context only while it calls the driver itself. */
struct hand {
	struct shared *shared;
	int number;
	uint64_t random, address[16], bytes[16];
};

static const char *use(struct hand *hand, int slot, int stream, int write)
{
	struct neap_sim_range range = {hand->address[slot], hand->bytes[slot], write};
	struct neap_sim_kernel kernel = {.name = "use",
					 .duration_ns = random_next(&hand->random) % 100000,
					 .ranges = &range,
					 .range_count = 1};
	return hand->shared->world.sim->launch(hand->shared->streams[stream], &kernel) ? "launch" : NULL;
}

/* Lets another stream read the block, ordered by an event, and records that stream. */
static const char *share(struct hand *hand, int slot)
{
	struct shared *shared = hand->shared;
	const struct neap_cuda *cuda = shared->world.cuda;
	int other = (hand->number + 1) % THREADS;
	CUevent event;
	const char *wrong = NULL;
	if (cuda->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
		return "cuEventCreate";
	if (cuda->cuEventRecord(event, shared->streams[hand->number]) ||
	    cuda->cuStreamWaitEvent(shared->streams[other], event, 0))
		wrong = "ordering by an event";
	if (!wrong)
		wrong = use(hand, slot, other, 0);
	if (cuda->cuEventDestroy(event))
		wrong = "cuEventDestroy";
	if (neap_record_stream(shared->world.alloc, hand->address[slot], shared->streams[other]))
		wrong = "neap_record_stream";
	return wrong;
}

static const char *play(struct hand *hand)
{
	struct shared *shared = hand->shared;
	struct neap_device_guard guard = {0};
	struct neap_error err = {0};
	int slot = (int)(random_next(&hand->random) % 16);
	const char *wrong = NULL;
	if (hand->address[slot]) {
		uint64_t address = hand->address[slot];
		if (random_next(&hand->random) % 4 == 0) {
			if (neap_device_enter(shared->world.device, &guard, NULL))
				return "neap_device_enter";
			wrong = share(hand, slot);
			neap_device_leave(&guard);
		}
		hand->address[slot] = 0;
		return neap_free(shared->world.alloc, address) ? "neap_free" : wrong;
	}
	hand->bytes[slot] = 1 + random_next(&hand->random) % (random_next(&hand->random) % 3 ? 65536 : 3 * MIB);
	enum neap_status status = neap_malloc(shared->world.alloc, hand->bytes[slot], shared->streams[hand->number],
					      &hand->address[slot], &err);
	if (status == NEAP_EOOM) {
		__atomic_add_fetch(&shared->ooms, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	if (status || neap_device_enter(shared->world.device, &guard, NULL))
		return "neap_malloc";
	wrong = use(hand, slot, hand->number, 1);
	neap_device_leave(&guard);
	return wrong;
}

/* However the threads are scheduled, a reader gets a copy while this thread has blocks: the reader ends last, and
 * nobody writes while all threads wait here. */
static void await_read(struct shared *shared)
{
	uint64_t before = __atomic_load_n(&shared->reads, __ATOMIC_RELAXED);
	while (__atomic_load_n(&shared->reads, __ATOMIC_RELAXED) == before)
		sched_yield();
}

static void *hammer(void *argument)
{
	struct hand hand = {.shared = argument};
	const char *const tags[THREADS] = {"one", "two", "three"};
	const char *wrong = NULL;
	uint64_t freed = 0;
	hand.number = __atomic_fetch_add(&hand.shared->number, 1, __ATOMIC_RELAXED);
	hand.random = (uint64_t)hand.number;
	neap_tag_set(tags[hand.number]);
	for (int round = 0; !wrong && round < ROUNDS; round++) {
		wrong = play(&hand);
		if (round == ROUNDS / 2)
			await_read(hand.shared);
		if (round % 500 == 499 && neap_empty_cache(hand.shared->world.alloc, &freed, NULL))
			wrong = "neap_empty_cache";
	}
	for (int i = 0; i < 16; i++)
		neap_free(hand.shared->world.alloc, hand.address[i]);
	return (void *)wrong;
}

static const char *consistent(const struct neap_published *copy)
{
	const struct neap_stats *stats = &copy->stats;
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++) {
		const struct neap_stat *pools = stats->metric[metric];
		if (pools[0].current != pools[1].current + pools[2].current)
			return "all is not large + small";
		if (pools[0].allocated - pools[0].freed != pools[0].current || pools[0].peak < pools[0].current)
			return "current is not allocated - freed";
	}
	if (stats->metric[NEAP_METRIC_ALLOCATED_BYTES][0].current >
		    stats->metric[NEAP_METRIC_ACTIVE_BYTES][0].current ||
	    stats->metric[NEAP_METRIC_ACTIVE_BYTES][0].current > stats->metric[NEAP_METRIC_RESERVED_BYTES][0].current)
		return "not allocated <= active <= reserved";
	return NULL;
}

static void *observe(void *argument)
{
	struct shared *shared = argument;
	struct neap_published copy;
	const char *wrong = NULL;
	while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		if (neap_published_read(&shared->page, &copy) == NEAP_OK) {
			if (!wrong)
				wrong = consistent(&copy);
			__atomic_add_fetch(&shared->reads, 1, __ATOMIC_RELAXED);
		}
	}
	return (void *)wrong;
}

static void run_threads(const char *spec, bool tight)
{
	struct shared *shared = calloc(1, sizeof *shared);
	struct neap_published first;
	pthread_t workers[THREADS], reader;
	void *wrong[THREADS + 1] = {0};
	world_open(&shared->world, spec);
	world_alloc(&shared->world, 0);
	neap_publish(shared->world.alloc, &shared->page);
	assert_int_equal(neap_published_read(&shared->page, &first),
			 NEAP_OK); /* else the threads would wait for ever */
	for (int i = 0; i < THREADS; i++)
		shared->streams[i] = stream_new(&shared->world);
	assert_int_equal(pthread_create(&reader, NULL, observe, shared), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i], NULL, hammer, shared), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i], &wrong[i]);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELAXED);
	pthread_join(reader, &wrong[THREADS]);
	for (int i = 0; i <= THREADS; i++)
		if (wrong[i])
			fail_msg("%s", (const char *)wrong[i]);
	assert_true(shared->reads > 0);
	struct neap_stats stats;
	neap_get_stats(shared->world.alloc, &stats);
	assert_true(!tight || stats.num_alloc_retries > 0);
	assert_int_equal(stats.num_ooms, shared->ooms);
	world_check(&shared->world);
	assert_int_equal(metric(&shared->world, NEAP_METRIC_ALLOCATED_BYTES), 0);
	neap_publish(shared->world.alloc, NULL);
	world_close(&shared->world);
	free(shared);
}

/* Memory has to move between the streams all the time. */
static void test_tight(void **state)
{
	(void)state;
	run_threads("mem=24MiB,reserved=0,context=8MiB", true);
}

/* There is enough memory for the streams to come to share it. */
static void test_roomy(void **state)
{
	(void)state;
	run_threads("mem=56MiB,reserved=0,context=8MiB", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_tight), cmocka_unit_test(test_roomy)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
