/* base/buffer.c: the buffer doubles as it grows, and always has one byte for the terminator.
 *
 *   invariant: data == NULL, or length < capacity and data[length] == 0
 */
#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `more` bytes and the terminator. */
static bool grow(struct neap_buffer *buffer, size_t more)
{
	if (buffer->failed)
		return false;
	if (more < buffer->capacity - buffer->length)
		return true;
	if (more >= SIZE_MAX / 2 - buffer->length) {
		buffer->failed = true;
		return false;
	}
	size_t capacity = buffer->capacity ? buffer->capacity : 64;
	while (capacity <= buffer->length + more)
		capacity *= 2;
	char *data = realloc(buffer->data, capacity);
	if (!data) {
		buffer->failed = true;
		return false;
	}
	buffer->data = data;
	buffer->capacity = capacity;
	buffer->data[buffer->length] = '\0';
	return true;
}

void neap_buffer_append(struct neap_buffer *buffer, const void *bytes, size_t length)
{
	if (!grow(buffer, length))
		return;
	if (length > 0)
		memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

void neap_buffer_text(struct neap_buffer *buffer, const char *text)
{
	neap_buffer_append(buffer, text, strlen(text));
}

void neap_buffer_vformat(struct neap_buffer *buffer, const char *format, va_list args)
{
	size_t free_bytes = buffer->failed ? 0 : buffer->capacity - buffer->length;
	char *end = free_bytes ? buffer->data + buffer->length : NULL;
	va_list again;

	va_copy(again, args);
	int length = vsnprintf(end, free_bytes, format, args);
	bool fits = length >= 0 && (size_t)length < free_bytes;
	if (!fits && end)
		*end = '\0'; /* cuts off the part that fitted */
	if (length < 0)
		buffer->failed = true;
	else if (fits || grow(buffer, (size_t)length)) {
		if (!fits)
			vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
		buffer->length += (size_t)length;
	}
	va_end(again);
}

void neap_buffer_format(struct neap_buffer *buffer, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	neap_buffer_vformat(buffer, format, args);
	va_end(args);
}

void neap_buffer_clear(struct neap_buffer *buffer)
{
	buffer->length = 0;
	buffer->failed = false;
	if (buffer->data)
		buffer->data[0] = '\0';
}

enum neap_status neap_buffer_status(const struct neap_buffer *buffer, struct neap_error *err)
{
	if (buffer->failed)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory after %zu bytes of text", buffer->length);
	return NEAP_OK;
}

const char *neap_buffer_string(const struct neap_buffer *buffer) { return buffer->data ? buffer->data : ""; }

char *neap_buffer_detach(struct neap_buffer *buffer)
{
	/* An empty buffer still returns a string: NULL means failure. */
	if (!grow(buffer, 0))
		return NULL;
	char *data = buffer->data;
	*buffer = (struct neap_buffer){0};
	return data;
}

void neap_buffer_fini(struct neap_buffer *buffer)
{
	if (!buffer)
		return;
	free(buffer->data);
	*buffer = (struct neap_buffer){0};
}
