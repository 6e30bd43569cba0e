/* base/error.c: the one place where a struct neap_error is filled, and the words for statuses.
 *
 * A message that does not fit is cut where a character ends, so that half a UTF-8 sequence never reaches a terminal,
 * a JSON file or a page.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *text;
} statuses[] = {
	[NEAP_OK] = {"NEAP_OK", "success"},
	[NEAP_EINVAL] = {"NEAP_EINVAL", "invalid argument"},
	[NEAP_ENOMEM] = {"NEAP_ENOMEM", "out of host memory"},
	[NEAP_EOOM] = {"NEAP_EOOM", "out of device memory"},
	[NEAP_ENODEVICE] = {"NEAP_ENODEVICE", "no driver or no such device"},
	[NEAP_EDRIVER] = {"NEAP_EDRIVER", "the driver reported an error"},
	[NEAP_ENOTSUP] = {"NEAP_ENOTSUP", "not supported here"},
	[NEAP_EIO] = {"NEAP_EIO", "reading or writing failed"},
	[NEAP_ENOSPC] = {"NEAP_ENOSPC", "no space left on the disk"},
	[NEAP_ENOENT] = {"NEAP_ENOENT", "no such file, process or name"},
	[NEAP_EPERM] = {"NEAP_EPERM", "not permitted"},
	[NEAP_EPARSE] = {"NEAP_EPARSE", "malformed input"},
	[NEAP_EPROTO] = {"NEAP_EPROTO", "the peer broke the protocol"},
	[NEAP_EBUSY] = {"NEAP_EBUSY", "busy"},
	[NEAP_ETIMEDOUT] = {"NEAP_ETIMEDOUT", "timed out"},
	[NEAP_ESTATE] = {"NEAP_ESTATE", "not possible in this state"},
	[NEAP_EEXIST] = {"NEAP_EEXIST", "it exists already"},
	[NEAP_ECANCELED] = {"NEAP_ECANCELED", "asked to stop"},
	[NEAP_EINTERNAL] = {"NEAP_EINTERNAL", "internal fault"},
};

static bool status_known(enum neap_status status)
{
	return (unsigned int)status < sizeof statuses / sizeof statuses[0] && statuses[status].name;
}

const char *neap_status_name(enum neap_status status)
{
	return status_known(status) ? statuses[status].name : "NEAP_UNKNOWN";
}

const char *neap_status_text(enum neap_status status)
{
	return status_known(status) ? statuses[status].text : "unknown status";
}

const char *neap_version(void) { return NEAP_VERSION; }

/* Drops a UTF-8 sequence that the end of `text` cuts in two. */
static void trim_partial_character(char *text)
{
	size_t length = strlen(text);
	size_t start = length;

	while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
		start--;
	if (start == 0)
		return;
	unsigned char lead = (unsigned char)text[start - 1];
	size_t expected = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
	if (expected > 1 && length - (start - 1) < expected)
		text[start - 1] = '\0';
}

static void fill(struct neap_error *err, enum neap_status status, const char *format, va_list args)
{
	*err = (struct neap_error){.status = status};
	int length = vsnprintf(err->message, sizeof err->message, format, args);
	if (length < 0)
		snprintf(err->message, sizeof err->message, "%s", neap_status_text(status));
	else if ((size_t)length >= sizeof err->message)
		trim_partial_character(err->message);
}

enum neap_status neap_fail(struct neap_error *err, enum neap_status status, const char *format, ...)
{
	va_list args;

	if (!err)
		return status;
	va_start(args, format);
	fill(err, status, format, args);
	va_end(args);
	return status;
}

static enum neap_status status_of_errno(int error_number)
{
	switch (error_number) {
	case ENOENT:
	case ESRCH:
		return NEAP_ENOENT;
	case EACCES:
	case EPERM:
		return NEAP_EPERM;
	case ENOSPC:
	case EDQUOT:
		return NEAP_ENOSPC;
	case ENOMEM:
		return NEAP_ENOMEM;
	case EEXIST:
		return NEAP_EEXIST;
	case EAGAIN:
	case EBUSY:
		return NEAP_EBUSY;
	case ETIMEDOUT:
		return NEAP_ETIMEDOUT;
	default:
		return NEAP_EIO;
	}
}

enum neap_status neap_fail_errno(struct neap_error *err, int error_number, const char *format, ...)
{
	enum neap_status status = status_of_errno(error_number);
	char buffer[128];
	va_list args;

	if (!err)
		return status;
	va_start(args, format);
	fill(err, status, format, args);
	va_end(args);
	err->cause = error_number;

	/* The errno's text matters most: a long message is cut to leave room for it. */
	const char *text = strerror_r(error_number, buffer, sizeof buffer);
	size_t text_length = strnlen(text, sizeof buffer);
	size_t limit = sizeof err->message - 1 - 2 - text_length;
	if (strlen(err->message) > limit) {
		err->message[limit] = '\0';
		trim_partial_character(err->message);
	}
	size_t length = strlen(err->message);
	snprintf(err->message + length, sizeof err->message - length, ": %.*s", (int)text_length, text);
	return status;
}

enum neap_status neap_fail_at(struct neap_error *err, uint32_t line, uint32_t column, const char *format, ...)
{
	va_list args;

	if (!err)
		return NEAP_EPARSE;
	va_start(args, format);
	fill(err, NEAP_EPARSE, format, args);
	va_end(args);
	err->line = line;
	err->column = column;
	return NEAP_EPARSE;
}

void neap_error_prefix(struct neap_error *err, const char *format, ...)
{
	char message[sizeof err->message];
	va_list args;

	if (!err)
		return;
	memcpy(message, err->message, sizeof message);
	va_start(args, format);
	int length = vsnprintf(err->message, sizeof err->message, format, args);
	va_end(args);
	if (length < 0)
		length = 0;
	size_t used = (size_t)length < sizeof err->message ? (size_t)length : sizeof err->message - 1;
	if (used + 2 + strlen(message) >= sizeof err->message) {
		snprintf(err->message + used, sizeof err->message - used, ": %s", message);
		trim_partial_character(err->message);
		return;
	}
	memcpy(err->message + used, ": ", 2);
	memcpy(err->message + used + 2, message, strlen(message) + 1);
}
