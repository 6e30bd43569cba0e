/* cli/csv.c: see the header. */
#include "cli/csv.h"
#include "base/printable.h"

#include <stdio.h>
#include <string.h>

void csv_print_text(const char *text)
{
	putchar('"');
	if (*text && strchr("=+-@\t\r\n", *text))
		putchar('\'');
	for (size_t left = strlen(text); left > 0;) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);

		if (*text == '"')
			putchar('"');
		if (neap_printable_is(character) || character == '\n' || character == '\t')
			fwrite(text, 1, bytes, stdout);
		else
			putchar('?');
		text += bytes;
		left -= bytes;
	}
	putchar('"');
}
