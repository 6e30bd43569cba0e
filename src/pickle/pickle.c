/* pickle/pickle.c: see the header. Lengths are checked against the bytes that are left before memory is taken. */
#include "pickle/pickle.h"

#include "base/error.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum neap_status neap_pickle_fail(struct neap_pickle *pickle, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	neap_fail(pickle->err, NEAP_EPARSE, "at byte %llu: %s", (unsigned long long)pickle->position, text);
	if (pickle->err)
		pickle->err->position = pickle->position;
	return NEAP_EPARSE;
}

enum neap_status neap_pickle_no_memory(struct neap_pickle *pickle)
{
	return neap_fail(pickle->err, NEAP_ENOMEM, "out of host memory");
}

enum neap_status neap_pickle_cut_short(struct neap_pickle *pickle, const char *what)
{
	pickle->cut_short = true;
	return neap_pickle_fail(pickle, "the file ends inside %s: it is cut short", what);
}

/* --- the stack ---------------------------------------------------------------------------------------------------
 */

static enum neap_status grow(struct neap_pickle *pickle)
{
	size_t capacity = pickle->capacity ? pickle->capacity * 2 : 256;

	if (pickle->depth >= NEAP_PICKLE_STACK_MAX)
		return neap_pickle_fail(pickle, "more than %u values in one list or dict", NEAP_PICKLE_STACK_MAX);
	struct neap_pickled *stack = realloc(pickle->stack, capacity * sizeof *stack);
	if (!stack)
		return neap_pickle_no_memory(pickle);
	pickle->stack = stack;
	pickle->capacity = capacity;
	return NEAP_OK;
}

static inline enum neap_status push(struct neap_pickle *pickle, unsigned type, uint64_t a, uint64_t b)
{
	if (pickle->depth == pickle->capacity) {
		enum neap_status status = grow(pickle);
		if (status)
			return status;
	}
	pickle->stack[pickle->depth++] = (struct neap_pickled){.type = (uint8_t)type, .fresh = true, .a = a, .b = b};
	return NEAP_OK;
}

enum neap_status neap_pickle_push(struct neap_pickle *pickle, unsigned type, uint64_t a, uint64_t b)
{
	return push(pickle, type, a, b);
}

static enum neap_status push_mark(struct neap_pickle *pickle)
{
	if (pickle->mark_count >= pickle->reader->marks_max)
		return neap_pickle_fail(pickle, "nested more than %zu deep", pickle->reader->marks_max);
	enum neap_status status = push(pickle, NEAP_PICKLE_MARK, pickle->floor, 0);
	if (status)
		return status;
	pickle->mark_count++;
	pickle->floor = pickle->depth;
	return NEAP_OK;
}

enum neap_status neap_pickle_need(struct neap_pickle *pickle, size_t count, const char *name)
{
	if (pickle->depth < pickle->floor + count)
		return neap_pickle_fail(pickle, "%s needs %zu value%s on the stack", name, count,
					count == 1 ? "" : "s");
	return NEAP_OK;
}

enum neap_status neap_pickle_drop_marked(struct neap_pickle *pickle, const char *name, size_t *ret_count)
{
	if (!pickle->floor)
		return neap_pickle_fail(pickle, "%s without a MARK", name);
	size_t mark = pickle->floor - 1;
	*ret_count = pickle->depth - pickle->floor;
	pickle->mark_count--;
	pickle->floor = (size_t)pickle->stack[mark].a;
	pickle->depth = mark;
	return NEAP_OK;
}

/* --- containers --------------------------------------------------------------------------------------------------
 */

/* EMPTY_DICT and EMPTY_LIST. MEMOIZE and MARK come next in nearly every pickle; handling them here saves two turns of
 * the loop. */
static enum neap_status open_container(struct neap_pickle *pickle, bool dict)
{
	enum neap_status status = push(pickle, dict ? NEAP_PICKLE_DICT : NEAP_PICKLE_LIST, 0, 0);

