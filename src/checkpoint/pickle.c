/* checkpoint/pickle.c: see the header. Each kind of instruction has one function; a table has the argument that each
 * instruction takes from the pickle. Source of the instructions: the documentation of Python's pickletools module. */
#include "checkpoint/pickle.h"

#include "base/error.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MOST (1u << 20)

struct machine {
	const unsigned char *begin, *at, *end;
	const struct checkpoint_pickle_visitor *visitor;
	struct checkpoint_pickled *stack, *memo;
	size_t depth, room, memo_count, memo_room;
	size_t *marks, mark_count, mark_room;
	struct neap_error *err;
};

/* The argument of an instruction. BYTES: this many bytes. COUNT: a length of this many bytes, then the bytes. LINE:
 * text up to a newline. */
enum argument { NO_SUCH, BYTES_0, BYTES_1, BYTES_2, BYTES_4, BYTES_8, COUNT_1, COUNT_4, COUNT_8, LINE, LINES_2 };

struct operand {
	const unsigned char *bytes;
	size_t length;
};

static enum neap_status fail(struct machine *machine, const char *why)
{
	neap_fail(machine->err, NEAP_EPARSE, "%s", why);
	if (machine->err)
		machine->err->position = (uint64_t)(machine->at - machine->begin);
	return NEAP_EPARSE;
}

static enum neap_status out_of_memory(struct machine *machine)
{
	return neap_fail(machine->err, NEAP_ENOMEM, "out of host memory");
}

/* --- stack and memo --- */

/* Makes room for index `needed`. False: no memory. */
static bool grow(void **array, size_t *room, size_t needed, size_t size)
{
	if (needed < *room)
		return true;
	size_t larger = *room ? 2 * *room : 256;
	while (larger <= needed)
		larger *= 2;
	void *moved = realloc(*array, larger * size);
	if (!moved)
		return false;
	*array = moved;
	*room = larger;
	return true;
}

static enum neap_status push(struct machine *machine, struct checkpoint_pickled pushed)
{
	if (machine->depth >= VALUES_MOST)
		return fail(machine, "too many values");
	if (!grow((void **)&machine->stack, &machine->room, machine->depth, sizeof(struct checkpoint_pickled)))
		return out_of_memory(machine);
	machine->stack[machine->depth++] = pushed;
	return NEAP_OK;
}

static enum neap_status push_other(struct machine *machine)
{
	return push(machine, (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER});
}

/* How many values are above the last mark; without a mark, all of them. */
static size_t above(const struct machine *machine)
{
	return machine->depth - (machine->mark_count ? machine->marks[machine->mark_count - 1] : 0);
}

static enum neap_status need(struct machine *machine, size_t count)
{
	return above(machine) >= count ? NEAP_OK : fail(machine, "an instruction finds too few values");
}

static enum neap_status push_mark(struct machine *machine)
{
	if (machine->mark_count >= VALUES_MOST)
		return fail(machine, "too many marks");
	if (!grow((void **)&machine->marks, &machine->mark_room, machine->mark_count, sizeof(size_t)))
		return out_of_memory(machine);
	machine->marks[machine->mark_count++] = machine->depth;
	return NEAP_OK;
}

/* Removes the last mark; *ret_count: the number of values above it. */
static enum neap_status pop_mark(struct machine *machine, size_t *ret_count)
{
	if (machine->mark_count == 0)
		return fail(machine, "an instruction finds no mark");
	*ret_count = above(machine);
	machine->mark_count--;
	return NEAP_OK;
}

static enum neap_status put(struct machine *machine, uint64_t number)
{
	if (need(machine, 1) != NEAP_OK)
		return NEAP_EPARSE;
	if (number >= VALUES_MOST)
		return fail(machine, "a number in the memo is too large");
	if (!grow((void **)&machine->memo, &machine->memo_room, number, sizeof(struct checkpoint_pickled)))
		return out_of_memory(machine);
	for (; machine->memo_count <= number; machine->memo_count++)
		machine->memo[machine->memo_count] = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
	machine->memo[number] = machine->stack[machine->depth - 1];
	return NEAP_OK;
}

static enum neap_status get(struct machine *machine, uint64_t number)
{
	return number < machine->memo_count ? push(machine, machine->memo[number])
					    : fail(machine, "nothing is in the memo under that number");
}

/* --- values --- */

bool checkpoint_pickle_is(const struct checkpoint_pickled *one, const char *text)
{
	return one->type == CHECKPOINT_PICKLE_TEXT && one->length == strlen(text) &&
	       !memcmp(one->text, text, one->length);
}

