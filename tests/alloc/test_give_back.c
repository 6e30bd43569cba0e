/* Memory for other processes: what an allocator gives back without waiting, and when it asks others for theirs. */
#include "harness.h"

#include "alloc/agent.h"

#include <pthread.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

static struct neap_given_back given_back(struct world *world)
{
	struct neap_given_back given = {0};
	struct neap_error err = {0};
	if (neap_give_back(world->alloc, &given, &err))
		fail_msg("%s", err.message);
	return given;
}

static void idle_memory_is_given(void **state)
{
	struct world *world = *state;
	uint64_t live = take(world, 8 * MIB, NULL), cached = take(world, 32 * MIB, NULL);
	give(world, cached);
	struct neap_given_back given = given_back(world);
	assert_true(given.bytes == 32 * MIB && !given.more);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 8 * MIB);
	const struct neap_event *event = event_find(&world->events, NEAP_EVENT_EMPTY_CACHE, 0);
	assert_true(event && event->empty_cache.freed_bytes == 32 * MIB);
	assert_int_equal(given_back(world).bytes, 0);
	/* It works even after the last live block is gone: the default stream can always be queried. */
	give(world, live);
	assert_int_equal(given_back(world).bytes, 8 * MIB);
	world_check(world);
}

/* No call waits. Memory in use is given back by a later call, even if the stream has new work by then. */
static void work_under_way_is_not_waited_for(void **state)
{
	struct world *world = *state;
	void *stream = stream_new(world);
	uint64_t live = take(world, 8 * MIB, stream), cached = take(world, 32 * MIB, stream);
	world->sim->hold(1);
	touch(world, stream, cached, 32 * MIB, 1, 1000000);
	give(world, cached);
	uint64_t waits = world->sim->calls("cuCtxSynchronize") + world->sim->calls("cuEventSynchronize") +
			 world->sim->calls("cuStreamSynchronize");
	struct neap_given_back given = given_back(world);
	assert_true(given.bytes == 0 && given.more);
	touch(world, stream, live, 8 * MIB, 1, 1000000000);
	given = given_back(world);
	assert_true(given.bytes == 0 && given.more);
	world->sim->step(2000000);
	given = given_back(world);
	assert_true(given.bytes == 32 * MIB && !given.more);
	assert_int_equal(world->sim->calls("cuCtxSynchronize") + world->sim->calls("cuEventSynchronize") +
				 world->sim->calls("cuStreamSynchronize"),
			 waits);
	world->sim->hold(0);
	world_check(world);
	give(world, live);
}

struct holder {
	struct world *world;
	int visited;
};

static void try_inside(void *context, const struct neap_block_info *block)
{
	struct holder *holder = context;
	struct neap_given_back given;
	(void)block;
	assert_int_equal(neap_give_back(holder->world->alloc, &given, NULL), NEAP_EBUSY);
	holder->visited++;
}

static void lock_is_only_tried(void **state)
{
	struct holder holder = {.world = *state};
	give(*state, take(*state, 8 * MIB, NULL));
	neap_each_block(holder.world->alloc, try_inside, &holder);
	assert_true(holder.visited > 0);
	assert_int_equal(given_back(*state).bytes, 8 * MIB);
}

static bool any_stream(void *context, void *stream)
{
	(void)context, (void)stream;
	return true;
}

static void pools_and_captures_keep_theirs(void **state)
{
	struct world *world = *state;
	struct neap_given_back given;
	CUgraph graph = NULL;
	void *stream = stream_new(world);
	give(world, take(world, 8 * MIB, NULL));
	assert_int_equal(neap_pool_begin(world->alloc, 1, 0, any_stream, NULL, NULL), NEAP_OK);
	give(world, take(world, 16 * MIB, NULL));
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_ESTATE);
	assert_int_equal(neap_pool_end(world->alloc, 1, 0), NEAP_OK);
	assert_int_equal(given_back(world).bytes, 8 * MIB);
	assert_int_equal(metric(world, NEAP_METRIC_RESERVED_BYTES), 16 * MIB);
	uint64_t live = take(world, MIB, stream);
	give(world, take(world, 8 * MIB, NULL));
	assert_int_equal(world->cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(neap_give_back(world->alloc, &given, NULL), NEAP_ESTATE);
	assert_int_equal(world->cuda->cuStreamEndCapture(stream, &graph), 0);
	assert_int_equal(world->cuda->cuGraphDestroy(graph), 0);
	give(world, live);
	world_check(world);
}

static void *give_in_thread(void *argument)
{
	struct world *world = argument;
	struct neap_given_back given = {0};
	enum neap_status status = neap_give_back(world->alloc, &given, NULL);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	world->cuda->cuThreadExchangeStreamCaptureMode(&mode);
	bool as_before = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
	return status || given.bytes != 32 * MIB || !as_before ? world : NULL;
}

