/* Fuzz target for every reader of traces: any bytes (a pickle, a recording, text, zstd) must give a trace whose
 * numbers are within its tables, or an error with its place; never a fault.
 *
 *     clang -fsanitize=fuzzer,address -I. -Iinclude -Isrc fuzz/fuzz_trace.c libneap_command.a libneap_core.a \
 *         -lzstd -lm
 *
 * The test run drives the same function over a generated corpus. */
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_text(const struct neap_trace *trace, uint32_t text)
{
	for (const unsigned char *c = (const unsigned char *)neap_trace_text(trace, text); *c; c++)
		check(*c >= 0x20 && *c != 0x7f);
}

static void check_stack(const struct neap_trace *trace, uint32_t stack)
{
	while (stack) {
		check(stack < trace->call_count);
		const struct neap_trace_call *call = &trace->calls[stack];
		check(call->parent < stack && call->frame < trace->frame_count);
		stack = call->parent;
	}
}

static void check_device(const struct neap_trace *trace, size_t number)
{
	const struct neap_trace_device *device = &trace->devices[number];
	struct neap_trace_cursor cursor = neap_trace_events(trace, number, 0);
	struct neap_trace_event event;
	uint64_t count = 0, at = 0;

	for (; neap_trace_next(&cursor, &event); count++) {
		check(event.kind >= NEAP_TRACE_ALLOC && event.kind <= NEAP_TRACE_EMPTY_CACHE);
		check(event.device == number && event.stream < trace->stream_count && event.size <= INT64_MAX);
		check_stack(trace, event.stack);
	}
	check(count == device->event_count);
	cursor = neap_trace_events(trace, number, count / 2);
	for (count /= 2; neap_trace_next(&cursor, &event); count++)
		continue;
	check(count == device->event_count);
	check(device->first_mark + device->mark_count <= trace->mark_count);
	for (size_t i = 0; i < device->mark_count; i++) {
		const struct neap_trace_mark *mark = &trace->marks[device->first_mark + i];
		check(mark->device == number && mark->event >= at && mark->event <= count);
		check(mark->kind >= NEAP_TRACE_MARK && mark->kind <= NEAP_TRACE_STEP);
		check_text(trace, mark->name);
		at = mark->event;
	}
	check(device->first_segment + device->segment_count <= trace->segment_count);
	for (size_t i = 0; i < device->segment_count; i++) {
		const struct neap_trace_segment *segment = &trace->segments[device->first_segment + i];
		check(segment->device == number && segment->stream < trace->stream_count);
		check(segment->first_block + segment->block_count <= trace->block_count);
		check_stack(trace, segment->stack);
	}
}

static void check_trace(const struct neap_trace *trace)
{
	check(trace->device_count >= 1 && trace->device_count <= 256 && trace->stream_count >= 1);
	for (size_t i = 0; i < trace->device_count; i++) {
		struct neap_trace_block *blocks = NULL;
		size_t count = 0;
		check_device(trace, i);
		if (neap_trace_live_before(trace, i, &blocks, &count, NULL) == NEAP_OK)
			for (size_t b = 0; b < count; b++)
				check_stack(trace, blocks[b].stack);
		free(blocks);
	}
	for (size_t i = 0; i < trace->block_count; i++) {
		check(trace->blocks[i].state >= NEAP_TRACE_BLOCK_LIVE &&
		      trace->blocks[i].state <= NEAP_TRACE_BLOCK_FREE);
		check_stack(trace, trace->blocks[i].stack);
	}
	for (size_t i = 0; i < trace->frame_count; i++) {
		check_text(trace, trace->frames[i].file);
		check_text(trace, trace->frames[i].name);
	}
	for (size_t i = 0; i < trace->other_setting_count; i++)
		check_text(trace, trace->other_settings[i].value);
	check(trace->warning_count <= 32);
	for (size_t i = 0; i < trace->warning_count; i++)
		check(memchr(trace->warnings[i].text, 0, sizeof trace->warnings[i].text) && trace->warnings[i].count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	char path[64];
	int fd = memfd_create("trace", MFD_CLOEXEC);

	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size) {
		enum neap_status status = neap_trace_read(path, &trace, &err);
		check((status == NEAP_OK) == (trace != NULL));
		if (trace)
			check_trace(trace);
		else
			check(err.status == status && err.message[0]);
		/* A pickle's error is always at a place within the file. */
		if (!trace && size && data[0] == 0x80)
			check(err.position <= size);
		neap_trace_free(trace);
	}
	close(fd);
	return 0;
}
