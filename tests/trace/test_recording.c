/* A recording read as a trace: its events and marks, the events that it has lost, and cuts. */
#include "recording_test.h"

static void test_recording(void **state)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	struct neap_trace_event event;

	(void)state;
	write_recording(path, 16);
	if (neap_trace_read(path, &trace, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	assert_int_equal(trace->source, NEAP_TRACE_RECORDING);
	assert_int_equal(trace->device_count, 3);
	assert_int_equal(trace->devices[0].event_count, 3);
	assert_int_equal(trace->devices[1].event_count, 0);
	assert_int_equal(trace->devices[2].event_count, 1);
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 1);
	assert_true(neap_trace_next(&cursor, &event));
	assert_int_equal(event.kind, NEAP_TRACE_ALLOC);
	assert_int_equal(event.size, 700);
	assert_int_equal(trace->streams[event.stream].handle, 3);
	assert_true(event.time_us > 1000000ull * 1000000000ull / 1000);
	assert_int_equal(trace->calls[event.stack].parent, 0);
	assert_string_equal(neap_trace_text(trace, trace->frames[trace->calls[event.stack].frame].name), "weights");
	cursor = neap_trace_events(trace, 2, 0);
	assert_true(neap_trace_next(&cursor, &event));
	assert_int_equal(event.kind, NEAP_TRACE_OOM);
	assert_int_equal(event.size, 512);
	assert_int_equal(event.address, 99);
	assert_int_equal(event.device, 2);
	assert_int_equal(trace->mark_count, 1);
	assert_int_equal(trace->marks[0].kind, NEAP_TRACE_STEP);
	assert_int_equal(trace->marks[0].event, 2);
	assert_int_equal(trace->warning_count, 1);
	assert_warned(trace, "1 events of no possible device");
	neap_trace_free(trace);

	/* Wrapped: the oldest events are gone, and the trace says so. Cut short: an error with its place. */
	write_recording(path, 2);
	assert_int_equal(neap_trace_read(path, &trace, &err), NEAP_OK);
	assert_int_equal(trace->devices[0].event_count, 2);
	assert_int_equal(trace->devices[0].lost, 1);
	assert_warned(trace, "1 older allocation events were overwritten");
	neap_trace_free(trace);
	assert_int_equal(truncate(path, 16384 + 64), 0);
	trace = NULL;
	assert_int_equal(neap_trace_read(path, &trace, &err), NEAP_EPARSE);
	assert_int_equal(err.position, 16384 + 64);
	assert_null(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recording),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
