/* trace/build.c: interning, growing arrays, and finishing a trace once it is read (sorting, trimming).
 *
 * The same stacks come again and again, so a whole stack is looked up by its hash first; only a new one is
 * added to the tree of calls, from its outermost frame inwards. */
#include "trace/build.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t mix(uint64_t value)
{
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ull;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ull;
	return (uint32_t)(value >> 32);
}

static uint32_t hash_bytes(const char *bytes, size_t length)
{
	uint64_t hash = length, word;

	for (; length >= 8; bytes += 8, length -= 8) {
		memcpy(&word, bytes, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	word = 0;
	memcpy(&word, bytes, length);
	return mix(hash ^ word);
}

/* --- index -------------------------------------------------------------------------------------------------------
 */

static bool index_grow(struct neap_index *index)
{
	size_t capacity = index->capacity ? index->capacity * 2 : 64;
	struct neap_index_slot *slots = calloc(capacity, sizeof *slots);

	if (!slots)
		return false;
	for (size_t i = 0; i < index->capacity; i++) {
		if (!index->slots[i].number)
			continue;
		size_t to = index->slots[i].hash & (capacity - 1);
		while (slots[to].number)
			to = (to + 1) & (capacity - 1);
		slots[to] = index->slots[i];
	}
	free(index->slots);
	index->slots = slots;
	index->capacity = capacity;
	return true;
}

/* Returns the first slot at or after *at whose hash is `hash`, or the free slot that ends the search. */
static struct neap_index_slot *index_next(const struct neap_index *index, uint32_t hash, size_t *at)
{
	for (;; *at = (*at + 1) & (index->capacity - 1)) {
		struct neap_index_slot *slot = &index->slots[*at];
		if (!slot->number || slot->hash == hash)
			return slot;
	}
}

/* Makes space for one more entry, so that searches end and adding cannot fail. */
static bool index_reserve(struct neap_build *build, struct neap_index *index)
{
	if (build->failed)
		return false;
	if (index->count >= NEAP_BUILD_TABLE_MAX)
		build->failed = NEAP_EPARSE;
	else if (index->count >= index->capacity / 8 * 5 && !index_grow(index))
		build->failed = NEAP_ENOMEM;
	return !build->failed;
}

static void index_add(struct neap_index *index, struct neap_index_slot *slot, uint32_t hash, size_t number)
{
	slot->hash = hash;
	slot->number = (uint32_t)number + 1;
	index->count++;
}

/* --- arrays ------------------------------------------------------------------------------------------------------
 */

/* Makes space for `more` elements after `count`. The array may move. */
static bool make_room(struct neap_build *build, void *array_address, size_t count, size_t more, size_t *capacity,
		      size_t element_bytes)
{
	void *array;

	if (build->failed)
		return false;
	if (more <= *capacity - count)
		return true;
	size_t wanted = *capacity ? *capacity + *capacity / 2 : 16;
	if (wanted < count + more)
		wanted = count + more;
	memcpy(&array, array_address, sizeof array);
	array = realloc(array, wanted * element_bytes);
	if (!array) {
		build->failed = NEAP_ENOMEM;
		return false;
	}
	memcpy(array_address, &array, sizeof array);
	*capacity = wanted;
	return true;
}

#define MAKE_ROOM(build, array, count, capacity) make_room(build, &(array), count, 1, &(capacity), sizeof *(array))

/* --- texts, frames, stacks, streams ------------------------------------------------------------------------------
 */

/* Returns the length of the UTF-8 character at `bytes`; 0 if there is none, or if it is a control character. */
static size_t character_length(const unsigned char *bytes, size_t length)
{
	size_t n = bytes[0] < 0x80 ? 1 : bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;

	if (n == 1)
		return bytes[0] >= 0x20 && bytes[0] != 0x7f;
	if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || n > length)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	if ((bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xed && bytes[1] >= 0xa0) ||
	    (bytes[0] == 0xf0 && bytes[1] < 0x90) || (bytes[0] == 0xf4 && bytes[1] >= 0x90) ||
	    (bytes[0] == 0xc2 && bytes[1] < 0xa0)) /* overlong, surrogate, beyond Unicode, C1 control */
		return 0;
	return n;
}

static void clean_text(char *text, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length;) {
		size_t n = character_length((const unsigned char *)bytes + i, length - i);
		if (n)
			memcpy(text + i, bytes + i, n);
		else
			text[i] = '?';
		i += n ? n : 1;
	}
}

