/* trace/write_snapshot.c: writes a trace as PyTorch would write it, in pickle protocol 4.
 *
 * Uses only instructions that PyTorch's viewer knows, and writes items in batches of at most 1000. Texts, frames and
 * stacks are stored in the memo where they first occur, and fetched later. Values that occur once are not stored, so
 * neither neap nor a viewer has to keep them. */
#include "base/error.h"
#include "trace/output.h"
#include "trace/trace.h"

#include <ctype.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000u

/* An entry's place in the memo: its number plus one; 0: it is not there yet. */
struct snapshot_writer {
	const struct neap_trace *trace;
	struct neap_output output;
	uint32_t *texts; /* by text number */
	uint32_t *frames, *stacks;
	uint32_t *words; /* by number in `keys` */
	uint32_t next;
	bool frames_known;     /* the trace has frames, so every event gets the key */
	uint32_t not_compiled; /* "N/A" */
	bool host;             /* events of pinned memory are being written */
	bool untimed;          /* the trace has no times, so the events' numbers stand for them */
};

enum {
	MARK = '(',
	STOP = '.',
	EMPTY_DICT = '}',
	EMPTY_LIST = ']',
	APPENDS = 'e',
	SETITEMS = 'u',
	TUPLE2 = 0x86,
	NEWTRUE = 0x88,
	NEWFALSE = 0x89,
	LONG1 = 0x8a,
	MEMOIZE = 0x94,
};

/* The words that are written by name. Each is stored in the memo once. */
/* clang-format off */
#define KEYS \
	X(segments) X(device_traces) X(allocator_settings) X(external_annotations) X(device) X(address) \
	X(total_size) X(allocated_size) X(active_size) X(requested_size) X(stream) X(segment_type) \
	X(segment_pool_id) X(is_expandable) X(frames) X(blocks) X(size) X(state) X(active_allocated) \
	X(active_pending_free) X(inactive) X(small) X(large) X(action) X(addr) X(device_free) X(time_us) \
	X(pool_id) X(filename) X(line) X(name) X(stage) X(START) X(END) X(PYTORCH_CUDA_ALLOC_CONF) \
	X(max_split_size) X(garbage_collection_threshold) X(expandable_segments) \
	X(roundup_power2_divisions) X(alloc) X(free_requested) X(free_completed) X(segment_alloc) \
	X(segment_free) X(segment_map) X(segment_unmap) X(oom) X(snapshot) X(step) X(annotate) \
	X(compile_context) X(user_metadata) X(internal_metadata) X(host_segments) X(host_traces)
/* clang-format on */

enum key {
#define X(name) KEY_##name,
	KEYS
#undef X
		KEY_COUNT
};

static const char *const keys[] = {
#define X(name) #name,
	KEYS
#undef X
};

/* --- scalars -----------------------------------------------------------------------------------------------------
 */

static void put_byte(struct snapshot_writer *writer, unsigned byte)
{
	unsigned char one = (unsigned char)byte;

	neap_output_bytes(&writer->output, &one, 1);
}

static void put_wide(struct snapshot_writer *writer, unsigned code, uint64_t value, size_t width)
{
	unsigned char bytes[9] = {(unsigned char)code};

	value = htole64(value);
	memcpy(bytes + 1, &value, width);
	neap_output_bytes(&writer->output, bytes, width + 1);
}

static void put_number(struct snapshot_writer *writer, uint64_t value)
{
	unsigned char bytes[11] = {LONG1};
	unsigned length = 1;

	if (value < 0x100) {
		put_wide(writer, 'K', value, 1);
	} else if (value < 0x10000) {
		put_wide(writer, 'M', value, 2);
	} else if (value <= INT32_MAX) {
		put_wide(writer, 'J', value, 4);
	} else {
		/* Two's complement: a leading zero if the highest bit is set. */
		while (length < 8 && value >> (8 * length - 1))
			length++;
		length += length == 8 && value >> 63;
		bytes[1] = (unsigned char)length;
		value = htole64(value);
		memcpy(bytes + 2, &value, 8);
		neap_output_bytes(&writer->output, bytes, length + 2);
	}
}

static void put_signed(struct snapshot_writer *writer, int64_t value)
{
	if (value >= 0) {
		put_number(writer, (uint64_t)value);
	} else if (value >= INT32_MIN) {
		put_wide(writer, 'J', (uint64_t)value, 4);
	} else {
		unsigned char bytes[10] = {LONG1, 8};
		uint64_t word = htole64((uint64_t)value);
		memcpy(bytes + 2, &word, 8);
		neap_output_bytes(&writer->output, bytes, sizeof bytes);
	}
}

