/* trace/recording.c: makes a trace of a recording.
 *
 * A recording has two rings, each in order of time and with events of every device; a trace has one row of events per
 * device. So each device takes one walk through both, the older event first.
 *
 * A recording of PyTorch's own allocator has its stacks and settings in a file beside it (trace/stacks.h).
 *
 * A process that restarted in place (NEAP_EVENT_RESTART) freed everything at once, without events: its live blocks
 * are freed here at that instant. */
#include "base/error.h"
#include "base/map.h"
#include "neap/trace.h"
#include "trace/formats.h"
#include "trace/ranges.h"
#include "trace/record.h"
#include "trace/stacks.h"

#include <stdlib.h>
#include <string.h>

struct recording {
	const struct neap_record *record;
	struct neap_build *build;
	uint32_t names[NEAP_RECORD_NAMES]; /* the stack of each name; 0: not made yet */
	struct neap_stacks stacks;         /* those beside the recording */
	struct neap_ranges private_pools;  /* of PyTorch's own allocator, on the device that is being read */
	bool restarts;                     /* the process restarted: live blocks are tracked */
	struct neap_map live;              /* address: twice its bytes, plus 1 when its free was requested */
};

static uint64_t wall_us(const struct recording *recording, const struct neap_event *event)
{
	return (event->time_ns + recording->record->wall_at_zero_ns) / 1000;
}

static uint32_t name_of(struct recording *recording, uint64_t name)
{
	const char *text = neap_record_name(recording->record, name);

	return neap_build_text(recording->build, text, strlen(text));
}

static uint32_t stack_of(struct recording *recording, uint64_t tag)
{
	if (tag >= NEAP_EVENT_FIRST_STACK) {
		tag -= NEAP_EVENT_FIRST_STACK;
		return tag < recording->stacks.count ? recording->stacks.calls[tag] : 0;
	}
	if (!tag || tag >= NEAP_RECORD_NAMES)
		return 0;
	if (!recording->names[tag]) {
		uint32_t frame = neap_build_frame(recording->build, 0, name_of(recording, tag), 0);
		recording->names[tag] = neap_build_stack(recording->build, &frame, 1);
	}
	return recording->names[tag];
}

static enum neap_trace_kind kind_of(uint16_t kind)
{
	static const uint8_t kinds[] = {
		[NEAP_EVENT_ALLOC] = NEAP_TRACE_ALLOC,
		[NEAP_EVENT_FREE_REQUESTED] = NEAP_TRACE_FREE_REQUESTED,
		[NEAP_EVENT_FREE_COMPLETED] = NEAP_TRACE_FREE_COMPLETED,
		[NEAP_EVENT_RECORD_STREAM] = NEAP_TRACE_RECORD_STREAM,
		[NEAP_EVENT_SEGMENT_ALLOC] = NEAP_TRACE_SEGMENT_ALLOC,
		[NEAP_EVENT_SEGMENT_FREE] = NEAP_TRACE_SEGMENT_FREE,
		[NEAP_EVENT_SEGMENT_MAP] = NEAP_TRACE_SEGMENT_MAP,
		[NEAP_EVENT_SEGMENT_UNMAP] = NEAP_TRACE_SEGMENT_UNMAP,
		[NEAP_EVENT_EMPTY_CACHE] = NEAP_TRACE_EMPTY_CACHE,
		[NEAP_EVENT_OOM] = NEAP_TRACE_OOM,
	};

	return kind < sizeof kinds ? (enum neap_trace_kind)kinds[kind] : (enum neap_trace_kind)0;
}

/* Returns a stream together with the private pool that has the event's address. */
static uint16_t stream_of(struct recording *recording, uint64_t stream, uint64_t address)
{
	uint64_t pool = neap_ranges_pool(&recording->private_pools, address);
	return neap_build_stream(recording->build, stream, pool >> 32, pool & UINT32_MAX);
}

static uint16_t take_segment(struct recording *recording, uint16_t kind, const struct neap_event_segment *segment)
{
	bool gone = kind == NEAP_EVENT_SEGMENT_FREE || kind == NEAP_EVENT_SEGMENT_UNMAP;

	if (!gone && segment->pool && recording->build->trace->torch)
		neap_ranges_add(&recording->private_pools, segment->address, segment->bytes, segment->pool);
	uint16_t stream = stream_of(recording, segment->stream, segment->address);
	if (gone)
		neap_ranges_remove(&recording->private_pools, segment->address, segment->bytes);
	return stream;
}

