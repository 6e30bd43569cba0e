/* base/error.h: fills a struct neap_error. No allocation, any thread. */
#ifndef NEAP_BASE_ERROR_H
#define NEAP_BASE_ERROR_H

#include "neap/status.h"

#include <stddef.h>

/* Fills *err (NULL allowed) and returns `status`, so that `return neap_fail(err, NEAP_EIO, "...")` reads well.
 * Clears every other field. Messages that do not fit are cut at a character's end. */
enum neap_status neap_fail(struct neap_error *err, enum neap_status status, const char *format, ...)
	NEAP_PRINTF(3, 4);

/* As neap_fail, from an errno: appends ": " and its text, sets `cause`, and chooses the status that fits
 * (ENOENT, EACCES and EPERM, ENOSPC and EDQUOT, ENOMEM, EEXIST, EAGAIN and EBUSY, ETIMEDOUT; else NEAP_EIO). */
enum neap_status neap_fail_errno(struct neap_error *err, int error_number, const char *format, ...) NEAP_PRINTF(3, 4);

/* As neap_fail, with a place in a text input (line and column from 1). */
enum neap_status neap_fail_at(struct neap_error *err, uint32_t line, uint32_t column, const char *format, ...)
	NEAP_PRINTF(4, 5);

/* Puts "prefix: " before the current message. */
void neap_error_prefix(struct neap_error *err, const char *format, ...) NEAP_PRINTF(2, 3);

#endif
