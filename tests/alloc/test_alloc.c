/* The allocator's promises, one by one. */
#include "harness.h"

#include <sys/wait.h>

static void test_sizes(void **state)
{
	struct world *world = *state;
	uint64_t none = 7, odd;
	assert_int_equal(neap_malloc(world->alloc, 0, NULL, &none, NULL), NEAP_OK);
	assert_int_equal(none, 0);
	assert_int_equal(neap_free(world->alloc, 0), NEAP_OK);
	odd = take(world, 513, NULL);
	assert_int_equal(metric(world, NEAP_METRIC_ALLOCATED_BYTES), 1024);
	assert_int_equal(metric(world, NEAP_METRIC_REQUESTED_BYTES), 513);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 2 * MIB);
	assert_int_equal(neap_free(world->alloc, odd + 512), NEAP_EINVAL);
	world_check(world);
	give(world, odd);
	assert_int_equal(neap_free(world->alloc, odd), NEAP_EINVAL);
	assert_int_equal(metric(world, NEAP_METRIC_ALLOCATED_BYTES), 0);
	world_check(world);
}

static void test_reuse_and_join(void **state)
{
	struct world *world = *state;
	uint64_t a = take(world, 4 * MIB, NULL), b = take(world, 4 * MIB, NULL), c = take(world, 4 * MIB, NULL);
	uint64_t creates = world->sim->calls("cuMemCreate");
	give(world, a);
	assert_int_equal(take(world, 4 * MIB, NULL), a);
	give(world, b);
	assert_int_equal(metric(world, NEAP_METRIC_INACTIVE_SPLIT), 1);
	assert_int_equal(metric(world, NEAP_METRIC_INACTIVE_SPLIT_BYTES), 4 * MIB);
	give(world, a);
	world_check(world);
	assert_int_equal(take(world, 8 * MIB, NULL), a);
	assert_int_equal(world->sim->calls("cuMemCreate"), creates);
	give(world, c);
	world_check(world);
}

/* A hole in the middle goes back to the driver, and is filled again before the segment grows. */
static void test_empty_in_the_middle(void **state)
{
	struct world *world = *state;
	uint64_t a = take(world, 3 * MIB, NULL), b = take(world, 10 * MIB, NULL), c = take(world, 3 * MIB, NULL);
	uint64_t freed = 0;
	give(world, b);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	/* b covers [3, 13) MiB: whole pages [4, 12). */
	assert_int_equal(freed, 8 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 8 * MIB);
	world_check(world);
	assert_int_equal(take(world, 10 * MIB, NULL), b);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 16 * MIB);
	world_check(world);
	give(world, a);
	give(world, b);
	give(world, c);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 16 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 0);
	assert_int_equal(metric(world, NEAP_METRIC_SEGMENT), 0);
	assert_int_equal(world->sim->calls("cuMemAddressReserve"), world->sim->calls("cuMemAddressFree"));
	world_check(world);
}

/* Blocks are described in chunks of storage. An operation that needs one or two more descriptions works however full
 * the last chunk is. */
static void test_block_storage(void **state)
{
	struct world *world = *state;
	uint64_t freed = 0, small[130], large[3];
	for (size_t count = 0; count < 130; count++) {
		for (size_t i = 0; i < count; i++)
			small[i] = take(world, 512, NULL);
		for (size_t i = 0; i < 3; i++)
			large[i] = take(world, 5 * MIB, NULL);
		give(world, large[1]);
		assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
		assert_int_equal(freed, 4 * MIB); /* [6, 10) of [5, 10) */
		world_check(world);
		give(world, large[0]);
		give(world, large[2]);
		for (size_t i = 0; i < count; i++)
			give(world, small[i]);
		assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
		world_check(world);
		/* Start over with no idle block. */
		neap_alloc_destroy(world->alloc);
		world_alloc(world, 0);
	}
}

/* Work is queued on the block when it is freed: emptying the cache waits for it, and another stream gets new
 * bytes. */
