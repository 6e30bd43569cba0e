/* trace/pickle.c: the stack machine of pickles, protocols 2 to 5. It executes nothing: see pickle.h.
 *
 * Bounds: the stack has at most STACK_MAX values and MARKS_MAX open marks, lengths and memo numbers are compared with
 * the bytes there are, and a fetched value is a copy of 8 bytes, so a pickle that repeats itself costs no more than
 * its length. */
#include "trace/pickle.h"

#include "base/error.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_MAX    (1u << 20)
#define MARKS_MAX    64u /* a snapshot needs 9 */
#define ARGUMENT_MAX 9u  /* bytes of the longest instruction without a length: BINFLOAT, FRAME */

enum neap_status neap_pickle_fail(struct machine *machine, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	neap_fail(machine->err, NEAP_EPARSE, "at byte %llu: %s", (unsigned long long)machine->position, text);
	if (machine->err)
		machine->err->position = machine->position;
	return NEAP_EPARSE;
}

enum neap_status neap_pickle_no_memory(struct machine *machine)
{
	return neap_fail(machine->err, NEAP_ENOMEM, "out of host memory");
}

/* --- names of instructions, for errors ---------------------------------------------------------------------------
 */

static const char *instruction_name(unsigned char code)
{
	static const char *const names[256] = {
		['('] = "MARK",
		['.'] = "STOP",
		['0'] = "POP",
		['1'] = "POP_MARK",
		['2'] = "DUP",
		['F'] = "FLOAT",
		['I'] = "INT",
		['J'] = "BININT",
		['K'] = "BININT1",
		['L'] = "LONG",
		['M'] = "BININT2",
		['N'] = "NONE",
		['P'] = "PERSID",
		['Q'] = "BINPERSID",
		['R'] = "REDUCE",
		['S'] = "STRING",
		['T'] = "BINSTRING",
		['U'] = "SHORT_BINSTRING",
		['V'] = "UNICODE",
		['X'] = "BINUNICODE",
		['a'] = "APPEND",
		['b'] = "BUILD",
		['c'] = "GLOBAL",
		['d'] = "DICT",
		['}'] = "EMPTY_DICT",
		['e'] = "APPENDS",
		['g'] = "GET",
		['h'] = "BINGET",
		['i'] = "INST",
		['j'] = "LONG_BINGET",
		['l'] = "LIST",
		[']'] = "EMPTY_LIST",
		['o'] = "OBJ",
		['p'] = "PUT",
		['q'] = "BINPUT",
		['r'] = "LONG_BINPUT",
		['s'] = "SETITEM",
		['t'] = "TUPLE",
		[')'] = "EMPTY_TUPLE",
		['u'] = "SETITEMS",
		['G'] = "BINFLOAT",
		['B'] = "BINBYTES",
		['C'] = "SHORT_BINBYTES",
		[0x80] = "PROTO",
		[0x81] = "NEWOBJ",
		[0x82] = "EXT1",
		[0x83] = "EXT2",
		[0x84] = "EXT4",
		[0x85] = "TUPLE1",
		[0x86] = "TUPLE2",
		[0x87] = "TUPLE3",
		[0x88] = "NEWTRUE",
		[0x89] = "NEWFALSE",
		[0x8a] = "LONG1",
		[0x8b] = "LONG4",
		[0x8c] = "SHORT_BINUNICODE",
		[0x8d] = "BINUNICODE8",
		[0x8e] = "BINBYTES8",
		[0x8f] = "EMPTY_SET",
		[0x90] = "ADDITEMS",
		[0x91] = "FROZENSET",
		[0x92] = "NEWOBJ_EX",
		[0x93] = "STACK_GLOBAL",
		[0x94] = "MEMOIZE",
		[0x95] = "FRAME",
		[0x96] = "BYTEARRAY8",
		[0x97] = "NEXT_BUFFER",
		[0x98] = "READONLY_BUFFER",
	};

	return names[code];
}

static enum neap_status refuse(struct machine *machine, unsigned char code)
{
	const char *name = instruction_name(code);

