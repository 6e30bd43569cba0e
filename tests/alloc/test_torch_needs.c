/* What PyTorch's interface asks of an allocator beyond malloc and free: finding a block by its address, a watcher
 * that knows streams and pools, pools without a capture, and restoring a pool to an earlier state. */
#include "harness.h"

static bool only(void *context, void *stream) { return stream == context; }

static void test_block_at(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world);
	struct neap_block_info block = {0};
	uint64_t a = take(world, 3 * MIB + 5, stream);
	assert_int_equal(neap_block_at(world->alloc, a, &block), NEAP_OK);
	assert_int_equal(block.address, a);
	assert_int_equal(block.requested_bytes, 3 * MIB + 5);
	assert_int_equal(block.bytes, 3 * MIB + 512);
	assert_ptr_equal(block.stream, stream);
	assert_false(block.small_pool);
	assert_true(block.segment_address <= a && a + block.bytes <= block.segment_address + block.segment_bytes);
	block.address = 7;
	assert_int_equal(neap_block_at(world->alloc, a + 512, &block), NEAP_EINVAL);
	give(world, a);
	assert_int_equal(neap_block_at(world->alloc, a, &block), NEAP_EINVAL);
	assert_int_equal(block.address, 7); /* untouched */
}

#define CHANGES_KEPT 64

struct changes {
	struct neap_alloc_change list[CHANGES_KEPT];
	size_t count;
};

static void on_change(void *context, const struct neap_alloc_change *change)
{
	struct changes *changes = context;
	assert_true(changes->count < CHANGES_KEPT);
	changes->list[changes->count++] = *change;
}

static void test_watch(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world);
	struct changes changes = {0};
	struct neap_watcher watcher = {.changed = on_change, .context = &changes};
	neap_watch(world->alloc, &watcher);
	uint64_t a = take(world, 4 * MIB, stream);
	assert_int_equal(changes.count, 1); /* pages alone */
	assert_int_equal(changes.list[0].kind, NEAP_EVENT_SEGMENT_MAP);
	assert_int_equal(changes.list[0].address, a);
	assert_int_equal(changes.list[0].bytes, 4 * MIB);
	assert_ptr_equal(changes.list[0].stream, stream);
	watcher.blocks = true;
	neap_watch(world->alloc, &watcher);
	give(world, a);
	assert_int_equal(changes.count, 3);
	assert_int_equal(changes.list[1].kind, NEAP_EVENT_FREE_REQUESTED);
	assert_int_equal(changes.list[2].kind, NEAP_EVENT_FREE_COMPLETED);
	assert_int_equal(changes.list[2].address, a);
	assert_int_equal(neap_pool_use(world->alloc, 3, 4, only, stream, NULL), NEAP_OK);
	uint64_t b = take(world, 1000, stream);
	assert_int_equal(changes.count, 5);
	assert_int_equal(changes.list[3].kind, NEAP_EVENT_SEGMENT_MAP);
	assert_int_equal(changes.list[3].pool_high, 3);
	assert_int_equal(changes.list[4].kind, NEAP_EVENT_ALLOC);
	assert_int_equal(changes.list[4].pool_low, 4);
	assert_int_equal(changes.list[4].requested, 1000);
	assert_int_equal(changes.list[4].bytes, 1024);
	assert_true(changes.list[4].small_pool);
	neap_watch(world->alloc, NULL);
	give(world, b);
	assert_int_equal(neap_pool_end(world->alloc, 3, 4), NEAP_OK);
	assert_int_equal(neap_pool_release(world->alloc, 3, 4), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, NULL, NULL), NEAP_OK);
	assert_int_equal(changes.count, 5);
	world_check(world);
}

