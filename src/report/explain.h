/* report/explain.h: the common memory errors in words, with figures. Pure functions into buffers. */
#ifndef NEAP_REPORT_EXPLAIN_H
#define NEAP_REPORT_EXPLAIN_H

#include "analyze/oom_text.h"
#include "base/buffer.h"

/* One out-of-memory message: its figures, the arithmetic, the cause, what to try first. At most 100 columns. */
void neap_report_oom_text(struct neap_buffer *out, const struct neap_oom_text *found);
/* "fragmentation: 3.24 GiB is cached, ...": one sentence. */
void neap_report_oom_text_verdict(struct neap_buffer *out, const struct neap_oom_text *found);
/* What to try, best first; calls `visit` once per advice. */
void neap_report_oom_text_advice(const struct neap_oom_text *found, void (*visit)(void *context, const char *text),
				 void *context);

#endif
