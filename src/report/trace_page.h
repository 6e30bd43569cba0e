/* report/trace_page.h: the page of a trace: one file, no reference to anything outside it, for a browser.
 *
 * It shows every allocation between the analysis's first and last event: live memory over time, addresses over time,
 * the segments at an instant; and the figures of neap_report_analysis. Some 3 to 4 bytes per event.
 *
 *   header ── a device: answer, figures, coarse curve (SVG), report, folded ── chart's frame ── scripts ── data ...
 *
 * The answer to the reader's question comes first, in a sentence or a table. The report below the chart is the
 * command's, as tables (markup_report.h).
 *
 * A browser paints all before the scripts without running them. Text from outside is either escaped
 * (neap_markup_text) or lies in base64; a content policy allows the page's own scripts and style by their hashes and
 * nothing else.
 */
#ifndef NEAP_REPORT_TRACE_PAGE_H
#define NEAP_REPORT_TRACE_PAGE_H

#include "analyze/analysis.h"

struct neap_trace_page_options {
	const char *path; /* of the trace, as it is shown */
	const char *verb; /* the verb that makes the page; NULL: "analyze" */
	size_t top;       /* how many lines a list of the text has at most */
	/* How `analysis` was made. The trace's other devices are analyzed in the same way and follow it, unless a
	 * device or a stretch of events was chosen. Its progress function is called while the page is written,
	 * too. */
	const struct neap_analysis_options *analysis;
	/* Markup in which all text from outside is escaped: the answer, in place of the analysis's; and a part that
	 * stands before the report. NULL: none. */
	const char *answer, *below;
};

/* Writes the page to `fd` while it is made. Takes a few times the memory of the device's sizes and addresses, and
 * that of the analysis of one more device. Errors: those of writing; NEAP_ENOMEM; NEAP_ECANCELED. */
enum neap_status neap_trace_page_write(int fd, const struct neap_analysis *analysis,
				       const struct neap_trace_page_options *options, uint64_t *ret_bytes,
				       struct neap_error *err);

#endif
