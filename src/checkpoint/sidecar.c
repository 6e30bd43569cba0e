/* checkpoint/sidecar.c: see the header. The JSON reader follows the grammar of RFC 8259, one function per rule. */
#include "checkpoint/sidecar.h"

#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MOST    64
#define TEXT_CAPACITY 4096 /* of a path */

struct reader {
	const char *text, *at, *end;
	const struct checkpoint_sidecar_visitor *visitor;
	char word[CHECKPOINT_WORD_CAPACITY]; /* the last key */
	unsigned depth;
	struct neap_error *err;
};

static enum neap_status fail_here(struct reader *reader, const char *expected)
{
	uint32_t line = 1, column = 1;

	for (const char *p = reader->text; p < reader->at; p++) {
		column = *p == '\n' ? 1 : column + 1;
		line += *p == '\n';
	}
	return neap_fail_at(reader->err, line, column, "expected %s", expected);
}

static void skip_space(struct reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at)
		reader->at++;
}

static bool take(struct reader *reader, const char *text)
{
	size_t length = strlen(text);

	if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, text, length) != 0)
		return false;
	reader->at += length;
	return true;
}

/* Reads a string. Escapes stay unresolved: a key needs none, since no metric has one in its name. */
static enum neap_status read_string(struct reader *reader, const char **ret_begin, size_t *ret_length)
{
	if (!take(reader, "\""))
		return fail_here(reader, "a string");
	const char *begin = reader->at;
	for (; reader->at < reader->end && *reader->at != '"'; reader->at++) {
		if ((unsigned char)*reader->at < 0x20)
			return fail_here(reader, "no control character in a string");
		if (*reader->at != '\\')
			continue;
		reader->at++;
		if (reader->at == reader->end || *reader->at == '\0' || !strchr("\"\\/bfnrtu", *reader->at))
			return fail_here(reader, "an escape: one of \"\\/bfnrtu");
		if (*reader->at == 'u') {
			for (int i = 0; i < 4; i++, reader->at++)
				if (reader->end - reader->at < 2 || reader->at[1] == '\0' ||
				    !strchr("0123456789abcdefABCDEF", reader->at[1]))
					return fail_here(reader, "four hexadecimal digits after \\u");
		}
	}
	*ret_begin = begin;
	*ret_length = (size_t)(reader->at - begin);
	return take(reader, "\"") ? NEAP_OK : fail_here(reader, "the string's end");
}

