/* base/buffer.h: a growable run of bytes that is always terminated, for text and for frames.
 *
 * Append functions never fail one by one: the first failed allocation marks the buffer, later appends do nothing,
 * and the caller checks once at the end (neap_buffer_status). A zeroed struct is an empty buffer. One thread.
 */
#ifndef NEAP_BASE_BUFFER_H
#define NEAP_BASE_BUFFER_H

#include "neap/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct neap_buffer {
	char *data;      /* NULL while empty and never grown */
	size_t length;   /* bytes, terminator not counted */
	size_t capacity; /* bytes allocated */
	bool failed;     /* an allocation failed: contents are incomplete */
};

void neap_buffer_append(struct neap_buffer *buffer, const void *bytes, size_t length);
void neap_buffer_text(struct neap_buffer *buffer, const char *text);
void neap_buffer_format(struct neap_buffer *buffer, const char *format, ...) NEAP_PRINTF(2, 3);
void neap_buffer_vformat(struct neap_buffer *buffer, const char *format, va_list args);

/* Empties the buffer but keeps its storage. Clears `failed`. */
void neap_buffer_clear(struct neap_buffer *buffer);

/* NEAP_OK, or NEAP_ENOMEM if any append failed. */
enum neap_status neap_buffer_status(const struct neap_buffer *buffer, struct neap_error *err);

/* The contents as a string, which the buffer still owns; "" while empty. */
const char *neap_buffer_string(const struct neap_buffer *buffer);

/* Gives the storage to the caller, who frees it with free(), and empties the buffer. NULL if an append failed. */
char *neap_buffer_detach(struct neap_buffer *buffer);

void neap_buffer_fini(struct neap_buffer *buffer);

#endif