static void take_memory_event(struct recording *recording, const struct neap_event *from, uint8_t device)
{
	const struct neap_event_allocation *allocation = neap_event_as_allocation(from);
	const struct neap_event_segment *segment = neap_event_as_segment(from);
	const struct neap_event_empty_cache *emptied = neap_event_as_empty_cache(from);
	const struct neap_event_oom *oom = neap_event_as_oom(from);
	struct neap_trace_event event = {
		.time_us = wall_us(recording, from),
		.kind = (uint8_t)kind_of(from->kind),
		.device = device,
	};

	if (allocation) {
		event.address = allocation->address;
		event.size = allocation->requested_bytes;
		event.stack = stack_of(recording, allocation->tag);
		event.stream = stream_of(recording, allocation->stream, allocation->address);
	} else if (segment) {
		event.address = segment->address;
		event.size = segment->bytes;
		event.stream = take_segment(recording, from->kind, segment);
	} else if (emptied) {
		event.size = emptied->freed_bytes;
	} else if (oom) {
		event.address = oom->device_free_bytes;
		event.size = oom->bytes ? oom->bytes : oom->requested_bytes;
		event.stack = stack_of(recording, oom->tag);
	}
	neap_build_event(recording->build, &event);
}

static void keep_account(struct recording *recording, const struct neap_event *event)
{
	const struct neap_event_allocation *block = neap_event_as_allocation(event);
	bool kept = true;

	if (!block)
		return;
	uint64_t value = block->requested_bytes << 1;
	if (event->kind == NEAP_EVENT_ALLOC)
		kept = neap_map_put(&recording->live, block->address, value);
	else if (event->kind == NEAP_EVENT_FREE_REQUESTED && neap_map_get(&recording->live, block->address, &value))
		kept = neap_map_put(&recording->live, block->address, value | 1);
	else if (event->kind == NEAP_EVENT_FREE_COMPLETED)
		neap_map_remove(&recording->live, block->address, NULL);
	if (!kept)
		recording->build->failed = NEAP_ENOMEM;
}

static void free_all(struct recording *recording, const struct neap_event *restart, uint8_t device)
{
	const struct neap_map_slot *slot;

	for (size_t cursor = 0; (slot = neap_map_next(&recording->live, &cursor));) {
		struct neap_event event = neap_event_of_allocation(
			NEAP_EVENT_FREE_REQUESTED, device,
			(struct neap_event_allocation){.address = slot->key, .requested_bytes = slot->value >> 1});
		event.time_ns = restart->time_ns;
		if (!(slot->value & 1))
			take_memory_event(recording, &event, device);
		event.kind = NEAP_EVENT_FREE_COMPLETED;
		take_memory_event(recording, &event, device);
	}
	neap_map_fini(&recording->live);
}

static void take_mark(struct recording *recording, const struct neap_event *from, uint8_t device, uint64_t index)
{
	struct neap_trace_mark mark = {.event = index, .time_us = wall_us(recording, from), .device = device};
	const char *name = "";

	switch (from->kind) {
	case NEAP_EVENT_MARK:
		mark.kind = NEAP_TRACE_MARK;
		mark.number = neap_event_as_mark(from)->value;
		name = neap_record_name(recording->record, neap_event_as_mark(from)->name);
		break;
	case NEAP_EVENT_STEP:
		mark.kind = NEAP_TRACE_STEP;
		mark.number = neap_event_as_step(from)->number;
		name = neap_record_name(recording->record, neap_event_as_step(from)->name);
		break;
	case NEAP_EVENT_SCOPE_BEGIN:
	case NEAP_EVENT_SCOPE_END:
		mark.kind = from->kind == NEAP_EVENT_SCOPE_BEGIN ? NEAP_TRACE_BEGIN : NEAP_TRACE_END;
		name = neap_record_name(recording->record, neap_event_as_scope(from)->name);
		break;
	case NEAP_EVENT_CLEANUP:
		mark.kind = NEAP_TRACE_MARK;
		name = "cleanup";
		break;
	case NEAP_EVENT_RUNG:
		mark.kind = NEAP_TRACE_MARK;
		name = "rung";
		break;
	default:
		return; /* figures of the session, which have no place in a trace */
	}
	mark.name = neap_build_text(recording->build, name, strlen(name));
	neap_build_mark(recording->build, &mark);
}

/* Returns the bytes that were allocated before the first event in the ring: an event has the bytes after it. */
static uint64_t allocated_before(const struct neap_record *record, uint8_t device)
{
	for (size_t i = 0; i < record->allocation_count; i++) {
		const struct neap_event *event = &record->allocations[i];
		const struct neap_event_held *held = neap_event_as_held(event);
		const struct neap_event_allocation *block = neap_event_as_allocation(event);
		if (event->device != device || !held)
			continue;
		uint64_t after = held->allocated_bytes, bytes = block ? block->bytes : 0;
		if (after > UINT64_MAX / 4 || bytes > UINT64_MAX / 4)
			return 0;
		if (event->kind == NEAP_EVENT_FREE_REQUESTED)
			return after + bytes;
		return event->kind != NEAP_EVENT_ALLOC ? after : after > bytes ? after - bytes : 0;
	}
	return 0;
}