	if (status)
		return status;
	pickle->stack[pickle->depth - 1].list = !dict;
	if (pickle->end - pickle->at < 2 || *pickle->at != 0x94)
		return NEAP_OK;
	pickle->position++;
	pickle->at++;
	status = pickle->reader->put(pickle, NEAP_PICKLE_NEXT);
	if (status || *pickle->at != '(')
		return status;
	pickle->position++;
	pickle->at++;
	return push_mark(pickle);
}

/* The container becomes the top; its items are `count` values from `items` on. */
static enum neap_status add(struct neap_pickle *pickle, size_t container, size_t items, size_t count, bool dict)
{
	pickle->depth = container + 1;
	return pickle->reader->add(pickle, &pickle->stack[container], &pickle->stack[items], count, dict);
}

/* SETITEMS and APPENDS. */
static enum neap_status add_marked(struct neap_pickle *pickle, bool dict)
{
	const char *name = dict ? "SETITEMS" : "APPENDS";
	size_t count = 0;
	enum neap_status status = neap_pickle_drop_marked(pickle, name, &count);

	if (status)
		return status;
	if (pickle->depth <= pickle->floor)
		return neap_pickle_fail(pickle, "%s without a container below its MARK", name);
	return add(pickle, pickle->depth - 1, pickle->depth + 1, count, dict);
}

/* SETITEM and APPEND. */
static enum neap_status add_one(struct neap_pickle *pickle, bool dict)
{
	size_t count = dict ? 2 : 1;
	enum neap_status status = neap_pickle_need(pickle, count + 1, dict ? "SETITEM" : "APPEND");

	return status ? status : add(pickle, pickle->depth - count - 1, pickle->depth - count, count, dict);
}

/* DICT and LIST: replaces the mark and everything above it by one container. */
static enum neap_status collect(struct neap_pickle *pickle, bool dict)
{
	size_t count = 0;
	enum neap_status status = neap_pickle_drop_marked(pickle, dict ? "DICT" : "LIST", &count);

	if (status)
		return status;
	pickle->stack[pickle->depth] = (struct neap_pickled){
		.type = dict ? NEAP_PICKLE_DICT : NEAP_PICKLE_LIST, .fresh = true, .list = !dict};
	return add(pickle, pickle->depth, pickle->depth + 1, count, dict);
}

static enum neap_status make_tuple(struct neap_pickle *pickle, size_t count)
{
	enum neap_status status = neap_pickle_need(pickle, count, "TUPLE");
	struct neap_pickled tuple = {.fresh = true};

	if (status)
		return status;
	pickle->depth -= count;
	pickle->reader->tuple(pickle->stack + pickle->depth, count, &tuple);
	status = push(pickle, NEAP_PICKLE_OTHER, 0, 0);
	if (!status)
		pickle->stack[pickle->depth - 1] = tuple;
	return status;
}

static enum neap_status make_marked_tuple(struct neap_pickle *pickle)
{
	struct neap_pickled tuple = {.fresh = true};
	size_t count = 0;
	enum neap_status status = neap_pickle_drop_marked(pickle, "TUPLE", &count);

	if (status)
		return status;
	pickle->reader->tuple(pickle->stack + pickle->depth + 1, count, &tuple);
	pickle->stack[pickle->depth++] = tuple; /* in place of the mark */
	return NEAP_OK;
}

static enum neap_status pop(struct neap_pickle *pickle)
{
	size_t count;

	/* As Python's: a POP right after a MARK takes the mark. */
	if (pickle->floor && pickle->depth == pickle->floor)
		return neap_pickle_drop_marked(pickle, "POP", &count);
	enum neap_status status = neap_pickle_need(pickle, 1, "POP");
	if (!status)
		pickle->depth--;
	return status;
}

/* --- literals ----------------------------------------------------------------------------------------------------
 */

