/* cli/print.c: see the header. */
#include "cli/print.h"

#include <string.h>

static void print(FILE *stream, const char *text, bool lines)
{
	for (size_t left = strlen(text); left > 0;) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);

		if (neap_printable_is(character) || (lines && (character == '\n' || character == '\t')))
			fwrite(text, 1, bytes, stream);
		else
			fputc('?', stream);
		text += bytes;
		left -= bytes;
	}
}

void print_safe_json(FILE *stream, const char *text)
{
	for (size_t left = strlen(text); left > 0;) {
		uint32_t character;
		size_t bytes = neap_utf8_next(text, left, &character);

		if (neap_printable_is(character) || character == '\n' || character == '\t')
			fwrite(text, 1, bytes, stream);
		else if (character != UINT32_MAX)
			fprintf(stream, "\\u%04x", (unsigned)character); /* all of them are below U+10000 */
		else
			fputc('?', stream);
		text += bytes;
		left -= bytes;
	}
}

void print_safe_text(FILE *stream, const char *text) { print(stream, text, false); }

void print_safe_lines(FILE *stream, const char *text) { print(stream, text, true); }

void print_csv_text(const char *text)
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