static void take_device(struct recording *recording, uint8_t device)
{
	const struct neap_record *record = recording->record;
	const struct neap_event *journal = record->journal, *journal_end = journal + record->journal_count;
	const struct neap_event *allocation = record->allocations,
				*allocation_end = allocation + record->allocation_count;
	struct neap_trace_store *store = recording->build->trace->store;
	uint64_t first = store->count;

	while ((journal < journal_end || allocation < allocation_end) && !recording->build->failed) {
		const struct neap_event *event;
		if (journal == journal_end ||
		    (allocation < allocation_end && allocation->time_ns <= journal->time_ns))
			event = allocation++;
		else
			event = journal++;
		if (event->device != device)
			continue;
		if (recording->restarts)
			keep_account(recording, event);
		if (event->kind == NEAP_EVENT_RESTART)
			free_all(recording, event, device);
		if (kind_of(event->kind))
			take_memory_event(recording, event, device);
		else
			take_mark(recording, event, device, store->count - first);
	}
	if (recording->build->failed)
		return;
	struct neap_trace_device *taken = &recording->build->trace->devices[device];
	taken->first_event = first;
	taken->event_count = store->count - first;
	taken->lost = record->allocations_lost;
	recording->build->trace->partial |= record->allocations_missing > 0 || record->thinned_events > 0;
	taken->before_bytes = taken->lost ? allocated_before(record, device) : 0;
	if (taken->before_bytes) {
		static const char name[] = "there before the recording's first event";
		uint32_t text = neap_build_text(recording->build, name, sizeof name - 1);
		uint32_t frame = neap_build_frame(recording->build, 0, text, 0);
		/* The call may move the devices. */
		uint32_t stack = neap_build_stack(recording->build, &frame, 1);
		recording->build->trace->devices[device].before_stack = stack;
	}
}

static uint64_t highest_device(const struct neap_event *events, size_t count, uint64_t *ret_impossible)
{
	uint64_t highest = 0;

	for (size_t i = 0; i < count; i++) {
		if (events[i].device > UINT8_MAX)
			++*ret_impossible;
		else if (events[i].device > highest)
			highest = events[i].device;
	}
	return highest;
}

/* Whether PyTorch's own allocator made the allocations. Their tags show it even if the file of stacks was lost: one
 * of them names a stack. */
static bool names_stacks(const struct neap_record *record)
{
	for (size_t i = 0; i < record->allocation_count; i++) {
		const struct neap_event_allocation *block = neap_event_as_allocation(&record->allocations[i]);
		if (block && block->tag >= NEAP_EVENT_FIRST_STACK)
			return true;
	}
	return false;
}

static void warn(struct neap_build *build, const struct neap_record *record, uint64_t impossible)
{
	if (record->allocations_lost)
		neap_build_warn(build, 0, "the ring was full: %llu older allocation events were overwritten",
				(unsigned long long)record->allocations_lost);
	if (record->allocations_missing)
		neap_build_warn(
			build, 0,
			"%llu allocation events between two of its were overwritten before neap run read them",
			(unsigned long long)record->allocations_missing);
	if (record->thinned_steps)
		neap_build_warn(
			build, 0,
			"of %llu steps only the blocks that outlive a step are here: %llu other events were left out",
			(unsigned long long)record->thinned_steps, (unsigned long long)record->thinned_events);
	if (record->journal_lost)
		neap_build_warn(build, 0, "the ring was full: %llu older marks were overwritten",
				(unsigned long long)record->journal_lost);
	if (record->torn)
		neap_build_warn(build, 0, "%llu events were being written when it was read or its process died",
				(unsigned long long)record->torn);
	if (impossible)
		neap_build_warn(build, 0, "%llu events of no possible device are left out",
				(unsigned long long)impossible);
}

enum neap_status neap_recording_read(const char *path, struct neap_build *build, struct neap_error *err)
{
	struct neap_record *record = calloc(1, sizeof *record);
	struct recording recording = {.record = record, .build = build};
	uint64_t impossible = 0;

	if (!record)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for recording %s", path);
	enum neap_status status = neap_record_read(path, record, err);
	if (status) {
		free(record);
		return status;
	}
	build->trace->record = record; /* from here on the trace owns it */
	if (!neap_stacks_read(path, build, &recording.stacks) && names_stacks(record)) {
		build->trace->torch = true;
		neap_build_warn(build, 0, "the stacks that were recorded beside it cannot be read: no lines");
	}
	uint64_t devices = highest_device(record->allocations, record->allocation_count, &impossible);
	uint64_t others = highest_device(record->journal, record->journal_count, &impossible);
	devices = devices > others ? devices : others;
	neap_build_device(build, devices);
	for (size_t i = 0; i < record->journal_count; i++)
		recording.restarts |= record->journal[i].kind == NEAP_EVENT_RESTART;
	for (uint64_t device = 0; device <= devices && !build->failed; device++) {
		take_device(&recording, (uint8_t)device);
		neap_map_fini(&recording.live);
		recording.private_pools.count = 0;
	}
	neap_stacks_fini(&recording.stacks);
	warn(build, record, impossible);
	return NEAP_OK;
}
