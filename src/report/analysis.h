/* report/analysis.h: an analysis of a trace for a terminal, at most 100 columns, and as JSON. Pure functions. */
#ifndef NEAP_REPORT_ANALYSIS_H
#define NEAP_REPORT_ANALYSIS_H

#include "analyze/analysis.h"
#include "base/buffer.h"
#include "store/json.h"

/* `path` is shown as it is given; `top`: how many lines a list has at most. */
void neap_report_analysis(struct neap_buffer *out, const struct neap_analysis *analysis, const char *path,
			  size_t top);

/* The same in two parts: the part that replays under other settings cannot change, and what these replays found. */
void neap_report_analysis_first(struct neap_buffer *out, const struct neap_analysis *analysis, const char *path,
				size_t top);
void neap_report_analysis_rest(struct neap_buffer *out, const struct neap_analysis *analysis);

/* The parts of the analysis. analysis_oom.c: fragmentation, what other settings would have done, a failure;
 * analysis_steps.c: trends. fit: one line, without its end, that the trace fits in the memory asked about; nothing if
 * none was. fit_leak: a sentence, when a leak would fill that memory. */
void neap_report_fit(struct neap_buffer *out, const struct neap_analysis *analysis);
void neap_report_fit_leak(struct neap_buffer *out, const struct neap_analysis *analysis);
void neap_report_fragments(struct neap_buffer *out, const struct neap_analysis *analysis, size_t top);
void neap_report_whatifs(struct neap_buffer *out, const struct neap_analysis *analysis);
void neap_report_trends(struct neap_buffer *out, const struct neap_analysis *analysis);

/* The peaks without the memory that compiling took, if it took any; `when`: the updates in which it compiled, or
 * "". */
void neap_report_compiled(struct neap_buffer *out, const char *first, const struct neap_compiled *compiled,
			  const char *when);

/* analysis_json.c. Schema 1; lists have at most `top` items. The caller owns the result. Failed allocations are
 * counted (neap_json_failures). */
json_t *neap_analysis_json(const struct neap_analysis *analysis, const char *path, size_t top);

/* "PyTorch snapshot". Static. */
const char *neap_report_source_name(enum neap_trace_source source);

/* "NVIDIA A100", "NVIDIA A100 (simulated)", "a simulated GPU"; "": unknown. Returns `text`. */
#define NEAP_REPORT_ORIGIN 160
const char *neap_report_origin(const struct neap_trace *trace, char text[NEAP_REPORT_ORIGIN]);

#endif