	if (!name)
		return neap_pickle_fail(machine, "0x%02x is no instruction of a pickle", code);
	if (memchr("RbciobPQ\x81\x82\x83\x84\x92\x93", code, 14))
		return neap_pickle_fail(machine,
					"%s would execute code of the file's choosing: refused; a snapshot holds "
					"only plain data",
					name);
	return neap_pickle_fail(machine, "%s does not occur in snapshots", name);
}

/* --- the stack ---------------------------------------------------------------------------------------------------
 */

static enum neap_status grow_stack(struct machine *machine)
{
	size_t room = machine->room ? machine->room * 2 : 256;

	if (machine->depth >= STACK_MAX)
		return neap_pickle_fail(machine, "more than %u values in one list or dict", STACK_MAX);
	struct value *stack = realloc(machine->stack, room * sizeof *stack);
	if (!stack)
		return neap_pickle_no_memory(machine);
	machine->stack = stack;
	machine->room = room;
	return NEAP_OK;
}

static inline enum neap_status push(struct machine *machine, enum value_type type, uint64_t a, uint64_t b)
{
	if (machine->depth == machine->room) {
		enum neap_status status = grow_stack(machine);
		if (status != NEAP_OK)
			return status;
	}
	machine->stack[machine->depth++] = (struct value){.type = (uint8_t)type, .fresh = true, .a = a, .b = b};
	return NEAP_OK;
}

static enum neap_status push_mark(struct machine *machine)
{
	if (machine->mark_count >= MARKS_MAX)
		return neap_pickle_fail(machine, "nested more than %u deep", MARKS_MAX);
	if (machine->mark_count == machine->mark_room) {
		size_t room = machine->mark_room ? machine->mark_room * 2 : 16;
		size_t *marks = realloc(machine->marks, room * sizeof *marks);
		if (!marks)
			return neap_pickle_no_memory(machine);
		machine->marks = marks;
		machine->mark_room = room;
	}
	machine->marks[machine->mark_count++] = machine->depth;
	return push(machine, VALUE_MARK, 0, 0);
}

/* The lowest depth that the current instruction may touch: above the innermost mark. */
static size_t floor_of(const struct machine *machine)
{
	return machine->mark_count ? machine->marks[machine->mark_count - 1] + 1 : 0;
}

static enum neap_status need(struct machine *machine, size_t count, const char *name)
{
	if (machine->depth < floor_of(machine) + count)
		return neap_pickle_fail(machine, "%s needs %zu value%s on the stack", name, count,
					count == 1 ? "" : "s");
	return NEAP_OK;
}

/* Takes the innermost mark; *ret_items are the values above it, and they stay on the stack. With `owner`, a container
 * must be below the mark. */
static enum neap_status pop_mark(struct machine *machine, bool owner, const char *name, struct value **ret_items,
				 size_t *ret_count)
{
	if (!machine->mark_count)
		return neap_pickle_fail(machine, "%s without a MARK", name);
	size_t mark = machine->marks[--machine->mark_count];
	if (owner && mark < floor_of(machine) + 1)
		return neap_pickle_fail(machine, "%s without a container below its MARK", name);
	*ret_items = machine->stack + mark + 1;
	*ret_count = machine->depth - mark - 1;
	return NEAP_OK;
}

/* --- the memo ----------------------------------------------------------------------------------------------------
 */

/* A value in 8 bytes: type in the low 5 bits. */
#define ENTRY_BITS 59

static enum neap_status pack_entry(struct machine *machine, const struct value *value, uint64_t *ret_entry)
{
	uint64_t payload = value->a;
	enum value_type type = value->type;

	switch (type) {
	case VALUE_PAIR:
		if (value->a >> 32 || value->b >> (ENTRY_BITS - 32))
			type = VALUE_OTHER;
		payload = value->a | value->b << 32;
		break;
	case VALUE_INT:
	case VALUE_FLOAT:
		return neap_pickle_fail(machine, "a number is put into the memo: no pickler does that");
	case VALUE_HISTORY:
		type = VALUE_OTHER; /* shared histories occur in no layout */
		break;
	default:
		break;
	}
	*ret_entry = payload << 5 | (uint64_t)type;
	return NEAP_OK;
}

