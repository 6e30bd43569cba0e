/* trace/write_recording.c: writes a trace as neap's recorder would have written it.
 *
 * The two rings are written one after the other. Each is one walk over the merged sequence of marks and events, which
 * is the same both times. Readers order the events of different rings by time only, so every event gets a time of its
 * own: its microsecond, plus one nanosecond for each event before it in that microsecond. */
#include "base/error.h"
#include "base/map.h"
#include "neap/trace.h"
#include "trace/output.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OTHER (NEAP_RECORD_NAMES - 1) /* the last name stands for all names beyond the table */

struct recording_writer {
	const struct neap_trace *trace;
	neap_trace_namer *namer;
	const void *context;
	struct neap_output output;
	struct neap_record_header header;
	uint16_t *tags; /* by stack: the tag's number plus 1; 0: not made yet */
	bool journal;   /* the ring that is being written */
	bool counting;  /* count the events, and write neither ring */
	/* Of the current device. */
	uint64_t now_ns, allocated, reserved, low, high;
	struct neap_map live; /* address -> bytes */
	bool no_memory;
};

static uint16_t name_of(struct recording_writer *writer, const char *text)
{
	struct neap_record_header *header = &writer->header;
	char name[NEAP_RECORD_NAME_ROOM];

	if (!text[0])
		return 0;
	snprintf(name, sizeof name, "%s", text);
	for (uint32_t i = 1; i < header->names_used; i++)
		if (!strcmp(header->names[i], name))
			return (uint16_t)i;
	if (header->names_used >= OTHER) {
		snprintf(header->names[OTHER], sizeof header->names[OTHER], "other");
		header->names_used = NEAP_RECORD_NAMES;
		return OTHER;
	}
	memcpy(header->names[header->names_used], name, sizeof name);
	return (uint16_t)header->names_used++;
}

/* Names of marks are added first, because they are few or alike. Once they fill half of the table, "iter 17" becomes
 * "iter #". */
static uint16_t mark_name(struct recording_writer *writer, const struct neap_trace_mark *mark)
{
	char stem[NEAP_RECORD_NAME_ROOM];
	const char *name = neap_trace_text(writer->trace, mark->name);
	size_t length = 0;

	for (uint32_t i = 1; i < writer->header.names_used; i++)
		if (!strncmp(writer->header.names[i], name, NEAP_RECORD_NAME_ROOM - 1))
			return (uint16_t)i;
	if (writer->header.names_used < NEAP_RECORD_NAMES / 2)
		return name_of(writer, name);
	for (; *name && length < sizeof stem - 1; name++) {
		bool digit = *name >= '0' && *name <= '9';
		if (!digit || length == 0 || stem[length - 1] != '#')
			stem[length++] = digit ? '#' : *name;
	}
	stem[length] = '\0';
	return name_of(writer, stem);
}

static uint16_t tag_of(struct recording_writer *writer, uint32_t stack)
{
	const struct neap_trace *trace = writer->trace;
	char text[256];

	if (!stack)
		return 0;
	if (!writer->tags[stack]) {
		if (writer->namer)
			writer->namer(writer->context, stack, text, sizeof text);
		else
			snprintf(text, sizeof text, "%s",
				 neap_trace_text(trace, trace->frames[trace->calls[stack].frame].name));
		writer->tags[stack] = (uint16_t)(name_of(writer, text) + 1);
	}
	return (uint16_t)(writer->tags[stack] - 1);
}

static void put(struct recording_writer *writer, struct neap_event *event, uint64_t time_us)
{
	bool journal = event->kind >= NEAP_EVENT_FIRST_JOURNAL;
	uint64_t *written = journal ? &writer->header.journal_written : &writer->header.allocation_written;

	writer->now_ns = time_us * 1000 > writer->now_ns ? time_us * 1000 : writer->now_ns + 1;
	if (!writer->counting && journal != writer->journal)
		return;
	event->sequence = (uint32_t)++ * written;
	event->time_ns = writer->now_ns;
	if (neap_event_as_held(event))
		event->held = (struct neap_event_held){writer->allocated, writer->reserved};
	if (!writer->counting)
		neap_output_bytes(&writer->output, event, sizeof *event);
}

static void account(struct recording_writer *writer, const struct neap_trace_event *event)
{
	uint64_t bytes = 0;

	switch ((enum neap_trace_kind)event->kind) {
	case NEAP_TRACE_ALLOC:
		neap_map_get(&writer->live, event->address, &bytes);
		writer->allocated += event->size - bytes;
		if (!neap_map_put(&writer->live, event->address, event->size))
			writer->no_memory = true;
		break;
	case NEAP_TRACE_FREE_REQUESTED:
	case NEAP_TRACE_FREE_COMPLETED:
		neap_map_remove(&writer->live, event->address, &bytes);
		writer->allocated -= bytes;
		break;
	case NEAP_TRACE_SEGMENT_ALLOC:
	case NEAP_TRACE_SEGMENT_MAP:
		writer->reserved += event->size;
		break;
	case NEAP_TRACE_SEGMENT_FREE:
	case NEAP_TRACE_SEGMENT_UNMAP:
		writer->reserved -= event->size < writer->reserved ? event->size : writer->reserved;
		break;
	default:
		break;
	}
	writer->low = writer->allocated < writer->low ? writer->allocated : writer->low;
	writer->high = writer->allocated > writer->high ? writer->allocated : writer->high;
}