static void put_double(struct snapshot_writer *writer, double value)
{
	unsigned char bytes[9] = {'G'};
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	bits = htobe64(bits);
	memcpy(bytes + 1, &bits, 8);
	neap_output_bytes(&writer->output, bytes, sizeof bytes);
}

/* Fetches an entry of the memo. False: there is none, and the caller writes it next, which makes it. */
static bool fetch(struct snapshot_writer *writer, const uint32_t *memo)
{
	if (!*memo)
		return false;
	if (*memo - 1 < 0x100)
		put_wide(writer, 'h', *memo - 1, 1);
	else
		put_wide(writer, 'j', *memo - 1, 4);
	return true;
}

static void memoize(struct snapshot_writer *writer, uint32_t *memo)
{
	put_byte(writer, MEMOIZE);
	*memo = ++writer->next;
}

static void put_string(struct snapshot_writer *writer, const char *text, uint32_t *memo)
{
	size_t length = strlen(text);

	if (fetch(writer, memo))
		return;
	if (length < 0x100)
		put_wide(writer, 0x8c, length, 1);
	else
		put_wide(writer, 'X', length, 4);
	neap_output_bytes(&writer->output, text, length);
	memoize(writer, memo);
}

static void put_key(struct snapshot_writer *writer, enum key key)
{
	put_string(writer, keys[key], &writer->words[key]);
}

static void put_text(struct snapshot_writer *writer, uint32_t text)
{
	put_string(writer, neap_trace_text(writer->trace, text), &writer->texts[text]);
}

static void put_pair(struct snapshot_writer *writer, enum key key, uint64_t value)
{
	put_key(writer, key);
	put_number(writer, value);
}

static void put_truth(struct snapshot_writer *writer, enum key key, bool value)
{
	put_key(writer, key);
	put_byte(writer, value ? NEWTRUE : NEWFALSE);
}

/* Begins an item of a list. Call it before each item, between the list's begin and end. */
static void list_item(struct snapshot_writer *writer, uint64_t index)
{
	if (index % BATCH == 0) {
		if (index)
			put_byte(writer, APPENDS);
		put_byte(writer, MARK);
	}
}

static void list_end(struct snapshot_writer *writer, uint64_t count)
{
	if (count)
		put_byte(writer, APPENDS);
}

static void dict_begin(struct snapshot_writer *writer)
{
	put_byte(writer, EMPTY_DICT);
	put_byte(writer, MARK);
}

/* --- the parts ---------------------------------------------------------------------------------------------------
 */

static void put_frame(struct snapshot_writer *writer, uint32_t number)
{
	const struct neap_trace_frame *frame = &writer->trace->frames[number];

	if (fetch(writer, &writer->frames[number]))
		return;
	put_byte(writer, EMPTY_DICT);
	memoize(writer, &writer->frames[number]);
	put_byte(writer, MARK);
	put_key(writer, KEY_name);
	put_text(writer, frame->name);
	put_key(writer, KEY_filename);
	put_text(writer, frame->file);
	put_pair(writer, KEY_line, frame->line);
	put_byte(writer, SETITEMS);
}

static void put_stack(struct snapshot_writer *writer, uint32_t stack)
{
	uint64_t count = 0;

	put_key(writer, KEY_frames);
	if (stack && fetch(writer, &writer->stacks[stack]))
		return;
	put_byte(writer, EMPTY_LIST);
	if (stack)
		memoize(writer, &writer->stacks[stack]);
	for (uint32_t call = stack; call; call = writer->trace->calls[call].parent) {
		list_item(writer, count++);
		put_frame(writer, writer->trace->calls[call].frame);
	}
	list_end(writer, count);
}

static void put_pool(struct snapshot_writer *writer, enum key key, uint16_t stream)
{
	put_key(writer, key);
	put_number(writer, writer->trace->streams[stream].pool[0]);
	put_number(writer, writer->trace->streams[stream].pool[1]);
	put_byte(writer, TUPLE2);
}

static void put_block(struct snapshot_writer *writer, const struct neap_trace_block *block)
{
	static const enum key states[] = {
		[NEAP_TRACE_BLOCK_LIVE] = KEY_active_allocated,
		[NEAP_TRACE_BLOCK_PENDING] = KEY_active_pending_free,
		[NEAP_TRACE_BLOCK_FREE] = KEY_inactive,
	};

	dict_begin(writer);
	put_pair(writer, KEY_address, block->address);
	put_pair(writer, KEY_size, block->size);
	put_pair(writer, KEY_requested_size, block->requested);
	put_key(writer, KEY_state);
	put_key(writer, states[block->state]);
	put_stack(writer, block->stack);
	put_byte(writer, SETITEMS);
}

