/* cli/print.c: see the header. */
#include "cli/print.h"

#include "cli/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int json_print(const char *command, json_t *root, size_t flags)
{
	static uint64_t reported; /* failures of earlier documents */
	char *text = neap_json_dump(root, flags);
	json_decref(root);
	uint64_t failures = neap_json_failures();
	if (!text || failures != reported) {
		reported = failures;
		free(text);
		fprintf(stderr, "neap %s: out of memory\n", command);
		return NEAP_EXIT_OS;
	}
	print_safe_json(stdout, text); /* main reports errors of stdout */
	putchar('\n');
	free(text);
	return NEAP_EXIT_OK;
}

char *json_line(json_t *value)
{
	char *text = neap_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
	json_decref(value);
	return text;
}

bool print_confirm(const char *question, bool *ret_asked)
{
	char answer[16] = "";
	*ret_asked = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	if (!*ret_asked)
		return false;
	fflush(stdout);
	fprintf(stderr, "%s? [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof answer, stdin))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return !strcasecmp(answer, "y") || !strcasecmp(answer, "yes");
}