static bool is_clean(const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)bytes[i] < 0x20 || (unsigned char)bytes[i] >= 0x7f)
			return false;
	return true;
}

static uint32_t add_text(struct neap_build *build, const char *bytes, size_t length)
{
	struct neap_trace_store *store = build->trace->store;

	if (!make_room(build, &store->texts, store->texts_length, length + 1, &store->texts_capacity, 1) ||
	    !MAKE_ROOM(build, store->text_offsets, store->text_count, store->text_capacity))
		return 0;
	if (store->texts_length + length >= UINT32_MAX) {
		build->failed = NEAP_EPARSE;
		return 0;
	}
	memcpy(store->texts + store->texts_length, bytes, length);
	store->texts[store->texts_length + length] = '\0';
	store->text_offsets[store->text_count] = (uint32_t)store->texts_length;
	store->texts_length += length + 1;
	return (uint32_t)store->text_count++;
}

/* Returns the end of the text with this number, after its terminator. */
static size_t text_end(const struct neap_trace_store *store, size_t number)
{
	return number + 1 < store->text_count ? store->text_offsets[number + 1] : store->texts_length;
}

uint32_t neap_build_text(struct neap_build *build, const char *bytes, size_t length)
{
	const struct neap_trace_store *store = build->trace->store;
	char cleaned[NEAP_BUILD_TEXT_BYTES];

	if (length > NEAP_BUILD_TEXT_BYTES)
		length = NEAP_BUILD_TEXT_BYTES;
	if (!length || !index_reserve(build, &build->texts))
		return 0;
	if (!is_clean(bytes, length)) {
		clean_text(cleaned, bytes, length);
		bytes = cleaned;
	}
	uint32_t hash = hash_bytes(bytes, length);
	size_t at = hash & (build->texts.capacity - 1);
	struct neap_index_slot *slot;
	for (; (slot = index_next(&build->texts, hash, &at))->number; at = (at + 1) & (build->texts.capacity - 1)) {
		size_t number = slot->number - 1, start = store->text_offsets[number];
		if (text_end(store, number) - start == length + 1 && !memcmp(store->texts + start, bytes, length))
			return (uint32_t)number;
	}
	uint32_t number = add_text(build, bytes, length);
	if (number)
		index_add(&build->texts, slot, hash, number);
	return number;
}

uint32_t neap_build_frame(struct neap_build *build, uint32_t file, uint32_t name, uint32_t line)
{
	struct neap_trace *trace = build->trace;

	if (!index_reserve(build, &build->frames))
		return 0;
	uint32_t hash = mix(((uint64_t)file << 32 | name) * 0x9e3779b97f4a7c15ull + line);
	size_t at = hash & (build->frames.capacity - 1);
	struct neap_index_slot *slot;
	for (; (slot = index_next(&build->frames, hash, &at))->number; at = (at + 1) & (build->frames.capacity - 1)) {
		const struct neap_trace_frame *frame = &trace->frames[slot->number - 1];
		if (frame->file == file && frame->name == name && frame->line == line)
			return slot->number - 1;
	}
	if (!MAKE_ROOM(build, trace->frames, trace->frame_count, build->frame_capacity))
		return 0;
	trace->frames[trace->frame_count] = (struct neap_trace_frame){.file = file, .name = name, .line = line};
	index_add(&build->frames, slot, hash, trace->frame_count);
	return (uint32_t)trace->frame_count++;
}

