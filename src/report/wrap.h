/* report/wrap.h: wraps a paragraph for a terminal. */
#ifndef NEAP_REPORT_WRAP_H
#define NEAP_REPORT_WRAP_H

#include "base/buffer.h"

#define NEAP_WRAP_COLUMNS 100

/* Writes `first` and `text`'s words (at most 1023 bytes of them), no line wider than NEAP_WRAP_COLUMNS; the later
 * ones are indented as far as `first` is wide. */
void neap_report_wrap(struct neap_buffer *out, const char *first, const char *text);

#endif
