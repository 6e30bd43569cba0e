/* train/session_test.h: a small simulated world, the lines that are logged in it, and the events that are emitted. */
#ifndef NEAP_TESTS_SESSION_TEST_H
#define NEAP_TESTS_SESSION_TEST_H

#include "../alloc/harness.h"
#include "neap/train.h"

#define LINES 4096

static struct {
	char text[LINES][256];
	enum neap_log_level level[LINES];
	size_t count;
} lines;

static struct world world;

static inline void keep_line(void *context, enum neap_log_level level, const char *text)
{
	(void)context;
	assert_true(lines.count < LINES);
	assert_null(strchr(text, '\n'));
	lines.level[lines.count] = level;
	snprintf(lines.text[lines.count++], sizeof lines.text[0], "%s", text);
}

static const struct neap_log_sink sink = {keep_line, NULL};

static inline int open_world(const char *what)
{
	lines.count = 0;
	world_open(&world, what);
	world_alloc(&world, 0);
	return 0;
}

static inline int open_small_world(void **state)
{
	(void)state;
	return open_world("mem=256MiB,reserved=0,context=8MiB");
}

static inline int close_world(void **state)
{
	(void)state;
	world_check(&world);
	world_close(&world);
	return 0;
}

static inline size_t lines_with(const char *part)
{
	size_t count = 0;

	for (size_t i = 0; i < lines.count; i++)
		count += strstr(lines.text[i], part) != NULL;
	return count;
}

/* The reason for the event: a cleanup's reason, the rung that was taken, the act or the request. */
static inline uint64_t why(const struct neap_event *event)
{
	switch (event->kind) {
	case NEAP_EVENT_CLEANUP:
		return event->cleanup.reason;
	case NEAP_EVENT_RUNG:
		return event->rung.rung;
	case NEAP_EVENT_LEVEL:
		return event->level.act;
	case NEAP_EVENT_REQUEST:
		return event->request.request;
	default:
		fail_msg("an event of kind %d has no reason", event->kind);
		return 0;
	}
}

/* Events of `kind` that were made for this reason; UINT64_MAX: any. */
static inline size_t events_of(enum neap_event_kind kind, uint64_t reason)
{
	size_t count = 0;

	assert_true(world.events.count < EVENTS_KEPT);
	for (size_t i = 0; i < world.events.count; i++)
		count += world.events.list[i].kind == kind &&
			 (reason == UINT64_MAX || why(&world.events.list[i]) == reason);
	return count;
}

/* A session of this world that logs into `lines`; its micro-batch is 8 if none is given. */
static inline struct neap_train *begin(struct neap_train_options options)
{
	struct neap_train *train = NULL;
	struct neap_error err = {0};

	if (!options.split.micro_batch)
		options.split.micro_batch = 8;
	options.log = &sink;
	if (neap_train_begin(world.alloc, &options, &train, &err) != NEAP_OK)
		fail_msg("%s", err.message);
	return train;
}

#endif