static void test_empty_waits(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t a = take(world, 200 * MIB, one);
	touch(world, one, a, 200 * MIB, 1, 1000000);
	give(world, a);
	uint64_t b = 0; /* its pages are under `a` */
	struct neap_error err = {.message = "mine"};
	assert_int_equal(neap_malloc(world->alloc, 200 * MIB, two, &b, &err), NEAP_OK);
	assert_int_equal(err.status, NEAP_OK); /* the driver's refusal is not a failure of the call */
	assert_string_equal(err.message, "mine");
	touch(world, two, b, 200 * MIB, 1, 1000);
	world_check(world);
	struct neap_stats stats;
	neap_get_stats(world->alloc, &stats);
	assert_int_equal(stats.num_alloc_retries, 0);
	assert_int_equal(stats.num_ooms, 0);
	give(world, b);
}

static void test_record_stream(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	uint64_t a = take(world, 2 * MIB, one);
	CUevent ready;
	assert_int_equal(world->cuda->cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING), 0);
	touch(world, one, a, 2 * MIB, 1, 10);
	world->cuda->cuEventRecord(ready, one);
	world->cuda->cuStreamWaitEvent(two, ready, 0);
	touch(world, two, a, 2 * MIB, 0, 5000000000);
	world->sim->hold(1);
	assert_int_equal(neap_record_stream(world->alloc, a, two), NEAP_OK);
	assert_int_equal(neap_record_stream(world->alloc, a, two), NEAP_OK);
	assert_int_equal(neap_record_stream(world->alloc, a + 512, two), NEAP_EINVAL);
	give(world, a);
	assert_int_equal(metric(world, NEAP_METRIC_ACTIVE_BYTES), 2 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_ALLOCATED_BYTES), 0);
	assert_null(event_find(&world->events, NEAP_EVENT_FREE_COMPLETED, 0));
	uint64_t b = take(world, 2 * MIB, one);
	assert_int_not_equal(a, b);
	touch(world, one, b, 2 * MIB, 1, 10);
	world_check(world);
	world->sim->step(6000000000);
	uint64_t c = take(world, 2 * MIB, one);
	assert_int_equal(a, c);
	touch(world, one, c, 2 * MIB, 1, 10);
	assert_non_null(event_find(&world->events, NEAP_EVENT_FREE_COMPLETED, 0));
	world->sim->hold(0);
	world_check(world);
	world->cuda->cuEventDestroy(ready);
}

static void test_fraction(void **state)
{
	struct world *world = *state;
	struct neap_error err = {0};
	uint64_t address = 7, freed = 0;
	assert_int_equal(neap_set_fraction(world->alloc, 0, &err), NEAP_EINVAL);
	assert_int_equal(neap_set_fraction(world->alloc, 1.1, &err), NEAP_EINVAL);
	assert_int_equal(neap_set_fraction(world->alloc, 0.0 / 0.0, &err), NEAP_EINVAL);
	uint64_t a = take(world, 100 * MIB, NULL), b = take(world, 64 * MIB, NULL);
	give(world, a);
	assert_int_equal(neap_set_fraction(world->alloc, 0.5, &err), NEAP_OK); /* 128 MiB: empties the cache first */
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 64 * MIB);
	assert_true(neap_get_fraction(world->alloc) == 0.5);
	assert_int_equal(neap_malloc(world->alloc, 66 * MIB, NULL, &address, &err), NEAP_EOOM);
	assert_int_equal(address, 7);
	assert_non_null(strstr(err.message, "limit 128 MiB"));
	a = take(world, 64 * MIB, NULL);
	give(world, a);
	void *other = stream_new(world);
	a = take(world, 60 * MIB, other); /* this stays within the limit only if the default stream's cache goes */
	world_check(world);
	assert_int_equal(neap_set_fraction(world->alloc, 1, &err), NEAP_OK);
	uint64_t c = take(world, 100 * MIB, other);
	give(world, a);
	give(world, b);
	give(world, c);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, &err), NEAP_OK);
	world_check(world);
}

