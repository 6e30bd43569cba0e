/* bench/replay_exact.c: does the replay of neap's own allocator do what the allocator did? bench/replay_exact.py runs
 * it.
 *
 *     replay_exact RECORDING
 *
 * Repeats every request of the recording on an allocator with a counted device, as `neap replay --policy neap` does,
 * with the memory that the process could have according to the recording. Addresses are compared less the base of
 * their range, which the driver chooses. Prints, on one line, allocations and those with the same block, segment
 * events and those that are the same, failures and those that failed again, and both peaks of reserved memory: "280
 * 280 69 69 0 0 27262976 27262976". */
#include "base/error.h"
#include "base/map.h"
#include "neap/alloc.h"
#include "replay/paper.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct segment_event {
	uint8_t kind; /* enum neap_trace_kind */
	uint64_t address, size;
};

struct list {
	struct segment_event *items;
	size_t count, capacity;
};

static void add(struct list *list, uint8_t kind, uint64_t address, uint64_t size)
{
	if (list->count == list->capacity) {
		list->capacity = list->capacity ? 2 * list->capacity : 1024;
		list->items = realloc(list->items, list->capacity * sizeof *list->items);
		if (!list->items)
			abort();
	}
	list->items[list->count++] = (struct segment_event){kind, address, size};
}

static void observe(void *context, const struct neap_event *event)
{
	static const uint8_t kinds[] = {[NEAP_EVENT_SEGMENT_ALLOC] = NEAP_TRACE_SEGMENT_ALLOC,
					[NEAP_EVENT_SEGMENT_FREE] = NEAP_TRACE_SEGMENT_FREE,
					[NEAP_EVENT_SEGMENT_MAP] = NEAP_TRACE_SEGMENT_MAP,
					[NEAP_EVENT_SEGMENT_UNMAP] = NEAP_TRACE_SEGMENT_UNMAP};
	const struct neap_event_segment *segment = neap_event_as_segment(event);
	if (segment)
		add(context, kinds[event->kind], segment->address, segment->bytes);
}

static uint16_t name(void *context, const char *text)
{
	(void)context;
	(void)text;
	return 0;
}

static bool is_segment(uint8_t kind) { return kind >= NEAP_TRACE_SEGMENT_ALLOC && kind <= NEAP_TRACE_SEGMENT_UNMAP; }

static bool grows(const struct segment_event *event)
{
	return event->kind == NEAP_TRACE_SEGMENT_ALLOC || event->kind == NEAP_TRACE_SEGMENT_MAP;
}

/* A range of addresses that the driver gave: the driver chooses its beginning, and only this may differ. */
struct range {
	uint64_t first, end; /* ours: what was mapped in it */
	uint64_t shift;      /* theirs less ours */
};

struct ranges {
	struct range items[64];
	size_t count;
};

/* Learns the ranges: growths with the same shift from the recorded ones lie in the same range. False: too many. */
static bool learn_ranges(const struct list *theirs, const struct list *ours, struct ranges *ranges)
{
	size_t t = 0, o = 0;
	for (; t < theirs->count && o < ours->count; t++, o++) {
		while (t < theirs->count && !grows(&theirs->items[t]))
			t++;
		while (o < ours->count && !grows(&ours->items[o]))
			o++;
		if (t == theirs->count || o == ours->count)
			break;
		const struct segment_event *event = &ours->items[o];
		uint64_t shift = theirs->items[t].address - event->address;
		size_t i = 0;
		while (i < ranges->count && ranges->items[i].shift != shift)
			i++;
		if (i == sizeof ranges->items / sizeof ranges->items[0])
			return false;
		struct range *range = &ranges->items[i];
		if (i == ranges->count) {
			*range = (struct range){event->address, event->address + event->size, shift};
			ranges->count++;
		}
		range->first = event->address < range->first ? event->address : range->first;
		range->end = event->address + event->size > range->end ? event->address + event->size : range->end;
	}
	return true;
}

static uint64_t translate(const struct ranges *ranges, uint64_t address)
{
	for (size_t i = 0; i < ranges->count; i++)
		if (address >= ranges->items[i].first && address < ranges->items[i].end)
			return address + ranges->items[i].shift;
	return 0;
}

static int by_address(const void *left, const void *right)
{
	const struct segment_event *a = left, *b = right;
	return (a->address > b->address) - (a->address < b->address);
}

/* Sorts segments that are given back together: they are freed by address, and so in the driver's order. */
static void sort_releases(struct list *list)
{
	for (size_t first = 0, end; first < list->count; first = end + 1) {
		for (end = first; end < list->count && !grows(&list->items[end]);)
			end++;
		if (end > first)
			qsort(list->items + first, end - first, sizeof *list->items, by_address);
	}
}

static uint64_t count_same(struct list *theirs, struct list *ours, const struct ranges *ranges)
{
	uint64_t same = 0;
	for (size_t i = 0; i < ours->count; i++)
		ours->items[i].address = translate(ranges, ours->items[i].address);
	sort_releases(theirs);
	sort_releases(ours);
	for (size_t i = 0; i < theirs->count && i < ours->count; i++)
		same += theirs->items[i].kind == ours->items[i].kind &&
			theirs->items[i].size == ours->items[i].size &&
			theirs->items[i].address == ours->items[i].address;
	return same;
}

