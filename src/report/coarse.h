/* report/coarse.h: requested and reserved memory over a trace's events, as a drawing that needs no script. Pure. */
#ifndef NEAP_REPORT_COARSE_H
#define NEAP_REPORT_COARSE_H

#include "analyze/analysis.h"
#include "base/buffer.h"

/* Appends the highest levels of each stretch of the analysis's events, as an SVG; nothing if there are no events.
 * `top`: the bytes at the drawing's upper edge; 0: its own highest level. Errors: NEAP_ENOMEM. */
enum neap_status neap_coarse_put(struct neap_buffer *out, const struct neap_analysis *analysis, uint64_t top,
				 struct neap_error *err);
/* The highest level of the drawing. */
uint64_t neap_coarse_top(const struct neap_analysis *analysis);

#endif
