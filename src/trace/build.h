/* trace/build.h: builds a trace, for every reader: equal texts, frames, stacks and streams get one number.
 *
 * The functions that return numbers report no failures. The first failed allocation, or a full table, is kept in
 * `failed`, and later calls return 0; the reader checks `failed` now and then, and neap_build_finish at the end.
 * Begin with neap_build_init, end with neap_build_finish or neap_build_fini.
 */
#ifndef NEAP_TRACE_BUILD_H
#define NEAP_TRACE_BUILD_H

#include "trace/store.h"

#define NEAP_BUILD_TEXT_BYTES 65535u     /* longer texts are cut */
#define NEAP_BUILD_WARNINGS   32u        /* different warnings; the last one says that there were more */
#define NEAP_BUILD_TABLE_MAX  (1u << 30) /* entries of a table: more is a hostile file */

/* A hash table of numbers. The values that the numbers stand for are stored elsewhere. A zeroed struct is empty. */
struct neap_index {
	struct neap_index_slot {
		uint32_t hash;
		uint32_t number; /* the number plus 1; 0: a free slot */
	} * slots;
	size_t capacity, count;
};

struct neap_build {
	struct neap_trace *trace;
	struct neap_index texts, frames, calls, stacks, streams;
	size_t device_capacity, stream_capacity, mark_capacity, segment_capacity, block_capacity, setting_capacity,
		frame_capacity, call_capacity;
	size_t note_capacity, annotation_capacity, host_capacity;
	uint16_t last_stream;
	enum neap_status failed; /* NEAP_OK, NEAP_ENOMEM, or NEAP_EPARSE: a table is full */
};

/* Makes an empty trace of `source`. Errors: NEAP_ENOMEM. */
enum neap_status neap_build_init(struct neap_build *build, enum neap_trace_source source, struct neap_error *err);
void neap_build_fini(struct neap_build *build);

/* Makes the trace that neap_trace_read returns: sorts marks and segments by device, trims. On failure the build is
 * unchanged. Errors: NEAP_ENOMEM; NEAP_EPARSE when a table was full. */
enum neap_status neap_build_finish(struct neap_build *build, struct neap_trace **ret_trace, struct neap_error *err);

/* Returns the number of a text. Control characters and broken UTF-8 become '?'. */
uint32_t neap_build_text(struct neap_build *build, const char *bytes, size_t length);
uint32_t neap_build_frame(struct neap_build *build, uint32_t file, uint32_t name, uint32_t line);
/* Returns the number of a stack, whose frames come innermost first. */
uint32_t neap_build_stack(struct neap_build *build, const uint32_t *frames, size_t count);
uint16_t neap_build_stream(struct neap_build *build, uint64_t handle, uint64_t pool0, uint64_t pool1);

/* Creates the devices up to this index. False: more than 256. */
bool neap_build_device(struct neap_build *build, uint64_t device);
/* Appends to the store. The caller later gives each device a range of it. */
void neap_build_event(struct neap_build *build, const struct neap_trace_event *event);
void neap_build_mark(struct neap_build *build, const struct neap_trace_mark *mark);
void neap_build_segment(struct neap_build *build, const struct neap_trace_segment *segment);
/* Notes and annotations come in order of events. Until neap_snapshot_end, `event` counts in the store. */
void neap_build_note(struct neap_build *build, const struct neap_trace_note *note);
void neap_build_annotation(struct neap_build *build, const struct neap_trace_annotation *annotation);
void neap_build_host_segment(struct neap_build *build, const struct neap_trace_segment *segment);
void neap_build_block(struct neap_build *build, const struct neap_trace_block *block);
void neap_build_setting(struct neap_build *build, uint32_t key, uint32_t value);

void neap_build_warn(struct neap_build *build, uint64_t position, const char *format, ...) NEAP_PRINTF(3, 4);

#endif