/* Runs and what was taken already are one of a kind: nothing refers to them again. */
static bool is_single_use(const struct value *value)
{
	return value->type == VALUE_EVENTS || value->type == VALUE_BLOCKS || value->type == VALUE_SEGMENTS ||
	       value->type == VALUE_TRACES || value->type == VALUE_TOP;
}

static enum neap_status memo_failed(struct machine *machine, enum neap_memo_result result, uint64_t number)
{
	if (result == NEAP_MEMO_NO_MEMORY)
		return neap_pickle_no_memory(machine);
	return neap_pickle_fail(machine, "memo %llu is put out of order", (unsigned long long)number);
}

static enum neap_status put(struct machine *machine, uint64_t number)
{
	enum neap_memo_result result;
	uint64_t entry = 0;
	enum neap_status status = need(machine, 1, "a put into the memo");

	if (status != NEAP_OK)
		return status;
	struct value *top = &machine->stack[machine->depth - 1];
	if (top->memoised)
		return neap_pickle_fail(machine, "a value is put into the memo twice");
	/* Every number was put by an instruction of its own. */
	if (number > machine->position)
		return neap_pickle_fail(machine, "memo %llu is more than a file of this length can have",
					(unsigned long long)number);
	if (is_single_use(top)) {
		result = neap_memo_skip(&machine->memo, number);
	} else {
		status = pack_entry(machine, top, &entry);
		if (status != NEAP_OK)
			return status;
		result = neap_memo_put(&machine->memo, number, entry);
		top->memoised = true;
		top->memo = number;
	}
	return result == NEAP_MEMO_DONE ? NEAP_OK : memo_failed(machine, result, number);
}

/* The value became something else after it was put. */
static void update_memo(struct machine *machine, struct value *value)
{
	uint64_t *entry;

	if (!value->memoised)
		return;
	if (is_single_use(value) && neap_memo_forget(&machine->memo, value->memo)) {
		value->memoised = false;
		return;
	}
	entry = neap_memo_get(&machine->memo, value->memo);
	if (!entry)
		return;
	if (is_single_use(value))
		*entry = VALUE_MARK; /* as forgotten */
	else
		pack_entry(machine, value, entry);
}

/* An empty container that is being filled right now: below a mark, or on top for APPEND and SETITEM. */
static bool is_open(const struct machine *machine, uint64_t number)
{
	for (size_t i = 0; i < machine->mark_count + 2; i++) {
		size_t above = i < machine->mark_count ? machine->marks[i] : machine->depth + machine->mark_count - i;
		if (above == 0 || above > machine->depth)
			continue;
		const struct value *value = &machine->stack[above - 1];
		if (value->fresh && value->memoised && value->memo == number)
			return true;
	}
	return false;
}

static enum neap_status get(struct machine *machine, uint64_t number)
{
	const uint64_t *entry = neap_memo_get(&machine->memo, number);

	if (!entry && number >= machine->memo.next)
		return neap_pickle_fail(machine, "memo %llu is fetched before it was put",
					(unsigned long long)number);
	if (!entry || (*entry & 31) == VALUE_MARK)
		return neap_pickle_fail(machine, "the event, block or segment of memo %llu is used a second time",
					(unsigned long long)number);
	enum value_type type = (enum value_type)(*entry & 31);
	if ((type == VALUE_LIST || type == VALUE_DICT) && is_open(machine, number))
		return neap_pickle_fail(machine, "the list or dict of memo %llu contains itself",
					(unsigned long long)number);
	uint64_t payload = *entry >> 5;
	uint64_t a = type == VALUE_PAIR ? payload & UINT32_MAX : payload;
	enum neap_status status = push(machine, type, a, type == VALUE_PAIR ? payload >> 32 : 0);
	if (status == NEAP_OK) {
		struct value *value = &machine->stack[machine->depth - 1];
		value->fresh = false;
		value->list = type == VALUE_LIST || type == VALUE_STACK;
	}
	return status;
}

/* --- containers
 * ------------------------------------------------------------------------------------------------------ */