static uint64_t little_endian(const struct operand *operand)
{
	uint64_t number = 0;

	for (size_t i = operand->length < 8 ? operand->length : 8; i-- > 0;)
		number = number << 8 | operand->bytes[i];
	return number;
}

/* LONG1 and LONG4: two's complement. A number of more than 8 bytes becomes a blank value. */
static struct checkpoint_pickled long_value(const struct operand *operand)
{
	uint64_t number = little_endian(operand);
	size_t length = operand->length;

	if (length > 8)
		return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
	if (length > 0 && length < 8 && (operand->bytes[length - 1] & 0x80))
		number |= UINT64_MAX << 8 * length;
	return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_INT, .integer = (int64_t)number};
}

static struct checkpoint_pickled float_value(const struct operand *operand)
{
	uint64_t bits = 0;
	struct checkpoint_pickled made = {.type = CHECKPOINT_PICKLE_FLOAT};

	for (size_t i = 0; i < 8; i++)
		bits = bits << 8 | operand->bytes[i]; /* the only argument that is big-endian */
	memcpy(&made.number, &bits, sizeof bits);
	return made;
}

static struct checkpoint_pickled text_value(const struct operand *operand)
{
	if (operand->length > UINT32_MAX)
		return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
	return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_TEXT,
					   .text = (const char *)operand->bytes,
					   .length = (uint32_t)operand->length};
}

/* The value of a line of protocol 0: a number, or a blank value. */
static struct checkpoint_pickled line_value(const struct operand *operand, bool real)
{
	char text[64];
	double number;
	struct checkpoint_pickled other = {.type = CHECKPOINT_PICKLE_OTHER};

	if (operand->length == 0 || operand->length >= sizeof text)
		return other;
	memcpy(text, operand->bytes, operand->length);
	text[operand->length] = '\0';
	if (!real && !strcmp(text, "01"))
		return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_BOOL, .integer = 1};
	if (!real && !strcmp(text, "00"))
		return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_BOOL};
	if (text[operand->length - 1] == 'L')
		text[operand->length - 1] = '\0';
	if (neap_double_parse(text, &number, NULL) != NEAP_OK)
		return other;
	if (real)
		return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_FLOAT, .number = number};
	if (fabs(number) > 9e15)
		return other;
	return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_INT, .integer = (int64_t)number};
}

/* The element type of a storage's class: "torch FloatStorage". */
static enum checkpoint_pickle_element element_of(const struct checkpoint_pickled *class)
{
	static const struct {
		const char *end;
		enum checkpoint_pickle_element element;
	} table[] = {{"BFloat16Storage", CHECKPOINT_PICKLE_BFLOAT16},
		     {"FloatStorage", CHECKPOINT_PICKLE_FLOAT32},
		     {"DoubleStorage", CHECKPOINT_PICKLE_FLOAT64},
		     {"HalfStorage", CHECKPOINT_PICKLE_FLOAT16}};

	for (size_t i = 0; class->type == CHECKPOINT_PICKLE_GLOBAL && i < sizeof table / sizeof *table; i++) {
		size_t length = strlen(table[i].end);
		if (class->length >= length && !memcmp(class->text + class->length - length, table[i].end, length))
			return table[i].element;
	}
	return CHECKPOINT_PICKLE_UNKNOWN;
}

/* torch.save names a storage by a tuple: ("storage", class, "12", "cpu", 1). */
static struct checkpoint_pickled storage_value(const struct checkpoint_pickled *items)
{
	uint64_t number = 0;

	for (size_t i = 0; i < items[2].length; i++) {
		if (items[2].text[i] < '0' || items[2].text[i] > '9' || i > 17)
			return (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
		number = number * 10 + (uint64_t)(items[2].text[i] - '0');
	}
	return (struct checkpoint_pickled){
		.type = CHECKPOINT_PICKLE_STORAGE, .element = element_of(&items[1]), .storage = number};
}

/* A storage's name; or (storage, offset, (), ...), the arguments that make a tensor without dimensions; or arguments
 * that begin with such a tensor and make a parameter of it. Other tuples give a blank value. */
static struct checkpoint_pickled tuple_value(const struct checkpoint_pickled *items, size_t count)
{
	struct checkpoint_pickled made = {.type = CHECKPOINT_PICKLE_OTHER};