static uint32_t add_call(struct neap_build *build, uint32_t parent, uint32_t frame)
{
	struct neap_trace *trace = build->trace;

	if (!index_reserve(build, &build->calls))
		return 0;
	uint32_t hash = mix((uint64_t)parent << 32 | frame);
	size_t at = hash & (build->calls.capacity - 1);
	struct neap_index_slot *slot;
	for (; (slot = index_next(&build->calls, hash, &at))->number; at = (at + 1) & (build->calls.capacity - 1)) {
		const struct neap_trace_call *call = &trace->calls[slot->number - 1];
		if (call->parent == parent && call->frame == frame)
			return slot->number - 1;
	}
	if (!MAKE_ROOM(build, trace->calls, trace->call_count, build->call_capacity))
		return 0;
	trace->calls[trace->call_count] = (struct neap_trace_call){.frame = frame, .parent = parent};
	index_add(&build->calls, slot, hash, trace->call_count);
	return (uint32_t)trace->call_count++;
}

static bool stack_is(const struct neap_trace *trace, uint32_t stack, const uint32_t *frames, size_t count)
{
	for (; stack && count; stack = trace->calls[stack].parent, frames++, count--)
		if (trace->calls[stack].frame != *frames)
			return false;
	return !stack && !count;
}

uint32_t neap_build_stack(struct neap_build *build, const uint32_t *frames, size_t count)
{
	uint64_t sum = count;

	if (!count || !index_reserve(build, &build->stacks))
		return 0;
	for (size_t i = 0; i < count; i++) {
		sum = (sum ^ frames[i]) * 0x9e3779b97f4a7c15ull;
		sum ^= sum >> 29;
	}
	uint32_t hash = mix(sum);
	size_t at = hash & (build->stacks.capacity - 1);
	struct neap_index_slot *slot;
	for (; (slot = index_next(&build->stacks, hash, &at))->number; at = (at + 1) & (build->stacks.capacity - 1))
		if (stack_is(build->trace, slot->number - 1, frames, count))
			return slot->number - 1;
	uint32_t call = 0;
	for (size_t i = count; i > 0; i--)
		call = add_call(build, call, frames[i - 1]);
	if (build->failed)
		return 0;
	index_add(&build->stacks, slot, hash, call);
	return call;
}

uint16_t neap_build_stream(struct neap_build *build, uint64_t handle, uint64_t pool0, uint64_t pool1)
{
	struct neap_trace *trace = build->trace;
	struct neap_trace_stream wanted = {.handle = handle, .pool = {pool0, pool1}};

	if (!memcmp(&trace->streams[build->last_stream], &wanted, sizeof wanted))
		return build->last_stream;
	if (!handle && !pool0 && !pool1) /* this stream always exists, and is not in the index */
		return build->last_stream = 0;
	if (!index_reserve(build, &build->streams))
		return 0;
	uint32_t hash = mix((handle * 31 + pool0) * 0x9e3779b97f4a7c15ull + pool1);
	size_t at = hash & (build->streams.capacity - 1);
	struct neap_index_slot *slot;
	for (; (slot = index_next(&build->streams, hash, &at))->number; at = (at + 1) & (build->streams.capacity - 1))
		if (!memcmp(&trace->streams[slot->number - 1], &wanted, sizeof wanted))
			return build->last_stream = (uint16_t)(slot->number - 1);
	if (trace->stream_count > UINT16_MAX) {
		build->failed = build->failed ? build->failed : NEAP_EPARSE;
		return 0;
	}
	if (!MAKE_ROOM(build, trace->streams, trace->stream_count, build->stream_capacity))
		return 0;
	trace->streams[trace->stream_count] = wanted;
	index_add(&build->streams, slot, hash, trace->stream_count);
	return build->last_stream = (uint16_t)trace->stream_count++;
}

/* --- the rest ----------------------------------------------------------------------------------------------------
 */

bool neap_build_device(struct neap_build *build, uint64_t device)
{
	struct neap_trace *trace = build->trace;

	if (device > UINT8_MAX)
		return false;
	while (trace->device_count <= device) {
		if (!MAKE_ROOM(build, trace->devices, trace->device_count, build->device_capacity))
			return true; /* the build has failed */
		trace->devices[trace->device_count++] = (struct neap_trace_device){0};
	}
	return true;
}

