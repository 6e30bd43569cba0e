/* charlm/fail.c: see the header. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

enum neap_status fail(struct neap_error *err, enum neap_status status, const char *format, ...)
{
	va_list arguments;

	*err = (struct neap_error){.status = status};
	va_start(arguments, format);
	vsnprintf(err->message, sizeof err->message, format, arguments);
	va_end(arguments);
	return status;
}
