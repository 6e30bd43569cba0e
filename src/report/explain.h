/* report/explain.h: the common memory errors in words, with figures. Pure functions into buffers. */
#ifndef NEAP_REPORT_EXPLAIN_H
#define NEAP_REPORT_EXPLAIN_H

#include "analyze/oom_text.h"
#include "base/buffer.h"
#include "store/json.h"

/* One out-of-memory message: its figures, the arithmetic, the cause, what to try first. At most 100 columns. */
void neap_report_oom_text(struct neap_buffer *out, const struct neap_oom_text *found);
/* The same as JSON: figures that the text lacks are null. */
json_t *neap_report_oom_text_json(const struct neap_oom_text *found);

#endif
