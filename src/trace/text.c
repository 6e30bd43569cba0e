/* trace/text.c: reads the text form, line by line; every error has its line and column. */
#include "base/error.h"
#include "base/map.h"
#include "trace/formats.h"

#include <stdio.h>
#include <string.h>

#define LINE_BYTES_MAX 65535u
#define LINES_MAX      UINT32_MAX

/* One line, and the reader's place in it. */
struct line {
	const char *start, *at, *end;
	uint32_t number;
};

struct text_reader {
	struct neap_build *build;
	struct neap_map live; /* id -> size << 16 | stream */
	uint64_t events, steps;
	struct neap_error *err;
};

/* A live id's size and stream are one number: the size above the 16 bits of the stream. */
_Static_assert(NEAP_TEXT_BYTES_MAX >> 48 == 0, "a size and a stream fit in one number");

static enum neap_status fail_at(struct text_reader *reader, const struct line *line, const char *at, const char *what)
{
	return neap_fail_at(reader->err, line->number, (uint32_t)(at - line->start) + 1, "line %u, column %u: %s",
			    line->number, (unsigned)(at - line->start) + 1, what);
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static void skip_blanks(struct line *line)
{
	while (line->at < line->end && is_blank(*line->at))
		line->at++;
}

/* Reads the next word, a number up to `max`. */
static enum neap_status get_number(struct text_reader *reader, struct line *line, const char *what, uint64_t max,
				   uint64_t *ret_number)
{
	char message[128];
	uint64_t number = 0;

	skip_blanks(line);
	const char *start = line->at;
	if (start == line->end || *start < '0' || *start > '9') {
		snprintf(message, sizeof message, "expected %s", what);
		return fail_at(reader, line, start, message);
	}
	for (; line->at < line->end && *line->at >= '0' && *line->at <= '9'; line->at++) {
		unsigned digit = (unsigned)(*line->at - '0');
		if (number > (max - digit) / 10) {
			snprintf(message, sizeof message, "%s is too large (at most %llu)", what,
				 (unsigned long long)max);
			return fail_at(reader, line, start, message);
		}
		number = number * 10 + digit;
	}
	if (line->at < line->end && !is_blank(*line->at)) {
		snprintf(message, sizeof message, "expected only digits in %s", what);
		return fail_at(reader, line, line->at, message);
	}
	*ret_number = number;
	return NEAP_OK;
}

static enum neap_status get_stream(struct text_reader *reader, struct line *line, uint16_t *ret_stream)
{
	uint64_t handle;
	enum neap_status status = get_number(reader, line, "the stream's number", UINT32_MAX, &handle);

	if (!status)
		*ret_stream = neap_build_stream(reader->build, handle, 0, 0);
	return status;
}

static void add(struct text_reader *reader, struct neap_trace_event *event)
{
	neap_build_event(reader->build, event);
	reader->events++;
}

static enum neap_status read_alloc(struct text_reader *reader, struct line *line)
{
	struct neap_trace_event event = {.kind = NEAP_TRACE_ALLOC};
	enum neap_status status = get_number(reader, line, "the block's id", UINT64_MAX, &event.address);
	const char *id_end = line->at;

	if (!status)
		status = get_number(reader, line, "the number of bytes", NEAP_TEXT_BYTES_MAX, &event.size);
	if (!status && event.size == 0)
		return fail_at(reader, line, line->at - 1, "an allocation of 0 bytes");
	if (!status)
		status = get_stream(reader, line, &event.stream);
	if (status)
		return status;
	if (neap_map_get(&reader->live, event.address, NULL))
		return fail_at(reader, line, id_end - 1, "this id is live already");
	if (!neap_map_put(&reader->live, event.address, event.size << 16 | event.stream))
		return neap_fail(reader->err, NEAP_ENOMEM, "out of host memory");
	add(reader, &event);
	return NEAP_OK;
}

static enum neap_status read_known(struct text_reader *reader, struct line *line, struct neap_trace_event *event)
{
	uint64_t about;
	enum neap_status status = get_number(reader, line, "the block's id", UINT64_MAX, &event->address);

	if (status)
		return status;
	if (!neap_map_get(&reader->live, event->address, &about))
		return fail_at(reader, line, line->at - 1, "no block with this id is live");
	event->size = about >> 16;
	event->stream = about & UINT16_MAX;
	return NEAP_OK;
}

static enum neap_status read_free(struct text_reader *reader, struct line *line)
{
	struct neap_trace_event event = {.kind = NEAP_TRACE_FREE_REQUESTED};
	enum neap_status status = read_known(reader, line, &event);