void neap_build_event(struct neap_build *build, const struct neap_trace_event *event)
{
	if (!build->failed && !neap_store_add(build->trace->store, event))
		build->failed = NEAP_ENOMEM;
}

void neap_build_mark(struct neap_build *build, const struct neap_trace_mark *mark)
{
	if (MAKE_ROOM(build, build->trace->marks, build->trace->mark_count, build->mark_capacity))
		build->trace->marks[build->trace->mark_count++] = *mark;
}

void neap_build_note(struct neap_build *build, const struct neap_trace_note *note)
{
	if (MAKE_ROOM(build, build->trace->notes, build->trace->note_count, build->note_capacity))
		build->trace->notes[build->trace->note_count++] = *note;
}

void neap_build_annotation(struct neap_build *build, const struct neap_trace_annotation *annotation)
{
	if (MAKE_ROOM(build, build->trace->annotations, build->trace->annotation_count, build->annotation_capacity))
		build->trace->annotations[build->trace->annotation_count++] = *annotation;
}

void neap_build_host_segment(struct neap_build *build, const struct neap_trace_segment *segment)
{
	struct neap_trace_host *host = &build->trace->host;

	if (MAKE_ROOM(build, host->segments, host->segment_count, build->host_capacity))
		host->segments[host->segment_count++] = *segment;
}

void neap_build_segment(struct neap_build *build, const struct neap_trace_segment *segment)
{
	if (MAKE_ROOM(build, build->trace->segments, build->trace->segment_count, build->segment_capacity))
		build->trace->segments[build->trace->segment_count++] = *segment;
}

void neap_build_block(struct neap_build *build, const struct neap_trace_block *block)
{
	if (MAKE_ROOM(build, build->trace->blocks, build->trace->block_count, build->block_capacity))
		build->trace->blocks[build->trace->block_count++] = *block;
}

void neap_build_setting(struct neap_build *build, uint32_t key, uint32_t value)
{
	struct neap_trace *trace = build->trace;

	if (MAKE_ROOM(build, trace->other_settings, trace->other_setting_count, build->setting_capacity))
		trace->other_settings[trace->other_setting_count++] =
			(struct neap_trace_setting){.key = key, .value = value};
}

void neap_build_warn(struct neap_build *build, uint64_t position, const char *format, ...)
{
	struct neap_trace *trace = build->trace;
	struct neap_trace_warning warning = {.position = position, .count = 1};
	va_list args;

	va_start(args, format);
	vsnprintf(warning.text, sizeof warning.text, format, args);
	va_end(args);
	for (size_t i = 0; i < trace->warning_count; i++) {
		if (!strcmp(trace->warnings[i].text, warning.text) || i + 1 == NEAP_BUILD_WARNINGS) {
			trace->warnings[i].count++;
			return;
		}
	}
	if (trace->warning_count + 1 == NEAP_BUILD_WARNINGS)
		snprintf(warning.text, sizeof warning.text, "other oddities that are not listed");
	trace->warnings[trace->warning_count++] = warning;
}

enum neap_status neap_build_init(struct neap_build *build, enum neap_trace_source source, struct neap_error *err)
{
	*build = (struct neap_build){0};
	struct neap_trace *trace = build->trace = calloc(1, sizeof *trace);
	if (!trace)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	trace->source = source;
	trace->torch = source == NEAP_TRACE_SNAPSHOT;
	trace->settings.max_split_size = -1;
	trace->store = calloc(1, sizeof *trace->store);
	trace->warnings = calloc(NEAP_BUILD_WARNINGS, sizeof *trace->warnings);
	if (!trace->store || !trace->warnings || !neap_build_device(build, 0) ||
	    !MAKE_ROOM(build, trace->streams, 0, build->stream_capacity) ||
	    !MAKE_ROOM(build, trace->frames, 0, build->frame_capacity) ||
	    !MAKE_ROOM(build, trace->calls, 0, build->call_capacity) ||
	    !MAKE_ROOM(build, trace->marks, 0, build->mark_capacity) ||
	    !MAKE_ROOM(build, trace->segments, 0, build->segment_capacity) ||
	    !MAKE_ROOM(build, trace->blocks, 0, build->block_capacity)) {
		neap_build_fini(build);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	}
	add_text(build, "", 0);
	trace->streams[trace->stream_count++] = (struct neap_trace_stream){0};
	trace->frames[trace->frame_count++] = (struct neap_trace_frame){0};
	trace->calls[trace->call_count++] = (struct neap_trace_call){0};
	if (build->failed) {
		neap_build_fini(build);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	}
	return NEAP_OK;
}