static void put_segment(struct snapshot_writer *writer, const struct neap_trace_segment *segment, bool host)
{
	dict_begin(writer);
	put_key(writer, KEY_device);
	put_signed(writer, host ? -1 : segment->device);
	put_pair(writer, KEY_address, segment->address);
	put_pair(writer, KEY_total_size, segment->size);
	put_pair(writer, KEY_allocated_size, segment->allocated);
	put_pair(writer, KEY_active_size, segment->active);
	put_pair(writer, KEY_requested_size, segment->requested);
	put_pair(writer, KEY_stream, writer->trace->streams[segment->stream].handle);
	put_key(writer, KEY_segment_type);
	put_key(writer, segment->large ? KEY_large : KEY_small);
	put_pool(writer, KEY_segment_pool_id, segment->stream);
	put_truth(writer, KEY_is_expandable, segment->expandable);
	put_stack(writer, segment->stack);
	put_key(writer, KEY_blocks);
	put_byte(writer, EMPTY_LIST);
	for (size_t i = 0; i < segment->block_count; i++) {
		list_item(writer, i);
		put_block(writer, &writer->trace->blocks[segment->first_block + i]);
	}
	list_end(writer, segment->block_count);
	put_byte(writer, SETITEMS);
}

/* Writes the metadata of an event, with the keys that PyTorch had in the trace's release. */
static void put_note(struct snapshot_writer *writer, const struct neap_trace_note *note)
{
	unsigned release = writer->trace->torch_from;

	if (release >= 8 || note->compile) {
		put_key(writer, KEY_compile_context);
		if (note->compile || writer->host)
			put_text(writer, note->compile);
		else
			put_string(writer, "N/A", &writer->not_compiled);
	}
	if (release >= 10 || note->user) {
		put_key(writer, KEY_user_metadata);
		put_text(writer, note->user);
	}
	if (note->internal) {
		put_key(writer, KEY_internal_metadata);
		put_text(writer, note->internal);
	}
}

static void put_event(struct snapshot_writer *writer, const struct neap_trace_event *event,
		      const struct neap_trace_note *note, enum key action)
{
	const struct neap_trace_stream *stream = &writer->trace->streams[event->stream];

	dict_begin(writer);
	put_key(writer, KEY_action);
	put_key(writer, action);
	put_pair(writer, action == KEY_oom ? KEY_device_free : KEY_addr, event->address);
	put_pair(writer, KEY_size, event->size);
	put_pair(writer, KEY_stream, stream->handle);
	put_pair(writer, KEY_time_us, event->time_us);
	put_note(writer, note);
	if (writer->trace->torch_from >= 12 || stream->pool[0] || stream->pool[1])
		put_pool(writer, KEY_pool_id, event->stream);
	if (writer->frames_known)
		put_stack(writer, event->stack);
	put_byte(writer, SETITEMS);
}

static void put_annotated(struct snapshot_writer *writer, const struct neap_trace_annotation *annotation)
{
	const struct neap_trace_event event = {.address = annotation->address,
					       .size = annotation->size,
					       .time_us = annotation->time_us,
					       .stack = annotation->stack,
					       .stream = annotation->stream};
	const struct neap_trace_note note = {.user = annotation->text};

	put_event(writer, &event, &note, KEY_annotate);
}

/* Writes the annotations of the device that come before event `index`. *at: the number of the next one. */
static void put_annotateds(struct snapshot_writer *writer, size_t device, uint64_t index, size_t *at, uint64_t *count)
{
	const struct neap_trace *trace = writer->trace;

	for (; *at < trace->annotation_count && trace->annotations[*at].device <= device; ++*at) {
		const struct neap_trace_annotation *annotation = &trace->annotations[*at];
		if (annotation->device == device && annotation->event > index)
			return;
		if (annotation->device < device)
			continue;
		list_item(writer, (*count)++);
		put_annotated(writer, annotation);
	}
}