	if (count >= 5 && checkpoint_pickle_is(&items[0], "storage") && items[2].type == CHECKPOINT_PICKLE_TEXT)
		made = storage_value(items);
	else if (count >= 3 && items[0].type == CHECKPOINT_PICKLE_STORAGE && items[1].type == CHECKPOINT_PICKLE_INT &&
		 items[1].integer >= 0 && items[1].integer < INT32_MAX &&
		 items[2].type == CHECKPOINT_PICKLE_NOTHING) {
		made = items[0];
		made.type = CHECKPOINT_PICKLE_ARGUMENTS;
		made.offset = (uint32_t)items[1].integer;
	} else if (items[0].type == CHECKPOINT_PICKLE_SCALAR) {
		made = items[0];
		made.type = CHECKPOINT_PICKLE_ARGUMENTS;
	}
	return made;
}

/* --- instructions --- */

static enum neap_status make_tuple(struct machine *machine, size_t count)
{
	if (count == 0)
		return push(machine, (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_NOTHING});
	if (need(machine, count) != NEAP_OK)
		return NEAP_EPARSE;
	struct checkpoint_pickled made = tuple_value(machine->stack + machine->depth - count, count);
	machine->depth -= count;
	return push(machine, made);
}

static enum neap_status make_marked_tuple(struct machine *machine)
{
	size_t count;

	return pop_mark(machine, &count) == NEAP_OK ? make_tuple(machine, count) : NEAP_EPARSE;
}

/* Removes `count` values, and pushes a blank one if `made`. */
static enum neap_status drop(struct machine *machine, size_t count, bool made)
{
	if (need(machine, count) != NEAP_OK)
		return NEAP_EPARSE;
	machine->depth -= count;
	return made ? push_other(machine) : NEAP_OK;
}

static enum neap_status drop_marked(struct machine *machine, bool made)
{
	size_t count;

	return pop_mark(machine, &count) == NEAP_OK ? drop(machine, count, made) : NEAP_EPARSE;
}

/* The last `count` values are keys and values of the dict below them. */
static enum neap_status add_items(struct machine *machine, size_t count)
{
	static const struct checkpoint_pickled none = {.type = CHECKPOINT_PICKLE_OTHER};

	if (count % 2 != 0 || need(machine, count + 1) != NEAP_OK)
		return fail(machine, "items without a dict, or a key without a value");
	size_t first = machine->depth - count;
	/* if a mark is right below the dict, the dict has no name */
	bool named = above(machine) >= count + 2;
	if (count > 0)
		machine->visitor->items(machine->visitor->context, named ? &machine->stack[first - 2] : &none,
					machine->stack + first, count);
	machine->depth = first;
	return NEAP_OK;
}

static enum neap_status add_marked_items(struct machine *machine)
{
	size_t count;

	return pop_mark(machine, &count) == NEAP_OK ? add_items(machine, count) : NEAP_EPARSE;
}

/* DICT: makes a dict of the items above the mark. */
static enum neap_status make_dict(struct machine *machine)
{
	static const struct checkpoint_pickled none = {.type = CHECKPOINT_PICKLE_OTHER};
	size_t count;

