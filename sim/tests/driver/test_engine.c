/* The simulator's engine: order, races, time. The random test keeps its own graph of the order. */
#include "sim/driver/engine.h"

#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
	*state = sim_engine_create();
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	sim_engine_destroy(*state);
	return 0;
}

static uint32_t new_stream(struct sim_engine *engine, bool non_blocking)
{
	uint32_t stream = 0;

	assert_int_equal(sim_stream_create(engine, non_blocking, &stream), SIM_ORDER_OK);
	assert_int_not_equal(stream, 0);
	return stream;
}

static uint32_t new_event(struct sim_engine *engine)
{
	uint32_t event = 0;

	assert_int_equal(sim_event_create(engine, &event), SIM_ORDER_OK);
	return event;
}

static enum sim_order touch(struct sim_engine *engine, uint32_t stream, const char *name, uint64_t space,
			    uint64_t offset, uint64_t bytes, bool write)
{
	struct sim_access access = {space, offset, bytes, write};
	struct sim_work work = {.name = name, .duration_ns = 100, .accesses = &access, .access_count = 1};

	return sim_stream_submit(engine, stream, &work);
}

static void missing_event_is_a_race(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), b = new_stream(engine, true);
	char text[512];

	assert_int_equal(touch(engine, a, "fill", 7, 0, 4 * KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "sum", 7, 4 * KIB, KIB, false), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "sum", 7, 4 * KIB - 1, KIB, false), SIM_ORDER_RACE);
	sim_engine_fault_text(engine, text, sizeof text);
	assert_non_null(strstr(text, "\"fill\" on stream 1 writes"));
	assert_non_null(strstr(text, "\"sum\" on stream 2 reads bytes 4095 to 4096 of memory 7"));
	/* Even if the first one ran long ago. */
	sim_engine_advance(engine, 1000000);
	assert_int_equal(touch(engine, b, "sum", 7, 0, KIB, false), SIM_ORDER_RACE);
	/* The same stream is in order, and two reads never conflict. */
	assert_int_equal(touch(engine, a, "again", 7, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, a, "read", 8, 0, KIB, false), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "read", 8, 0, KIB, false), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "write", 8, 0, KIB, true), SIM_ORDER_RACE);
}

