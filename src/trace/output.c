/* trace/output.c: see output.h. */
#include "trace/output.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define PIECE (1u << 18)

enum neap_status neap_output_begin(struct neap_output *output, const char *path, struct neap_error *err)
{
	size_t length = strlen(path);

	*output = (struct neap_output){.err = err};
	if (length > 4 && !strcmp(path + length - 4, ".zst")) {
		output->zstd = ZSTD_createCCtx();
		if (!output->zstd)
			return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	}
	enum neap_status status = neap_file_begin(&output->file, path, 0644, err);
	if (status) {
		ZSTD_freeCCtx(output->zstd);
		output->zstd = NULL;
	}
	return status;
}

/* Compresses the buffer and writes the result. `last`: also writes what the compressor still holds. */
static enum neap_status compress(struct neap_output *output, bool last)
{
	unsigned char *bytes = malloc(PIECE);
	ZSTD_inBuffer in = {.src = output->buffer.data, .size = output->buffer.length};
	enum neap_status status = bytes ? NEAP_OK : neap_fail(output->err, NEAP_ENOMEM, "out of host memory");
	size_t left = 1;

	while (!status && (last ? left > 0 : in.pos < in.size)) {
		ZSTD_outBuffer out = {.dst = bytes, .size = PIECE};
		left = ZSTD_compressStream2(output->zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			status = neap_fail(output->err, NEAP_EIO, "compressing: %s", ZSTD_getErrorName(left));
		else
			status = neap_file_append(&output->file, bytes, out.pos, output->err);
	}
	free(bytes);
	return status;
}

static void flush(struct neap_output *output, size_t above)
{
	if (output->failed || output->buffer.length <= above)
		return;
	output->failed = neap_buffer_status(&output->buffer, output->err);
	if (!output->failed && output->zstd)
		output->failed = compress(output, false);
	else if (!output->failed)
		output->failed =
			neap_file_append(&output->file, output->buffer.data, output->buffer.length, output->err);
	neap_buffer_clear(&output->buffer);
}

void neap_output_bytes(struct neap_output *output, const void *bytes, size_t length)
{
	neap_buffer_append(&output->buffer, bytes, length);
	flush(output, PIECE);
}

void neap_output_format(struct neap_output *output, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	neap_buffer_vformat(&output->buffer, format, args);
	va_end(args);
	flush(output, PIECE);
}

enum neap_status neap_output_end(struct neap_output *output, enum neap_status status)
{
	if (!output->failed)
		output->failed = neap_buffer_status(&output->buffer, output->err);
	if (!status)
		flush(output, 0);
	if (!status)
		status = output->failed;
	if (!status && output->zstd)
		status = compress(output, true);
	if (!status)
		status = neap_file_commit(&output->file, output->err);
	neap_file_abort(&output->file);
	neap_buffer_fini(&output->buffer);
	ZSTD_freeCCtx(output->zstd);
	return status;
}