static void put_list(struct snapshot_writer *writer, struct neap_trace_cursor cursor, size_t device)
{
	static const enum key actions[] = {
		[NEAP_TRACE_ALLOC] = KEY_alloc,
		[NEAP_TRACE_FREE_REQUESTED] = KEY_free_requested,
		[NEAP_TRACE_FREE_COMPLETED] = KEY_free_completed,
		[NEAP_TRACE_SEGMENT_ALLOC] = KEY_segment_alloc,
		[NEAP_TRACE_SEGMENT_FREE] = KEY_segment_free,
		[NEAP_TRACE_SEGMENT_MAP] = KEY_segment_map,
		[NEAP_TRACE_SEGMENT_UNMAP] = KEY_segment_unmap,
		[NEAP_TRACE_OOM] = KEY_oom,
		[NEAP_TRACE_SNAPSHOT_TAKEN] = KEY_snapshot,
	};
	struct neap_trace_event event;
	uint64_t count = 0, index = 0;
	size_t annotated = 0;

	put_byte(writer, EMPTY_LIST);
	for (; neap_trace_next(&cursor, &event) && !writer->output.failed; index++) {
		struct neap_trace_note note = {0};
		if (writer->untimed)
			event.time_us = index + 1;
		if (!writer->host) {
			note = neap_trace_note_at(writer->trace, device, index);
			put_annotateds(writer, device, index, &annotated, &count);
		}
		if (event.kind >= sizeof actions / sizeof *actions || event.kind == NEAP_TRACE_RECORD_STREAM)
			continue;
		list_item(writer, count++);
		put_event(writer, &event, &note, actions[event.kind]);
		if (event.kind == NEAP_TRACE_FREE_REQUESTED && writer->trace->source == NEAP_TRACE_TEXT) {
			list_item(writer, count++);
			put_event(writer, &event, &note, KEY_free_completed);
		}
	}
	if (!writer->host)
		put_annotateds(writer, device, UINT64_MAX, &annotated, &count);
	list_end(writer, count);
}

/* Writes one stage of one annotation. */
static void put_annotation(struct snapshot_writer *writer, const struct neap_trace_mark *mark, enum key stage,
			   uint64_t time_us)
{
	dict_begin(writer);
	put_key(writer, KEY_stage);
	put_key(writer, stage);
	put_key(writer, KEY_name);
	if (mark->kind == NEAP_TRACE_STEP && !mark->name)
		put_key(writer, KEY_step);
	else
		put_text(writer, mark->name);
	put_pair(writer, KEY_device, mark->device);
	put_pair(writer, KEY_time_us, time_us);
	put_byte(writer, SETITEMS);
}

/* Writes an instant as a range of no length, and a step as a range that begins where the step before ended. */
static void put_annotations(struct snapshot_writer *writer)
{
	uint64_t count = 0, step_began_us = 0;

	put_byte(writer, EMPTY_LIST);
	for (size_t i = 0; i < writer->trace->mark_count; i++) {
		const struct neap_trace_mark *mark = &writer->trace->marks[i];
		bool first = i == 0 || mark[-1].device != mark->device;
		uint64_t time_us = writer->untimed ? mark->event + 1 : mark->time_us;
		if (first)
			step_began_us = 0;
		if (mark->kind != NEAP_TRACE_END) {
			list_item(writer, count++);
			put_annotation(writer, mark, KEY_START,
				       mark->kind == NEAP_TRACE_STEP ? step_began_us : time_us);
		}
		if (mark->kind != NEAP_TRACE_BEGIN) {
			list_item(writer, count++);
			put_annotation(writer, mark, KEY_END, time_us);
		}
		if (mark->kind == NEAP_TRACE_STEP)
			step_began_us = time_us;
	}
	list_end(writer, count);
}

/* Writes a setting as the value that it was in its file: it was read as text. */
static void put_setting(struct snapshot_writer *writer, uint32_t value)
{
	const char *text = neap_trace_text(writer->trace, value);
	char *end;
	long long number = strtoll(text, &end, 10);

	if (!strcmp(text, "True") || !strcmp(text, "False"))
		put_byte(writer, *text == 'T' ? NEWTRUE : NEWFALSE);
	else if (*text && !*end && (isdigit((unsigned char)*text) || *text == '-'))
		put_signed(writer, number);
	else
		put_text(writer, value);
}

