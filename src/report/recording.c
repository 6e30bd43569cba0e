/* report/recording.c: writes a recording in figures: steps, leak, the card of the last failure; without a failure,
 * the holders of memory at its end and, if the process still runs, how near it is to its limit. */
#include "report/recording.h"

#include "analyze/holders.h"
#include "analyze/oom.h"
#include "analyze/run.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/units.h"
#include "report/cells.h"
#include "report/report.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDERS_SHOWN 10

/* A recording, and the findings in it. */
struct found {
	struct neap_trace *trace;
	struct neap_run_facts facts;
	bool has_card;
	struct neap_oom_card card; /* of the failure that was asked for */
	size_t ooms;
};

/* The bytes that a session's process may reserve in all, by its last report; 0: unknown. */
static uint64_t headroom_of(const struct neap_record *record)
{
	for (size_t i = record->journal_count; i > 0; i--)
		if (record->journal[i - 1].kind == NEAP_EVENT_ROOM)
			return record->journal[i - 1].room.room_bytes;
	return 0;
}

static enum neap_status read_recording(const struct neap_report_recording *from, bool card_wanted,
				       struct found *found, struct neap_error *err)
{
	const struct neap_trace_oom_options options = {0};
	enum neap_status status = neap_trace_read(from->path, &found->trace, err);

	if (!status && !found->trace->record)
		status = neap_fail(err, NEAP_EPARSE,
				   "%s is not a recording of neap's: 'neap analyze' reads other traces", from->path);
	if (status)
		return status;
	found->ooms = neap_oom_count(found->trace->record);
	if (from->number > found->ooms)
		return neap_fail(err, NEAP_EINVAL, "--number %" PRIu64 ": memory ran out %zu time%s in %s",
				 from->number, found->ooms, found->ooms == 1 ? "" : "s", from->path);
	if (found->ooms > 0 && card_wanted)
		status = neap_trace_oom_recorded(found->trace, (from->number ? from->number : found->ooms) - 1,
						 &options, &found->card, err);
	found->has_card = found->ooms > 0 && card_wanted && !status;
	uint64_t total = found->has_card ? found->card.device_total_bytes : headroom_of(found->trace->record);
	neap_run_facts(found->trace->record, total, &found->facts);
	return status;
}

static void put_leak(struct neap_buffer *out, const struct neap_run_facts *facts)
{
	const struct neap_leak *leak = &facts->leak;
	char slope[NEAP_UNITS_CAPACITY];
	if (leak->verdict == NEAP_LEAK_TOO_SHORT) {
		neap_buffer_format(out, "    %zu step%s after warm-up: too few to tell a trend\n", leak->steps,
				   leak->steps == 1 ? "" : "s");
		return;
	}
	neap_buffer_format(out, "    %s: %s per step over %zu steps, confidence of a leak %.4f\n",
			   leak->verdict == NEAP_LEAK_FOUND ? "leak" : "no leak",
			   neap_size_format_delta((int64_t)leak->bytes_per_step, slope), leak->steps,
			   leak->confidence);
	if (leak->verdict == NEAP_LEAK_FOUND && leak->steps_until_full != UINT64_MAX)
		neap_buffer_format(out,
				   "    at this slope memory ends %" PRIu64 " steps after the last one (predicted)\n",
				   leak->steps_until_full);
}

/* Writes the figures that the process reports now. `room_bytes`: of its only device; 0: not known. */
static void put_live(struct neap_buffer *out, const struct neap_attached *page, uint64_t room_bytes)
{
	char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], limit[NEAP_UNITS_CAPACITY],
		left[NEAP_UNITS_CAPACITY];

	for (size_t i = 0; i < page->device_count; i++) {
		const struct neap_published *now = &page->devices[i];
		const struct neap_stat *metric[] = {now->stats.metric[NEAP_METRIC_ALLOCATED_BYTES],
						    now->stats.metric[NEAP_METRIC_RESERVED_BYTES]};
		uint64_t held = (uint64_t)metric[1][NEAP_CLASS_ALL].current;
		neap_buffer_format(out, "    now: %s allocated, %s reserved",
				   neap_size_format((uint64_t)metric[0][NEAP_CLASS_ALL].current, allocated),
				   neap_size_format(held, reserved));
		if (now->limit_bytes != UINT64_MAX && now->limit_bytes > 0)
			neap_buffer_format(
				out, ", limit %s (%s left)", neap_size_format(now->limit_bytes, limit),
				neap_size_format(now->limit_bytes > held ? now->limit_bytes - held : 0, left));
		else if (room_bytes > 0 && page->device_count == 1)
			neap_buffer_format(out, " of the %s that it could have when its session began",
					   neap_size_format(room_bytes, limit));
		neap_buffer_text(out, "\n");
	}
}