struct relief {
	struct world *world;
	uint64_t address;
	unsigned calls, release_at;
};

static bool on_oom(void *context, struct neap_alloc *alloc, size_t bytes, unsigned attempt)
{
	struct relief *relief = context;
	assert_ptr_equal(alloc, relief->world->alloc);
	assert_int_equal(bytes, 100 * MIB);
	assert_int_equal(attempt, relief->calls);
	relief->calls++;
	if (attempt == relief->release_at)
		give(relief->world, relief->address); /* the lock is not held */
	return true;
}

static void test_oom_callback(void **state)
{
	struct world *world = *state;
	struct neap_error err = {0};
	struct relief relief = {world, take(world, 200 * MIB, NULL), 0, 3};
	uint64_t address = 0;
	neap_set_oom_callback(world->alloc, on_oom, &relief);
	uint64_t a = take(world, 100 * MIB, NULL);
	assert_int_equal(relief.calls, 4);
	relief = (struct relief){world, 0, 0, 99};
	uint64_t b = take(world, 60 * MIB, NULL);
	assert_int_equal(neap_malloc(world->alloc, 100 * MIB, NULL, &address, &err), NEAP_EOOM);
	assert_int_equal(relief.calls, 8);
	neap_set_oom_callback(world->alloc, NULL, NULL);
	give(world, a);
	give(world, b);
	world_check(world);
}

static void test_oom_report(void **state)
{
	struct world *world = *state;
	struct neap_error err = {0};
	struct neap_tag_bytes tags[4];
	uint64_t address = 0;
	assert_null(neap_tag_set("parameters"));
	uint64_t a = take(world, 100 * MIB, NULL);
	assert_string_equal(neap_tag_set("activations"), "parameters");
	uint64_t b = take(world, 100 * MIB, NULL);
	assert_int_equal(neap_malloc(world->alloc, 50 * MIB, NULL, &address, &err), NEAP_EOOM);
	neap_tag_set(NULL);
	assert_int_equal(err.status, NEAP_EOOM);
	assert_memory_equal(err.message,
			    "CUDA out of memory. Tried to allocate 50.0 MiB for activations. GPU 0: 256 MiB", 78);
	assert_non_null(strstr(err.message, "200 MiB allocated, 0 B cached (largest free block 0 B), 0 B pending, "));
	assert_int_equal(err.message[strlen(err.message) - 1], '.');
	const struct neap_event *oom = event_find(&world->events, NEAP_EVENT_OOM, 0);
	assert_non_null(oom);
	assert_int_equal(oom->oom.requested_bytes, 50 * MIB);
	assert_int_equal(oom->oom.held.allocated_bytes, 200 * MIB);
	assert_int_equal(oom->oom.held.reserved_bytes, 200 * MIB);
	assert_string_equal(world->events.names[oom->oom.tag], "activations");
	const struct neap_event_oom_limits *limits = neap_event_as_oom_limits(oom + 1);
	assert_true(limits->limit_bytes == UINT64_MAX && limits->device_total_bytes == 256 * MIB);
	/* total = free + reserved + what contexts and other processes hold */
	assert_int_equal(oom->oom.device_free_bytes + oom->oom.held.reserved_bytes + limits->others_bytes, 256 * MIB);
	assert_int_equal(oom[2].kind, NEAP_EVENT_TAG_BYTES);
	assert_string_equal(world->events.names[oom[2].tag_bytes.tag], "parameters");
	assert_int_equal(oom[2].tag_bytes.live_bytes, 100 * MIB);
	assert_int_equal(oom[2].tag_bytes.live_blocks, 1);
	assert_string_equal(world->events.names[oom[3].tag_bytes.tag], "activations");
	give(world, a);
	assert_int_equal(neap_tag_stats(world->alloc, tags, 4), 2);
	assert_string_equal(tags[0].tag, "parameters");
	assert_int_equal(tags[0].live_bytes, 0);
	assert_int_equal(tags[0].peak_bytes, 100 * MIB);
	assert_int_equal(tags[1].live_blocks, 1);
	give(world, b);
	/* A size that exceeds everything is an ordinary OOM, and even the longest message fits. */
	neap_tag_set("a tag of more than twenty letters");
	assert_int_equal(neap_set_fraction(world->alloc, 0.3137, &err), NEAP_OK);
	assert_int_equal(neap_malloc(world->alloc, SIZE_MAX, NULL, &address, &err), NEAP_EOOM);
	assert_int_equal(err.message[strlen(err.message) - 1], '.');
	assert_int_equal(neap_malloc(world->alloc, SIZE_MAX / 2, NULL, &address, &err), NEAP_EOOM);
	neap_tag_set(NULL);
	world_check(world);
}

