/* report/analysis_steps.c: how a trace's memory changes over its steps: leak and swing. */
#include "report/analysis.h"

#include "base/units.h"
#include "report/cells.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE(bytes)  neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define DELTA(bytes) neap_size_format_delta((int64_t)(bytes), (char[NEAP_UNITS_CAPACITY]){0})

static void put_growing(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_trends *trends = &analysis->trends;
	char text[320], first[96];

	if (trends->growing_count == 0)
		neap_buffer_text(out, "    no one line grows steadily: it is spread over many, or they change\n");
	for (size_t i = 0; i < trends->growing_count; i++) {
		const struct neap_growing *growing = &trends->growing[i];
		neap_holder_text(analysis->trace, &growing->holder, text, sizeof text);
		snprintf(first, sizeof first,
			 "    %11s per step, %s at the end: ", DELTA(growing->leak.bytes_per_step),
			 SIZE(growing->holder.bytes));
		neap_report_wrap(out, first, text);
	}
}

static void put_leak(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_leak *leak = &analysis->trends.leak;

	if (leak->verdict == NEAP_LEAK_TOO_SHORT) {
		neap_buffer_format(out, "  leak: too few steps to tell: %zu after warm-up, 20 are needed\n",
				   leak->steps);
	} else if (leak->verdict == NEAP_LEAK_CLEAN) {
		neap_buffer_format(out, "  leak: none: %s per step over %zu steps, confidence of a trend %.4f\n",
				   DELTA(leak->bytes_per_step), leak->steps, leak->confidence);
	} else {
		neap_buffer_format(out, "  leak: %s per step (%s to %s) over %zu steps, confidence %.4f\n",
				   DELTA(leak->bytes_per_step), DELTA(leak->low_bytes_per_step),
				   DELTA(leak->high_bytes_per_step), leak->steps, leak->confidence);
		put_growing(out, analysis);
	}
}

static void put_holders_at(struct neap_buffer *out, const struct neap_analysis *analysis, const char *name,
			   uint64_t event)
{
	struct neap_holder *holders = NULL;
	size_t count = 0;
	char text[320], first[64];

	if (neap_holders_at(&analysis->lives, &analysis->sites, event, &holders, &count, NULL) != NEAP_OK) {
		out->failed = true;
		return;
	}
	for (size_t i = 0; i < count && i < 3; i++) {
		neap_holder_text(analysis->trace, &holders[i], text, sizeof text);
		snprintf(first, sizeof first, "  %-7s %10s  ", i == 0 ? name : "", SIZE(holders[i].bytes));
		neap_report_wrap(out, first, text);
	}
	free(holders);
}

void neap_report_trends(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	static const char *const causes[] = {
		[NEAP_SWING_UNKNOWN] = "",
		[NEAP_SWING_NONE] = "none: a step moves less than a twentieth of the peak",
		[NEAP_SWING_STEP] = "once per step: forward and backward",
		[NEAP_SWING_ACCUMULATION] = "several times per step, as with accumulation: once per micro-batch",
		[NEAP_SWING_EVALUATION] = "the steps with evaluation differ from the others",
		[NEAP_SWING_CLEANUP] = "memory climbs over the steps and falls back, at a fixed period: a cleanup "
				       "every so many steps",
		[NEAP_SWING_PERIODIC] = "some steps differ, at a fixed period: something is done every so many steps",
		[NEAP_SWING_VARIABLE] = "steps differ without a period: changing shapes, or warm-up"};
	const struct neap_trends *trends = &analysis->trends;

	if (trends->steps == 0)
		return;
	neap_buffer_text(out, "\nOver the steps\n");
	put_leak(out, analysis);
	neap_buffer_format(out, "  swing: %s, %.1f time%s a step; steps' peaks differ by %.1f %%",
			   SIZE(trends->amplitude_bytes), trends->teeth_per_step,
			   fabs(trends->teeth_per_step - 1) < 0.05 ? "" : "s", 100 * trends->spread);
	if (trends->period)
		neap_buffer_format(out, " and repeat every %zu steps", trends->period);
	neap_report_wrap(out, "\n  cause: ", causes[trends->swing]);
	if (trends->course.micro_batches > 1)
		neap_buffer_format(out, "  rhythm: %zu micro-batches a step, which ask for the same sizes again\n",
				   trends->course.micro_batches);
	if (trends->emptied)
		neap_buffer_format(out, "  the cache was emptied %s%" PRIu64 " time%s",
				   analysis->trace->partial ? "at least " : "", trends->emptied,
				   trends->emptied == 1 ? "" : "s");
	if (trends->emptied_period)
		neap_buffer_format(out, ", every %zu step%s", trends->emptied_period,
				   trends->emptied_period == 1 ? "" : "s");
	if (trends->emptied)
		neap_buffer_text(out, "\n");
	put_holders_at(out, analysis, "peak", trends->peak_event);
	put_holders_at(out, analysis, "trough", trends->trough_event);
}
