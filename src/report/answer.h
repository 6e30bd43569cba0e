/* report/answer.h: the top of a trace's page: the answer that the reader came for, above any chart. Pure. */
#ifndef NEAP_REPORT_ANSWER_H
#define NEAP_REPORT_ANSWER_H

#include "analyze/analysis.h"
#include "report/cells.h"

/* Appends markup that says the first of these that holds: the trace ran out of memory, with the cause and the first
 * fix; it leaks, by how much and where; it fits in the memory asked about; another setting of the allocator would
 * save so much. */
void neap_answer_analysis(struct neap_buffer *out, const struct neap_analysis *analysis);

/* Begins and ends a page's answer around other markup. `verdict`: one sentence. */
void neap_answer_begin(struct neap_buffer *out, enum neap_report_tone tone, const char *verdict);
void neap_answer_end(struct neap_buffer *out);

#endif