/* After items were added to the value at `at`: runs of bare events, blocks or segments next to each other are one. */
static void merge_run(struct machine *machine, size_t at)
{
	machine->depth = at + 1;
	if (at <= floor_of(machine))
		return;
	struct value *item = &machine->stack[at], *before = item - 1;
	if (item->type != before->type || item->list || before->list || before->a + before->b != item->a ||
	    (item->type != VALUE_EVENTS && item->type != VALUE_BLOCKS && item->type != VALUE_SEGMENTS))
		return;
	before->b += item->b;
	machine->depth--;
}

static enum neap_status add_items(struct machine *machine, size_t at, size_t first, bool dict)
{
	struct value *stack = machine->stack;
	enum neap_status status =
		dict ? neap_snapshot_dict(machine, &stack[at], &stack[first], machine->depth - first)
		     : neap_snapshot_list(machine, &stack[at], &stack[first], machine->depth - first);

	if (status == NEAP_OK) {
		update_memo(machine, &stack[at]);
		merge_run(machine, at);
	}
	return status;
}

static enum neap_status add_marked(struct machine *machine, bool dict)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status = pop_mark(machine, true, dict ? "SETITEMS" : "APPENDS", &items, &count);

	if (status != NEAP_OK)
		return status;
	size_t first = (size_t)(items - machine->stack);
	return add_items(machine, first - 2, first, dict);
}

static enum neap_status add_one(struct machine *machine, bool dict)
{
	size_t count = dict ? 2 : 1;
	enum neap_status status = need(machine, count + 1, dict ? "SETITEM" : "APPEND");

	if (status != NEAP_OK)
		return status;
	return add_items(machine, machine->depth - count - 1, machine->depth - count, dict);
}

/* DICT and LIST: a container from everything above the mark, in its place. */
static enum neap_status collect(struct machine *machine, bool dict)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status = pop_mark(machine, false, dict ? "DICT" : "LIST", &items, &count);

	if (status != NEAP_OK)
		return status;
	size_t at = (size_t)(items - machine->stack) - 1;
	machine->stack[at] = (struct value){.type = dict ? VALUE_DICT : VALUE_LIST, .fresh = true, .list = !dict};
	return add_items(machine, at, at + 1, dict);
}

static enum neap_status make_tuple(struct machine *machine, size_t count)
{
	enum neap_status status = need(machine, count, "TUPLE");
	struct value tuple = {0};

	if (status != NEAP_OK)
		return status;
	neap_snapshot_tuple(machine->stack + machine->depth - count, count, &tuple);
	machine->depth -= count;
	return push(machine, tuple.type, tuple.a, tuple.b);
}

static enum neap_status make_marked_tuple(struct machine *machine)
{
	struct value *items = NULL, tuple = {0};
	size_t count = 0;
	enum neap_status status = pop_mark(machine, false, "TUPLE", &items, &count);

	if (status != NEAP_OK)
		return status;
	neap_snapshot_tuple(items, count, &tuple);
	machine->depth = (size_t)(items - machine->stack) - 1;
	return push(machine, tuple.type, tuple.a, tuple.b);
}

static enum neap_status pop(struct machine *machine)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status;

	/* As Python's: a POP right after a MARK takes the mark. */
	if (machine->mark_count && machine->depth == floor_of(machine)) {
		status = pop_mark(machine, false, "POP", &items, &count);
	} else {
		status = need(machine, 1, "POP");
	}
	if (status == NEAP_OK)
		machine->depth--;
	return status;
}

/* --- literals ----------------------------------------------------------------------------------------------------
 */

static inline uint64_t little_endian(const unsigned char *bytes, size_t count)
{
	uint64_t value = 0;

	memcpy(&value, bytes, count);
	return le64toh(value);
}

static enum neap_status cut_short(struct machine *machine, const char *what)
{
	if (machine->input->failed) {
		if (machine->err)
			*machine->err = machine->input->error;
		return machine->input->failed;
	}
	return neap_pickle_fail(machine, "the file ends inside %s: it is cut short", what);
}

/* Whether `length` more bytes can follow; a pipe or a compressed file tells only when it ends. */
static enum neap_status check_length(struct machine *machine, uint64_t length, const char *what)
{
	const struct neap_input *input = machine->input;
	uint64_t position = neap_input_position(input);

