/* replay/start_ranges.c: see start.h. */
#include "base/array.h"
#include "base/error.h"
#include "replay/start.h"
#include "replay/torch_internal.h"

#include <stdlib.h>

#define RANGES_MAX    1024          /* one pair for each stream: no process has so many */
#define SMALL_REACH   (64ull << 20) /* small segments that give ten pages back are this near to other small ones */
#define LARGEST_REACH (1ull << 40)  /* how far the addresses of a device of 900 GiB reach */

struct search {
	const struct neap_trace *trace;
	size_t device;
	const struct neap_torch_settings *settings;
	uint64_t device_bytes; /* 0: not known */
	struct neap_start_range *ranges;
	size_t range_count;
	bool starved;
	uint64_t reach; /* no reservation is larger */
	uint64_t odd;
};

static uint64_t page_of(const struct search *search, bool large)
{
	return large ? search->settings->large_segment_bytes : SMALL_SEGMENT;
}

/* Returns how many bytes of addresses one reservation has. */
static uint64_t reservation(const struct search *search, uint64_t device_bytes, bool large)
{
	uint64_t page = page_of(search, large);
	return (neap_torch_reserve(search->settings, device_bytes) + page - 1) / page * page;
}

/* Whether one reservation can contain both the range and these addresses. */
static bool in_reach(const struct search *search, const struct neap_start_range *range, uint64_t address,
		     uint64_t size)
{
	uint64_t low = address < range->low ? address : range->low;
	uint64_t high = address + size > range->high ? address + size : range->high;
	return high - low <=
	       (search->device_bytes ? reservation(search, search->device_bytes, range->large) : search->reach);
}

/* Extends a range of this stream and kind that is near enough, or begins a new one. */
static void range_cover(struct search *search, uint64_t address, uint64_t size, uint16_t stream, bool large)
{
	if (!size || size > LARGEST_REQUEST || address > (1ull << 62))
		return;
	for (struct neap_start_range *range = search->ranges; range < search->ranges + search->range_count; range++) {
		if (range->stream != stream || range->large != large || !in_reach(search, range, address, size))
			continue;
		range->low = address < range->low ? address : range->low;
		range->high = address + size > range->high ? address + size : range->high;
		return;
	}
	if (search->range_count == RANGES_MAX) {
		search->odd++;
		return;
	}
	if (!neap_array_grow(&search->ranges, search->range_count, sizeof *search->ranges)) {
		search->starved = true;
		return;
	}
	search->ranges[search->range_count++] =
		(struct neap_start_range){.low = address, .high = address + size, .stream = stream, .large = large};
}

static uint64_t distance(const struct neap_start_range *range, uint64_t address)
{
	return address < range->low ? range->low - address : address >= range->high ? address - range->high : 0;
}

/* Small segments grow by 2 MiB at a time, large ones by a multiple of 20 or of large_segment_size_mb. Small ones may
 * give back as much at once as large ones; such a range lies near other small ones. */
static void range_find(struct search *search, const struct neap_trace_event *event)
{
	const struct neap_trace_stream *streams = search->trace->streams;
	bool large = event->size % page_of(search, true) == 0;
	const struct neap_start_range *best = NULL;
	for (const struct neap_start_range *range = search->ranges; range < search->ranges + search->range_count;
	     range++) {
		uint64_t away = distance(range, event->address);
		bool near = in_reach(search, range, event->address, event->size) &&
			    (range->large || !large || away < SMALL_REACH);
		if (streams[range->stream].handle == streams[event->stream].handle && near &&
		    (range->large ? large : !large || event->kind == NEAP_TRACE_SEGMENT_UNMAP) &&
		    (!best || away < distance(best, event->address)))
			best = range;
	}
	range_cover(search, event->address, event->size, best ? best->stream : event->stream,
		    best ? best->large : large);
}

/* Finds the ranges. Growth shows the kind of a range. A release may be in a range that only its growth shows, so
 * releases come last. */
static void find_ranges(struct search *search)
{
	const struct neap_trace *trace = search->trace;
	const struct neap_trace_device *device = &trace->devices[search->device];
	search->range_count = 0;
	for (size_t i = 0; i < device->segment_count; i++) {
		const struct neap_trace_segment *segment = &trace->segments[device->first_segment + i];
		if (segment->expandable)
			range_cover(search, segment->address, segment->size, segment->stream, segment->large);
	}
	for (size_t pass = 0; pass < 2; pass++) {
		struct neap_trace_cursor cursor = neap_trace_events(trace, search->device, 0);
		struct neap_trace_event event;
		unsigned kind = pass ? NEAP_TRACE_SEGMENT_UNMAP : NEAP_TRACE_SEGMENT_MAP;
		while (!search->starved && neap_trace_find(&cursor, 1u << kind, &event))
			range_find(search, &event);
	}
}

/* Finds how far apart two addresses of one reservation can be. That is its size, if the device's size is known. If
 * not, the smallest distance between two reservations bounds it. */
static void find_reach(struct search *search)
{
	search->reach = LARGEST_REACH;
	if (search->device_bytes)
		return;
	find_ranges(search);
	uint64_t reach = search->reach;
	for (size_t i = 0; i < search->range_count; i++)
		for (size_t j = 0; j < search->range_count; j++)
			if (search->ranges[j].low > search->ranges[i].low &&
			    search->ranges[j].low - search->ranges[i].low < reach)
				reach = search->ranges[j].low - search->ranges[i].low;
	search->reach = reach;
}

/* Finds where each range's reservation ends. */
static void size_ranges(struct search *search)
{
	uint64_t device = search->device_bytes ? search->device_bytes : UNBOUNDED;
	for (size_t i = 0; i < search->range_count; i++) {
		struct neap_start_range *range = &search->ranges[i];
		uint64_t page = page_of(search, range->large), size = range->high - range->low;
		uint64_t left = reservation(search, device, range->large);
		/* If another range begins before that end, this one ends there. */
		for (size_t j = 0; j < search->range_count; j++)
			if (search->ranges[j].low >= range->high && search->ranges[j].low - range->low < left)
				left = search->ranges[j].low - range->low;
		left = left / page * page;
		if (left > size)
			size = left;
		range->size = (size + page - 1) / page * page;
	}
}

enum neap_status neap_start_ranges_find(const struct neap_trace *trace, size_t device,
					const struct neap_torch_settings *settings, uint64_t device_bytes,
					struct neap_start_ranges *ret_ranges, struct neap_error *err)
{
	struct search search = {.trace = trace, .device = device, .settings = settings, .device_bytes = device_bytes};
	find_reach(&search);
	find_ranges(&search);
	if (search.starved) {
		free(search.ranges);
		return neap_fail(err, NEAP_ENOMEM, "the start of a recording: this machine is out of memory");
	}
	size_ranges(&search);
	*ret_ranges = (struct neap_start_ranges){search.ranges, search.range_count, search.odd};
	return NEAP_OK;
}