	if (pop_mark(machine, &count) != NEAP_OK)
		return NEAP_EPARSE;
	if (count % 2 != 0)
		return fail(machine, "a key without a value");
	size_t first = machine->depth - count;
	if (count > 0)
		machine->visitor->items(machine->visitor->context,
					above(machine) > count ? &machine->stack[first - 1] : &none,
					machine->stack + first, count);
	machine->depth = first;
	return push_other(machine);
}

/* REDUCE: skips a call. Its result is a scalar or a blank value. */
static enum neap_status reduce(struct machine *machine)
{
	if (need(machine, 2) != NEAP_OK)
		return NEAP_EPARSE;
	struct checkpoint_pickled made = machine->stack[machine->depth - 1];
	made.type = made.type == CHECKPOINT_PICKLE_ARGUMENTS ? CHECKPOINT_PICKLE_SCALAR : CHECKPOINT_PICKLE_OTHER;
	machine->depth -= 2;
	return push(machine, made);
}

/* BINPERSID: loads a storage by its name. */
static enum neap_status load_persistent(struct machine *machine)
{
	if (need(machine, 1) != NEAP_OK)
		return NEAP_EPARSE;
	struct checkpoint_pickled *top = &machine->stack[machine->depth - 1];
	if (top->type != CHECKPOINT_PICKLE_STORAGE)
		*top = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
	return NEAP_OK;
}

/* STACK_GLOBAL: module and name. */
static enum neap_status stack_global(struct machine *machine)
{
	if (need(machine, 2) != NEAP_OK)
		return NEAP_EPARSE;
	struct checkpoint_pickled made = machine->stack[machine->depth - 1];
	made.type = made.type == CHECKPOINT_PICKLE_TEXT ? CHECKPOINT_PICKLE_GLOBAL : CHECKPOINT_PICKLE_OTHER;
	machine->depth -= 2;
	return push(machine, made);
}

static enum neap_status duplicate(struct machine *machine)
{
	return need(machine, 1) == NEAP_OK ? push(machine, machine->stack[machine->depth - 1]) : NEAP_EPARSE;
}

/* --- reading --- */

/* Reads the argument of an instruction. False: it goes beyond the end. */
static bool read_operand(struct machine *machine, enum argument kind, struct operand *operand)
{
	static const size_t widths[] = {[BYTES_1] = 1, [BYTES_2] = 2, [BYTES_4] = 4, [BYTES_8] = 8,
					[COUNT_1] = 1, [COUNT_4] = 4, [COUNT_8] = 8};
	size_t left = (size_t)(machine->end - machine->at);

	if (kind == LINE || kind == LINES_2) {
		const unsigned char *line = memchr(machine->at, '\n', left);
		if (line && kind == LINES_2)
			line = memchr(line + 1, '\n', (size_t)(machine->end - line - 1));
		if (!line)
			return false;
		*operand = (struct operand){machine->at, (size_t)(line - machine->at)};
		machine->at = line + 1;
		return true;
	}
	size_t wanted = widths[kind];
	if (left < wanted)
		return false;
	*operand = (struct operand){machine->at, wanted};
	machine->at += wanted;
	if (kind < COUNT_1)
		return true;
	uint64_t length = little_endian(operand);
	if (length > (uint64_t)(machine->end - machine->at))
		return false;
	*operand = (struct operand){machine->at, (size_t)length};
	machine->at += length;
	return true;
}

static const unsigned char arguments[256] = {
	['K'] = BYTES_1,  ['h'] = BYTES_1,  ['q'] = BYTES_1,  [0x80] = BYTES_1, [0x82] = BYTES_1, ['M'] = BYTES_2,
	[0x83] = BYTES_2, ['J'] = BYTES_4,  ['j'] = BYTES_4,  ['r'] = BYTES_4,  [0x84] = BYTES_4, ['G'] = BYTES_8,
	[0x95] = BYTES_8, ['U'] = COUNT_1,  ['C'] = COUNT_1,  [0x8a] = COUNT_1, [0x8c] = COUNT_1, ['T'] = COUNT_4,
	['X'] = COUNT_4,  ['B'] = COUNT_4,  [0x8b] = COUNT_4, [0x8d] = COUNT_8, [0x8e] = COUNT_8, [0x96] = COUNT_8,
	['F'] = LINE,     ['I'] = LINE,     ['L'] = LINE,     ['P'] = LINE,     ['S'] = LINE,     ['V'] = LINE,
	['g'] = LINE,     ['p'] = LINE,     ['c'] = LINES_2,  ['i'] = LINES_2,  ['('] = BYTES_0,  ['.'] = BYTES_0,
	['0'] = BYTES_0,  ['1'] = BYTES_0,  ['2'] = BYTES_0,  ['N'] = BYTES_0,  ['Q'] = BYTES_0,  ['R'] = BYTES_0,
	['a'] = BYTES_0,  ['b'] = BYTES_0,  ['d'] = BYTES_0,  ['}'] = BYTES_0,  ['e'] = BYTES_0,  ['l'] = BYTES_0,
	[']'] = BYTES_0,  ['o'] = BYTES_0,  ['s'] = BYTES_0,  ['t'] = BYTES_0,  [')'] = BYTES_0,  ['u'] = BYTES_0,
	[0x81] = BYTES_0, [0x85] = BYTES_0, [0x86] = BYTES_0, [0x87] = BYTES_0, [0x88] = BYTES_0, [0x89] = BYTES_0,
	[0x8f] = BYTES_0, [0x90] = BYTES_0, [0x91] = BYTES_0, [0x92] = BYTES_0, [0x93] = BYTES_0, [0x94] = BYTES_0,
	[0x97] = BYTES_0, [0x98] = BYTES_0,
};

/* Instructions that put a blank value on the stack: bytes, texts of Python 2, empty containers, EXT, PERSID. */
static bool is_blank(unsigned char code) { return code && strchr("STUBC}]P\x82\x83\x84\x8e\x8f\x96\x97", code); }

/* Instructions that push one value, made from their argument. */
static bool is_value(unsigned char code, const struct operand *operand, struct checkpoint_pickled *ret_value)
{
	uint64_t number = little_endian(operand);

	*ret_value = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_OTHER};
	switch (code) {
	case 'N':
		ret_value->type = CHECKPOINT_PICKLE_NONE;
		return true;
	case 0x88:
	case 0x89:
		*ret_value = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_BOOL, .integer = code == 0x88};
		return true;
	case 'K':
	case 'M':
		*ret_value = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_INT, .integer = (int64_t)number};
		return true;
	case 'J':
		*ret_value = (struct checkpoint_pickled){.type = CHECKPOINT_PICKLE_INT,
							 .integer = (int32_t)(uint32_t)number};
		return true;
	case 0x8a:
	case 0x8b:
		*ret_value = long_value(operand);
		return true;
	case 'G':
		*ret_value = float_value(operand);
		return true;
	case 'I':
	case 'L':
	case 'F':
		*ret_value = line_value(operand, code == 'F');
		return true;
	case 'X':
	case 0x8c:
	case 0x8d:
	case 'V':
		*ret_value = text_value(operand);
		return true;
	case ')':
		ret_value->type = CHECKPOINT_PICKLE_NOTHING;
		return true;
	case 'c':
		*ret_value = text_value(operand);
		ret_value->type = CHECKPOINT_PICKLE_GLOBAL;
		return true;
	default:
		return is_blank(code);
	}
}