static void event_orders(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), b = new_stream(engine, true), c = new_stream(engine, true);
	uint32_t event = new_event(engine), never = new_event(engine), second = new_event(engine);

	assert_int_equal(touch(engine, a, "fill", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(sim_stream_wait_event(engine, b, never), SIM_ORDER_OK);
	assert_int_equal(sim_event_query(engine, never), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "early", 1, 0, KIB, false), SIM_ORDER_RACE);
	assert_int_equal(sim_event_record(engine, event, a), SIM_ORDER_OK);
	assert_int_equal(touch(engine, a, "later", 2, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(sim_stream_wait_event(engine, b, event), SIM_ORDER_OK);
	/* A destroyed event still counts for waiting streams. */
	assert_int_equal(sim_event_destroy(engine, event), SIM_ORDER_OK);
	assert_int_equal(sim_event_destroy(engine, event), SIM_ORDER_BAD_HANDLE);
	assert_int_equal(touch(engine, b, "sum", 1, 0, KIB, true), SIM_ORDER_OK);
	/* Work submitted after the record is not covered. */
	assert_int_equal(touch(engine, b, "late", 2, 0, KIB, false), SIM_ORDER_RACE);
	/* Order is transitive: c waits for b, which waited for a. */
	assert_int_equal(sim_event_record(engine, second, b), SIM_ORDER_OK);
	assert_int_equal(sim_stream_wait_event(engine, c, second), SIM_ORDER_OK);
	assert_int_equal(touch(engine, c, "third", 1, 0, KIB, true), SIM_ORDER_OK);
}

static void default_stream_orders_both_ways(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t blocking = new_stream(engine, false), other = new_stream(engine, false);
	uint32_t apart = new_stream(engine, true);

	assert_int_equal(touch(engine, blocking, "a", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, 0, "b", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, other, "c", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, blocking, "d", 1, 0, KIB, true), SIM_ORDER_RACE);
	assert_int_equal(touch(engine, apart, "e", 1, 0, KIB, false), SIM_ORDER_RACE);
	assert_int_equal(touch(engine, apart, "f", 2, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, 0, "g", 2, 0, KIB, true), SIM_ORDER_RACE);
	/* Also the work of a destroyed stream. */
	assert_int_equal(sim_stream_destroy(engine, other), SIM_ORDER_OK);
	assert_int_equal(touch(engine, blocking, "h", 1, 0, KIB, true), SIM_ORDER_RACE);
	assert_int_equal(touch(engine, 0, "i", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, blocking, "j", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(sim_stream_destroy(engine, 0), SIM_ORDER_BAD_HANDLE);
	assert_int_equal(sim_stream_destroy(engine, other), SIM_ORDER_BAD_HANDLE);
	assert_int_equal(touch(engine, other, "k", 1, 0, KIB, true), SIM_ORDER_BAD_HANDLE);
}

static void host_orders(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), b = new_stream(engine, true), event = new_event(engine);

	touch(engine, a, "fill", 1, 0, KIB, true);
	assert_int_equal(sim_stream_query(engine, a), SIM_ORDER_NOT_READY);
	assert_int_equal(touch(engine, b, "sum", 1, 0, KIB, true), SIM_ORDER_RACE);
	assert_int_equal(sim_stream_synchronize(engine, a), SIM_ORDER_OK);
	assert_int_equal(sim_engine_now(engine), 100);
	assert_int_equal(touch(engine, b, "sum", 1, 0, KIB, true), SIM_ORDER_OK);

	/* A query that returns OK also orders; time alone does not. */
	sim_event_record(engine, event, b);
	assert_int_equal(sim_event_query(engine, event), SIM_ORDER_NOT_READY);
	sim_engine_advance(engine, 99);
	assert_int_equal(sim_event_query(engine, event), SIM_ORDER_NOT_READY);
	sim_engine_advance(engine, 1);
	assert_int_equal(touch(engine, a, "next", 1, 0, KIB, true), SIM_ORDER_RACE);
	assert_int_equal(sim_event_query(engine, event), SIM_ORDER_OK);
	assert_int_equal(touch(engine, a, "next", 1, 0, KIB, true), SIM_ORDER_OK);
	assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "last", 1, 0, KIB, true), SIM_ORDER_OK);
}

static void memory_is_named_by_space(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), b = new_stream(engine, true);

	assert_int_equal(touch(engine, a, "fill", 1, 64, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "fill", 2, 64, KIB, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "empty", 1, 64, 0, true), SIM_ORDER_OK);
	assert_int_equal(touch(engine, b, "huge", 1, 64, UINT64_MAX, true), SIM_ORDER_RACE);
	sim_engine_forget(engine, 1);
	assert_int_equal(touch(engine, b, "fill", 1, 64, KIB, true), SIM_ORDER_OK);
}

/* Functions append their letter here. */
struct story {
	struct sim_engine *engine;
	char text[64];
	uint64_t moments[64];
};

struct letter {
	struct story *story;
	char letter;
};

static void tell(void *argument)
{
	struct letter *letter = argument;
	size_t at = strlen(letter->story->text);

	letter->story->moments[at] = sim_engine_now(letter->story->engine);
	letter->story->text[at] = letter->letter;
}

static void submit_letter(struct sim_engine *engine, uint32_t stream, uint64_t duration_ns, struct letter *letter)
{
	struct sim_work work = {.name = "tell", .duration_ns = duration_ns, .function = tell, .argument = letter};

	assert_int_equal(sim_stream_submit(engine, stream, &work), SIM_ORDER_OK);
}