static uint64_t peak_of(const struct list *list)
{
	uint64_t now = 0, peak = 0;
	for (size_t i = 0; i < list->count; i++) {
		now = grows(&list->items[i]) ? now + list->items[i].size : now - list->items[i].size;
		peak = now > peak ? now : peak;
	}
	return peak;
}

struct counts {
	uint64_t allocs, same_allocs, failures, same_failures;
};

static void again(const struct neap_trace *trace, struct neap_alloc *alloc, struct neap_paper *paper,
		  const struct ranges *ranges, struct list *theirs, struct counts *counts)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, 0, 0);
	struct neap_trace_event event;
	struct neap_map live = {0};

	while (neap_trace_next(&cursor, &event)) {
		void *stream = (void *)(uintptr_t)(trace->streams[event.stream].handle * 16);
		uint64_t address = 0, freed = 0;
		paper->now++;
		if (is_segment(event.kind)) {
			add(theirs, event.kind, event.address, event.size);
		} else if (event.kind == NEAP_TRACE_ALLOC) {
			counts->allocs++;
			if (neap_malloc(alloc, event.size, stream, &address, NULL) == NEAP_OK) {
				counts->same_allocs += translate(ranges, address) == event.address;
				neap_map_put(&live, event.address, address);
			}
		} else if (event.kind == NEAP_TRACE_OOM) {
			counts->failures++;
			counts->same_failures += neap_malloc(alloc, event.size, stream, &address, NULL) == NEAP_EOOM;
		} else if (event.kind == NEAP_TRACE_FREE_REQUESTED &&
			   neap_map_remove(&live, event.address, &address)) {
			neap_free(alloc, address);
		} else if (event.kind == NEAP_TRACE_RECORD_STREAM && neap_map_get(&live, event.address, &address)) {
			neap_record_stream(alloc, address, stream);
		} else if (event.kind == NEAP_TRACE_EMPTY_CACHE) {
			neap_empty_cache(alloc, &freed, NULL);
		}
	}
	neap_map_fini(&live);
}

/* Passes the requests of the recording through a new allocator. */
static enum neap_status replay(const struct neap_trace *trace, uint64_t memory_bytes, const struct ranges *ranges,
			       struct list *theirs, struct list *ours, struct counts *ret_counts,
			       struct neap_error *err)
{
	/* Like the recorder: the allocator serves requests in another way if two threads must not call an observer at
	 * once. */
	struct neap_observer observer = {.event = observe, .name = name, .context = ours, .concurrent = true};
	struct neap_alloc_options options = {.observer = &observer};
	struct neap_alloc *alloc = NULL;
	struct neap_paper paper = {0};

	theirs->count = ours->count = 0;
	*ret_counts = (struct counts){0};
	enum neap_status status = neap_paper_open(&paper, memory_bytes, 2ull << 20, err);
	if (!status)
		status = neap_alloc_create(paper.device, &options, &alloc, err);
	if (!status) {
		again(trace, alloc, &paper, ranges, theirs, ret_counts);
		neap_observe(alloc, NULL);
	}
	neap_alloc_destroy(alloc);
	neap_paper_close(&paper);
	return status;
}

/* How much memory the process could have, by its session; 0: the session did not say. */
static uint64_t headroom_of(const char *path)
{
	struct neap_record record;
	uint64_t headroom = 0;

	if (neap_record_read(path, &record, NULL) != NEAP_OK)
		return 0;
	for (size_t i = 0; i < record.journal_count && !headroom; i++)
		if (record.journal[i].kind == NEAP_EVENT_ROOM)
			headroom = record.journal[i].room.room_bytes;
	neap_record_fini(&record);
	return headroom;
}

int main(int argc, char **argv)
{
	uint64_t memory_bytes = 0;
	struct list theirs = {0}, ours = {0};
	struct neap_trace *trace = NULL;
	struct neap_error err = {0};
	struct ranges ranges = {0};
	struct counts counts;

	if (argc != 2) {
		fputs("Usage: replay_exact RECORDING\n", stderr);
		return 64;
	}
	enum neap_status status = neap_trace_read(argv[1], &trace, &err);
	memory_bytes = headroom_of(argv[1]);
	if (!status && !memory_bytes)
		status = neap_fail(&err, NEAP_EINVAL, "the recording does not say what memory there was");
	if (!status && trace->devices[0].lost)
		status = neap_fail(&err, NEAP_EINVAL, "the recording has lost its first events");
	/* Replays twice: the first time tells which ranges there are. */
	if (!status)
		status = replay(trace, memory_bytes, &ranges, &theirs, &ours, &counts, &err);
	if (!status && !learn_ranges(&theirs, &ours, &ranges))
		status = neap_fail(&err, NEAP_EINVAL, "the segments have nothing in common");
	if (!status)
		status = replay(trace, memory_bytes, &ranges, &theirs, &ours, &counts, &err);
	if (!status) {
		uint64_t same = count_same(&theirs, &ours, &ranges);
		printf("%" PRIu64 " %" PRIu64 " %zu %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       counts.allocs, counts.same_allocs, theirs.count > ours.count ? theirs.count : ours.count, same,
		       counts.failures, counts.same_failures, peak_of(&theirs), peak_of(&ours));
	} else {
		fprintf(stderr, "replay_exact: %s\n", err.message);
	}
	free(theirs.items);
	free(ours.items);
	neap_trace_free(trace);
	return status == NEAP_OK ? 0 : 65;
}