static enum neap_status carry_out(struct machine *machine, unsigned char code, const struct operand *operand)
{
	struct checkpoint_pickled line =
		code == 'g' || code == 'p' ? line_value(operand, false) : (struct checkpoint_pickled){0};

	switch (code) {
	case 0x80: /* PROTO */
	case 0x95: /* FRAME */
	case 0x98: /* READONLY_BUFFER */
		return NEAP_OK;
	case '(':
		return push_mark(machine);
	case '0': /* POP removes a value, or a mark if that is on top */
		return above(machine) == 0 ? drop_marked(machine, false) : drop(machine, 1, false);
	case '1':
	case 'e':  /* APPENDS */
	case 0x90: /* ADDITEMS */
		return drop_marked(machine, false);
	case '2':
		return duplicate(machine);
	case 'Q':
		return load_persistent(machine);
	case 'R':
		return reduce(machine);
	case 0x81: /* NEWOBJ */
		return drop(machine, 2, true);
	case 0x92: /* NEWOBJ_EX */
		return drop(machine, 3, true);
	case 'i':  /* INST */
	case 'o':  /* OBJ */
	case 'l':  /* LIST */
	case 0x91: /* FROZENSET */
		return drop_marked(machine, true);
	case 'a': /* APPEND */
	case 'b': /* BUILD */
		return need(machine, 2) == NEAP_OK ? drop(machine, 1, false) : NEAP_EPARSE;
	case 'd':
		return make_dict(machine);
	case 's':
		return add_items(machine, 2);
	case 'u':
		return add_marked_items(machine);
	case 't':
		return make_marked_tuple(machine);
	case 0x85:
	case 0x86:
	case 0x87:
		return make_tuple(machine, code - 0x84u);
	case 0x93:
		return stack_global(machine);
	case 0x94: /* MEMOIZE */
		return put(machine, machine->memo_count);
	case 'q':
	case 'r':
		return put(machine, little_endian(operand));
	case 'h':
	case 'j':
		return get(machine, little_endian(operand));
	default: /* PUT, GET */
		if (line.type != CHECKPOINT_PICKLE_INT || line.integer < 0)
			return fail(machine, "a number in the memo is none");
		return code == 'p' ? put(machine, (uint64_t)line.integer) : get(machine, (uint64_t)line.integer);
	}
}

static enum neap_status run(struct machine *machine)
{
	enum neap_status status = NEAP_OK;

	while (status == NEAP_OK) {
		struct operand operand = {0};
		struct checkpoint_pickled made;

		if (machine->at == machine->end)
			return fail(machine, "the pickle ends before its STOP");
		unsigned char code = *machine->at++;
		enum argument kind = arguments[code];
		if (kind == NO_SUCH)
			return fail(machine, "an instruction that no pickle has");
		if (!read_operand(machine, kind, &operand))
			return fail(machine, "the pickle ends within an instruction");
		if (code == '.')
			return need(machine, 1);
		status = is_value(code, &operand, &made) ? push(machine, made) : carry_out(machine, code, &operand);
	}
	return status;
}

enum neap_status checkpoint_pickle_scan(const void *pickle, size_t length,
					const struct checkpoint_pickle_visitor *visitor, struct neap_error *err)
{
	const unsigned char *begin = pickle;
	struct machine machine = {.begin = begin, .at = begin, .end = begin + length, .visitor = visitor, .err = err};
	enum neap_status status = run(&machine);

	free(machine.stack);
	free(machine.memo);
	free(machine.marks);
	return status;
}
