/* trace/output.c: see output.h. */
#include "trace/output.h"

#include <stdarg.h>

#define PIECE (1u << 18)

enum neap_status neap_output_begin(struct neap_output *output, const char *path, struct neap_error *err)
{
	*output = (struct neap_output){.err = err};
	return neap_file_begin(&output->file, path, 0644, err);
}

static void flush(struct neap_output *output, size_t above)
{
	if (output->failed || output->buffer.length <= above)
		return;
	output->failed = neap_buffer_status(&output->buffer, output->err);
	if (!output->failed)
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
	if (status == NEAP_OK)
		flush(output, 0);
	if (status == NEAP_OK)
		status = output->failed;
	if (status == NEAP_OK)
		status = neap_file_commit(&output->file, output->err);
	neap_file_abort(&output->file);
	neap_buffer_fini(&output->buffer);
	return status;
}
