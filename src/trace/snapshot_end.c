/* trace/snapshot_end.c: gives the ranges, metadata and annotations of a snapshot their places between events. This is
 * possible once all is read and the devices of the events are known. Until then, places count in the store.
 */
#include "trace/pickle.h"

#include <stdlib.h>
#include <string.h>

void neap_beside_event(struct reader *reader, uint32_t user, uint32_t internal, uint32_t compile)
{
	struct neap_build *build = reader->build;
	const struct neap_trace *trace = build->trace;
	struct neap_trace_note note = {
		.event = trace->store->count, .user = user, .internal = internal, .compile = compile};
	struct neap_trace_note last = {0};

	if (strcmp(neap_trace_text(trace, compile), "N/A") == 0)
		note.compile = 0;
	if (trace->note_count)
		last = trace->notes[trace->note_count - 1];
	if (note.user != last.user || note.internal != last.internal || note.compile != last.compile)
		neap_build_note(build, &note);
}

static bool says_something(const struct neap_trace_note *note)
{
	return note->user || note->internal || note->compile;
}

/* Places the notes within one device's events, beginning with the note in force at the first of them. */
static void place_notes(struct neap_build *build, const struct neap_trace_note *notes, size_t count, size_t device,
			const struct range *events)
{
	struct neap_trace_note first = {.device = (uint8_t)device};

	for (size_t i = 0; i < count && notes[i].event <= events->first; i++)
		first = notes[i];
	first.event = 0;
	first.device = (uint8_t)device;
	if (events->count && says_something(&first))
		neap_build_note(build, &first);
	for (size_t i = 0; i < count; i++) {
		struct neap_trace_note note = notes[i];
		if (note.event <= events->first || note.event - events->first >= events->count)
			continue;
		note.event -= events->first;
		note.device = (uint8_t)device;
		neap_build_note(build, &note);
	}
}

/* Places annotations. Each follows its block's allocation, so one between the events of two devices belongs to the
 * first device. */
static void place_annotations(struct reader *reader)
{
	struct neap_trace *trace = reader->build->trace;
	size_t kept = 0;

	for (size_t i = 0; i < trace->annotation_count; i++) {
		struct neap_trace_annotation annotation = trace->annotations[i];
		for (size_t d = 0; d < reader->trace_count; d++) {
			const struct range *events = &reader->traces[d];
			if (!events->count || annotation.event - events->first > events->count ||
			    annotation.event < events->first)
				continue;
			annotation.event -= events->first;
			annotation.device = (uint8_t)d;
			trace->annotations[kept++] = annotation;
			break;
		}
	}
	trace->annotation_count = kept;
}

/* Places notes and annotations, and the host's events. */
static enum neap_status place_beside(struct reader *reader)
{
	struct neap_build *build = reader->build;
	struct neap_trace *trace = build->trace;
	struct neap_trace_note *notes = trace->notes;
	size_t count = trace->note_count;

	trace->host.first_event = reader->host_trace.first;
	trace->host.event_count = reader->host_trace.count;
	place_annotations(reader);
	if (!count)
		return NEAP_OK;
	trace->notes = NULL;
	trace->note_count = build->note_capacity = 0;
	for (size_t d = 0; d < reader->trace_count; d++)
		place_notes(build, notes, count, d, &reader->traces[d]);
	free(notes);
	return NEAP_OK;
}

static int by_time(const void *left, const void *right)
{
	const struct neap_trace_mark *a = *(struct neap_trace_mark *const *)left,
				     *b = *(struct neap_trace_mark *const *)right;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	if (a->time_us != b->time_us)
		return a->time_us < b->time_us ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Places each mark before the first event that is not earlier. */
static enum neap_status place_marks(struct reader *reader)
{
	struct neap_trace *trace = reader->build->trace;
	struct neap_trace_mark **marks;

	if (!trace->mark_count)
		return NEAP_OK;
	marks = malloc(trace->mark_count * sizeof *marks);
	if (!marks)
		return neap_pickle_no_memory(&reader->pickle);
	for (size_t i = 0; i < trace->mark_count; i++)
		marks[i] = &trace->marks[i];
	qsort(marks, trace->mark_count, sizeof *marks, by_time);
	for (size_t i = 0; i < trace->mark_count;) {
		size_t device = marks[i]->device;
		struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
		struct neap_trace_event event;
		uint64_t index = 0;
		for (; neap_trace_next(&cursor, &event); index++)
			for (; i < trace->mark_count && marks[i]->device == device &&
			       marks[i]->time_us <= event.time_us;
			     i++)
				marks[i]->event = index;
		for (; i < trace->mark_count && marks[i]->device == device; i++)
			marks[i]->event = index;
	}
	free(marks);
	return NEAP_OK;
}

enum neap_status neap_snapshot_end(struct reader *reader, const struct neap_pickled *top)
{
	struct neap_build *build = reader->build;
	uint64_t events = 0;

	if ((top->type == VALUE_SEGMENTS && top->list) || top->type == NEAP_PICKLE_LIST)
		reader->has_segments = true; /* the segments that memory_snapshot() returned */
	else if (top->type != VALUE_TOP)
		return neap_pickle_fail(&reader->pickle,
					"the pickle holds no snapshot: a dict with 'segments' and 'device_traces' "
					"was expected");
	/* If keys contradict each other, PyTorch did not write the file. */
	if (reader->torch_from <= reader->torch_to || !reader->torch_to) {
		build->trace->torch_from = reader->torch_from;
		build->trace->torch_to = reader->torch_to;
	}
	if (!reader->has_segments)
		neap_build_warn(build, reader->pickle.position,
				"there are no segments: the state at the end is unknown");
	for (size_t i = 0; i < reader->trace_count && reader->has_traces; i++) {
		neap_build_device(build, i);
		if (build->failed)
			return NEAP_OK;
		build->trace->devices[i].first_event = reader->traces[i].first;
		build->trace->devices[i].event_count = reader->traces[i].count;
		events += reader->traces[i].count;
	}
	enum neap_status status = place_beside(reader);
	if (status)
		return status;
	if (!events)
		neap_build_warn(build, reader->pickle.position,
				"there is no history of events: only the state at the end");
	if (reader->free_completions && !reader->free_requests)
		neap_build_warn(
			build, reader->pickle.position,
			"no free was requested, only completed: how long blocks waited for streams is unknown");
	return place_marks(reader);
}
