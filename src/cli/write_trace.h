/* cli/write_trace.h: a trace written in another form, which the name's end tells: .pickle or .pkl (PyTorch's
 * snapshot), .txt or .txt.zst (text, of one device), .record (a recording of neap's, whose tags are the stacks'
 * lines). */
#ifndef NEAP_CLI_WRITE_TRACE_H
#define NEAP_CLI_WRITE_TRACE_H

#include "trace/trace.h"

bool write_trace_known(const char *path);
/* Whole or not at all. Errors: those of the writers, with the path. */
enum neap_status write_trace(const struct neap_trace *trace, size_t device, const char *path, struct neap_error *err);

#endif
