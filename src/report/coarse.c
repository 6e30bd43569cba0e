/* report/coarse.c: draws the levels of COARSE stretches as a curve of steps. */
#include "report/coarse.h"

#include "base/error.h"
#include "base/units.h"

#include <stdlib.h>

#define COARSE 480 /* points */

struct coarse {
	uint64_t requested[COARSE], reserved[COARSE];
	size_t points;
};

uint64_t neap_coarse_top(const struct neap_analysis *analysis)
{
	const struct neap_profile *profile = &analysis->profile;
	uint64_t reserved = analysis->timeline.reserved_known ? profile->reserved_peak.reserved : 0;

	return reserved > profile->requested_peak.requested ? reserved : profile->requested_peak.requested;
}

static void take(const struct neap_analysis *analysis, struct coarse *ret_coarse)
{
	const struct neap_profile *profile = &analysis->profile;
	struct neap_timeline_cursor cursor = neap_timeline_begin(&analysis->timeline);
	uint64_t events = profile->to - profile->from;

	*ret_coarse = (struct coarse){.points = events < COARSE ? (size_t)events : COARSE};
	while (neap_timeline_next(&cursor) && cursor.now.event < profile->to) {
		if (cursor.now.event < profile->from)
			continue;
		size_t at = (size_t)((cursor.now.event - profile->from) * ret_coarse->points / events);
		if (cursor.now.requested > ret_coarse->requested[at])
			ret_coarse->requested[at] = cursor.now.requested;
		if (cursor.now.reserved > ret_coarse->reserved[at])
			ret_coarse->reserved[at] = cursor.now.reserved;
	}
}

static void put_steps(struct neap_buffer *out, const uint64_t *values, size_t count, uint64_t top)
{
	for (size_t i = 0; i < count; i++)
		neap_buffer_format(out, "V%.1fH%zu", 100 - 100 * (double)values[i] / (double)top, i + 1);
}

enum neap_status neap_coarse_put(struct neap_buffer *out, const struct neap_analysis *analysis, uint64_t top,
				 struct neap_error *err)
{
	struct coarse *coarse = malloc(sizeof *coarse);

	if (!coarse)
		return neap_fail(err, NEAP_ENOMEM, "no memory for a page's curve");
	take(analysis, coarse);
	top = top ? top : neap_coarse_top(analysis);
	if (coarse->points > 0 && top > 0) {
		neap_buffer_format(out,
				   "<svg class=\"coarse\" viewBox=\"0 -3 %zu 105\" preserveAspectRatio=\"none\" "
				   "role=\"img\" aria-label=\"requested and reserved memory over the events, at most "
				   "%s\"><path class=\"requested\" d=\"M0 100",
				   coarse->points, NEAP_SIZE(neap_coarse_top(analysis)));
		put_steps(out, coarse->requested, coarse->points, top);
		neap_buffer_text(out, "V100Z\"/>");
		if (analysis->timeline.reserved_known) {
			neap_buffer_format(out, "<path class=\"reserved\" d=\"M0 %.1f",
					   100 - 100 * (double)coarse->reserved[0] / (double)top);
			put_steps(out, coarse->reserved, coarse->points, top);
			neap_buffer_text(out, "\"/>");
		}
		neap_buffer_text(out, "</svg>");
	}
	free(coarse);
	return NEAP_OK;
}