static void held_clock_moves_by_steps(void **state)
{
	struct sim_engine *engine = *state;
	struct story story = {.engine = engine};
	struct letter letters[] = {{&story, 'a'}, {&story, 'b'}, {&story, 'c'}, {&story, 'd'}, {&story, 'e'}};
	uint32_t a = new_stream(engine, true), b = new_stream(engine, true), event = new_event(engine);

	sim_engine_hold(engine, true);
	submit_letter(engine, a, 100, &letters[0]);
	submit_letter(engine, a, 10, &letters[1]);
	submit_letter(engine, b, 50, &letters[2]);
	sim_event_record(engine, event, a);
	sim_stream_wait_event(engine, b, event);
	submit_letter(engine, b, 0, &letters[3]);
	sim_engine_advance(engine, 1000);
	assert_int_equal(sim_engine_now(engine), 0);
	assert_int_equal(sim_stream_synchronize(engine, a), SIM_ORDER_NOT_READY);
	assert_int_equal(sim_event_synchronize(engine, event), SIM_ORDER_NOT_READY);
	assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_NOT_READY);
	assert_string_equal(story.text, "");
	sim_engine_step(engine, 60);
	assert_string_equal(story.text, "c");
	assert_int_equal(story.moments[0], 50);
	sim_engine_step(engine, 49);
	assert_string_equal(story.text, "ca");
	sim_engine_hold(engine, false);
	assert_int_equal(sim_stream_synchronize(engine, b), SIM_ORDER_OK);
	assert_string_equal(story.text, "cabd");
	assert_int_equal(sim_engine_now(engine), 110);
	/* A new work starts no earlier than now. */
	submit_letter(engine, b, 5, &letters[4]);
	assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_OK);
	assert_int_equal(story.moments[4], 115);
}

/* A function that calls the engine: time moves, work can be queued, nothing completes inside the call. */
struct caller {
	struct sim_engine *engine;
	uint32_t stream;
	struct letter *letter;
	enum sim_order synchronized;
};

/* Work that is only time: it delays what comes after it, on its stream, through events and through stream 0. */
static void time_alone_passes(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), b = new_stream(engine, false), c = new_stream(engine, true);
	uint32_t start = new_event(engine), end = new_event(engine), never = new_event(engine);
	int64_t ns = 0;

	sim_engine_hold(engine, true);
	assert_int_equal(sim_event_record(engine, start, a), SIM_ORDER_OK);
	assert_int_equal(sim_stream_pass(engine, a, 300), SIM_ORDER_OK);
	assert_int_equal(sim_stream_pass(engine, a, 0), SIM_ORDER_OK);
	assert_int_equal(sim_event_record(engine, end, a), SIM_ORDER_OK);
	assert_int_equal(sim_stream_wait_event(engine, c, end), SIM_ORDER_OK);
	assert_int_equal(sim_stream_pass(engine, c, 50), SIM_ORDER_OK);
	assert_int_equal(sim_stream_pass(engine, 0, 200), SIM_ORDER_OK);
	assert_int_equal(sim_stream_pass(engine, b, 10), SIM_ORDER_OK); /* behind stream 0 */
	assert_int_equal(sim_event_elapsed(engine, start, end, &ns), SIM_ORDER_NOT_READY);
	assert_int_equal(sim_event_elapsed(engine, start, never, &ns), SIM_ORDER_BAD_HANDLE);
	assert_int_equal(sim_stream_pass(engine, 77, 1), SIM_ORDER_BAD_HANDLE);
	sim_engine_step(engine, 209);
	assert_int_equal(sim_stream_query(engine, b), SIM_ORDER_NOT_READY);
	sim_engine_step(engine, 1);
	assert_int_equal(sim_stream_query(engine, b), SIM_ORDER_OK);
	assert_int_equal(sim_stream_query(engine, a), SIM_ORDER_NOT_READY);
	assert_int_equal(sim_event_query(engine, end), SIM_ORDER_NOT_READY);
	sim_engine_step(engine, 90);
	assert_int_equal(sim_event_query(engine, end), SIM_ORDER_OK);
	assert_int_equal(sim_event_elapsed(engine, start, end, &ns), SIM_ORDER_OK);
	assert_int_equal(ns, 300);
	assert_int_equal(sim_event_elapsed(engine, end, start, &ns), SIM_ORDER_OK);
	assert_int_equal(ns, -300);
	assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_NOT_READY); /* c's 50 */
	sim_engine_hold(engine, false);
	assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_OK);
	assert_int_equal(sim_engine_now(engine), 350);
}

static void call_back(void *argument)
{
	struct caller *caller = argument;

	submit_letter(caller->engine, caller->stream, 7, caller->letter);
	sim_engine_advance(caller->engine, 1000);
	caller->synchronized = sim_stream_synchronize(caller->engine, caller->stream);
	assert_string_equal(caller->letter->story->text, "");
}

