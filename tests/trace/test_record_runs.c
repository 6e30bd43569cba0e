/* Events that sources of many store in slots of their own: struct neap_event_run in neap/trace.h. */
#include "record_test.h"

/* The events n and n + 1. */
static void emit_run(struct neap_recorder *recorder, struct neap_event_run *run, uint64_t n)
{
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	for (uint64_t i = n; i < n + 2; i++) {
		struct neap_event event = numbered(NEAP_EVENT_ALLOC, i);
		observer->events(observer->context, run, &event, 0);
	}
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

/* Two sources and single events take turns: each event is there at once, and in its place by time. */
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
	/* A new recorder does not continue a run of one that was destroyed. */
	recorder = open_recorder(1, 4096);
	for (uint64_t n = 0; n < runs[0].next + 2; n++)
		emit(recorder, numbered(NEAP_EVENT_ALLOC, n));
	uint64_t written = runs[0].next + 2;
	emit_run(recorder, &runs[0], written);
	assert_kept(0, written + 2);
	neap_recorder_destroy(recorder);
}

/* Two events that differ in their kind, also where a run ends between them. */
static void test_pairs(void **state)
{
	struct neap_recorder *recorder = open_recorder(1, 4096);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	struct neap_event_run run = {0};

	(void)state;
	emit(recorder, numbered(NEAP_EVENT_ALLOC, 0));
	struct neap_event alone = numbered(NEAP_EVENT_ALLOC, 1);
	observer->events(observer->context, &run, &alone, 0);
	for (uint64_t n = 2; n < 50; n++) {
		struct neap_event event = numbered(NEAP_EVENT_FREE_REQUESTED, n);
		observer->events(observer->context, &run, &event, NEAP_EVENT_FREE_COMPLETED);
	}
	struct neap_record record = read_record();
	assert_int_equal(record.allocation_count, 2 + 2 * 48);
	for (size_t i = 0; i < record.allocation_count; i++) {
		const struct neap_event *event = &record.allocations[i];
		uint16_t kind = i < 2 ? NEAP_EVENT_ALLOC : NEAP_EVENT_FREE_REQUESTED;
		assert_int_equal(event->kind, i < 2 || i % 2 == 0 ? kind : NEAP_EVENT_FREE_COMPLETED);
		assert_int_equal(event->time_ns, i < 2 ? i + 1 : 2 + i / 2);
		assert_whole(event);
	}
	neap_record_fini(&record);
	neap_recorder_destroy(recorder);
}

/* A source that falls silent while others go on leaves its slots, and what is kept has no gap. */
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
		cmocka_unit_test_setup_teardown(test_pairs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_run_given_up, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
