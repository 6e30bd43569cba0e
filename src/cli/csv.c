/* cli/csv.c: see the header. */
#include "cli/csv.h"

#include <stdio.h>
#include <string.h>

void csv_print_text(const char *text)
{
	putchar('"');
	if (*text && strchr("=+-@\t\r\n", *text))
		putchar('\'');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}
