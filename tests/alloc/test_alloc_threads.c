/* Several threads hammer one allocator while others read its published counters and empty its cache. What a reader
 * gets is consistent: the equations between counters hold in every copy. Run it under the thread sanitizer too. */
#include "harness.h"

#include <pthread.h>

#define THREADS 3
#define ROUNDS  1500
#define MIB     (1024ull * 1024)

struct shared {
	struct world world;
	struct neap_published page;
	void *streams[THREADS];
	int number, stop; /* atomically */
	uint64_t reads;
};

static void *hammer(void *argument)
{
	struct shared *shared = argument;
	int number = __atomic_fetch_add(&shared->number, 1, __ATOMIC_RELAXED);
	uint64_t random = (uint64_t)number, address[16] = {0};
	const char *const tags[THREADS] = {"one", "two", "three"};
	neap_tag_set(tags[number]);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t *slot = &address[random_next(&random) % 16];
		if (*slot) {
			if (random_next(&random) % 4 == 0)
				neap_record_stream(shared->world.alloc, *slot,
						   shared->streams[(number + 1) % THREADS]);
			if (neap_free(shared->world.alloc, *slot))
				return (void *)"neap_free";
			*slot = 0;
		} else {
			size_t bytes = 1 + random_next(&random) % (random_next(&random) % 8 ? 65536 : 3 * MIB);
			if (neap_malloc(shared->world.alloc, bytes, shared->streams[number], slot, NULL))
				return (void *)"neap_malloc";
		}
		if (round % 500 == 499 && neap_empty_cache(shared->world.alloc, &(uint64_t){0}, NULL))
			return (void *)"neap_empty_cache";
	}
	for (int i = 0; i < 16; i++)
		neap_free(shared->world.alloc, address[i]);
	return NULL;
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
	while (!wrong && !__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
		if (neap_published_read(&shared->page, &copy) == NEAP_OK) {
			wrong = consistent(&copy);
			shared->reads++;
		}
	}
	return (void *)wrong;
}

static void test_threads(void **state)
{
	struct shared *shared = calloc(1, sizeof(*shared));
	pthread_t workers[THREADS], reader;
	void *wrong[THREADS + 1] = {0};
	(void)state;
	world_open(&shared->world, "mem=512MiB,reserved=0,context=8MiB");
	world_alloc(&shared->world, 0);
	neap_publish(shared->world.alloc, &shared->page);
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
	world_check(&shared->world);
	assert_int_equal(metric(&shared->world, NEAP_METRIC_ALLOCATED_BYTES), 0);
	neap_publish(shared->world.alloc, NULL);
	world_close(&shared->world);
	free(shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
