/* Gates: a synchronisation opens the right ones in order, once; waiting for a gate that another thread opens. */
#include "sim/runtime/runtime.h"

#include "support/test.h"

#include <pthread.h>
#include <semaphore.h>

/* Stand-ins for gate.c. */
static bool capturing;
bool runtime_capturing(CUstream stream)
{
	(void)stream;
	return capturing;
}

static bool kept; /* whether gates may be superseded when PyTorch hands out a block */
void runtime_keep(enum runtime_kept what, bool on)
{
	assert_int_equal(what, KEPT_GATES);
	kept = on;
}

#define A ((CUstream)0x1000)
#define B ((CUstream)0x2000)
#define E ((CUevent)0x3000)

static char order[16];

static void append(void *argument) { strcat(order, argument); }
static void dropped(void *argument)
{
	strcat(order, "-");
	strcat(order, argument);
}

static bool is_ready = true;
static bool ready(void *argument)
{
	(void)argument;
	return is_ready;
}

static void superseded(void *argument)
{
	strcat(order, "~");
	strcat(order, argument);
}

static const struct runtime_gate plain = {append, dropped, ready, superseded};

static void add(CUstream stream, uint64_t address, char *name)
{
	assert_true(gate_add(stream, address, 16, &plain, name));
}

static int begin(void **unused)
{
	(void)unused;
	order[0] = '\0';
	return 0;
}

/* Nothing is left for the next test. */
static int end(void **unused)
{
	(void)unused;
	gate_open_stream(NULL);
	gate_forget_stream(A);
	gate_forget_stream(B);
	gate_forget_event(E);
	assert_false(kept);
	return 0;
}

static void a_stream_opens_its_own(void **unused)
{
	(void)unused;
	add(A, 0, "a");
	add(B, 100, "b");
	add(A, 200, "c");
	gate_open_stream(A);
	assert_string_equal(order, "ac");
	gate_open_stream(A);
	assert_string_equal(order, "ac"); /* once */
	assert_true(kept);
	gate_open_stream(B);
	assert_string_equal(order, "acb");
}

static void an_event_carries_them(void **unused)
{
	(void)unused;
	add(A, 0, "a");
	gate_recorded(E, A);
	add(A, 100, "b"); /* after the record */
	gate_waited(B, E);
	gate_open_stream(B);
	assert_string_equal(order, "a");
	gate_open_event(E);
	assert_string_equal(order, "a");
}

static void an_event_that_is_recorded_again_forgets(void **unused)
{
	(void)unused;
	add(A, 0, "a");
	gate_recorded(E, A);
	gate_recorded(E, B); /* B comes after nothing */
	gate_open_event(E);
	assert_string_equal(order, "");
}

static void the_null_stream_opens_all(void **unused)
{
	(void)unused;
	add(A, 0, "a");
	add(B, 100, "b");
	gate_recorded(E, NULL);
	add(B, 200, "c");
	gate_open_event(E);
	assert_string_equal(order, "ab");
	gate_open_stream(NULL);
	assert_string_equal(order, "abc");
}

static void a_range_opens_what_lies_over_it(void **unused)
{
	(void)unused;
	add(A, 0, "a");
	add(A, 100, "b");
	add(A, 200, "c");
	add(B, 100, "d");
	gate_open_range(16, 84);
	assert_string_equal(order, "");
	gate_open_range(115, 1); /* the last byte of b and d; a comes before b on its stream */
	assert_string_equal(order, "abd");
}

static void a_capture_drops(void **unused)
{
	(void)unused;
	capturing = true;
	add(A, 0, "a");
	capturing = false;
	gate_open_stream(NULL);
	assert_string_equal(order, "-a");
}

/* Its own function may read its destination. */
static void looks(void *argument)
{
	gate_open_range(0, 16);
	append(argument);
}

static void a_gate_may_look(void **unused)
{
	(void)unused;
	assert_true(gate_add(A, 0, 16, &(const struct runtime_gate){looks, dropped, ready, superseded}, "a"));
	gate_open_stream(A);
	assert_string_equal(order, "a");
}

static sem_t opening, go_on;

static void slow(void *argument)
{
	sem_post(&opening);
	sem_wait(&go_on);
	append(argument);
}

static const struct runtime_gate slow_gate = {slow, dropped, ready, superseded};

static void *synchronise(void *unused)
{
	(void)unused;
	gate_open_stream(A);
	return NULL;
}

static void *let_go(void *unused)
{
	(void)unused;
	sem_post(&go_on);
	return NULL;
}