static unsigned hexadecimal(const char *text)
{
	unsigned value = 0;

	for (int i = 0; i < 4; i++) {
		char c = text[i];
		value = value * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return value;
}

static size_t put_utf8(char *to, unsigned character)
{
	if (character < 0x80) {
		to[0] = (char)character;
		return 1;
	}
	size_t bytes = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
	for (size_t i = bytes - 1; i > 0; i--, character >>= 6)
		to[i] = (char)(0x80 | (character & 0x3f));
	to[0] = (char)(character | (bytes == 2 ? 0xc0u : bytes == 3 ? 0xe0u : 0xf0u));
	return bytes;
}

/* Resolves the escape at `at`, after its backslash. read_string has checked it. Returns its length. */
static size_t resolve(const char *at, const char *end, char *to, size_t *used)
{
	static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";

	if (*at != 'u') {
		to[(*used)++] = into[strchr(from, *at) - from];
		return 1;
	}
	unsigned character = hexadecimal(at + 1);
	size_t length = 5;
	if ((character & 0xfc00) == 0xd800 && end - at >= 11 && at[5] == '\\' && at[6] == 'u' &&
	    (hexadecimal(at + 7) & 0xfc00) == 0xdc00) {
		character = 0x10000 + ((character & 0x3ff) << 10) + (hexadecimal(at + 7) & 0x3ff);
		length = 11;
	}
	*used += put_utf8(to + *used, character);
	return length;
}

/* Passes a text to the visitor. Drops a text too long for a path; resolving escapes never makes it longer. */
static void give_text(const struct reader *reader, const char *begin, size_t length)
{
	char text[TEXT_CAPACITY];
	size_t used = 0;

	if (length > sizeof text)
		return;
	for (const char *at = begin, *end = begin + length; at < end;) {
		if (*at != '\\') {
			text[used++] = *at++;
			continue;
		}
		at++;
		at += resolve(at, end, text, &used);
	}
	reader->visitor->text(reader->visitor->context, reader->word, reader->depth, text, used);
}

static size_t digits(const struct reader *reader, const char *from)
{
	const char *at = from;

	while (at < reader->end && *at >= '0' && *at <= '9')
		at++;
	return (size_t)(at - from);
}

static enum neap_status read_number(struct reader *reader, double *ret_value)
{
	const char *begin = reader->at;
	char text[400];
	bool minus = take(reader, "-");

	if (take(reader, "Infinity")) {
		*ret_value = minus ? -(double)INFINITY : (double)INFINITY;
		return NEAP_OK;
	}
	size_t whole = digits(reader, reader->at);
	if (whole == 0 || (whole > 1 && *reader->at == '0'))
		return fail_here(reader, "a value");
	reader->at += whole;
	if (take(reader, ".")) {
		size_t more = digits(reader, reader->at);
		if (more == 0)
			return fail_here(reader, "a digit");
		reader->at += more;
	}
	if (take(reader, "e") || take(reader, "E")) {
		if (!take(reader, "+"))
			take(reader, "-");
		size_t more = digits(reader, reader->at);
		if (more == 0)
			return fail_here(reader, "a digit");
		reader->at += more;
	}
	size_t length = (size_t)(reader->at - begin);
	if (length >= sizeof text)
		return fail_here(reader, "a number of fewer digits");
	memcpy(text, begin, length);
	text[length] = '\0';
	if (neap_double_parse(text, ret_value, NULL) != NEAP_OK)
		*ret_value = minus ? -(double)INFINITY : (double)INFINITY;
	return NEAP_OK;
}

static enum neap_status read_value(struct reader *reader);

/* Reads everything up to the closing bracket, and that too. */
static enum neap_status read_members(struct reader *reader, bool object)
{
	const char *close = object ? "}" : "]", *key = NULL;
	enum neap_status status = NEAP_OK;
	size_t length = 0;

	skip_space(reader);
	if (take(reader, close))
		return NEAP_OK;
	for (;;) {
		skip_space(reader);
		reader->word[0] = '\0';
		if (object) {
			status = read_string(reader, &key, &length);
			if (status)
				return status;
			skip_space(reader);
			if (!take(reader, ":"))
				return fail_here(reader, "':'");
			checkpoint_word_normalize(key, length, reader->word);
		}
		status = read_value(reader);
		if (status)
			return status;
		skip_space(reader);
		if (take(reader, close))
			return NEAP_OK;
		if (!take(reader, ","))
			return fail_here(reader, object ? "',' or '}'" : "',' or ']'");
	}
}

static enum neap_status read_value(struct reader *reader)
{
	enum neap_status status;
	const char *begin;
	size_t length;
	double value = (double)NAN;

	skip_space(reader);
	if (reader->at == reader->end)
		return fail_here(reader, "a value");
	switch (*reader->at) {
	case '{':
	case '[':
		if (reader->depth == DEPTH_MOST)
			return fail_here(reader, "at most 64 levels of nesting");
		bool object = *reader->at++ == '{';
		reader->depth++;
		status = read_members(reader, object);
		reader->depth--;
		return status;
	case '"':
		status = read_string(reader, &begin, &length);
		if (!status && reader->visitor->text && reader->word[0])
			give_text(reader, begin, length);
		return status;
	case 't':
		return take(reader, "true") ? NEAP_OK : fail_here(reader, "a value");
	case 'f':
		return take(reader, "false") ? NEAP_OK : fail_here(reader, "a value");
	case 'n':
		return take(reader, "null") ? NEAP_OK : fail_here(reader, "a value");
	case 'N':
		if (!take(reader, "NaN"))
			return fail_here(reader, "a value");
		break;
	case 'I':
		if (!take(reader, "Infinity"))
			return fail_here(reader, "a value");
		value = (double)INFINITY;
		break;
	default:
		status = read_number(reader, &value);
		if (status)
			return status;
	}
	if (reader->word[0])
		reader->visitor->number(reader->visitor->context, reader->word, reader->depth, value);
	return NEAP_OK;
}

enum neap_status checkpoint_json_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err)
{
	struct reader reader = {.text = text, .at = text, .end = text + length, .visitor = visitor, .err = err};
	enum neap_status status = read_value(&reader);