static void put_event(struct recording_writer *writer, const struct neap_trace_event *from, uint64_t time_us)
{
	static const uint8_t kinds[] = {
		[NEAP_TRACE_ALLOC] = NEAP_EVENT_ALLOC,
		[NEAP_TRACE_FREE_REQUESTED] = NEAP_EVENT_FREE_REQUESTED,
		[NEAP_TRACE_FREE_COMPLETED] = NEAP_EVENT_FREE_COMPLETED,
		[NEAP_TRACE_RECORD_STREAM] = NEAP_EVENT_RECORD_STREAM,
		[NEAP_TRACE_SEGMENT_ALLOC] = NEAP_EVENT_SEGMENT_ALLOC,
		[NEAP_TRACE_SEGMENT_FREE] = NEAP_EVENT_SEGMENT_FREE,
		[NEAP_TRACE_SEGMENT_MAP] = NEAP_EVENT_SEGMENT_MAP,
		[NEAP_TRACE_SEGMENT_UNMAP] = NEAP_EVENT_SEGMENT_UNMAP,
		[NEAP_TRACE_OOM] = NEAP_EVENT_OOM,
		[NEAP_TRACE_EMPTY_CACHE] = NEAP_EVENT_EMPTY_CACHE,
	};
	bool handles = writer->trace->source != NEAP_TRACE_SNAPSHOT; /* in snapshots, handles may be addresses */
	uint32_t stream = handles ? (uint32_t)writer->trace->streams[from->stream].handle : from->stream;
	struct neap_event event = {.kind = from->kind < sizeof kinds ? kinds[from->kind] : 0, .device = from->device};
	uint16_t tag = tag_of(writer, from->stack);

	account(writer, from);
	if (!event.kind)
		return;
	if (neap_event_as_allocation(&event))
		event.allocation = (struct neap_event_allocation){.tag = tag,
								  .stream = stream,
								  .address = from->address,
								  .requested_bytes = from->size,
								  .bytes = from->size};
	else if (neap_event_as_segment(&event))
		event.segment =
			(struct neap_event_segment){.stream = stream, .address = from->address, .bytes = from->size};
	else if (neap_event_as_oom(&event))
		event.oom = (struct neap_event_oom){.tag = tag,
						    .device_free_bytes = from->address,
						    .requested_bytes = from->size,
						    .bytes = from->size};
	else
		event.empty_cache = (struct neap_event_empty_cache){.freed_bytes = from->size};
	put(writer, &event, time_us);
	if (from->kind == NEAP_TRACE_FREE_REQUESTED && writer->trace->source == NEAP_TRACE_TEXT) {
		event.kind = NEAP_EVENT_FREE_COMPLETED;
		put(writer, &event, time_us);
	}
}

static void put_mark(struct recording_writer *writer, const struct neap_trace_mark *mark, uint64_t time_us)
{
	uint16_t name = mark_name(writer, mark);
	struct neap_event event;

	if (mark->kind == NEAP_TRACE_MARK) {
		event = neap_event_of_mark(mark->device,
					   (struct neap_event_mark){.name = name, .value = mark->number});
	} else if (mark->kind == NEAP_TRACE_STEP) {
		uint64_t lowest = writer->low == UINT64_MAX ? writer->allocated : writer->low;
		event = neap_event_of_step(mark->device, (struct neap_event_step){.name = name,
										  .number = mark->number,
										  .peak_bytes = writer->high,
										  .lowest_bytes = lowest});
		writer->high = writer->allocated;
		writer->low = writer->allocated;
	} else {
		event = neap_event_of_scope(mark->kind == NEAP_TRACE_BEGIN ? NEAP_EVENT_SCOPE_BEGIN
									   : NEAP_EVENT_SCOPE_END,
					    mark->device, (struct neap_event_scope){.name = name});
	}
	put(writer, &event, time_us);
}

/* Begins a device. Blocks that were live before the first event are not in the ring, as if their events had been
 * overwritten, but their bytes count. */
