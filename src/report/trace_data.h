/* report/trace_data.h: the data that the page of a trace draws, as packed numbers; trace_data.js reads exactly this.
 *
 * number: neap_packed_number; signed: neap_packed_signed; u64: 8 bytes; a list is its length and then each column
 * whole.
 *
 *   names    texts: number n, n numbers (bytes), the bytes; frames: n, files, names, lines; calls: n, frames,
 *            calls - parent; sites of calls: each the number of a site; sites: n, texts as above (neap_site_text)
 *   device   first event, end event
 *            sizes: n, u64 requested, u64 rounded;  addresses: n, u64 (of a text trace one, 0)
 *            lives: n, how many from before; begins - the one before (of those not from before);
 *                   ends: 0 not within the trace, else end - begin + 1 (from before: end + 1);
 *                   frees: 0 not freed, else end - freed + 1; sizes; addresses (signed, - the one before);
 *                   stacks; stacks of frees; streams; category * 4 + how
 *            pieces: n, begins + 1 (0: from before), ends as for lives, u64 addresses, u64 sizes, stacks, streams,
 *                   expandable
 *            reserved: 1 known, at the start, n, events - the one before, signed changes
 *            failures: n, events, asked, free on the device, stacks
 *            emptied: n, events;  steps: n, events
 *            marks: n, events, kinds, numbers, names (of texts)
 *            times: n (0: none), u64 the first's microseconds, times - the one before (backwards counts as 0)
 */
#ifndef NEAP_REPORT_TRACE_DATA_H
#define NEAP_REPORT_TRACE_DATA_H

#include "analyze/analysis.h"
#include "report/packed.h"
#include "report/pieces.h"

#define NEAP_TRACE_DATA_MARKS 100000 /* later ones are not in the page */

/* Both write base64 into the output. */
void neap_trace_data_names(struct neap_page_out *out, const struct neap_trace *trace, const struct neap_sites *sites);
void neap_trace_data_device(struct neap_page_out *out, const struct neap_analysis *analysis,
			    const struct neap_pieces *pieces);

/* How many lives there are between the analysis's first and last event. */
uint64_t neap_trace_data_lives(const struct neap_analysis *analysis);

#endif