static void others_wait_for_the_opener(void **unused)
{
	pthread_t opener, releaser;

	(void)unused;
	sem_init(&opening, 0, 0);
	sem_init(&go_on, 0, 0);
	assert_true(gate_add(A, 0, 16, &slow_gate, "a"));
	assert_int_equal(pthread_create(&opener, NULL, synchronise, NULL), 0);
	sem_wait(&opening);
	gate_open_stream(B); /* needs nothing of A: does not wait */
	assert_true(gate_try_stream(B));
	assert_false(gate_try_stream(A)); /* a query never waits */
	assert_int_equal(pthread_create(&releaser, NULL, let_go, NULL), 0);
	gate_open_stream(A);
	assert_string_equal(order, "a"); /* it is open after the wait */
	pthread_join(opener, NULL);
	pthread_join(releaser, NULL);
}

/* A query opens gates that open without blocking. */
static void a_query_does_not_block(void **unused)
{
	(void)unused;
	assert_true(gate_try_stream(A) && gate_try_event(E));
	add(A, 0, "a");
	gate_recorded(E, A);
	add(A, 100, "b");
	is_ready = false;
	assert_false(gate_try_stream(A) || gate_try_event(E) || gate_try_stream(NULL));
	assert_true(gate_try_stream(B));
	assert_string_equal(order, "");
	is_ready = true;
	assert_true(gate_try_event(E));
	assert_string_equal(order, "a"); /* b came after the record */
	assert_true(gate_try_stream(NULL));
	assert_string_equal(order, "ab");
}

/* If the program overwrites a whole destination, its bytes stay, but the stream still waits for the gate. */
static void an_overwritten_destination(void **unused)
{
	(void)unused;
	add(A, 100, "a");
	gate_overwrite_range(100, 15); /* one byte remains: the gate must still write it */
	assert_string_equal(order, "a");
	add(A, 100, "b");
	gate_overwrite_range(116, 100);
	gate_overwrite_range(0, 100);
	assert_string_equal(order, "a");
	gate_overwrite_range(90, 26);
	assert_string_equal(order, "a~b");
	gate_open_range(100, 16); /* nothing is pending */
	gate_overwrite_range(100, 16);
	assert_string_equal(order, "a~b");
	gate_open_stream(A);
	assert_string_equal(order, "a~bb");
}

static void a_freed_destination(void **unused)
{
	(void)unused;
	add(A, 100, "a");
	gate_free_range(108, 100); /* never blocks */
	assert_string_equal(order, "");
	gate_free_range(96, 512);
	assert_string_equal(order, "~a");
	gate_free_range(96, 512);
	gate_open_stream(A);
	assert_string_equal(order, "~aa");
}

/* More streams than numbers: they also wait for each other's gates, and none is lost. */
static void many_streams(void **unused)
{
	static char names[64][2];
	uintptr_t i;

	(void)unused;
	for (i = 0; i < 12; i++)
		names[i][0] = (char)('a' + i);
	for (i = 0; i < 64; i++)
		add((CUstream)(0x10000 + i * 16), i * 100, i < 12 ? names[i] : "");
	gate_open_stream((CUstream)0x10000);
	assert_string_equal(order, "a");
	for (i = 0; i < 64; i++)
		gate_open_stream((CUstream)(0x10000 + i * 16));
	assert_string_equal(order, "abcdefghijkl");
	for (i = 0; i < 64; i++)
		gate_forget_stream((CUstream)(0x10000 + i * 16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_stream_opens_its_own, begin, end),
		cmocka_unit_test_setup_teardown(an_event_carries_them, begin, end),
		cmocka_unit_test_setup_teardown(an_event_that_is_recorded_again_forgets, begin, end),
		cmocka_unit_test_setup_teardown(the_null_stream_opens_all, begin, end),
		cmocka_unit_test_setup_teardown(a_range_opens_what_lies_over_it, begin, end),
		cmocka_unit_test_setup_teardown(a_capture_drops, begin, end),
		cmocka_unit_test_setup_teardown(a_gate_may_look, begin, end),
		cmocka_unit_test_setup_teardown(others_wait_for_the_opener, begin, end),
		cmocka_unit_test_setup_teardown(a_query_does_not_block, begin, end),
		cmocka_unit_test_setup_teardown(an_overwritten_destination, begin, end),
		cmocka_unit_test_setup_teardown(a_freed_destination, begin, end),
		cmocka_unit_test_setup_teardown(many_streams, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