	if (status)
		return status;
	neap_map_remove(&reader->live, event.address, NULL);
	add(reader, &event);
	return NEAP_OK;
}

static enum neap_status read_record_stream(struct text_reader *reader, struct line *line)
{
	struct neap_trace_event event = {.kind = NEAP_TRACE_RECORD_STREAM};
	enum neap_status status = read_known(reader, line, &event);

	if (!status)
		status = get_stream(reader, line, &event.stream);
	if (!status)
		add(reader, &event);
	return status;
}

static enum neap_status read_empty_cache(struct text_reader *reader, struct line *line)
{
	struct neap_trace_event event = {.kind = NEAP_TRACE_EMPTY_CACHE};

	(void)line;
	add(reader, &event);
	return NEAP_OK;
}

static enum neap_status read_step(struct text_reader *reader, struct line *line)
{
	struct neap_trace_mark mark = {.kind = NEAP_TRACE_STEP, .event = reader->events, .number = ++reader->steps};

	(void)line;
	neap_build_mark(reader->build, &mark);
	return NEAP_OK;
}

static enum neap_status read_mark(struct text_reader *reader, struct line *line)
{
	struct neap_trace_mark mark = {.kind = NEAP_TRACE_MARK, .event = reader->events};

	skip_blanks(line);
	if (line->at == line->end)
		return fail_at(reader, line, line->at, "expected the mark's name");
	mark.name = neap_build_text(reader->build, line->at, (size_t)(line->end - line->at));
	line->at = line->end;
	neap_build_mark(reader->build, &mark);
	return NEAP_OK;
}

static enum neap_status read_line(struct text_reader *reader, struct line *line)
{
	static const struct {
		char letter;
		enum neap_status (*read)(struct text_reader *reader, struct line *line);
	} kinds[] = {
		{'a', read_alloc},       {'f', read_free}, {'r', read_record_stream},
		{'e', read_empty_cache}, {'s', read_step}, {'m', read_mark},
	};
	enum neap_status status;

	skip_blanks(line);
	if (line->at == line->end || *line->at == '#')
		return NEAP_OK;
	const char *start = line->at;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (*start != kinds[i].letter || (start + 1 < line->end && !is_blank(start[1])))
			continue;
		line->at++;
		status = kinds[i].read(reader, line);
		if (status)
			return status;
		skip_blanks(line);
		if (line->at < line->end)
			return fail_at(reader, line, line->at, "expected the end of the line");
		return NEAP_OK;
	}
	return fail_at(reader, line, start, "expected a, f, r, e, s, m or # at the start of a line");
}

/* Finds the next line in the window. *ret_length includes its line end. False: there is none, or it is too long. */
static bool find_line(struct neap_input *input, struct line *line, size_t *ret_length)
{
	const unsigned char *newline = NULL;
	size_t length = 0;

	while (!newline && neap_input_has(input, length + 1) && length <= LINE_BYTES_MAX) {
		newline = memchr(input->at + length, '\n', (size_t)(input->end - input->at) - length);
		length = newline ? (size_t)(newline - input->at) : (size_t)(input->end - input->at);
	}
	if (!length && !newline)
		return false;
	line->start = line->at = (const char *)input->at;
	line->end = line->start + length;
	*ret_length = newline ? length + 1 : length;
	while (line->end > line->start && (is_blank(line->end[-1]) || line->end[-1] == '\r'))
		line->end--;
	return true;
}

enum neap_status neap_text_read(struct neap_input *input, struct neap_build *build, struct neap_error *err)
{
	struct text_reader reader = {.build = build, .err = err};
	struct line line = {.number = 0};
	enum neap_status status = NEAP_OK;
	size_t length;

	while (!status && !build->failed && find_line(input, &line, &length)) {
		if (line.number++ == LINES_MAX - 1)
			status = neap_fail(err, NEAP_EPARSE, "more than 4294967294 lines");
		else if (length > LINE_BYTES_MAX)
			status = fail_at(&reader, &line, line.start, "a line of more than 65535 bytes");
		else
			status = read_line(&reader, &line);
		input->at += length;
	}
	if (!status && input->failed) {
		status = input->failed;
		if (err)
			*err = input->error;
	}
	if (!status)
		build->trace->devices[0].event_count = build->trace->store->count;
	neap_map_fini(&reader.live);
	return status;
}
