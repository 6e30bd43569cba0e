/* analyze/write.h: writes a trace in another of the forms that neap reads, for `neap analyze --write`. The end of the
 * file's name selects the form: .pickle, .pkl, .txt, .txt.zst, .record. */
#ifndef NEAP_ANALYZE_WRITE_H
#define NEAP_ANALYZE_WRITE_H

#include "trace/trace.h"

#include <stdbool.h>

bool neap_trace_form_known(const char *path);

/* Writes the trace whole, or not at all. The text form holds one device; in a recording a stack becomes the line of
 * the program that it names. Errors: those of the writers, with the path. If the file cannot be made, returns
 * NEAP_ENOENT, but sets err->status to NEAP_EEXIST, because the input exists. */
enum neap_status neap_trace_write(const struct neap_trace *trace, size_t device, const char *path,
				  struct neap_error *err);

#endif
