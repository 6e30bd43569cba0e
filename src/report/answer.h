/* report/answer.h: the top of a trace's page: what a reader came to know, before any chart. Pure. */
#ifndef NEAP_REPORT_ANSWER_H
#define NEAP_REPORT_ANSWER_H

#include "analyze/analysis.h"
#include "report/cells.h"

/* Appends markup: that it ran out of memory, with the cause and the first fix; else that it leaks, by how much and
 * where; else that it fits in the memory asked about; else what another setting of the allocator would save. */
void neap_answer_analysis(struct neap_buffer *out, const struct neap_analysis *analysis);

/* A page's answer around other markup: its verdict, in one sentence. */
void neap_answer_begin(struct neap_buffer *out, enum neap_report_tone tone, const char *verdict);
void neap_answer_end(struct neap_buffer *out);

#endif
