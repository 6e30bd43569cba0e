/* Sources of many events store them in slots of their own: struct neap_event_run in neap/trace.h. */
#include "record_test.h"

#include "base/slot.h"

#include <sys/wait.h>
#include <unistd.h>

/* The events n and n + 1. */
static void emit_run(struct neap_recorder *recorder, struct neap_event_run *run, uint64_t n)
{
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	for (uint64_t i = n; i < n + 2; i++)
		emit_to_run(observer, run, numbered(NEAP_EVENT_ALLOC, i));
}

static void assert_kept(uint64_t first, uint64_t count)
{
	struct neap_record record = read_record();

	assert_int_equal(record.torn, 0);
	assert_int_equal(record.allocation_count, count);
	for (uint64_t i = 0; i < count; i++) {
		assert_whole(&record.allocations[i]);
		assert_int_equal(record.allocations[i].time_ns, first + i + 1);
	}
	neap_record_fini(&record);
}

/* Two sources and single events take turns: each event is readable at once, and in its place by time. */
static void test_runs(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 4096);
	struct neap_event_run runs[2] = {{0}, {0}};

	(void)state;
	for (uint64_t n = 0; n < 500; n += 5) {
		emit_run(recorder, &runs[0], n);
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n + 2));
		emit_run(recorder, &runs[1], n + 3);
		if (n % 50 == 0)
			assert_kept(0, n + 5);
	}
	assert_kept(0, 500);
	neap_recorder_destroy(recorder);
}

/* A run that begins near the ring's end stops there: nothing behind the ring is written. */
static void test_run_at_end(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 1030); /* runs of 4 */
	struct neap_event_run run = {0};

	(void)state;
	for (uint64_t n = 0; n < 3000; n += 2)
		emit_run(recorder, &run, n);
	struct neap_record record = read_record();
	uint64_t kept = record.allocation_count;
	assert_in_range(kept, 1030 - 16 - 10 - 10, 1030 - 16);
	neap_record_fini(&record);
	assert_kept(3000 - kept, kept);
	neap_recorder_destroy(recorder);
}

static bool give_no_run(void *context, struct neap_event_run *run)
{
	(void)context;
	(void)run;
	return false;
}

/* A forked child that still has its parent's run stores nothing in it. */
static void test_abandoned(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 4096);
	struct neap_event_run run = {0};
	int status = 0;

	(void)state;
	emit_run(recorder, &run, 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		const struct neap_observer none = {.run = give_no_run};
		neap_recorder_abandon(recorder);
		_exit(neap_slot_next(&none, &run) ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_kept(0, 2);
	emit_run(recorder, &run, 2);
	assert_kept(0, 4);
	neap_recorder_destroy(recorder);
	neap_recorder_abandon(NULL);
}

/* An event FREE is read as two events, also when others have the same time or it comes from another source. */
static void test_frees(void **state)
{
	struct neap_recorder *recorder = open_recorder(4, 4096);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	struct neap_event_run runs[2] = {{0}, {0}};

	(void)state;
	emit(recorder, numbered(NEAP_EVENT_FREE, 70)); /* of the allocation ring */
	for (uint64_t n = 0; n < 50; n++) {
		emit_to_run(observer, &runs[0], numbered(NEAP_EVENT_FREE, 2 * n));
		emit_to_run(observer, &runs[1], numbered(NEAP_EVENT_ALLOC, 2 * n + 1));
	}
	struct neap_record record = read_record();
	assert_int_equal(record.allocation_count, 2 + 3 * 50);
	assert_int_equal(record.torn + record.allocations_lost, 0);
	for (size_t i = 0, n = 0; n < 100; n++) {
		assert_int_equal(record.allocations[i].time_ns, n + 1);
		for (int twice = 0; n == 70 && twice < 2; twice++) {
			assert_int_equal(record.allocations[i++].kind, NEAP_EVENT_FREE_REQUESTED);
			assert_int_equal(record.allocations[i++].kind, NEAP_EVENT_FREE_COMPLETED);
		}
		if (n == 70)
			continue;
		if (n % 2 == 0)
			assert_int_equal(record.allocations[i++].kind, NEAP_EVENT_FREE_REQUESTED);
		assert_int_equal(record.allocations[i++].kind, n % 2 ? NEAP_EVENT_ALLOC : NEAP_EVENT_FREE_COMPLETED);
	}
	for (size_t i = 0; i < record.allocation_count; i++)
		assert_whole(&record.allocations[i]);
	neap_record_fini(&record);
	neap_recorder_destroy(recorder);
}

/* A source that stops while others continue leaves its slots, and the kept events have no gap. */
static void test_run_given_up(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 1024);
	struct neap_event_run run = {0};

	(void)state;
	emit_run(recorder, &run, 0);
	for (uint64_t n = 2; n < 18; n++)
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
	emit_run(recorder, &run, 18);
	assert_kept(0, 20);
	for (uint64_t n = 20; n < 3000; n++)
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
	emit_run(recorder, &run, 3000);
	for (uint64_t n = 3002; n < 3992; n++)
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
	emit_run(recorder, &run, 3992); /* its first slot is a whole ring old */
	struct neap_record record = read_record();
	uint64_t kept = record.allocation_count;
	assert_in_range(kept, 1024 - 16 - 16 - 14 - 16, 1024 - 16);
	neap_record_fini(&record);
	assert_kept(3994 - kept, kept);
	neap_recorder_destroy(recorder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_runs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_run_at_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_abandoned, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_frees, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_run_given_up, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