	if (!input->compressed && input->file_bytes != UINT64_MAX &&
	    (position > input->file_bytes || length > input->file_bytes - position))
		return neap_pickle_fail(machine, "%s of %llu bytes goes beyond the file's end: it is cut short", what,
					(unsigned long long)length);
	return NEAP_OK;
}

static enum neap_status skip_bytes(struct machine *machine, uint64_t length, const char *what)
{
	struct neap_input *input = machine->input;

	while (length) {
		if (!neap_input_has(input, 1))
			return cut_short(machine, what);
		size_t have = (size_t)(input->end - input->at);
		size_t step = length < have ? (size_t)length : have;
		input->at += step;
		length -= step;
	}
	return NEAP_OK;
}

/* A length of `width` bytes is at `at`; the text follows. */
static enum neap_status read_text(struct machine *machine, size_t width)
{
	struct neap_input *input = machine->input;
	uint64_t length = little_endian(input->at, width);

	input->at += width;
	enum neap_status status = check_length(machine, length, "a text");
	if (status != NEAP_OK)
		return status;
	size_t kept = length < NEAP_BUILD_TEXT_BYTES ? (size_t)length : NEAP_BUILD_TEXT_BYTES;
	if (!neap_input_has(input, kept))
		return cut_short(machine, "a text");
	uint32_t text = neap_build_text(machine->build, (const char *)input->at, kept);
	if (length > kept)
		neap_build_warn(machine->build, machine->position, "a text of more than %u bytes is cut",
				NEAP_BUILD_TEXT_BYTES);
	status = skip_bytes(machine, length, "a text");
	return status == NEAP_OK ? push(machine, VALUE_TEXT, text, 0) : status;
}

/* LONG1 and LONG4: `length` bytes, two's complement. */
static enum neap_status read_long(struct machine *machine, size_t width)
{
	struct neap_input *input = machine->input;
	uint64_t length = little_endian(input->at, width);

	input->at += width;
	if (length > INT32_MAX)
		return neap_pickle_fail(machine, "a number of %llu bytes", (unsigned long long)length);
	enum neap_status status = check_length(machine, length, "a number");
	if (status != NEAP_OK)
		return status;
	if (length > 9) {
		status = skip_bytes(machine, length, "a number");
		return status == NEAP_OK ? push(machine, VALUE_INT, 0, 2) : status;
	}
	if (!neap_input_has(input, (size_t)length))
		return cut_short(machine, "a number");
	size_t used = length < 8 ? (size_t)length : 8;
	uint64_t value = little_endian(input->at, used);
	unsigned kind = length == 9 ? (input->at[8] == 0 ? 1 : 2) : 0;
	if (used && used < 8 && input->at[used - 1] & 0x80)
		value |= UINT64_MAX << 8 * used;
	input->at += length;
	return push(machine, VALUE_INT, value, kind == 1 && value <= INT64_MAX ? 0 : kind);
}

static enum neap_status read_double(struct machine *machine)
{
	uint64_t bits = 0;

	for (int i = 0; i < 8; i++)
		bits = bits << 8 | machine->input->at[i];
	machine->input->at += 8;
	return push(machine, VALUE_FLOAT, bits, 0);
}

static enum neap_status read_bytes(struct machine *machine, size_t width)
{
	uint64_t length = little_endian(machine->input->at, width);

	machine->input->at += width;
	enum neap_status status = check_length(machine, length, "a run of bytes");
	if (status == NEAP_OK)
		status = skip_bytes(machine, length, "a run of bytes");
	return status == NEAP_OK ? push(machine, VALUE_OTHER, 0, 0) : status;
}

/* A frame says only how many bytes may be read at once. */
static enum neap_status read_frame(struct machine *machine)
{
	uint64_t length = little_endian(machine->input->at, 8);

	machine->input->at += 8;
	return check_length(machine, length, "a frame");
}

static enum neap_status read_protocol(struct machine *machine)
{
	unsigned version = *machine->input->at++;

	if (version < 2 || version > 5)
		return neap_pickle_fail(machine, "protocol %u of pickle; 2 to 5 are known", version);
	return NEAP_OK;
}

/* --- the loop ----------------------------------------------------------------------------------------------------
 */