/* neap cannot know of a capture on a stream that it has never seen: the agent's thread must not invalidate it. */
static void unknown_capture_survives(void **state)
{
	struct world *world = *state;
	CUgraph graph = NULL;
	pthread_t thread;
	void *stream = stream_new(world);
	uint64_t live = take(world, 8 * MIB, NULL);
	give(world, take(world, 32 * MIB, NULL));
	assert_int_equal(world->cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(pthread_create(&thread, NULL, give_in_thread, world), 0);
	void *wrong = NULL;
	pthread_join(thread, &wrong);
	assert_null(wrong);
	assert_int_equal(world->cuda->cuStreamEndCapture(stream, &graph), 0);
	assert_int_equal(world->cuda->cuGraphDestroy(graph), 0);
	give(world, live);
	world_check(world);
}

/* The hook of a request that found no memory. */
static struct {
	struct neap_alloc *neighbour; /* whose cache it empties */
	unsigned calls;
	struct neap_asked answer;
} hook_state;

static void lacking(struct neap_alloc *alloc, struct neap_asked *ret_asked)
{
	assert_int_equal(neap_alloc_check(alloc, NULL), NEAP_OK); /* the lock is free */
	hook_state.calls++;
	*ret_asked = hook_state.answer;
	if (hook_state.neighbour)
		assert_int_equal(neap_empty_cache(hook_state.neighbour, &ret_asked->freed_bytes, NULL), NEAP_OK);
}

static const struct neap_alloc_hook hook = {.lacking = lacking};

static enum neap_status try_taking(struct world *world, uint64_t bytes, struct neap_error *err)
{
	uint64_t address = 0;
	enum neap_status status = neap_malloc(world->alloc, bytes, NULL, &address, err);
	if (!status)
		give(world, address);
	return status;
}

static void others_are_asked_and_it_is_tried_again(void **state)
{
	struct world *world = *state;
	struct neap_error err = {0};
	struct neap_asked asked;
	uint64_t address = 0;
	struct neap_alloc *neighbour = NULL;
	neap_set_alloc_hook(&hook);
	memset(&hook_state, 0, sizeof hook_state);
	assert_int_equal(neap_alloc_create(world->device, NULL, &neighbour, NULL), NEAP_OK);
	assert_int_equal(neap_malloc(neighbour, 150 * MIB, NULL, &address, NULL), NEAP_OK);
	assert_int_equal(neap_free(neighbour, address), NEAP_OK);
	/* The other process answers, but gives nothing. */
	hook_state.answer = (struct neap_asked){.processes = 2, .answered = 1};
	assert_int_equal(try_taking(world, 200 * MIB, &err), NEAP_EOOM);
	assert_int_equal(hook_state.calls, 1);
	assert_non_null(strstr(err.message, "(asked: gave back 0 B)."));
	neap_last_asked(world->alloc, &asked);
	assert_true(asked.processes == 2 && asked.answered == 1 && asked.freed_bytes == 0);
	hook_state.neighbour = neighbour;
	assert_int_equal(try_taking(world, 200 * MIB, &err), NEAP_OK);
	assert_int_equal(hook_state.calls, 2);
	neap_last_asked(world->alloc, &asked);
	assert_true(asked.freed_bytes == 150 * MIB);
	neap_set_alloc_hook(NULL);
	neap_alloc_destroy(neighbour);
}

static bool in_callback(void *context, struct neap_alloc *alloc, size_t bytes, unsigned attempt)
{
	static bool inside; /* the request in here fails and calls back, too */
	uint64_t address = 0;
	(void)context, (void)attempt;
	if (inside)
		return false;
	inside = true;
	assert_int_equal(neap_malloc(alloc, bytes, NULL, &address, NULL), NEAP_EOOM);
	inside = false;
	return false;
}

/* Nobody is asked if that cannot help, during a capture, or by a request made inside another one's end. */
static void others_are_not_asked_in_vain(void **state)
{
	struct world *world = *state;
	struct neap_error err = {0};
	struct neap_asked asked;
	CUgraph graph = NULL;
	void *stream = stream_new(world);
	neap_set_alloc_hook(&hook);
	memset(&hook_state, 0, sizeof hook_state);
	hook_state.answer = (struct neap_asked){.processes = 1, .answered = 1};
	assert_int_equal(try_taking(world, 257 * MIB, &err), NEAP_EOOM); /* more than the device has */
	assert_int_equal(neap_set_fraction(world->alloc, 0.5, NULL), NEAP_OK);
	assert_int_equal(try_taking(world, 129 * MIB, &err), NEAP_EOOM); /* more than the limit */
	assert_int_equal(neap_set_fraction(world->alloc, 1, NULL), NEAP_OK);
	uint64_t live = take(world, MIB, stream);
	assert_int_equal(world->cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	assert_int_equal(try_taking(world, 245 * MIB, &err), NEAP_EOOM);
	assert_int_equal(world->cuda->cuStreamEndCapture(stream, &graph), 0);
	assert_int_equal(world->cuda->cuGraphDestroy(graph), 0);
	assert_int_equal(hook_state.calls, 0);
	neap_last_asked(world->alloc, &asked);
	assert_int_equal(asked.processes, 0);
	assert_null(strstr(err.message, "asked"));
	neap_set_oom_callback(world->alloc, in_callback, NULL);
	assert_int_equal(try_taking(world, 245 * MIB, &err), NEAP_EOOM);
	assert_int_equal(hook_state.calls, 1);
	neap_set_oom_callback(world->alloc, NULL, NULL);
	assert_int_equal(try_taking(world, 245 * MIB, &err), NEAP_EOOM);
	assert_int_equal(hook_state.calls, 2);
	neap_set_alloc_hook(NULL);
	give(world, live);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(idle_memory_is_given),         TEST(work_under_way_is_not_waited_for),
		TEST(lock_is_only_tried),           TEST(pools_and_captures_keep_theirs),
		TEST(unknown_capture_survives),     TEST(others_are_asked_and_it_is_tried_again),
		TEST(others_are_not_asked_in_vain),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
