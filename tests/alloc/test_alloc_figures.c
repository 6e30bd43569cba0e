/* What an allocator reports: counters and their summary, events, the published page, its blocks. */
#include "harness.h"

static void on_key(void *context, const char *key, int64_t value)
{
	char(*keys)[64] = context;
	size_t count = 0;
	while (keys[count][0])
		count++;
	assert_true(count < NEAP_STATS_KEYS);
	snprintf(keys[count], sizeof keys[count], "%s", key);
	if (strcmp(key, "allocated_bytes.all.current") == 0)
		assert_int_equal(value, 1536);
	if (strcmp(key, "allocated_bytes.small_pool.peak") == 0)
		assert_int_equal(value, 2048);
	if (strcmp(key, "allocation.all.allocated") == 0)
		assert_int_equal(value, 2);
	if (strcmp(key, "requested_bytes.all.freed") == 0)
		assert_int_equal(value, 100);
	if (strcmp(key, "max_split_size") == 0)
		assert_int_equal(value, -1);
}

static void test_stats_keys(void **state)
{
	struct world *world = *state;
	static char keys[NEAP_STATS_KEYS + 1][64];
	struct neap_stats stats;
	memset(keys, 0, sizeof keys);
	take(world, 1400, NULL);
	give(world, take(world, 100, NULL));
	neap_get_stats(world->alloc, &stats);
	neap_stats_each(&stats, on_key, keys);
	for (size_t i = 1; i < NEAP_STATS_KEYS; i++) {
		assert_true(keys[i][0]);
		assert_true(strcmp(keys[i - 1], keys[i]) < 0); /* sorted, so also distinct */
	}
	assert_string_equal(keys[0], "active.all.allocated");
	assert_string_equal(keys[NEAP_STATS_KEYS - 1], "segment.small_pool.peak");
	neap_reset_peak_stats(world->alloc);
	neap_reset_accumulated_stats(world->alloc);
	neap_get_stats(world->alloc, &stats);
	const struct neap_stat *bytes = &stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL];
	assert_int_equal(bytes->peak, 1536);
	assert_int_equal(bytes->allocated, 0);
	assert_int_equal(bytes->freed, 0);
	world_check(world);
}

static void test_events_and_extremes(void **state)
{
	struct world *world = *state;
	struct events *events = &world->events;
	void *stream = stream_new(world);
	uint64_t lowest, highest;
	neap_tag_set("gradients");
	uint64_t a = take(world, 1000, stream);
	neap_tag_set(NULL);
	uint64_t b = take(world, 3 * MIB, NULL);
	give(world, a);
	const struct neap_event_allocation *alloc = &event_find(events, NEAP_EVENT_ALLOC, 0)->allocation;
	assert_int_equal(alloc->address, a);
	assert_int_equal(alloc->requested_bytes, 1000);
	assert_int_equal(alloc->bytes, 1024);
	assert_int_equal(alloc->stream, 1);
	assert_int_equal(alloc->held.allocated_bytes, 1024);
	assert_int_equal(alloc->held.reserved_bytes, 2 * MIB);
	assert_string_equal(events->names[alloc->tag], "gradients");
	assert_true(events->list[0].time_ns > 0);
	assert_int_equal(event_find(events, NEAP_EVENT_ALLOC, 1)->allocation.stream, 0);
	assert_int_equal(event_find(events, NEAP_EVENT_FREE_REQUESTED, 0)->allocation.address, a);
	assert_int_equal(event_find(events, NEAP_EVENT_FREE_COMPLETED, 0)->allocation.tag, alloc->tag);
	assert_int_equal(event_find(events, NEAP_EVENT_SEGMENT_MAP, 0)->segment.bytes, 2 * MIB);
	neap_take_extremes(world->alloc, &lowest, &highest);
	assert_int_equal(lowest, 0);
	assert_int_equal(highest, 3 * MIB + 1024);
	a = take(world, 5 * MIB, NULL);
	give(world, a);
	neap_take_extremes(world->alloc, &lowest, &highest);
	assert_int_equal(lowest, 3 * MIB);
	assert_int_equal(highest, 8 * MIB);
	neap_emit(world->alloc, (struct neap_event){.kind = NEAP_EVENT_STEP, .step = {.number = 4}});
	assert_int_equal(event_find(events, NEAP_EVENT_STEP, 0)->step.held.allocated_bytes, 3 * MIB);
	assert_int_equal(neap_emit_name(world->alloc, "gradients"), alloc->tag);
	size_t count = events->count;
	neap_observe(world->alloc, NULL);
	assert_int_equal(neap_emit_name(world->alloc, "gradients"), 0);
	give(world, b);
	assert_int_equal(events->count, count);
}