/* Writes the holders of memory at the end of the recording, device by device. */
static enum neap_status put_holders(struct neap_buffer *out, const struct neap_trace *trace, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	for (size_t device = 0; !status && device < trace->device_count; device++) {
		struct neap_lives lives = {0};
		struct neap_sites sites = {0};
		struct neap_holder *holders = NULL;
		size_t count = 0;
		if (trace->devices[device].event_count == 0)
			continue;
		status = neap_lives_find(trace, device, &lives, err);
		if (!status)
			status = neap_sites_make(trace, &sites, err);
		if (!status)
			status = neap_holders_at(&lives, &sites, trace->devices[device].event_count - 1, &holders,
						 &count, err);
		if (!status && count > 0)
			neap_buffer_format(out,
					   "\n  Who holds the memory of CUDA device %zu, as far as it is recorded\n",
					   device);
		for (size_t i = 0; i < count && i < HOLDERS_SHOWN; i++) {
			char text[320], clean[320], size[NEAP_UNITS_CAPACITY];
			neap_holder_text(trace, &holders[i], text, sizeof text);
			neap_printable(clean, sizeof clean, text);
			neap_buffer_format(out, "    %10s  %8" PRIu64 " block%s  %s\n",
					   neap_size_format(holders[i].bytes, size), holders[i].blocks,
					   holders[i].blocks == 1 ? " " : "s", clean);
		}
		free(holders);
		neap_sites_fini(&sites);
		neap_lives_fini(&lives);
	}
	return status;
}

enum neap_status neap_report_recording_text(struct neap_buffer *out, const struct neap_report_recording *from,
					    bool leak_only, struct neap_error *err)
{
	struct found found = {0};
	enum neap_status status = read_recording(from, !leak_only, &found, err);
	char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY];

	if (!status) {
		const struct neap_run_facts *facts = &found.facts;
		neap_buffer_format(out, "\n  In %s\n", from->path);
		neap_buffer_format(out,
				   "    process %" PRIu64 ": %" PRIu64
				   " step%s, peak %s allocated, %s reserved, %zu OOM%s\n",
				   found.trace->record->pid, facts->steps, facts->steps == 1 ? "" : "s",
				   neap_size_format(facts->peak_allocated_bytes, allocated),
				   neap_size_format(facts->peak_reserved_bytes, reserved), found.ooms,
				   found.ooms == 1 ? "" : "s");
		if (from->live)
			put_live(out, &from->page, headroom_of(found.trace->record));
		put_leak(out, facts);
		if (found.has_card) {
			neap_buffer_text(out, "\n");
			neap_report_oom_card(out, &found.card);
		} else if (!leak_only) {
			status = put_holders(out, found.trace, err);
		}
	}
	neap_trace_free(found.trace);
	return status;
}

enum neap_status neap_report_recording_json(const struct neap_report_recording *from, json_t **ret_root,
					    struct neap_error *err)
{
	struct found found = {0};
	enum neap_status status = read_recording(from, true, &found, err);

	if (!status) {
		*ret_root =
			JSON(INTEGER("schema", 1), TEXT("file", from->path), NUMBER("pid", found.trace->record->pid),
			     BOOL("running", from->live), NUMBER("steps", found.facts.steps),
			     NUMBER("peak_allocated", found.facts.peak_allocated_bytes),
			     NUMBER("peak_reserved", found.facts.peak_reserved_bytes), NUMBER("ooms", found.ooms),
			     VALUE("oom", found.has_card ? neap_oom_card_json(&found.card) : json_null()));
	}
	neap_trace_free(found.trace);
	return status;
}