static void begin_device(struct recording_writer *writer, size_t device, const struct neap_trace_block *before,
			 size_t count)
{
	struct neap_trace_cursor cursor = neap_trace_events(writer->trace, device, 0);
	struct neap_trace_event event;
	uint64_t grown = 0, shrunk = 0;

	writer->now_ns = writer->allocated = writer->reserved = 0;
	neap_map_fini(&writer->live);
	for (size_t i = 0; i < count; i++) {
		writer->allocated += before[i].requested;
		if (!neap_map_put(&writer->live, before[i].address, before[i].requested))
			writer->no_memory = true;
	}
	while (neap_trace_next(&cursor, &event)) {
		if (event.kind == NEAP_TRACE_SEGMENT_ALLOC || event.kind == NEAP_TRACE_SEGMENT_MAP)
			grown += event.size;
		if (event.kind == NEAP_TRACE_SEGMENT_FREE || event.kind == NEAP_TRACE_SEGMENT_UNMAP)
			shrunk += event.size;
		if (shrunk > grown && shrunk - grown > writer->reserved)
			writer->reserved = shrunk - grown;
	}
	writer->low = UINT64_MAX;
	writer->high = writer->allocated;
}

static enum neap_status walk(struct recording_writer *writer, struct neap_error *err)
{
	for (size_t d = 0; d < writer->trace->device_count && !writer->output.failed; d++) {
		const struct neap_trace_device *device = &writer->trace->devices[d];
		const struct neap_trace_mark *mark = writer->trace->marks + device->first_mark;
		const struct neap_trace_mark *end = mark + device->mark_count;
		struct neap_trace_cursor cursor = neap_trace_events(writer->trace, d, 0);
		struct neap_trace_block *before = NULL;
		struct neap_trace_event event;
		bool times = false;
		size_t count = 0;
		enum neap_status status = neap_trace_live_before(writer->trace, d, &before, &count, err);

		if (status)
			return status;
		begin_device(writer, d, before, count);
		free(before);
		for (uint64_t index = 0; neap_trace_next(&cursor, &event); index++) {
			times |= event.time_us != 0;
			for (; mark < end && mark->event <= index; mark++)
				put_mark(writer, mark, times ? mark->time_us : index + 1);
			put_event(writer, &event, times ? event.time_us : index + 1);
		}
		for (; mark < end; mark++)
			put_mark(writer, mark, times ? mark->time_us : device->event_count + 1);
	}
	return writer->no_memory ? neap_fail(err, NEAP_ENOMEM, "out of host memory") : NEAP_OK;
}

static enum neap_status write_rings(struct recording_writer *writer, struct neap_error *err)
{
	struct neap_record_header *header = &writer->header;
	unsigned char padding[512] = {0};
	struct neap_event empty = {0};

	writer->counting = true;
	enum neap_status status = walk(writer, err);
	writer->counting = false;
	if (status)
		return status;
	uint64_t journal = header->journal_written, allocations = header->allocation_written;
	header->journal_capacity = journal ? journal : 1;
	header->allocation_capacity = allocations ? allocations : 1;
	if (header->journal_capacity > NEAP_RECORD_CAPACITY_MAX ||
	    header->allocation_capacity > NEAP_RECORD_CAPACITY_MAX)
		return neap_fail(err, NEAP_EINVAL, "a recording holds at most %u events", NEAP_RECORD_CAPACITY_MAX);
	neap_output_bytes(&writer->output, header, sizeof *header);
	for (size_t left = NEAP_RECORD_HEADER_BYTES - sizeof *header; left > 0;) {
		size_t piece = left < sizeof padding ? left : sizeof padding;
		neap_output_bytes(&writer->output, padding, piece);
		left -= piece;
	}
	for (int ring = 0; ring < 2 && !status; ring++) {
		writer->journal = ring == 0;
		header->journal_written = header->allocation_written = 0;
		status = walk(writer, err);
		if (!(ring == 0 ? journal : allocations))
			neap_output_bytes(&writer->output, &empty, sizeof empty);
	}
	return status;
}

enum neap_status neap_trace_write_recording(const struct neap_trace *trace, neap_trace_namer *namer,
					    const void *context, const char *path, struct neap_error *err)
{
	struct recording_writer *writer = calloc(1, sizeof *writer); /* on the heap, because its header is large */
	uint16_t *tags = calloc(trace->call_count, sizeof *tags);

	if (!writer || !tags) {
		free(writer);
		free(tags);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	}
	*writer = (struct recording_writer){.trace = trace, .namer = namer, .context = context, .tags = tags};
	memcpy(writer->header.magic, NEAP_RECORD_MAGIC, sizeof writer->header.magic);
	writer->header.version = NEAP_RECORD_VERSION;
	writer->header.header_bytes = NEAP_RECORD_HEADER_BYTES;
	writer->header.pid = 1; /* the real process is unknown */
	writer->header.names_used = 1;
	for (size_t i = 0; i < trace->mark_count; i++)
		mark_name(writer, &trace->marks[i]);
	enum neap_status status = neap_output_begin(&writer->output, path, err);
	if (!status)
		status = neap_output_end(&writer->output, write_rings(writer, err));
	neap_map_fini(&writer->live);
	free(tags);
	free(writer);
	return status;
}
