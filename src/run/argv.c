/* run/argv.c: see argv.h. Splits command lines without a shell. */
#include "run/argv.h"

#include "base/buffer.h"
#include "base/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes ownership of `text`, also on failure. */
static enum neap_status add_take(struct neap_argv *argv, char *text)
{
	char **items = text ? realloc(argv->items, (argv->count + 2) * sizeof *items) : NULL;
	if (!items) {
		free(text);
		return NEAP_ENOMEM;
	}
	argv->items = items;
	items[argv->count++] = text;
	items[argv->count] = NULL;
	return NEAP_OK;
}

enum neap_status neap_argv_add(struct neap_argv *argv, const char *text) { return add_take(argv, strdup(text)); }

enum neap_status neap_argv_format(struct neap_argv *argv, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	va_start(args, format);
	int length = vasprintf(&text, format, args);
	va_end(args);
	return length < 0 ? NEAP_ENOMEM : add_take(argv, text);
}

static size_t find(const struct neap_argv *argv, const char *key)
{
	size_t length = strlen(key);
	for (size_t i = 0; i < argv->count; i++)
		if (!strncmp(argv->items[i], key, length) && argv->items[i][length] == '=')
			return i;
	return argv->count;
}

enum neap_status neap_argv_set(struct neap_argv *argv, const char *key, const char *value)
{
	size_t at = find(argv, key);
	if (at == argv->count)
		return neap_argv_format(argv, "%s=%s", key, value);
	char *text = NULL;
	if (asprintf(&text, "%s=%s", key, value) < 0)
		return NEAP_ENOMEM;
	free(argv->items[at]);
	argv->items[at] = text;
	return NEAP_OK;
}

enum neap_status neap_argv_copy(const struct neap_argv *argv, struct neap_argv *ret_copy)
{
	struct neap_argv copy = {0};
	for (size_t i = 0; i < argv->count; i++)
		if (neap_argv_add(&copy, argv->items[i])) {
			neap_argv_fini(&copy);
			return NEAP_ENOMEM;
		}
	*ret_copy = copy;
	return NEAP_OK;
}

void neap_argv_fini(struct neap_argv *argv)
{
	if (!argv)
		return;
	for (size_t i = 0; i < argv->count; i++)
		free(argv->items[i]);
	free(argv->items);
	*argv = (struct neap_argv){0};
}

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether a shell would expand the text here: "$NAME", "${", "$(", "`"; also a "~" at the beginning of a word. Not
 * inside '...'. */
static bool is_expanded(const char *c, char quote, bool begins)
{
	bool named = c[0] == '$' && (isalpha((unsigned char)c[1]) || (c[1] && strchr("_{(", c[1])));
	return quote != '\'' && (named || c[0] == '`' || (c[0] == '~' && begins && !quote));
}

static enum neap_status refuse_expansion(const char *c, struct neap_error *err)
{
	size_t length = strcspn(c, " \t\n\r'\"");
	return neap_fail(
		err, NEAP_EPARSE,
		"command: a shell would expand '%.*s', and neap starts commands without one: write out what it "
		"stands for, write [sh, -c, \"...\"], or put it in '...' to pass it as it is",
		length < 40 ? (int)length : 40, c);
}

/* Reads one word at *at into `word`. *ret_quoted: some part of it was quoted or escaped. */
static enum neap_status read_word(const char **at, struct neap_buffer *word, bool *ret_quoted, struct neap_error *err)
{
	char quote = 0;
	bool quoted = false;
	const char *c = *at;
	for (; *c && (quote || !blank(*c)); c++) {
		if (is_expanded(c, quote, c == *at))
			return refuse_expansion(c, err);
		if (!quote && (*c == '\'' || *c == '"')) {
			quote = *c;
			quoted = true;
		} else if (quote && *c == quote) {
			quote = 0;
		} else if (*c == '\\' && quote != '\'' && c[1] && (!quote || strchr("\"\\$`", c[1]))) {
			neap_buffer_append(word, ++c, 1);
			quoted = true;
		} else {
			neap_buffer_append(word, c, 1);
		}
	}
	if (quote)
		return neap_fail(err, NEAP_EPARSE, "command: expected a closing %c", quote);
	*at = c;
	*ret_quoted = quoted;
	return neap_buffer_status(word, err);
}

enum neap_status neap_argv_split(const char *text, struct neap_argv *ret_argv, struct neap_error *err)
{
	struct neap_argv argv = {0};
	struct neap_buffer word = {0};
	enum neap_status status = NEAP_OK;
	for (const char *at = text; !status;) {
		while (blank(*at))
			at++;
		if (!*at)
			break;
		bool quoted = false;
		neap_buffer_clear(&word);
		status = read_word(&at, &word, &quoted, err);
		const char *read = neap_buffer_string(&word);
		if (!status && !quoted && read[strspn(read, "|&;<>")] == '\0')
			status = neap_fail(err, NEAP_EPARSE,
					   "command: '%.8s' needs a shell, and neap starts commands without one: "
					   "quote it, or write [sh, -c, \"...\"]",
					   read);
		if (!status && neap_argv_add(&argv, read))
			status = neap_fail(err, NEAP_ENOMEM, "splitting a command: out of memory");
	}
	neap_buffer_fini(&word);
	if (status) {
		neap_argv_fini(&argv);
		return status;
	}
	*ret_argv = argv;
	return NEAP_OK;
}

static bool plain(const char *word)
{
	static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./,:@%{}";
	return *word && word[strspn(word, safe)] == '\0';
}

char *neap_argv_join(const struct neap_argv *argv)
{
	struct neap_buffer line = {0};
	for (size_t i = 0; i < argv->count; i++) {
		if (i)
			neap_buffer_text(&line, " ");
		if (plain(argv->items[i])) {
			neap_buffer_text(&line, argv->items[i]);
			continue;
		}
		neap_buffer_text(&line, "'");
		for (const char *c = argv->items[i]; *c; c++)
			neap_buffer_append(&line, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
		neap_buffer_text(&line, "'");
	}
	neap_buffer_append(&line, "", 0);
	char *text = argv->count ? neap_buffer_detach(&line) : strdup("");
	neap_buffer_fini(&line);
	return text;
}