void neap_build_fini(struct neap_build *build)
{
	neap_trace_free(build->trace);
	free(build->texts.slots);
	free(build->frames.slots);
	free(build->calls.slots);
	free(build->stacks.slots);
	free(build->streams.slots);
	*build = (struct neap_build){0};
}

static int by_device_and_event(const void *left, const void *right)
{
	const struct neap_trace_mark *a = left, *b = right;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	if (a->event != b->event)
		return a->event < b->event ? -1 : 1;
	return a->time_us < b->time_us ? -1 : a->time_us > b->time_us;
}

/* Sorts the marks. qsort may reorder equal ones; marks at the same place keep their order. */
static bool sort_marks(struct neap_trace *trace)
{
	struct neap_trace_mark *marks = trace->marks, *other;
	size_t count = trace->mark_count;

	size_t sorted = 1;
	while (sorted < count && by_device_and_event(&marks[sorted - 1], &marks[sorted]) <= 0)
		sorted++;
	if (sorted >= count)
		return true;
	other = malloc(count * sizeof *other);
	if (!other)
		return false;
	for (size_t width = 1; width < count; width *= 2) {
		for (size_t start = 0; start < count; start += 2 * width) {
			size_t middle = start + width < count ? start + width : count;
			size_t end = start + 2 * width < count ? start + 2 * width : count;
			size_t a = start, b = middle;
			for (size_t to = start; to < end; to++)
				other[to] = b >= end || (a < middle && by_device_and_event(&marks[a], &marks[b]) <= 0)
						    ? marks[a++]
						    : marks[b++];
		}
		struct neap_trace_mark *swap = marks;
		marks = other;
		other = swap;
	}
	trace->marks = marks;
	free(other);
	return true;
}

/* Sorts segments by device and keeps the file's order within each device: a counting sort. */
static bool sort_segments(struct neap_trace *trace)
{
	size_t next[256] = {0};
	struct neap_trace_segment *sorted;

	for (size_t i = 0; i < trace->segment_count; i++)
		trace->devices[trace->segments[i].device].segment_count++;
	for (size_t d = 0, first = 0; d < trace->device_count; d++) {
		trace->devices[d].first_segment = next[d] = first;
		first += trace->devices[d].segment_count;
	}
	if (!trace->segment_count)
		return true;
	sorted = malloc(trace->segment_count * sizeof *sorted);
	if (!sorted)
		return false;
	for (size_t i = 0; i < trace->segment_count; i++)
		sorted[next[trace->segments[i].device]++] = trace->segments[i];
	free(trace->segments);
	trace->segments = sorted;
	return true;
}

enum neap_status neap_build_finish(struct neap_build *build, struct neap_trace **ret_trace, struct neap_error *err)
{
	struct neap_trace *trace = build->trace;

	for (size_t d = 0; d < trace->device_count; d++)
		trace->devices[d].segment_count = trace->devices[d].mark_count = 0;
	if (!build->failed && (!sort_marks(trace) || !sort_segments(trace)))
		build->failed = NEAP_ENOMEM;
	if (build->failed == NEAP_EPARSE)
		return neap_fail(err, NEAP_EPARSE,
				 "it has more different texts, stacks or streams than any real trace");
	if (build->failed)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	for (size_t i = 0; i < trace->mark_count; i++)
		trace->devices[trace->marks[i].device].mark_count++;
	for (size_t d = 0, first = 0; d < trace->device_count; d++) {
		trace->devices[d].first_mark = first;
		first += trace->devices[d].mark_count;
	}
	neap_store_trim(trace->store);
	build->trace = NULL;
	neap_build_fini(build);
	*ret_trace = trace;
	return NEAP_OK;
}
