/* trace/output.h: writes a file in pieces, whole or not at all; compressed by zstd if its name ends in .zst.
 * Appending reports no failures: the first one is kept, and neap_output_end returns it. One thread. */
#ifndef NEAP_TRACE_OUTPUT_H
#define NEAP_TRACE_OUTPUT_H

#include "base/buffer.h"
#include "base/file.h"

struct neap_output {
	struct neap_file file;
	struct neap_buffer buffer;
	struct ZSTD_CCtx_s *zstd; /* NULL: not compressed */
	enum neap_status failed;
	struct neap_error *err;
};

enum neap_status neap_output_begin(struct neap_output *output, const char *path, struct neap_error *err);
void neap_output_bytes(struct neap_output *output, const void *bytes, size_t length);
void neap_output_format(struct neap_output *output, const char *format, ...) NEAP_PRINTF(2, 3);
/* Publishes the file if nothing failed, and if the caller's `status` is NEAP_OK; frees. Returns the first failure.
 */
enum neap_status neap_output_end(struct neap_output *output, enum neap_status status);

#endif
