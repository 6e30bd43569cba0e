/* analyze/write.h: writes a trace in another of the forms that neap reads, for `neap analyze --write`. The end of the
 * file's name selects the form: .pickle, .pkl, .txt, .txt.zst, .record. */
#ifndef NEAP_ANALYZE_WRITE_H
#define NEAP_ANALYZE_WRITE_H

#include "trace/trace.h"

#include <stdbool.h>

bool neap_trace_form_known(const char *path);

/* Writes the trace whole, or not at all. The text form holds one device; in a recording a stack becomes the line of
 * the program that it names. Errors: those of the writers, with the path; NEAP_ENOENT, which err->status calls
 * NEAP_EEXIST since the input exists, if the file cannot be made. */
enum neap_status neap_trace_write(const struct neap_trace *trace, size_t device, const char *path,
				  struct neap_error *err);

#endif