/* Whether `length` more bytes can follow; for a pipe or a compressed file that is not known until it ends. */
static enum neap_status check_length(struct neap_pickle *pickle, uint64_t length, const char *what)
{
	uint64_t position = neap_pickle_position(pickle);

	if (pickle->input_bytes != UINT64_MAX &&
	    (position > pickle->input_bytes || length > pickle->input_bytes - position))
		return neap_pickle_fail(pickle, "%s of %llu bytes goes beyond the file's end: it is cut short", what,
					(unsigned long long)length);
	return NEAP_OK;
}

enum neap_status neap_pickle_skip(struct neap_pickle *pickle, uint64_t length, const char *what)
{
	while (length) {
		if (!neap_pickle_has(pickle, 1))
			return neap_pickle_cut_short(pickle, what);
		size_t have = (size_t)(pickle->end - pickle->at);
		size_t step = length < have ? (size_t)length : have;
		pickle->at += step;
		length -= step;
	}
	return NEAP_OK;
}

static enum neap_status read_text(struct neap_pickle *pickle, uint64_t length)
{
	enum neap_status status = check_length(pickle, length, "a text");

	return status ? status : pickle->reader->text(pickle, length);
}

static enum neap_status push_wide(struct neap_pickle *pickle, uint64_t value, unsigned kind)
{
	bool other = kind && !pickle->reader->wide;

	return push(pickle, other ? NEAP_PICKLE_OTHER : NEAP_PICKLE_INT, value, kind);
}

/* LONG1 and LONG4: `length` bytes, two's complement. */
static enum neap_status read_long(struct neap_pickle *pickle, uint64_t length)
{
	if (length > INT32_MAX)
		return neap_pickle_fail(pickle, "a number of %llu bytes", (unsigned long long)length);
	enum neap_status status = check_length(pickle, length, "a number");
	if (status)
		return status;
	if (length > 9) {
		status = neap_pickle_skip(pickle, length, "a number");
		return status ? status : push_wide(pickle, 0, 2);
	}
	if (!neap_pickle_has(pickle, (size_t)length))
		return neap_pickle_cut_short(pickle, "a number");
	size_t used = length < 8 ? (size_t)length : 8;
	uint64_t value = neap_pickle_number(pickle->at, used);
	unsigned kind = 0;
	if (length == 9) /* the ninth byte only repeats the sign, or the number is unsigned, or it does not fit */
		kind = pickle->at[8] == 0xff && value > INT64_MAX ? 0 : pickle->at[8] == 0 ? 1 : 2;
	if (used && used < 8 && pickle->at[used - 1] & 0x80)
		value |= UINT64_MAX << 8 * used;
	pickle->at += length;
	return push_wide(pickle, value, kind == 1 && value <= INT64_MAX ? 0 : kind);
}

static enum neap_status read_bytes(struct neap_pickle *pickle, uint64_t length)
{
	enum neap_status status = check_length(pickle, length, "a run of bytes");

	if (!status)
		status = neap_pickle_skip(pickle, length, "a run of bytes");
	return status ? status : push(pickle, NEAP_PICKLE_OTHER, 0, 0);
}

static enum neap_status check_protocol(struct neap_pickle *pickle, uint64_t version)
{
	if (version < 2 || version > 5)
		return neap_pickle_fail(pickle, "protocol %u of pickle; 2 to 5 are known", (unsigned)version);
	return NEAP_OK;
}

/* --- the loop ----------------------------------------------------------------------------------------------------
 */

/* Takes the number or length that follows an instruction's code. */
static inline uint64_t take(struct neap_pickle *pickle, size_t width)
{
	uint64_t number = neap_pickle_number(pickle->at, width);

	pickle->at += width;
	return number;
}

/* Executes one instruction whose number or length is in the window. The widths are those of codes.c. They are
 * constants here because the next instruction cannot begin before the width is known: looking it up made reading a
 * tenth slower. */
static enum neap_status step(struct neap_pickle *pickle, unsigned char code)
{
	const struct neap_pickle_reader *reader = pickle->reader;
	size_t count;