/* Bytes that must follow an instruction, its length included if it has one; a text's or number's own come later. */
static size_t argument_bytes(unsigned char code)
{
	switch (code) {
	case 0x80: /* PROTO */
	case 'K':
	case 'h':
	case 'q':
	case 0x8a: /* LONG1 */
	case 0x8c: /* SHORT_BINUNICODE */
	case 'C':
		return 1;
	case 'M':
		return 2;
	case 'J':
	case 'j':
	case 'r':
	case 'X':
	case 'B':
	case 0x8b: /* LONG4 */
		return 4;
	case 'G':
	case 0x8d: /* BINUNICODE8 */
	case 0x8e: /* BINBYTES8 */
	case 0x95: /* FRAME */
		return 8;
	default:
		return 0;
	}
}

static uint64_t take(struct machine *machine, size_t width)
{
	uint64_t value = little_endian(machine->input->at, width);

	machine->input->at += width;
	return value;
}

/* EMPTY_DICT and EMPTY_LIST. MEMOIZE and MARK come next in nearly every pickle; to look for them here saves two turns of
 * the loop. */
static enum neap_status open_container(struct machine *machine, bool dict)
{
	struct neap_input *input = machine->input;
	enum neap_status status = push(machine, dict ? VALUE_DICT : VALUE_LIST, 0, 0);

	if (status != NEAP_OK)
		return status;
	machine->stack[machine->depth - 1].list = !dict;
	if (input->end - input->at < 2 || *input->at != 0x94)
		return NEAP_OK;
	machine->position++;
	input->at++;
	status = put(machine, machine->memo.next);
	if (status != NEAP_OK || *input->at != '(')
		return status;
	machine->position++;
	input->at++;
	return push_mark(machine);
}

/* One instruction whose fixed arguments are in the window. */
static enum neap_status step(struct machine *machine, unsigned char code)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status;

	switch (code) {
	case 'h':
		return get(machine, take(machine, 1));
	case 'j':
		return get(machine, take(machine, 4));
	case 0x94:
		return put(machine, machine->memo.next);
	case 'q':
		return put(machine, take(machine, 1));
	case 'r':
		return put(machine, take(machine, 4));
	case 'K':
		return push(machine, VALUE_INT, take(machine, 1), 0);
	case 'M':
		return push(machine, VALUE_INT, take(machine, 2), 0);
	case 'J':
		return push(machine, VALUE_INT, (uint64_t)(int64_t)(int32_t)take(machine, 4), 0);
	case 0x8a:
		return read_long(machine, 1);
	case 0x8b:
		return read_long(machine, 4);
	case 'G':
		return read_double(machine);
	case 0x8c:
		return read_text(machine, 1);
	case 'X':
		return read_text(machine, 4);
	case 0x8d:
		return read_text(machine, 8);
	case 'C':
		return read_bytes(machine, 1);
	case 'B':
		return read_bytes(machine, 4);
	case 0x8e:
		return read_bytes(machine, 8);
	case 'N':
		return push(machine, VALUE_NONE, 0, 0);
	case 0x88:
	case 0x89:
		return push(machine, VALUE_BOOL, code == 0x88, 0);
	case '(':
		return push_mark(machine);
	case '}':
	case ']':
		return open_container(machine, code == '}');
	case ')':
		return make_tuple(machine, 0);
	case 0x85:
	case 0x86:
	case 0x87:
		return make_tuple(machine, code - 0x84u);
	case 't':
		return make_marked_tuple(machine);
	case 'd':
		return collect(machine, true);
	case 'l':
		return collect(machine, false);
	case 'u':
		return add_marked(machine, true);
	case 'e':
		return add_marked(machine, false);
	case 's':
		return add_one(machine, true);
	case 'a':
		return add_one(machine, false);
	case '0':
		return pop(machine);
	case '1':
		status = pop_mark(machine, false, "POP_MARK", &items, &count);
		if (status == NEAP_OK)
			machine->depth -= count + 1;
		return status;
	case 0x95:
		return read_frame(machine);
	case 0x80:
		return read_protocol(machine);
	default:
		return refuse(machine, code);
	}
}

