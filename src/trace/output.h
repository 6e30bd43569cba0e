/* trace/output.h: a file written in pieces, whole or not at all; compressed by zstd where its name ends in .zst.
 * Appending never fails one by one: the first failure is kept, and neap_output_end says it. One thread. */
#ifndef NEAP_TRACE_OUTPUT_H
#define NEAP_TRACE_OUTPUT_H

#include "base/buffer.h"
#include "base/file.h"

struct neap_output {
	struct neap_file file;
	struct neap_buffer buffer;
	struct ZSTD_CCtx_s *zstd; /* NULL: as it is */
	enum neap_status failed;
	struct neap_error *err;
};

enum neap_status neap_output_begin(struct neap_output *output, const char *path, struct neap_error *err);
void neap_output_bytes(struct neap_output *output, const void *bytes, size_t length);
void neap_output_format(struct neap_output *output, const char *format, ...) NEAP_PRINTF(2, 3);
/* Publishes the file if nothing failed, also not what the caller says in `status`; frees. Returns the first failure.
 */
enum neap_status neap_output_end(struct neap_output *output, enum neap_status status);

#endif