	switch (code) {
	case 'h':
		return reader->get(pickle, take(pickle, 1));
	case 'j':
		return reader->get(pickle, take(pickle, 4));
	case 0x94:
		return reader->put(pickle, NEAP_PICKLE_NEXT);
	case 'q':
		return reader->put(pickle, take(pickle, 1));
	case 'r':
		return reader->put(pickle, take(pickle, 4));
	case 'K':
		return push(pickle, NEAP_PICKLE_INT, take(pickle, 1), 0);
	case 'M':
		return push(pickle, NEAP_PICKLE_INT, take(pickle, 2), 0);
	case 'J':
		return push(pickle, NEAP_PICKLE_INT, (uint64_t)(int64_t)(int32_t)take(pickle, 4), 0);
	case 0x8a:
		return read_long(pickle, take(pickle, 1));
	case 0x8b:
		return read_long(pickle, take(pickle, 4));
	case 'G': /* the only number that is big-endian */
		return push(pickle, NEAP_PICKLE_FLOAT, be64toh(htole64(take(pickle, 8))), 0);
	case 0x8c:
		return read_text(pickle, take(pickle, 1));
	case 'X':
		return read_text(pickle, take(pickle, 4));
	case 0x8d:
		return read_text(pickle, take(pickle, 8));
	case 'C':
		return read_bytes(pickle, take(pickle, 1));
	case 'B':
		return read_bytes(pickle, take(pickle, 4));
	case 0x8e:
		return read_bytes(pickle, take(pickle, 8));
	case 'N':
		return push(pickle, NEAP_PICKLE_NONE, 0, 0);
	case 0x88:
	case 0x89:
		return push(pickle, NEAP_PICKLE_BOOL, code == 0x88, 0);
	case '(':
		return push_mark(pickle);
	case '}':
	case ']':
		return open_container(pickle, code == '}');
	case ')':
		return make_tuple(pickle, 0);
	case 0x85:
	case 0x86:
	case 0x87:
		return make_tuple(pickle, code - 0x84u);
	case 't':
		return make_marked_tuple(pickle);
	case 'd':
	case 'l':
		return collect(pickle, code == 'd');
	case 'u':
	case 'e':
		return add_marked(pickle, code == 'u');
	case 's':
	case 'a':
		return add_one(pickle, code == 's');
	case '0':
		return pop(pickle);
	case '1':
		return neap_pickle_drop_marked(pickle, "POP_MARK", &count);
	case 0x95: /* only says how many bytes may be read at once */
		return check_length(pickle, take(pickle, 8), "a frame");
	case 0x80:
		return check_protocol(pickle, take(pickle, 1));
	default:
		return reader->other(pickle, code);
	}
}

enum neap_status neap_pickle_run(struct neap_pickle *pickle)
{
	const struct neap_pickle_reader *reader = pickle->reader;
	enum neap_status status = pickle->capacity ? NEAP_OK : grow(pickle);

	while (!status) {
		if (reader->ahead && !reader->ahead(pickle))
			return NEAP_OK;
		pickle->position = neap_pickle_position(pickle);
		/* Mostly there are enough bytes; near the end of the input fewer must do. */
		if (!neap_pickle_has(pickle, NEAP_PICKLE_ARGUMENT_MAX)) {
			size_t have = (size_t)(pickle->end - pickle->at);
			if (have < 1)
				return neap_pickle_cut_short(pickle, "the pickle");
			const struct neap_pickle_code *row = &neap_pickle_codes[*pickle->at];
			if (have < 1u + row->width)
				return neap_pickle_cut_short(pickle, row->name);
		}
		unsigned char code = *pickle->at++;
		if (code == '.')
			return neap_pickle_need(pickle, 1, "STOP");
		status = step(pickle, code);
	}
	return status;
}

void neap_pickle_fini(struct neap_pickle *pickle) { free(pickle->stack); }