/* Most instructions by far push a small number or fetch a text, a frame or a stack. This carries out a run of those
 * with everything in registers, and stops before anything else, an error included: step() sees to it. */
static void push_run(struct machine *machine)
{
	if ((size_t)(machine->input->end - machine->input->at) < ARGUMENT_MAX)
		return;
	const unsigned char *at = machine->input->at, *last = machine->input->end - ARGUMENT_MAX;
	struct value *top = machine->stack + machine->depth, *limit = machine->stack + machine->room;
	uint64_t low = machine->memo.next < NEAP_MEMO_LOW ? machine->memo.next : NEAP_MEMO_LOW;

	/* Conditions in this order, not a switch: the processor foresees them, since keys and values take turns. */
	for (; at <= last && top < limit; top++) {
		uint64_t number = at[1];
		if (*at == 'h' || *at == 'j') {
			size_t width = *at == 'h' ? 1 : 4;
			if (width == 4)
				number = little_endian(at + 1, 4);
			if (number >= low)
				break;
			uint64_t entry = machine->memo.low[number];
			unsigned type = entry & 31;
			if (type != VALUE_TEXT && type != VALUE_FRAME && type != VALUE_STACK)
				break;
			*top = (struct value){.type = (uint8_t)type, .list = type == VALUE_STACK, .a = entry >> 5};
			at += 1 + width;
			continue;
		}
		if (*at == 0x8a) { /* LONG1, here only of 1 to 7 bytes, as addresses and times are */
			if (number < 1 || number > 7)
				break;
			unsigned spare = 64 - 8 * (unsigned)number;
			at += 2 + number;
			number = (uint64_t)((int64_t)(little_endian(at - number - 1, 8) >> 8 << spare) >> spare);
		} else if (*at == 'J') {
			number = (uint64_t)(int64_t)(int32_t)little_endian(at + 1, 4);
			at += 5;
		} else if (*at == 'K') {
			at += 2;
		} else if (*at == 'M') {
			number = little_endian(at + 1, 2);
			at += 3;
		} else {
			break;
		}
		*top = (struct value){.type = VALUE_INT, .fresh = true, .a = number};
	}
	machine->input->at = at;
	machine->depth = (size_t)(top - machine->stack);
}

static enum neap_status run(struct machine *machine)
{
	struct neap_input *input = machine->input;
	enum neap_status status = NEAP_OK;

	while (status == NEAP_OK && !machine->build->failed) {
		push_run(machine);
		machine->position = neap_input_position(input);
		/* Mostly true at the first look; near the end of the input what is there must do. */
		if ((size_t)(input->end - input->at) < ARGUMENT_MAX && !neap_input_fill(input, ARGUMENT_MAX)) {
			size_t have = (size_t)(input->end - input->at);
			if (have < 1)
				return cut_short(machine, "the pickle");
			if (have < 1 + argument_bytes(*input->at))
				return cut_short(machine, instruction_name(*input->at));
		}
		unsigned char code = *input->at++;
		if (code == '.')
			return need(machine, 1, "STOP");
		status = step(machine, code);
	}
	return status;
}

enum neap_status neap_pickle_read(struct neap_input *input, struct neap_build *build, struct neap_error *err)
{
	struct machine machine = {.input = input, .build = build, .err = err};

	neap_snapshot_begin(&machine);
	enum neap_status status = grow_stack(&machine);
	if (status == NEAP_OK)
		status = run(&machine);
	if (status == NEAP_OK && !build->failed && (machine.depth != 1 || machine.mark_count))
		status = neap_pickle_fail(&machine, "%zu values are left at STOP, not one", machine.depth);
	if (status == NEAP_OK && !build->failed && neap_input_has(input, 1))
		neap_build_warn(build, neap_input_position(input), "bytes follow the end of the pickle");
	/* A file that ends after STOP but whose reading failed is still whole; the failure would be about what
	 * follows. */
	if (status == NEAP_OK && !build->failed)
		status = neap_snapshot_end(&machine, &machine.stack[0]);
	free(machine.stack);
	free(machine.marks);
	free(machine.frames);
	neap_memo_fini(&machine.memo);
	return status;
}
