/* report/analysis_oom.c: where memory lies free, and what other settings would have reserved. */
#include "report/analysis.h"

#include "base/printable.h"
#include "base/units.h"
#include "report/cells.h"
#include "report/report.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *plural(uint64_t count) { return count == 1 ? "" : "s"; }
static double percent(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void put_segment(struct neap_buffer *out, const struct neap_analysis *analysis,
			const struct neap_pinned_segment *segment)
{
	char text[320], clean[320], first[64], pins[900] = "";

	for (size_t i = 0; i < segment->pin_count; i++) {
		size_t length = strlen(pins);
		neap_holder_text(analysis->trace, &segment->pins[i], text, sizeof text);
		neap_printable(clean, sizeof clean, text);
		snprintf(pins + length, sizeof pins - length, "%s%s (%s)", i > 0 ? "; " : "", clean,
			 NEAP_SIZE(segment->pins[i].bytes));
	}
	neap_buffer_format(out, "    %10s of %s, largest piece %s, by %" PRIu64 " live block%s of %s\n",
			   NEAP_SIZE(segment->pinned), NEAP_SIZE(segment->size), NEAP_SIZE(segment->largest_free),
			   segment->live_blocks, plural(segment->live_blocks), NEAP_SIZE(segment->live_bytes));
	snprintf(first, sizeof first, "      0x%" PRIx64 ": ", segment->address);
	neap_report_wrap(out, first, pins);
}

static void put_fragments(struct neap_buffer *out, const struct neap_analysis *analysis,
			  const struct neap_fragments *found, size_t top)
{
	neap_buffer_format(out, ": %s reserved in %zu segment%s\n", NEAP_SIZE(found->reserved), found->segments,
			   plural(found->segments));
	neap_buffer_format(out, "  %10s %5.1f %%  live\n", NEAP_SIZE(found->live),
			   percent(found->live, found->reserved));
	neap_buffer_format(out, "  %10s %5.1f %%  free, and emptying the cache returns it\n",
			   NEAP_SIZE(found->releasable), percent(found->releasable, found->reserved));
	neap_buffer_format(
		out,
		"  %10s %5.1f %%  free, but pinned by live blocks in %zu segment%s; the largest free block has %s\n",
		NEAP_SIZE(found->pinned), percent(found->pinned, found->reserved), found->pinned_segments,
		plural(found->pinned_segments), NEAP_SIZE(found->largest_free));
	if (found->pinned * 50 < found->reserved)
		return;
	neap_buffer_text(out, "  Most pinned\n");
	for (size_t i = 0; i < found->worst_count && i < 3 && i < top; i++)
		put_segment(out, analysis, &found->worst[i]);
}

void neap_report_fragments(struct neap_buffer *out, const struct neap_analysis *analysis, size_t top)
{
	const struct neap_fragments *peak = &analysis->fragments_at_peak, *end = &analysis->fragments;

	if (peak->known) {
		neap_buffer_format(out, "\nAt the peak of reserved memory, event %" PRIu64, peak->event);
		put_fragments(out, analysis, peak, top);
	}
	if (end->known) {
		neap_buffer_text(out, "\nAt the end");
		put_fragments(out, analysis, end, top);
	}
}

void neap_report_fit(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_analysis_fit *fit = &analysis->fit;

	if (fit->memory_bytes)
		neap_buffer_format(out, "Fits in %s: at most %s reserved, %s left (without the context)",
				   NEAP_SIZE(fit->memory_bytes), NEAP_SIZE(fit->reserved_peak),
				   NEAP_SIZE(fit->left_bytes));
}

void neap_report_fit_leak(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_leak *leak = &analysis->trends.leak;
	const struct neap_analysis_fit *fit = &analysis->fit;

	if (fit->memory_bytes && leak->verdict == NEAP_LEAK_FOUND)
		neap_buffer_format(out,
				   "It leaks %s a step: %s would be full about %" PRIu64
				   " step%s after the end of the trace.",
				   NEAP_SIZE(leak->bytes_per_step), NEAP_SIZE(fit->memory_bytes), fit->more_steps,
				   plural(fit->more_steps));
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
	for (size_t i = 0; i < whatifs->count; i++) {
		neap_buffer_text(out, "  ");
		neap_report_whatif(out, whatifs, &whatifs->items[i]);
	}
}
