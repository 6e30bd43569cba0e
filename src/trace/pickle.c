/* trace/pickle.c: the instructions of pickles, protocols 2 to 5. It executes nothing: see pickle.h. Lengths are
 * checked against the bytes that are left before memory is taken. */
#include "trace/pickle.h"

#include "base/error.h"

#include <endian.h>
#include <string.h>

#define ARGUMENT_MAX 9u /* bytes of the longest instruction without a length: BINFLOAT, FRAME */

/* --- names of instructions, for errors ---------------------------------------------------------------------------
 */

static const char *const instruction_names[256] = {
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

static enum neap_status refuse(struct machine *machine, unsigned char code)
{
	const char *name = instruction_names[code];

	if (!name)
		return neap_pickle_fail(machine, "0x%02x is not an instruction of a pickle", code);
	if (memchr("RbciobPQ\x81\x82\x83\x84\x92\x93", code, 14))
		return neap_pickle_fail(machine,
					"%s would execute code of the file's choosing: refused; a snapshot holds "
					"only plain data",
					name);
	return neap_pickle_fail(machine, "%s does not occur in snapshots", name);
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

/* Whether `length` more bytes can follow; for a pipe or a compressed file that is not known until it ends. */
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
	if (status)
		return status;
	size_t kept = length < NEAP_BUILD_TEXT_BYTES ? (size_t)length : NEAP_BUILD_TEXT_BYTES;
	if (!neap_input_has(input, kept))
		return cut_short(machine, "a text");
	uint32_t text = neap_build_text(machine->build, (const char *)input->at, kept);
	if (length > kept)
		neap_build_warn(machine->build, machine->position, "a text of more than %u bytes is cut",
				NEAP_BUILD_TEXT_BYTES);
	status = skip_bytes(machine, length, "a text");
	return status == NEAP_OK ? neap_machine_push(machine, VALUE_TEXT, text, 0) : status;
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
	if (status)
		return status;
	if (length > 9) {
		status = skip_bytes(machine, length, "a number");
		return status == NEAP_OK ? neap_machine_push(machine, VALUE_INT, 0, 2) : status;
	}
	if (!neap_input_has(input, (size_t)length))
		return cut_short(machine, "a number");
	size_t used = length < 8 ? (size_t)length : 8;
	uint64_t value = little_endian(input->at, used);
	unsigned kind = 0;
	if (length == 9) /* the ninth byte only repeats the sign, or the number is unsigned, or it does not fit */
		kind = input->at[8] == 0xff && value > INT64_MAX ? 0 : input->at[8] == 0 ? 1 : 2;
	if (used && used < 8 && input->at[used - 1] & 0x80)
		value |= UINT64_MAX << 8 * used;
	input->at += length;
	return neap_machine_push(machine, VALUE_INT, value, kind == 1 && value <= INT64_MAX ? 0 : kind);
}

static enum neap_status read_double(struct machine *machine)
{
	uint64_t bits = 0;

	for (int i = 0; i < 8; i++)
		bits = bits << 8 | machine->input->at[i];
	machine->input->at += 8;
	return neap_machine_push(machine, VALUE_FLOAT, bits, 0);
}

static enum neap_status read_bytes(struct machine *machine, size_t width)
{
	uint64_t length = little_endian(machine->input->at, width);

	machine->input->at += width;
	enum neap_status status = check_length(machine, length, "a run of bytes");
	if (!status)
		status = skip_bytes(machine, length, "a run of bytes");
	return status == NEAP_OK ? neap_machine_push(machine, VALUE_OTHER, 0, 0) : status;
}

/* A frame only says how many bytes may be read at once. */
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

/* EMPTY_DICT and EMPTY_LIST. MEMOIZE and MARK come next in nearly every pickle; handling them here saves two turns of
 * the loop. */
static enum neap_status open_container(struct machine *machine, bool dict)
{
	struct neap_input *input = machine->input;
	enum neap_status status = neap_machine_push(machine, dict ? VALUE_DICT : VALUE_LIST, 0, 0);

	if (status)
		return status;
	machine->stack[machine->depth - 1].list = !dict;
	if (input->end - input->at < 2 || *input->at != 0x94)
		return NEAP_OK;
	machine->position++;
	input->at++;
	status = neap_machine_put(machine, machine->memo.next);
	if (status || *input->at != '(')
		return status;
	machine->position++;
	input->at++;
	return neap_machine_push_mark(machine);
}

/* Executes one instruction whose fixed arguments are in the window. */
static enum neap_status step(struct machine *machine, unsigned char code)
{
	switch (code) {
	case 'h':
		return neap_machine_get(machine, take(machine, 1));
	case 'j':
		return neap_machine_get(machine, take(machine, 4));
	case 0x94:
		return neap_machine_put(machine, machine->memo.next);
	case 'q':
		return neap_machine_put(machine, take(machine, 1));
	case 'r':
		return neap_machine_put(machine, take(machine, 4));
	case 'K':
		return neap_machine_push(machine, VALUE_INT, take(machine, 1), 0);
	case 'M':
		return neap_machine_push(machine, VALUE_INT, take(machine, 2), 0);
	case 'J':
		return neap_machine_push(machine, VALUE_INT, (uint64_t)(int64_t)(int32_t)take(machine, 4), 0);
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
		return neap_machine_push(machine, VALUE_NONE, 0, 0);
	case 0x88:
	case 0x89:
		return neap_machine_push(machine, VALUE_BOOL, code == 0x88, 0);
	case '(':
		return neap_machine_push_mark(machine);
	case '}':
	case ']':
		return open_container(machine, code == '}');
	case ')':
		return neap_machine_make_tuple(machine, 0);
	case 0x85:
	case 0x86:
	case 0x87:
		return neap_machine_make_tuple(machine, code - 0x84u);
	case 't':
		return neap_machine_make_marked_tuple(machine);
	case 'd':
		return neap_machine_collect(machine, true);
	case 'l':
		return neap_machine_collect(machine, false);
	case 'u':
		return neap_machine_add_marked(machine, true);
	case 'e':
		return neap_machine_add_marked(machine, false);
	case 's':
		return neap_machine_add_one(machine, true);
	case 'a':
		return neap_machine_add_one(machine, false);
	case '0':
		return neap_machine_pop(machine);
	case '1':
		return neap_machine_pop_marked(machine);
	case 0x95:
		return read_frame(machine);
	case 0x80:
		return read_protocol(machine);
	default:
		return refuse(machine, code);
	}
}

/* By far most instructions push a small number or fetch a text, a frame or a stack. This function executes a run of
 * those with everything in registers, and stops before anything else, also before an error: step() handles it. */
static void push_run(struct machine *machine)
{
	if ((size_t)(machine->input->end - machine->input->at) < ARGUMENT_MAX)
		return;
	const unsigned char *at = machine->input->at, *last = machine->input->end - ARGUMENT_MAX;
	struct value *top = machine->stack + machine->depth, *limit = machine->stack + machine->room;
	uint64_t low = machine->memo.next < NEAP_MEMO_LOW ? machine->memo.next : NEAP_MEMO_LOW;

	/* Conditions in this order, not a switch: the processor predicts them, since keys and values take turns. */
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

	while (!status && !machine->build->failed) {
		push_run(machine);
		machine->position = neap_input_position(input);
		/* Mostly there are enough bytes; near the end of the input fewer must do. */
		if ((size_t)(input->end - input->at) < ARGUMENT_MAX && !neap_input_fill(input, ARGUMENT_MAX)) {
			size_t have = (size_t)(input->end - input->at);
			if (have < 1)
				return cut_short(machine, "the pickle");
			if (have < 1 + argument_bytes(*input->at))
				return cut_short(machine, instruction_names[*input->at]);
		}
		unsigned char code = *input->at++;
		if (code == '.')
			return neap_machine_need(machine, 1, "STOP");
		status = step(machine, code);
	}
	return status;
}

enum neap_status neap_pickle_read(struct neap_input *input, struct neap_build *build, struct neap_error *err)
{
	struct machine machine = {.input = input, .build = build, .err = err};

	neap_snapshot_begin(&machine);
	enum neap_status status = neap_machine_grow(&machine);
	if (!status)
		status = run(&machine);
	if (!status && !build->failed && (machine.depth != 1 || machine.mark_count))
		status = neap_pickle_fail(&machine, "%zu values are left at STOP, not one", machine.depth);
	if (!status && !build->failed && neap_input_has(input, 1))
		neap_build_warn(build, neap_input_position(input), "bytes follow the end of the pickle");
	/* If reading failed only after STOP, the pickle is still whole: the failure is about the bytes that
	 * follow. */
	if (!status && !build->failed)
		status = neap_snapshot_end(&machine, &machine.stack[0]);
	neap_machine_fini(&machine);
	return status;
}
