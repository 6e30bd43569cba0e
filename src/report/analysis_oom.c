/* report/analysis_oom.c: where memory lies free, what would have avoided it, and why a request failed. */
#include "report/analysis.h"

#include "base/units.h"
#include "report/cells.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_ROOM]){0})

static const char *plural(uint64_t count) { return count == 1 ? "" : "s"; }
static double percent(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void put_segment(struct neap_buffer *out, const struct neap_analysis *analysis,
			const struct neap_pinned_segment *segment)
{
	char text[320], clean[320], first[64], pins[900] = "";

	for (size_t i = 0; i < segment->pin_count; i++) {
		size_t length = strlen(pins);
		neap_holder_text(analysis->trace, &segment->pins[i], text, sizeof(text));
		neap_report_clean(clean, sizeof(clean), text);
		snprintf(pins + length, sizeof(pins) - length, "%s%s (%s)", i > 0 ? "; " : "", clean,
			 SIZE(segment->pins[i].bytes));
	}
	neap_buffer_format(out, "    %10s of %s, largest piece %s, by %" PRIu64 " live block%s of %s\n",
			   SIZE(segment->pinned), SIZE(segment->size), SIZE(segment->largest_free),
			   segment->live_blocks, plural(segment->live_blocks), SIZE(segment->live_bytes));
	snprintf(first, sizeof(first), "      0x%" PRIx64 ": ", segment->address);
	neap_report_wrap(out, first, pins);
}

void neap_report_fragments(struct neap_buffer *out, const struct neap_analysis *analysis, size_t top)
{
	const struct neap_fragments *found = &analysis->fragments;

	if (!found->known)
		return;
	neap_buffer_format(out, "\nAt the end: %s reserved in %zu segment%s\n", SIZE(found->reserved),
			   found->segments, plural(found->segments));
	neap_buffer_format(out, "  %10s %5.1f %%  live\n", SIZE(found->live), percent(found->live, found->reserved));
	neap_buffer_format(out, "  %10s %5.1f %%  free, and emptying the cache returns it\n", SIZE(found->releasable),
			   percent(found->releasable, found->reserved));
	neap_buffer_format(
		out,
		"  %10s %5.1f %%  free, but pinned by live blocks in %zu segment%s; the largest free block "
		"has %s\n",
		SIZE(found->pinned), percent(found->pinned, found->reserved), found->pinned_segments,
		plural(found->pinned_segments), SIZE(found->largest_free));
	if (found->pinned * 50 < found->reserved)
		return;
	neap_buffer_text(out, "  Most pinned\n");
	for (size_t i = 0; i < found->worst_count && i < 3 && i < top; i++)
		put_segment(out, analysis, &found->worst[i]);
}

static void put_whatif(struct neap_buffer *out, const struct neap_whatifs *whatifs, const struct neap_whatif *item)
{
	uint64_t own = whatifs->items[0].reserved_peak;
	char change[64] = "";

	if (!item->own && own)
		snprintf(change, sizeof(change), " (%+.1f %%)",
			 100.0 * ((double)item->reserved_peak - (double)own) / (double)own);
	neap_buffer_format(out, "  %-28s", item->name);
	if (item->active) {
		neap_buffer_text(out, " struck out: it was so already\n");
		return;
	}
	if (whatifs->memory_bytes && item->fits)
		neap_buffer_format(out, " fits, reserved peak %s%s", SIZE(item->reserved_peak), change);
	else if (whatifs->memory_bytes)
		neap_buffer_format(out, " fails at event %" PRIu64 " with %s reserved", item->first_oom_event,
				   SIZE(item->reserved_peak));
	else
		neap_buffer_format(out, " reserved peak %s%s", SIZE(item->reserved_peak), change);
	neap_buffer_format(out, ", %" PRIu64 " driver calls\n", item->driver_calls);
}

void neap_report_whatifs(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_whatifs *whatifs = &analysis->whatifs;
	if (whatifs->count == 0) {
		neap_buffer_text(out,
				 "\nOther settings: nothing to gain, 98 % or more of what was reserved was asked "
				 "for at the peak\n");
		return;
	}
	neap_buffer_text(out, "\nOther settings, by replaying this trace with them on a device without bound\n");
	for (size_t i = 0; i < whatifs->count; i++)
		put_whatif(out, whatifs, &whatifs->items[i]);
}

static void put_cause(struct neap_buffer *out, const struct neap_trace_oom *oom)
{
	char text[512];
	switch (oom->cause) {
	case NEAP_TRACE_OOM_CAPACITY:
		snprintf(text, sizeof(text),
			 "capacity: %s was in use and %s was asked for, %s more than the %s that this process could "
			 "have. No "
			 "setting of an allocator helps",
			 SIZE(oom->levels.requested), SIZE(oom->asked_bytes), SIZE(oom->missing_bytes),
			 SIZE(oom->memory_bytes));
		break;
	case NEAP_TRACE_OOM_LIMIT:
		snprintf(text, sizeof(text),
			 "a limit: the device had %s free, enough for the request; a fraction set on the process, or "
			 "something like it, allowed %s at least and less than about %s. Replayed below with the "
			 "least: the "
			 "message of the error names the limit, give it with --memory",
			 SIZE(oom->device_free_bytes), SIZE(oom->levels.reserved),
			 SIZE(oom->levels.reserved + oom->asked_bytes + (20ull << 20)));
		break;
	default:
		snprintf(text, sizeof(text),
			 "fragmentation: %s in use and %s asked for fit into the %s that this process could have; "
			 "what was free "
			 "was not in one piece",
			 SIZE(oom->levels.requested), SIZE(oom->asked_bytes), SIZE(oom->memory_bytes));
	}
	neap_report_wrap(out, "  cause: ", text);
}

static void put_predictions(struct neap_buffer *out, const struct neap_trace_oom *oom)
{
	char text[512];
	uint64_t live = oom->levels.requested;

	if (!oom->half_batch_known && oom->saving_count == 0) {
		neap_report_wrap(out, "  changes of training: ",
				 "no prediction: the trace does not tell what most of the memory was for");
		return;
	}
	neap_buffer_text(out, "  Changes of training, predicted from what memory was for, each alone\n");
	if (oom->half_batch_known && live > oom->half_batch.bytes)
		neap_buffer_format(out, "    micro-batch x 1/2, accumulation x 2: %s ± %s less\n",
				   SIZE(live - oom->half_batch.bytes), SIZE(oom->half_batch.uncertainty_bytes));
	neap_savings_text(oom->savings, oom->saving_count, live, text, sizeof(text));
	if (text[0])
		neap_report_wrap(out, "    ", text);
}

void neap_report_trace_oom(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_trace_oom *oom = &analysis->oom;
	char text[256], clean[256];

	neap_buffer_format(out, "\nOut of memory at event %" PRIu64, oom->event);
	if (oom->count > 1)
		neap_buffer_format(out, " (the last of %" PRIu64 ")", oom->count);
	neap_buffer_format(out, ": %s asked for\n", SIZE(oom->asked_bytes));
	if (analysis->sites.frames[oom->stack]) {
		neap_site_text(analysis->trace, analysis->sites.frames[oom->stack], text, sizeof(text));
		neap_report_clean(clean, sizeof(clean), text);
		neap_report_wrap(out, "  by: ", clean);
	}
	neap_buffer_format(out, "  requested %s, reserved %s, free on the device %s", SIZE(oom->levels.requested),
			   SIZE(oom->levels.reserved), SIZE(oom->device_free_bytes));
	if (oom->at_end && analysis->fragments.known)
		neap_buffer_format(out, ", largest free block %s", SIZE(analysis->fragments.largest_free));
	neap_buffer_text(out, "\n");
	put_cause(out, oom);
	neap_buffer_format(out, "  This trace, replayed on a device of %s\n", SIZE(oom->whatifs.memory_bytes));
	for (size_t i = 0; i < oom->whatifs.count; i++) {
		neap_buffer_text(out, "  ");
		put_whatif(out, &oom->whatifs, &oom->whatifs.items[i]);
	}
	if (oom->smallest_bytes)
		neap_buffer_format(out, "  smallest device on which it ends as it was: %s (predicted by replay)\n",
				   SIZE(oom->smallest_bytes));
	put_predictions(out, oom);
}