static void put_settings(struct snapshot_writer *writer)
{
	const struct neap_trace_settings *settings = &writer->trace->settings;

	dict_begin(writer);
	put_key(writer, KEY_PYTORCH_CUDA_ALLOC_CONF);
	put_text(writer, settings->conf);
	put_key(writer, KEY_max_split_size);
	put_signed(writer, settings->max_split_size);
	put_key(writer, KEY_garbage_collection_threshold);
	put_double(writer, settings->garbage_collection_threshold);
	put_truth(writer, KEY_expandable_segments, settings->expandable_segments);
	put_key(writer, KEY_roundup_power2_divisions);
	dict_begin(writer);
	for (unsigned i = 0; i < 16; i++) {
		char text[16];
		uint32_t once = 0;
		snprintf(text, sizeof text, "%u", 1u << i);
		put_string(writer, text, &once);
		put_number(writer, settings->roundup_power2_divisions[i]);
	}
	put_byte(writer, SETITEMS);
	for (size_t i = 0; i < writer->trace->other_setting_count && i < BATCH - 5; i++) {
		put_text(writer, writer->trace->other_settings[i].key);
		put_setting(writer, writer->trace->other_settings[i].value);
	}
	put_byte(writer, SETITEMS);
}

static void put_segments(struct snapshot_writer *writer, const struct neap_trace_segment *segments, size_t count,
			 bool host)
{
	put_byte(writer, EMPTY_LIST);
	for (size_t i = 0; i < count; i++) {
		list_item(writer, i);
		put_segment(writer, &segments[i], host);
	}
	list_end(writer, count);
}

static void put_host(struct snapshot_writer *writer)
{
	const struct neap_trace *trace = writer->trace;

	put_key(writer, KEY_host_segments);
	put_segments(writer, trace->host.segments, trace->host.segment_count, true);
	put_key(writer, KEY_host_traces);
	writer->host = true;
	put_list(writer, neap_trace_host_events(trace), 0);
}

static void put_snapshot(struct snapshot_writer *writer)
{
	static const unsigned char start[] = {0x80, 4};
	const struct neap_trace *trace = writer->trace;

	neap_output_bytes(&writer->output, start, sizeof start);
	dict_begin(writer);
	put_key(writer, KEY_segments);
	put_segments(writer, trace->segments, trace->segment_count, false);
	put_key(writer, KEY_device_traces);
	put_byte(writer, EMPTY_LIST);
	for (size_t i = 0; i < trace->device_count; i++) {
		list_item(writer, i);
		put_list(writer, neap_trace_events(trace, i, 0), i);
	}
	list_end(writer, trace->device_count);
	if (trace->settings.known) {
		put_key(writer, KEY_allocator_settings);
		put_settings(writer);
	}
	put_key(writer, KEY_external_annotations);
	put_annotations(writer);
	if (trace->torch_from >= 14 || trace->host.segment_count || trace->host.event_count)
		put_host(writer);
	put_byte(writer, SETITEMS);
	put_byte(writer, STOP);
}

enum neap_status neap_trace_write_snapshot(const struct neap_trace *trace, const char *path, struct neap_error *err)
{
	struct snapshot_writer writer = {
		.trace = trace, .frames_known = trace->call_count > 1, .untimed = trace->source == NEAP_TRACE_TEXT};
	uint32_t highest = trace->settings.conf;
	enum neap_status status = neap_output_begin(&writer.output, path, err);

	if (status)
		return status;
	for (size_t i = 0; i < trace->frame_count; i++) {
		highest = trace->frames[i].file > highest ? trace->frames[i].file : highest;
		highest = trace->frames[i].name > highest ? trace->frames[i].name : highest;
	}
	for (size_t i = 0; i < trace->mark_count; i++)
		highest = trace->marks[i].name > highest ? trace->marks[i].name : highest;
	for (size_t i = 0; i < trace->other_setting_count; i++) {
		highest = trace->other_settings[i].key > highest ? trace->other_settings[i].key : highest;
		highest = trace->other_settings[i].value > highest ? trace->other_settings[i].value : highest;
	}
	for (size_t i = 0; i < trace->note_count; i++) {
		const struct neap_trace_note *note = &trace->notes[i];
		highest = note->user > highest ? note->user : highest;
		highest = note->internal > highest ? note->internal : highest;
		highest = note->compile > highest ? note->compile : highest;
	}
	for (size_t i = 0; i < trace->annotation_count; i++)
		highest = trace->annotations[i].text > highest ? trace->annotations[i].text : highest;
	writer.texts = calloc((size_t)highest + 1, sizeof *writer.texts);
	writer.frames = calloc(trace->frame_count, sizeof *writer.frames);
	writer.stacks = calloc(trace->call_count, sizeof *writer.stacks);
	writer.words = calloc(KEY_COUNT, sizeof *writer.words);
	if (writer.texts && writer.frames && writer.stacks && writer.words)
		put_snapshot(&writer);
	else
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory");
	free(writer.texts);
	free(writer.frames);
	free(writer.stacks);
	free(writer.words);
	return neap_output_end(&writer.output, status);
}
