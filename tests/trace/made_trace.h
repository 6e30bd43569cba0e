/* trace/made_trace.h: a snapshot of one device, made event by event. */
#ifndef NEAP_TESTS_MADE_TRACE_H
#define NEAP_TESTS_MADE_TRACE_H

#include "support/test.h"
#include "trace/build.h"

#include <string.h>

struct maker {
	struct neap_build build;
	uint64_t events; /* events so far */
	uint32_t stack;  /* for events to come, if a test sets it */
};

static inline void begin(struct maker *maker)
{
	*maker = (struct maker){0};
	assert_int_equal(neap_build_init(&maker->build, NEAP_TRACE_SNAPSHOT, NULL), NEAP_OK);
	assert_true(neap_build_device(&maker->build, 0));
}

static inline void put_event(struct maker *maker, struct neap_trace_event event)
{
	neap_build_event(&maker->build, &event);
	maker->events++;
}

static inline struct neap_trace *finish(struct maker *maker)
{
	struct neap_trace *trace = NULL;
	maker->build.trace->devices[0].event_count = maker->events;
	assert_int_equal(neap_build_finish(&maker->build, &trace, NULL), NEAP_OK);
	return trace;
}

static inline uint32_t frame(struct maker *maker, const char *file, const char *name, uint32_t line)
{
	return neap_build_frame(&maker->build, neap_build_text(&maker->build, file, strlen(file)),
				neap_build_text(&maker->build, name, strlen(name)), line);
}

#endif