static void test_publish(void **state)
{
	struct world *world = *state;
	struct neap_published page = {0}, copy;
	uint64_t a = take(world, 3 * MIB, NULL);
	neap_publish(world->alloc, &page);
	take(world, 512, NULL);
	assert_int_equal(neap_published_read(&page, &copy), NEAP_OK);
	assert_int_equal(copy.stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].current, 3 * MIB + 512);
	assert_memory_equal(copy.device_uuid, neap_device_info(world->device)->uuid, 16);
	assert_int_equal(copy.context_bytes, neap_device_context_bytes(world->device));
	assert_true(copy.limit_bytes == UINT64_MAX);
	world_check(world);
	neap_publish(world->alloc, NULL);
	give(world, a);
	assert_memory_equal(&page.stats, &copy.stats, sizeof page.stats);
	page.sequence |= 1; /* its writer died in the middle of a write */
	assert_int_equal(neap_published_read(&page, &copy), NEAP_EBUSY);
	neap_publish(world->alloc, &page);
	world_check(world);
	neap_publish(world->alloc, NULL);
}

struct peek {
	const struct neap_published *page;
	enum neap_status status;
	int64_t reserved;
};

static void on_kernel(void *argument)
{
	struct peek *peek = argument;
	struct neap_published copy = {0};
	peek->status = neap_published_read(peek->page, &copy);
	peek->reserved = copy.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
}

/* A long wait inside the allocator keeps no reader out: no write is open during a driver call. */
static void test_published_during_a_wait(void **state)
{
	struct world *world = *state;
	void *one = stream_new(world), *two = stream_new(world);
	struct neap_published page = {0};
	struct peek peek = {&page, NEAP_EINTERNAL, 0};
	neap_publish(world->alloc, &page);
	uint64_t a = take(world, 200 * MIB, one);
	struct neap_sim_range range = {a, 512, 1};
	struct neap_sim_kernel kernel = {"peek", 1000000000, &range, 1, on_kernel, &peek};
	assert_int_equal(world->sim->launch(one, &kernel), 0);
	give(world, a);
	give(world, take(world, 200 * MIB, two)); /* waits for the kernel, which reads the page */
	assert_int_equal(peek.status, NEAP_OK);
	assert_int_equal(peek.reserved, 240 * MIB); /* what the driver had left comes first */
	world_check(world);
	neap_publish(world->alloc, NULL);
}

struct tally {
	uint64_t end, live, cached;
};

static void on_block(void *context, const struct neap_block_info *info)
{
	struct tally *tally = context;
	assert_true(info->address >= tally->end);
	assert_true(info->address >= info->segment_address);
	assert_true(info->address + info->bytes <= info->segment_address + info->segment_bytes);
	tally->end = info->address + info->bytes;
	if (info->state == NEAP_BLOCK_LIVE) {
		tally->live += info->bytes;
		assert_string_equal(info->tag, "weights");
	}
	if (info->state == NEAP_BLOCK_CACHED)
		tally->cached += info->bytes;
}

static void test_each_block(void **state)
{
	struct world *world = *state;
	struct tally tally = {0};
	neap_tag_set("weights");
	take(world, 5 * MIB, NULL);
	take(world, 1000, stream_new(world));
	neap_tag_set(NULL);
	neap_each_block(world->alloc, on_block, &tally);
	assert_int_equal(tally.live, 5 * MIB + 1024);
	assert_int_equal(tally.cached, metric(world, NEAP_METRIC_RESERVED_BYTES) - (int64_t)tally.live);
}

/* The summary for arbitrary counters, even impossible ones: it fits its buffer, and is as wide as PyTorch's if the
 * counters are sane. */
static void test_summary(void **state)
{
	static const int64_t counts[] = {0, 1, 786432, (int64_t)1 << 50, INT64_MAX, -1, INT64_MIN};
	static const char title[] =
		"a title that is longer than the seventy-five columns which there are between the two bars";
	char *text = malloc(NEAP_SUMMARY_ROOM);
	struct neap_stats stats;
	(void)state;
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		for (int abbreviated = 0; abbreviated < 2; abbreviated++) {
			int lines = 0;
			for (size_t n = 0; n < sizeof stats / sizeof(int64_t); n++)
				((int64_t *)&stats)[n] = counts[i];
			memset(text, 'x', NEAP_SUMMARY_ROOM);
			assert_int_equal(neap_stats_summary(&stats, title, abbreviated, text), NEAP_OK);
			for (const char *at = text, *end; *at != '\0'; at = end + 1, lines++) {
				end = strchr(at, '\n');
				assert_non_null(end);
				if (i < 3)
					assert_int_equal(end - at, 77);
			}
			assert_int_equal(lines, abbreviated ? 29 : 47);
		}
	free(text);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_stats_keys), TEST(test_events_and_extremes),
		TEST(test_publish),    TEST(test_published_during_a_wait),
		TEST(test_each_block), TEST(test_summary),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
