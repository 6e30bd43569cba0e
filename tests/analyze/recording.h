/* A recording made by hand, event by event, for the tests of analyze. */
#ifndef NEAP_TESTS_ANALYZE_RECORDING_H
#define NEAP_TESTS_ANALYZE_RECORDING_H

#include "base/units.h"
#include "trace/record.h"

#include <stdlib.h>
#include <string.h>

#define RECORDING_EVENTS 20000

struct recording {
	struct neap_record record;
	uint64_t now_ns;
};

static inline struct recording recording_begin(void)
{
	struct recording recording = {.now_ns = 1000, .record = {.pid = 1, .names_used = 1}};

	recording.record.journal = calloc(RECORDING_EVENTS, sizeof *recording.record.journal);
	recording.record.allocations = calloc(RECORDING_EVENTS, sizeof *recording.record.allocations);
	return recording;
}

static inline void recording_end(struct recording *recording) { neap_record_fini(&recording->record); }

static inline uint16_t recording_name(struct recording *recording, const char *name)
{
	struct neap_record *record = &recording->record;

	for (uint32_t i = 0; i < record->names_used; i++)
		if (!strcmp(record->names[i], name))
			return (uint16_t)i;
	strncpy(record->names[record->names_used], name, NEAP_RECORD_NAME_ROOM - 1);
	return (uint16_t)record->names_used++;
}

static inline void recording_add(struct recording *recording, struct neap_event event)
{
	struct neap_record *record = &recording->record;

	recording->now_ns += 1000;
	event.time_ns = recording->now_ns;
	if (event.kind < NEAP_EVENT_FIRST_JOURNAL)
		record->allocations[record->allocation_count++] = event;
	else
		record->journal[record->journal_count++] = event;
}

static inline void recording_step(struct recording *recording, uint64_t step, uint64_t low, uint64_t peak,
				  uint32_t ticks)
{
	recording_add(recording, (struct neap_event){.kind = NEAP_EVENT_STEP,
						     .step = {.held = {low, peak},
							      .number = step,
							      .lowest_bytes = low,
							      .peak_bytes = peak,
							      .micro_batches = ticks}});
}

/* Makes the last event one of another device. */
static inline void recording_on(struct recording *recording, uint16_t device)
{
	struct neap_record *record = &recording->record;

	if (record->journal_count && record->journal[record->journal_count - 1].time_ns == recording->now_ns)
		record->journal[record->journal_count - 1].device = device;
	else if (record->allocation_count)
		record->allocations[record->allocation_count - 1].device = device;
}

static inline void recording_level(struct recording *recording, uint64_t allocated, uint64_t reserved)
{
	recording_add(recording,
		      (struct neap_event){.kind = NEAP_EVENT_ALLOC, .allocation = {.held = {allocated, reserved}}});
}

static inline void recording_split(struct recording *recording, uint64_t micro_batch, uint64_t accumulate)
{
	recording_add(recording, (struct neap_event){
					 .kind = NEAP_EVENT_SPLIT,
					 .split = {.settings = {.micro_batch = micro_batch, .accumulate = accumulate},
						   .ranks = 1}});
}

/* An OOM event with figures in MiB, as the allocator records one. `limit` 0: no limit. */
struct recorded_oom {
	const char *tag;
	uint64_t request, free, allocated, reserved, limit, total, largest, others, pending;
	uint32_t context;
	struct {
		const char *tag;
		uint64_t live;
	} tags[8];
};

static inline void recording_oom(struct recording *recording, const struct recorded_oom *oom)
{
	recording_add(recording,
		      (struct neap_event){.kind = NEAP_EVENT_OOM,
					  .oom = {.held = {oom->allocated * NEAP_MIB, oom->reserved * NEAP_MIB},
						  .tag = recording_name(recording, oom->tag ? oom->tag : ""),
						  .requested_bytes = oom->request * NEAP_MIB - 100,
						  .bytes = oom->request * NEAP_MIB,
						  .device_free_bytes = oom->free * NEAP_MIB}});
	recording_add(recording, (struct neap_event){.kind = NEAP_EVENT_OOM_LIMITS,
						     .oom_limits = {.limit_bytes = oom->limit ? oom->limit * NEAP_MIB
											      : UINT64_MAX,
								    .device_total_bytes = oom->total * NEAP_MIB,
								    .largest_free_bytes = oom->largest * NEAP_MIB,
								    .others_bytes = oom->others * NEAP_MIB,
								    .pending_bytes = oom->pending * NEAP_MIB,
								    .context_bytes = oom->context * NEAP_MIB}});
	for (size_t i = 0; i < 8 && oom->tags[i].tag; i++)
		recording_add(recording,
			      (struct neap_event){.kind = NEAP_EVENT_TAG_BYTES,
						  .tag_bytes = {.tag = recording_name(recording, oom->tags[i].tag),
								.live_bytes = oom->tags[i].live * NEAP_MIB,
								.peak_bytes = oom->tags[i].live * NEAP_MIB,
								.live_blocks = 3}});
}

#endif