/* A pool that is used without a capture does not stop the rest of the cache from being freed. */
static void test_use(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world), *other = stream_new(world);
	uint64_t freed = 0;
	give(world, take(world, 4 * MIB, other));
	assert_int_equal(neap_pool_use(world->alloc, 1, 2, only, stream, NULL), NEAP_OK);
	assert_int_equal(neap_pool_use(world->alloc, 1, 2, only, stream, NULL), NEAP_ESTATE);
	uint64_t a = take(world, 2 * MIB, stream);
	give(world, a);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 4 * MIB); /* the pool keeps its own */
	/* A graph capture into another pool does, until it ends. */
	assert_int_equal(neap_pool_begin(world->alloc, 5, 6, only, other, NULL), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_ESTATE);
	assert_int_equal(neap_pool_end(world->alloc, 5, 6), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(neap_pool_end(world->alloc, 1, 2), NEAP_OK);
	/* Frees the pool's memory only, and only once nothing owns the pool. */
	give(world, take(world, 6 * MIB, other));
	assert_int_equal(neap_pool_empty(world->alloc, 1, 2, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 0);
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_OK);
	assert_int_equal(neap_pool_empty(world->alloc, 1, 2, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 2 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 6 * MIB);
	assert_int_equal(neap_pool_empty(world->alloc, 1, 2, &freed, NULL), NEAP_OK); /* it is gone */
	assert_int_equal(freed, 0);
	assert_int_equal(neap_empty_cache(world->alloc, &freed, NULL), NEAP_OK);
	assert_int_equal(freed, 6 * MIB);
	world_check(world);
}

static void test_restore(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world);
	struct neap_block_info kept[3];
	uint64_t at[3];
	assert_int_equal(neap_pool_use(world->alloc, 1, 2, only, stream, NULL), NEAP_OK);
	for (int i = 0; i < 3; i++) {
		at[i] = take(world, 2 * MIB + 100, stream);
		assert_int_equal(neap_block_at(world->alloc, at[i], &kept[i]), NEAP_OK);
	}
	assert_int_equal(neap_pool_restore(world->alloc, &kept[1], NULL), NEAP_EINVAL); /* it is live */
	for (int i = 0; i < 3; i++)
		give(world, at[i]);
	/* From the middle of the cached bytes first, then what is next to it. */
	assert_int_equal(neap_pool_restore(world->alloc, &kept[1], NULL), NEAP_OK);
	world_check(world);
	assert_int_equal(metric(world, NEAP_METRIC_ALLOCATED_BYTES), kept[1].bytes);
	assert_int_equal(metric(world, NEAP_METRIC_REQUESTED_BYTES), 2 * MIB + 100);
	assert_int_equal(neap_pool_restore(world->alloc, &kept[0], NULL), NEAP_OK);
	struct neap_block_info wrong = kept[2];
	wrong.pool_low = 9;
	assert_int_equal(neap_pool_restore(world->alloc, &wrong, NULL), NEAP_EINVAL);
	wrong = kept[2];
	wrong.address += 100;
	assert_int_equal(neap_pool_restore(world->alloc, &wrong, NULL), NEAP_EINVAL);
	wrong = kept[2];
	wrong.requested_bytes = wrong.bytes + 1;
	assert_int_equal(neap_pool_restore(world->alloc, &wrong, NULL), NEAP_EINVAL);
	assert_int_equal(neap_pool_restore(world->alloc, &kept[2], NULL), NEAP_OK);
	world_check(world);
	for (int i = 0; i < 3; i++)
		give(world, at[i]);
	assert_int_equal(neap_pool_end(world->alloc, 1, 2), NEAP_OK);
	assert_int_equal(neap_pool_release(world->alloc, 1, 2), NEAP_OK);
	assert_int_equal(neap_empty_cache(world->alloc, NULL, NULL), NEAP_OK);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 0);
	world_check(world);
}

/* A driver that cannot export memory (a container may forbid it) still gives pages. */
static void test_shareable(void **state)
{
	struct world *world = *state;
	const struct neap_alloc_options options = {.shareable = true};
	struct neap_alloc *alloc;
	uint64_t address = 0;
	assert_int_equal(neap_alloc_create(world->device, &options, &alloc, NULL), NEAP_OK);
	uint64_t calls = world->sim->calls("cuMemCreate");
	world->sim->fault("cuMemCreate", 0, 1, CUDA_ERROR_NOT_PERMITTED);
	assert_int_equal(neap_malloc(alloc, 2 * MIB, NULL, &address, NULL), NEAP_OK);
	assert_int_equal(world->sim->calls("cuMemCreate"), calls + 2);
	/* From then on the allocator does not try again. */
	world->sim->fault("cuMemCreate", 0, 1, CUDA_ERROR_NOT_PERMITTED);
	assert_int_equal(neap_malloc(alloc, 2 * MIB, NULL, &address, NULL), NEAP_EDRIVER);
	world->sim->fault(NULL, 0, 0, 0);
	neap_alloc_destroy(alloc);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {TEST(test_block_at), TEST(test_watch), TEST(test_use), TEST(test_restore),
					   TEST(test_shareable)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
