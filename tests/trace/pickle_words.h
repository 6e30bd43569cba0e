/* trace/pickle_words.h: the parts of a snapshot's pickle, to be put together by hand. */
#ifndef NEAP_TESTS_PICKLE_WORDS_H
#define NEAP_TESTS_PICKLE_WORDS_H

#include "base/buffer.h"
#include "trace_test.h"

/* Protocol 4; a short text; an event's first keys. */
#define P "\x80\x04"
#define EVENT_KEYS                                                                                                   \
	"\x8c\x06"                                                                                                   \
	"action"                                                                                                     \
	"\x8c\x05"                                                                                                   \
	"alloc"
#define ADDR                                                                                                         \
	"\x8c\x04"                                                                                                   \
	"addr"                                                                                                       \
	"K\x01"
#define SIZE                                                                                                         \
	"\x8c\x04"                                                                                                   \
	"size"                                                                                                       \
	"K\x09"
#define EVENT "}(" EVENT_KEYS ADDR SIZE "u"
#define SEGMENTS                                                                                                     \
	"\x8c\x08"                                                                                                   \
	"segments"
#define TRACES                                                                                                       \
	"\x8c\x0d"                                                                                                   \
	"device_traces"
#define BLOCK(more)                                                                                                  \
	"}(\x8c\x05"                                                                                                 \
	"state"                                                                                                      \
	"\x8c\x08"                                                                                                   \
	"inactive" SIZE more "u"
#define BLOCKS                                                                                                       \
	"\x8c\x06"                                                                                                   \
	"blocks"
#define TOTAL                                                                                                        \
	"\x8c\x0a"                                                                                                   \
	"total_size"                                                                                                 \
	"K\x09"
#define ADDRESS                                                                                                      \
	"\x8c\x07"                                                                                                   \
	"address"                                                                                                    \
	"K\x05"
#define DEVICE                                                                                                       \
	"\x8c\x06"                                                                                                   \
	"device"
#define BYTES(text) text, sizeof text - 1

static inline void append(struct neap_buffer *buffer, const char *bytes, size_t length)
{
	neap_buffer_append(buffer, bytes, length);
}

static inline struct neap_trace *read_buffer(struct neap_buffer *buffer, struct neap_error *err)
{
	assert_int_equal(neap_buffer_status(buffer, NULL), NEAP_OK);
	struct neap_trace *trace = read_bytes(buffer->data, buffer->length, err);
	neap_buffer_fini(buffer);
	return trace;
}

/* A snapshot of one segment and one event, with the given parts inserted. */
static inline void begin_snapshot(struct neap_buffer *buffer) { append(buffer, BYTES(P "}(")); }

static inline struct neap_trace *read_snapshot(struct neap_buffer *buffer)
{
	struct neap_error err = {0};
	struct neap_trace *trace;

	append(buffer, BYTES("u."));
	trace = read_buffer(buffer, &err);
	if (!trace)
		fail_msg("%s", err.message);
	return trace;
}

#endif