static void test_too_many_tags(void **state)
{
	struct world *world = *state;
	char names[NEAP_TAGS_MAX + 3][16];
	struct neap_tag_bytes tags[NEAP_TAGS_MAX + 2];
	for (int i = 0; i < NEAP_TAGS_MAX + 3; i++) {
		snprintf(names[i], sizeof names[i], "tag %d", i);
		neap_tag_set(names[i]);
		take(world, 512, NULL);
	}
	neap_tag_set(NULL);
	take(world, 512, NULL);
	assert_int_equal(neap_tag_stats(world->alloc, tags, NEAP_TAGS_MAX + 2), NEAP_TAGS_MAX + 2);
	assert_string_equal(tags[0].tag, "");
	assert_string_equal(tags[NEAP_TAGS_MAX + 1].tag, "other");
	assert_int_equal(tags[NEAP_TAGS_MAX + 1].live_bytes, 3 * 512);
	world_check(world);
}

static bool only(void *context, void *stream) { return stream == context; }

static void test_pool(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world);
	struct neap_error err = {0};
	uint64_t freed = 0;
	uint64_t outside = take(world, 4 * MIB, stream);
	give(world, outside);
	assert_int_equal(neap_pool_end(world->alloc, 1, 2), NEAP_ESTATE);
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_ESTATE);
	assert_int_equal(neap_pool_begin(world->alloc, 1, 2, only, stream, &err), NEAP_OK);
	assert_int_equal(neap_pool_begin(world->alloc, 1, 2, only, stream, &err), NEAP_ESTATE);
	uint64_t a = take(world, 4 * MIB, stream);
	assert_int_not_equal(a, outside); /* nothing is shared with what is outside */
	assert_int_equal(neap_empty_cache(world->alloc, &freed, &err), NEAP_ESTATE);
	give(world, a);
	assert_int_equal(take(world, 4 * MIB, stream), a);
	assert_int_equal(neap_pool_end(world->alloc, 1, 2), NEAP_OK);
	assert_int_equal(take(world, 4 * MIB, stream), outside);
	give(world, outside);
	give(world, a);
	world_check(world);
	/* The graph may run again, so the pool's pages stay until the pool is released. */
	assert_int_equal(neap_empty_cache(world->alloc, &freed, &err), NEAP_OK);
	assert_int_equal(freed, 4 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 4 * MIB);
	/* The graph may have run on them since: the release waits for them once more. */
	struct neap_stats before, after;
	neap_get_stats(world->alloc, &before);
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, &err), NEAP_OK);
	assert_int_equal(freed, 4 * MIB);
	neap_get_stats(world->alloc, &after);
	assert_int_equal(after.num_sync_all_streams, before.num_sync_all_streams + 1);
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_ESTATE);
	world_check(world);
}

/* Calls that a capture forbids, or that would wait. */
static uint64_t forbidden_calls(struct world *world)
{
	static const char *const names[] = {"cuMemAddressReserve", "cuMemCreate",   "cuMemMap",
					    "cuMemSetAccess",      "cuMemUnmap",    "cuMemRelease",
					    "cuMemAlloc",          "cuMemFree",     "cuCtxSynchronize",
					    "cuEventQuery",        "cuEventRecord", "cuStreamSynchronize"};
	uint64_t sum = 0;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		sum += world->sim->calls(names[i]);
	return sum;
}

