/* trace/recording_test.h: a small recording with each kind of event that a trace reads from one. */
#ifndef NEAP_TESTS_RECORDING_TEST_H
#define NEAP_TESTS_RECORDING_TEST_H

#include "neap/trace.h"
#include "trace_test.h"

static inline void emit(struct neap_recorder *recorder, struct neap_event event)
{
	const struct neap_observer *observer = neap_recorder_observer(recorder);

	observer->event(observer->context, &event);
}

static inline void write_recording(const char *to, uint64_t capacity)
{
	struct neap_recorder *recorder = NULL;

	assert_int_equal(neap_recorder_create(to, 8, capacity, &recorder, NULL), NEAP_OK);
	const struct neap_observer *observer = neap_recorder_observer(recorder);
	uint16_t tag = observer->name(observer->context, "weights");
	struct neap_event event = {
		.time_ns = 1000, .kind = NEAP_EVENT_SEGMENT_ALLOC, .segment = {.address = 512, .bytes = 4096}};
	emit(recorder, event);
	event = (struct neap_event){
		.time_ns = 2000,
		.kind = NEAP_EVENT_ALLOC,
		.allocation = {.address = 512, .requested_bytes = 700, .bytes = 1024, .tag = tag, .stream = 3}};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 2500, .kind = NEAP_EVENT_STEP, .step = {.number = 1}};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 3000,
				    .kind = NEAP_EVENT_OOM,
				    .device = 2,
				    .oom = {.device_free_bytes = 99, .requested_bytes = 5, .bytes = 512}};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 4000,
				    .kind = NEAP_EVENT_FREE_REQUESTED,
				    .allocation = {.address = 512, .requested_bytes = 700}};
	emit(recorder, event);
	event = (struct neap_event){.time_ns = 5000, .kind = NEAP_EVENT_METRIC, .metric = {.name = tag}};
	emit(recorder, event);
	event = (struct neap_event){
		.time_ns = 6000, .kind = NEAP_EVENT_MARK, .device = 300, .mark = {.name = tag, .value = 4}};
	emit(recorder, event);
	neap_recorder_destroy(recorder);
}

#endif
