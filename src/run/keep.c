/* run/keep.c: chooses the steps that stay whole, and thins the others. Pure. */
#include "run/keep.h"

#include "base/clock.h"

#include <string.h>

#define FIRST_STEPS 5
#define MINUTE_NS   (60 * NEAP_NS_PER_S)

/* Raises the highest peaks so far. Returns whether one rose. */
static bool raise_peaks(struct neap_keep_choice *choice, const struct neap_keep_step *step)
{
	bool rose = false;

	for (size_t i = 0; i < NEAP_KEEP_DEVICES; i++) {
		if (step->peak_bytes[i] <= choice->peak_bytes[i])
			continue;
		choice->peak_bytes[i] = step->peak_bytes[i];
		rose = true;
	}
	return rose;
}

enum neap_keep_why neap_keep_choose(struct neap_keep_choice *choice, const struct neap_keep_step *step)
{
	bool rose = raise_peaks(choice, step);

	if (!choice->inside) {
		bool due = step->begin_ns >= choice->minute_ns && step->begin_ns - choice->minute_ns >= MINUTE_NS;
		choice->chosen = choice->steps < FIRST_STEPS ? NEAP_KEEP_FIRST
				 : due                       ? NEAP_KEEP_MINUTE
							     : NEAP_KEEP_THINNED;
		if (choice->chosen != NEAP_KEEP_THINNED)
			choice->minute_ns = step->begin_ns;
	}
	choice->inside = step->part;
	choice->steps += !step->part;
	return step->failed                        ? NEAP_KEEP_OOM
	       : choice->chosen == NEAP_KEEP_FIRST ? NEAP_KEEP_FIRST
	       : rose                              ? NEAP_KEEP_PEAK
						   : choice->chosen;
}

/* The lifetimes that began within the events and have not ended: address to the index of the allocation; the upper 32
 * bits hold one more than the index of the requested free. */
struct lifetimes {
	struct neap_map blocks, segments;
	bool failed; /* host memory ran out */
};

static void put(struct lifetimes *open, struct neap_map *map, uint64_t address, uint64_t value)
{
	open->failed |= !neap_map_put(map, address, value);
}

static void forget_all(struct lifetimes *open)
{
	neap_map_fini(&open->blocks);
	neap_map_fini(&open->segments);
}

/* Drops an event: sets its kind to 0. */
static void leave_out(struct neap_event *events, uint64_t index) { events[index].kind = 0; }

static void thin_block(struct lifetimes *open, struct neap_event *events, size_t i)
{
	uint64_t address = events[i].allocation.address, begin = 0;
	bool known = neap_map_get(&open->blocks, address, &begin);

	switch (events[i].kind) {
	case NEAP_EVENT_ALLOC:
		put(open, &open->blocks, address, i);
		break;
	case NEAP_EVENT_FREE_REQUESTED:
		if (known)
			put(open, &open->blocks, address, (begin & UINT32_MAX) | (uint64_t)(i + 1) << 32);
		break;
	case NEAP_EVENT_FREE:
	case NEAP_EVENT_FREE_COMPLETED:
		if (!known)
			break;
		neap_map_remove(&open->blocks, address, NULL);
		leave_out(events, begin & UINT32_MAX);
		leave_out(events, i);
		if (begin >> 32)
			leave_out(events, (begin >> 32) - 1);
		break;
	default: /* another stream uses the block: its whole lifetime stays */
		neap_map_remove(&open->blocks, address, NULL);
	}
}

static void thin_segment(struct lifetimes *open, struct neap_event *events, size_t i)
{
	const struct neap_event_segment *segment = &events[i].segment;
	uint64_t begin = 0;

	if (events[i].kind == NEAP_EVENT_SEGMENT_ALLOC || events[i].kind == NEAP_EVENT_SEGMENT_MAP) {
		put(open, &open->segments, segment->address, i);
		return;
	}
	bool known = neap_map_remove(&open->segments, segment->address, &begin);
	if (known && events[begin].segment.bytes == segment->bytes) {
		leave_out(events, begin);
		leave_out(events, i);
	} else {
		neap_map_fini(&open->segments); /* part of a segment: all segments that are mapped now stay */
	}
}

static size_t pack(struct neap_event *events, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		if (events[i].kind)
			events[kept++] = events[i];
	return kept;
}

size_t neap_keep_thin(struct neap_event *events, size_t count)
{
	struct lifetimes open = {0};

	for (size_t i = 0; i < count && i < UINT32_MAX && !open.failed; i++) {
		if (neap_event_as_allocation(&events[i]) || events[i].kind == NEAP_EVENT_FREE)
			thin_block(&open, events, i);
		else if (neap_event_as_segment(&events[i]))
			thin_segment(&open, events, i);
		else if (events[i].kind == NEAP_EVENT_RESTART) /* a restart frees everything, without events */
			forget_all(&open);
	}
	forget_all(&open);
	return pack(events, count);
}

size_t neap_keep_join_steps(struct neap_event *events, size_t count)
{
	struct neap_event *waiting[NEAP_KEEP_DEVICES] = {0};

	for (size_t i = 0; i < count; i++) {
		struct neap_event *event = &events[i];
		uint16_t kind = event->kind;
		if (kind == NEAP_EVENT_METRIC || kind == NEAP_EVENT_SCOPE_BEGIN || kind == NEAP_EVENT_SCOPE_END)
			event->kind = 0;
		if (kind != NEAP_EVENT_STEP || event->device >= NEAP_KEEP_DEVICES)
			continue;
		struct neap_event *before = waiting[event->device];
		waiting[event->device] = before ? NULL : event;
		if (!before)
			continue;
		struct neap_event_step *step = &event->step;
		step->micro_batches += before->step.micro_batches;
		if (before->step.peak_bytes > step->peak_bytes)
			step->peak_bytes = before->step.peak_bytes;
		if (before->step.lowest_bytes < step->lowest_bytes)
			step->lowest_bytes = before->step.lowest_bytes;
		before->kind = 0;
	}
	return pack(events, count);
}
