/* tool FILE                         prints a trace, one line per thing, for check_snapshots.py to compare
 * tool FILE snapshot|text|recording OUT      writes it in another form */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_stack(const struct neap_trace *trace, uint32_t stack)
{
	for (; stack; stack = trace->calls[stack].parent) {
		const struct neap_trace_frame *frame = &trace->frames[trace->calls[stack].frame];
		printf(" <%s:%u:%s>", neap_trace_text(trace, frame->file), frame->line,
		       neap_trace_text(trace, frame->name));
	}
	putchar('\n');
}

static void print_stream(const struct neap_trace *trace, uint16_t number)
{
	const struct neap_trace_stream *stream = &trace->streams[number];

	printf(" %" PRIu64 " %" PRIu64 ",%" PRIu64, stream->handle, stream->pool[0], stream->pool[1]);
}

static void print_event(const struct neap_trace *trace, const char *whose, const struct neap_trace_event *event)
{
	printf("%s %s %" PRIu64 " %" PRIu64 " %" PRIu64, whose, neap_trace_kind_name(event->kind), event->address,
	       event->size, event->time_us);
	print_stream(trace, event->stream);
	print_stack(trace, event->stack);
}

/* An event, and its further data. */
static void print_events(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	char whose[32];

	snprintf(whose, sizeof whose, "event %zu", device);
	for (uint64_t index = 0; neap_trace_next(&cursor, &event); index++) {
		struct neap_trace_note note = neap_trace_note_at(trace, device, index);
		print_event(trace, whose, &event);
		if (note.user || note.internal || note.compile)
			printf("beside %s|%s|%s\n", neap_trace_text(trace, note.user),
			       neap_trace_text(trace, note.internal), neap_trace_text(trace, note.compile));
	}
}

/* Annotations of live blocks, and the host's pinned memory. */
static void print_beside(const struct neap_trace *trace)
{
	struct neap_trace_cursor cursor = neap_trace_host_events(trace);
	struct neap_trace_event event;

	for (size_t i = 0; i < trace->annotation_count; i++) {
		const struct neap_trace_annotation *annotation = &trace->annotations[i];
		printf("annotation %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s", annotation->device,
		       annotation->event, annotation->address, annotation->size, annotation->time_us,
		       neap_trace_text(trace, annotation->text));
		print_stream(trace, annotation->stream);
		print_stack(trace, annotation->stack);
	}
	while (neap_trace_next(&cursor, &event))
		print_event(trace, "host", &event);
}

static void print_before(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_block *blocks = NULL;
	size_t count = 0;

	if (neap_trace_live_before(trace, device, &blocks, &count, NULL) != NEAP_OK)
		exit(1);
	for (size_t i = 0; i < count; i++)
		printf("before %zu %" PRIu64 " %" PRIu64 " %u\n", device, blocks[i].address, blocks[i].requested,
		       blocks[i].state);
	free(blocks);
}

static void print_segment(const struct neap_trace *trace, const struct neap_trace_segment *segment, int device)
{
	printf("segment %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %d", device,
	       segment->address, segment->size, segment->allocated, segment->active, segment->requested,
	       segment->large ? "large" : "small", segment->expandable);
	print_stream(trace, segment->stream);
	print_stack(trace, segment->stack);
	for (size_t i = 0; i < segment->block_count; i++) {
		const struct neap_trace_block *block = &trace->blocks[segment->first_block + i];
		printf("block %" PRIu64 " %" PRIu64 " %" PRIu64 " %u", block->address, block->size, block->requested,
		       block->state);
		print_stack(trace, block->stack);
	}
}

static void print_rest(const struct neap_trace *trace)
{
	const struct neap_trace_settings *settings = &trace->settings;

	printf("settings %d %" PRId64 " %.17g %d %s\n", settings->known, settings->max_split_size,
	       settings->garbage_collection_threshold, settings->expandable_segments,
	       neap_trace_text(trace, settings->conf));
	for (size_t i = 0; i < 16; i++)
		printf("%u ", settings->roundup_power2_divisions[i]);
	putchar('\n');
	for (size_t i = 0; i < trace->other_setting_count; i++)
		printf("setting %s %s\n", neap_trace_text(trace, trace->other_settings[i].key),
		       neap_trace_text(trace, trace->other_settings[i].value));
	for (size_t i = 0; i < trace->mark_count; i++)
		printf("mark %u %u %" PRIu64 " %" PRIu64 " %s\n", trace->marks[i].device, trace->marks[i].kind,
		       trace->marks[i].time_us, trace->marks[i].event, neap_trace_text(trace, trace->marks[i].name));
	for (size_t i = 0; i < trace->warning_count; i++)
		printf("warning %s (%" PRIu64 " times)\n", trace->warnings[i].text, trace->warnings[i].count);
}

int main(int argc, char **argv)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	enum neap_status status;

	if (argc != 2 && argc != 4)
		return 64;
	status = neap_trace_read(argv[1], &trace, &err);
	if (!status && argc == 4)
		status = !strcmp(argv[2], "text") ? neap_trace_write_text(trace, 0, argv[3], &err)
			 : !strcmp(argv[2], "snapshot")
				 ? neap_trace_write_snapshot(trace, argv[3], &err)
				 : neap_trace_write_recording(trace, NULL, NULL, argv[3], &err);
	if (status)
		fprintf(stderr, "%s\n", err.message);
	for (size_t d = 0; !status && argc == 2 && d < trace->device_count; d++) {
		print_events(trace, d);
		print_before(trace, d);
	}
	for (size_t i = 0; !status && argc == 2 && i < trace->segment_count; i++)
		print_segment(trace, &trace->segments[i], trace->segments[i].device);
	for (size_t i = 0; !status && argc == 2 && i < trace->host.segment_count; i++)
		print_segment(trace, &trace->host.segments[i], -1);
	if (!status && argc == 2)
		print_beside(trace);
	if (!status && argc == 2)
		print_rest(trace);
	neap_trace_free(trace);
	return status != NEAP_OK;
}