	if (status)
		return status;
	skip_space(&reader);
	return reader.at == reader.end ? NEAP_OK : fail_here(&reader, "the end of the file");
}

/* Reads a YAML scalar as a number. False: it is something else. */
static bool yaml_number(const char *text, size_t length, double *ret_value)
{
	static const struct {
		const char *text;
		double value;
	} specials[] = {{".nan", (double)NAN},        {".NaN", (double)NAN},       {".NAN", (double)NAN},
			{"nan", (double)NAN},         {"NaN", (double)NAN},        {".inf", (double)INFINITY},
			{"inf", (double)INFINITY},    {".Inf", (double)INFINITY},  {"+.inf", (double)INFINITY},
			{"-.inf", -(double)INFINITY}, {"-inf", -(double)INFINITY}, {"-.Inf", -(double)INFINITY}};
	char copy[400];

	if (length == 0 || length >= sizeof copy)
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
		if (!strcmp(copy, specials[i].text)) {
			*ret_value = specials[i].value;
			return true;
		}
	}
	return neap_double_parse(copy, ret_value, NULL) == NEAP_OK;
}

static enum neap_status yaml_line(struct reader *reader, const char *line, size_t length)
{
	char word[CHECKPOINT_WORD_CAPACITY];
	double value;

	while (length > 0 && strchr(" \t\r", line[length - 1]) && line[length - 1])
		length--;
	if (length == 0 || strchr("# \t-", line[0]) || (length == 3 && !memcmp(line, "...", 3)))
		return NEAP_OK;
	const char *colon = memchr(line, ':', length);
	while (colon && colon + 1 < line + length && colon[1] != ' ' && colon[1] != '\t')
		colon = memchr(colon + 1, ':', length - (size_t)(colon + 1 - line));
	if (!colon) {
		reader->at = line;
		return fail_here(reader, "\"word: value\"");
	}
	size_t key = (size_t)(colon - line);
	while (key > 0 && (line[key - 1] == ' ' || line[key - 1] == '\t'))
		key--;
	bool quoted = key >= 2 && (line[0] == '"' || line[0] == '\'') && line[key - 1] == line[0];
	checkpoint_word_normalize(line + quoted, key - 2 * quoted, word);
	const char *begin = colon + 1, *end = line + length;
	while (begin < end && (*begin == ' ' || *begin == '\t'))
		begin++;
	for (const char *p = begin; p < end; p++) {
		if (*p == '#' && p > begin && (p[-1] == ' ' || p[-1] == '\t')) {
			end = p;
			break;
		}
	}
	while (end > begin && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (word[0] && yaml_number(begin, (size_t)(end - begin), &value))
		reader->visitor->number(reader->visitor->context, word, 1, value);
	return NEAP_OK;
}

enum neap_status checkpoint_yaml_scan(const char *text, size_t length,
				      const struct checkpoint_sidecar_visitor *visitor, struct neap_error *err)
{
	struct reader reader = {.text = text, .at = text, .end = text + length, .visitor = visitor, .err = err};
	enum neap_status status = NEAP_OK;
	const char *line = text;

	while (!status && line < text + length) {
		const char *end = memchr(line, '\n', (size_t)(text + length - line));
		size_t line_length = end ? (size_t)(end - line) : (size_t)(text + length - line);

		if (memchr(line, '\0', line_length)) {
			reader.at = line;
			return fail_here(&reader, "text");
		}
		status = yaml_line(&reader, line, line_length);
		line += line_length + 1;
	}
	return status;
}

bool checkpoint_text_read(int folder_fd, const char *name, size_t most, struct neap_buffer *text, int *ret_cause)
{
	char chunk[16384];
	ssize_t n;
	int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	*ret_cause = errno;
	if (fd < 0)
		return false;
	while ((n = read(fd, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0)
			neap_buffer_append(text, chunk, (size_t)n);
		if (text->length > most || text->failed)
			break;
	}
	*ret_cause = n < 0 ? errno : text->failed ? ENOMEM : n > 0 ? EFBIG : 0;
	close(fd);
	return *ret_cause == 0;
}