static void test_capture(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world), *other = stream_new(world);
	uint64_t address = 0, freed = 0;
	CUgraph graph = NULL;
	uint64_t a = take(world, 4 * MIB, stream), b = take(world, 4 * MIB, other);
	give(world, a);
	int result = world->cuda->cuStreamBeginCapture
			     ? world->cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
			     : CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		skip();
	assert_int_equal(result, 0);
	uint64_t before = forbidden_calls(world), unmaps = world->sim->calls("cuMemUnmap");
	assert_int_equal(take(world, 4 * MIB, stream), a); /* from the cache */
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_ESTATE);
	/* The captured stream used b: it stays pending until the capture is over. */
	assert_int_equal(neap_record_stream(world->alloc, b, stream), NEAP_OK);
	give(world, b);
	give(world, a);
	assert_int_equal(take(world, 4 * MIB, stream), a);
	assert_int_equal(metric(world, NEAP_METRIC_ACTIVE_BYTES), 8 * MIB);
	assert_int_equal(forbidden_calls(world), before);
	/* New pages may be mapped, but no cached memory is given back for them. */
	give(world, take(world, 4 * MIB, stream));
	assert_int_equal(neap_malloc(world->alloc, 1ull << 40, other, &address, NULL), NEAP_EOOM);
	assert_int_equal(world->sim->calls("cuMemUnmap"), unmaps);
	world_check(world);
	assert_int_equal(world->cuda->cuStreamEndCapture(stream, &graph), 0);
	assert_int_equal(world->cuda->cuGraphDestroy(graph), 0);
	assert_int_equal(take(world, 4 * MIB, other), b);
	world_check(world);
}

/* The driver does not survive a fork: a child that drops its inherited allocator must leave the parent's memory
 * alone. */
static void test_fork(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world), *other = stream_new(world);
	uint64_t a = take(world, 4 * MIB, stream), b = take(world, 4 * MIB, stream);
	int how = 0;
	assert_int_equal(neap_record_stream(world->alloc, b, other), NEAP_OK);
	give(world, b);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		uint64_t calls = world->sim->calls("*");
		neap_alloc_destroy(world->alloc);
		_exit(world->sim->calls("*") == calls ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &how, 0), child);
	assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
	touch(world, stream, a, 4 * MIB, 1, 1000);
	give(world, a);
	world_check(world);
}

static unsigned created, destroyed;
static void on_created(struct neap_alloc *alloc)
{
	assert_int_equal(neap_alloc_check(alloc, NULL), NEAP_OK); /* the lock is free */
	created++;
}
static void on_destroying(struct neap_alloc *alloc)
{
	assert_int_equal(neap_alloc_check(alloc, NULL), NEAP_OK);
	destroyed++;
}

static void test_hook(void **state)
{
	struct world *world = *state;
	static const struct neap_alloc_hook hook = {.created = on_created, .destroying = on_destroying};
	struct neap_alloc *alloc = NULL;
	struct neap_alloc_options bad = {.fraction = -1};
	neap_set_alloc_hook(&hook);
	assert_int_equal(neap_alloc_create(world->device, NULL, &alloc, NULL), NEAP_OK);
	assert_int_equal(created, 1);
	neap_alloc_destroy(alloc);
	assert_int_equal(destroyed, 1);
	neap_set_alloc_hook(NULL);
	assert_int_equal(neap_alloc_create(world->device, &bad, &alloc, NULL), NEAP_EINVAL);
	neap_alloc_destroy(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_sizes),         TEST(test_reuse_and_join), TEST(test_empty_in_the_middle),
		TEST(test_block_storage), TEST(test_empty_waits),    TEST(test_record_stream),
		TEST(test_fraction),      TEST(test_oom_callback),   TEST(test_oom_report),
		TEST(test_too_many_tags), TEST(test_pool),           TEST(test_capture),
		TEST(test_fork),          TEST(test_hook),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
