/* run/last_output.c: see last_output.h. Cleans the lines one by one, from first to last. */
#include "run/last_output.h"

#include "base/printable.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LINE_CAPACITY 512
#define MARK          "Traceback (most recent call last):"

/* The length of the escape sequence at `text`: ESC [ ... letter, ESC ] ... BEL, or ESC and one more byte. */
static size_t escape_length(const char *text, size_t length)
{
	size_t at = 2;
	if (length < 2)
		return length;
	if (text[1] == '[')
		while (at < length && !(text[at] >= 0x40 && text[at] <= 0x7e))
			at++;
	else if (text[1] == ']')
		while (at < length && text[at] != '\a')
			at++;
	else
		return 2;
	return at < length ? at + 1 : length;
}

/* Writes one line as a terminal would finally show it. */
static void clean(const char *text, size_t length, char line[LINE_CAPACITY])
{
	char plain[LINE_CAPACITY];
	size_t used = 0;
	while (length && (text[length - 1] == '\r' || text[length - 1] == ' '))
		length--;
	const char *over = length ? memrchr(text, '\r', length) : NULL; /* the last time a progress bar rewrote it */
	size_t at = over ? (size_t)(over - text) + 1 : 0;
	while (at < length && used < sizeof plain - 1) {
		if (text[at] == '\033') {
			at += escape_length(text + at, length - at);
			continue;
		}
		plain[used++] = text[at] == '\t' || !text[at] ? ' ' : text[at];
		at++;
	}
	plain[used] = '\0';
	neap_printable(line, LINE_CAPACITY, plain);
	for (size_t end = strlen(line); end && line[end - 1] == ' ';)
		line[--end] = '\0';
}

/* "ValueError: text", "torch.OutOfMemoryError: text", "KeyboardInterrupt": a name, perhaps with dots, and its text.
 */
static bool is_exception(const char *line)
{
	size_t length = 0;
	if (!isalpha((unsigned char)*line) && *line != '_')
		return false;
	while (isalnum((unsigned char)line[length]) || line[length] == '_' || line[length] == '.')
		length++;
	return !line[length] || (line[length] == ':' && (!line[length + 1] || line[length + 1] == ' '));
}

/* A line outside a traceback is an exception if its name ends like one. */
static bool is_named_error(const char *line)
{
	static const char *const ends[] = {"Error", "Exception", "KeyboardInterrupt", "SystemExit"};
	size_t length = strcspn(line, ":");
	if (!is_exception(line))
		return false;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		size_t end = strlen(ends[i]);
		if (length >= end && !strncmp(line + length - end, ends[i], end))
			return true;
	}
	return false;
}

/* The state of the search. */
struct search {
	bool in_traceback, has_exception, has_child;
	size_t indent; /* of the traceback: a rank's name may stand before each of its lines */
	char error[LINE_CAPACITY];
};

/* An exception is the first line of its traceback that is not indented. */
static void search_line(struct search *search, const char *line)
{
	const char *mark = strstr(line, MARK);
	if (mark) {
		search->in_traceback = true;
		search->indent = (size_t)(mark - line);
		return;
	}
	const char *text = strlen(line) > search->indent ? line + search->indent : "";
	bool ended = search->in_traceback && *text && *text != ' ';
	bool exception = ended ? is_exception(text) : is_named_error(line);
	if (!ended)
		text = line;
	bool launcher = exception && strstr(text, "ChildFailedError");
	if (ended)
		search->in_traceback = false;
	if (exception ? launcher && search->has_child : search->has_exception)
		return;
	snprintf(search->error, sizeof search->error, "%s", text);
	search->has_exception |= exception;
	search->has_child |= exception && !launcher;
}

void neap_last_output_find(const char *text, size_t length, struct neap_last_output *ret_output)
{
	struct search search = {0};
	char lines[NEAP_LAST_LINES][LINE_CAPACITY];
	size_t count = 0, used = 0;
	for (size_t at = 0; at < length;) {
		const char *newline = memchr(text + at, '\n', length - at);
		size_t end = newline ? (size_t)(newline - text) : length;
		char line[LINE_CAPACITY];
		clean(text + at, end - at, line);
		at = end + 1;
		if (!*line)
			continue;
		search_line(&search, line);
		memcpy(lines[count++ % NEAP_LAST_LINES], line, LINE_CAPACITY);
	}
	ret_output->lines[0] = '\0';
	neap_printable(ret_output->error, sizeof ret_output->error, search.error);
	size_t kept = count < NEAP_LAST_LINES ? count : NEAP_LAST_LINES, capacity = sizeof ret_output->lines - 1;
	/* Count from the end back how many fit. */
	size_t fit = 0;
	while (fit < kept) {
		size_t bytes = strlen(lines[(count - fit - 1) % NEAP_LAST_LINES]) + 1;
		if (used + bytes > capacity)
			break;
		used += bytes;
		fit++;
	}
	for (used = 0; fit; fit--)
		used += (size_t)snprintf(ret_output->lines + used, sizeof ret_output->lines - used, "%s\n",
					 lines[(count - fit) % NEAP_LAST_LINES]);
}