static void function_may_call_the_engine(void **state)
{
	struct sim_engine *engine = *state;
	struct story story = {.engine = engine};
	struct letter letter = {&story, 'x'};
	struct caller caller = {.engine = engine, .letter = &letter};
	struct sim_work work = {.name = "call", .duration_ns = 10, .function = call_back, .argument = &caller};

	caller.stream = new_stream(engine, true);
	assert_int_equal(sim_stream_submit(engine, caller.stream, &work), SIM_ORDER_OK);
	sim_engine_advance(engine, 10);
	assert_int_equal(caller.synchronized, SIM_ORDER_NOT_READY);
	assert_int_equal(sim_engine_now(engine), 1010);
	assert_string_equal(story.text, "x");
	assert_int_equal(sim_stream_query(engine, caller.stream), SIM_ORDER_OK);
}

/* Creating and destroying streams, events and accesses leaves nothing behind that disturbs the next ones. */
static void long_life(void **state)
{
	struct sim_engine *engine = *state;
	uint32_t a = new_stream(engine, true), last = 0;

	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t stream = new_stream(engine, i % 2), event = new_event(engine);

		assert_int_not_equal(stream, last);
		last = stream;
		assert_int_equal(touch(engine, stream, "fill", i % 3, i % 7 * KIB, KIB, true), SIM_ORDER_OK);
		sim_event_record(engine, event, stream);
		if (i % 5)
			sim_stream_wait_event(engine, a, event);
		else
			assert_int_equal(sim_event_synchronize(engine, event), SIM_ORDER_OK);
		assert_int_equal(touch(engine, a, "sum", i % 3, i % 7 * KIB, KIB, true), SIM_ORDER_OK);
		if (i % 5)
			assert_int_equal(sim_stream_synchronize(engine, a), SIM_ORDER_OK);
		assert_int_equal(sim_engine_synchronize(engine), SIM_ORDER_OK);
		sim_stream_destroy(engine, stream);
		sim_event_destroy(engine, event);
	}
}

/* Threads: each fills its own bytes on its own stream, all complete each other's work. */
struct worker {
	struct sim_engine *engine;
	uint32_t number;
	uint32_t ran; /* guarded by order alone: the functions of one stream never run at the same time */
	bool failed;
};

static void count_up(void *argument) { ((struct worker *)argument)->ran++; }

static void *work_alone(void *argument)
{
	struct worker *worker = argument;
	struct sim_access access = {1, worker->number * KIB, KIB, true};
	struct sim_work work = {.name = "alone",
				.duration_ns = 3,
				.accesses = &access,
				.access_count = 1,
				.function = count_up,
				.argument = worker};
	uint32_t stream;

	worker->failed = sim_stream_create(worker->engine, true, &stream) != SIM_ORDER_OK;
	for (int i = 0; i < 2000 && !worker->failed; i++) {
		worker->failed = sim_stream_submit(worker->engine, stream, &work) != SIM_ORDER_OK ||
				 (i % 16 == 0 && sim_stream_synchronize(worker->engine, stream) != SIM_ORDER_OK);
		sim_engine_advance(worker->engine, 1);
	}
	worker->failed = worker->failed || sim_stream_synchronize(worker->engine, stream) != SIM_ORDER_OK;
	return NULL;
}

static void threads_share_an_engine(void **state)
{
	struct worker workers[4] = {0};
	pthread_t threads[4];

	for (uint32_t i = 0; i < 4; i++) {
		workers[i] = (struct worker){.engine = *state, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_false(workers[i].failed);
		assert_int_equal(workers[i].ran, 2000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(missing_event_is_a_race, setup, teardown),
		cmocka_unit_test_setup_teardown(event_orders, setup, teardown),
		cmocka_unit_test_setup_teardown(default_stream_orders_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(host_orders, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_named_by_space, setup, teardown),
		cmocka_unit_test_setup_teardown(held_clock_moves_by_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(time_alone_passes, setup, teardown),
		cmocka_unit_test_setup_teardown(function_may_call_the_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(long_life, setup, teardown),
		cmocka_unit_test_setup_teardown(threads_share_an_engine, setup, teardown),
	};

	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
