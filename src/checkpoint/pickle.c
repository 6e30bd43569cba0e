/* checkpoint/pickle.c: see the header. Calls are skipped; each kind of instruction that only checkpoints have is a
 * case of take_other. */
#include "checkpoint/pickle.h"

#include "base/array.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MOST NEAP_PICKLE_STACK_MAX

struct reader {
	struct neap_pickle pickle; /* the first member: functions of the reader are given only this */
	const struct checkpoint_pickle_visitor *visitor;
	struct neap_pickled *memo;
	size_t memo_count;
};

struct operand {
	const unsigned char *bytes;
	size_t length;
};

static struct reader *reader_of(struct neap_pickle *pickle) { return (struct reader *)pickle; }

static enum neap_status push(struct neap_pickle *pickle, struct neap_pickled value)
{
	enum neap_status status = neap_pickle_push(pickle, value.type, 0, 0);

	if (!status)
		pickle->stack[pickle->depth - 1] = value;
	return status;
}

/* --- memo --- */

static enum neap_status put(struct neap_pickle *pickle, uint64_t number)
{
	struct reader *reader = reader_of(pickle);
	enum neap_status status = neap_pickle_need(pickle, 1, "a put into the memo");

	if (status)
		return status;
	if (number == NEAP_PICKLE_NEXT)
		number = reader->memo_count;
	if (number >= VALUES_MOST)
		return neap_pickle_fail(pickle, "a number in the memo is too large");
	while (reader->memo_count <= number) {
		if (!neap_array_grow(&reader->memo, reader->memo_count, sizeof *reader->memo))
			return neap_pickle_no_memory(pickle);
		reader->memo[reader->memo_count++] = (struct neap_pickled){.type = NEAP_PICKLE_OTHER};
	}
	reader->memo[number] = pickle->stack[pickle->depth - 1];
	return NEAP_OK;
}

static enum neap_status get(struct neap_pickle *pickle, uint64_t number)
{
	const struct reader *reader = reader_of(pickle);

	return number < reader->memo_count ? push(pickle, reader->memo[number])
					   : neap_pickle_fail(pickle, "nothing is in the memo under that number");
}

/* --- values --- */

bool checkpoint_pickle_is(const struct neap_pickled *one, const char *text)
{
	return one->type == NEAP_PICKLE_TEXT && one->length == strlen(text) && !memcmp(one->text, text, one->length);
}

static struct neap_pickled text_value(unsigned type, const struct operand *operand)
{
	return (struct neap_pickled){
		.type = (uint8_t)type, .text = (const char *)operand->bytes, .length = operand->length};
}

static enum neap_status take_text(struct neap_pickle *pickle, uint64_t length)
{
	struct operand operand = {pickle->at, (size_t)length};

	pickle->at += length;
	return push(pickle, text_value(NEAP_PICKLE_TEXT, &operand));
}

/* The value of a line of protocol 0: a number, or a blank value. */
static struct neap_pickled line_value(const struct operand *operand, bool real)
{
	char text[64];
	double number;
	struct neap_pickled other = {.type = NEAP_PICKLE_OTHER};

	if (operand->length == 0 || operand->length >= sizeof text)
		return other;
	memcpy(text, operand->bytes, operand->length);
	text[operand->length] = '\0';
	if (!real && !strcmp(text, "01"))
		return (struct neap_pickled){.type = NEAP_PICKLE_BOOL, .integer = 1};
	if (!real && !strcmp(text, "00"))
		return (struct neap_pickled){.type = NEAP_PICKLE_BOOL};
	if (text[operand->length - 1] == 'L')
		text[operand->length - 1] = '\0';
	if (neap_double_parse(text, &number, NULL) != NEAP_OK)
		return other;
	if (real)
		return (struct neap_pickled){.type = NEAP_PICKLE_FLOAT, .number = number};
	if (fabs(number) > 9e15)
		return other;
	return (struct neap_pickled){.type = NEAP_PICKLE_INT, .integer = (int64_t)number};
}

/* The element type of a storage's class: "torch FloatStorage". */
static enum checkpoint_pickle_element element_of(const struct neap_pickled *class)
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
static struct neap_pickled storage_value(const struct neap_pickled *items)
{
	uint64_t number = 0;

	for (size_t i = 0; i < items[2].length; i++) {
		if (items[2].text[i] < '0' || items[2].text[i] > '9' || i > 17)
			return (struct neap_pickled){.type = NEAP_PICKLE_OTHER};
		number = number * 10 + (uint64_t)(items[2].text[i] - '0');
	}
	return (struct neap_pickled){.type = CHECKPOINT_PICKLE_STORAGE, .detail = element_of(&items[1]), .a = number};
}

/* A storage's name; or (storage, offset, (), ...), the arguments that make a tensor without dimensions; or arguments
 * that begin with such a tensor and make a parameter of it. Other tuples give a blank value. */
static struct neap_pickled tuple_value(const struct neap_pickled *items, size_t count)
{
	struct neap_pickled made = {.type = NEAP_PICKLE_OTHER};

	if (count >= 5 && checkpoint_pickle_is(&items[0], "storage") && items[2].type == NEAP_PICKLE_TEXT)
		made = storage_value(items);
	else if (count >= 3 && items[0].type == CHECKPOINT_PICKLE_STORAGE && items[1].type == NEAP_PICKLE_INT &&
		 items[1].integer >= 0 && items[1].integer < INT32_MAX &&
		 items[2].type == CHECKPOINT_PICKLE_NOTHING) {
		made = items[0];
		made.type = CHECKPOINT_PICKLE_ARGUMENTS;
		made.b = items[1].a;
	} else if (items[0].type == CHECKPOINT_PICKLE_SCALAR) {
		made = items[0];
		made.type = CHECKPOINT_PICKLE_ARGUMENTS;
	}
	return made;
}

/* --- containers --- */

static void take_tuple(const struct neap_pickled *items, size_t count, struct neap_pickled *ret_tuple)
{
	if (count > 0)
		*ret_tuple = tuple_value(items, count);
	else
		ret_tuple->type = CHECKPOINT_PICKLE_NOTHING;
}

static enum neap_status add(struct neap_pickle *pickle, struct neap_pickled *container, struct neap_pickled *items,
			    size_t count, bool dict)
{
	static const struct neap_pickled none = {.type = NEAP_PICKLE_OTHER};
	const struct checkpoint_pickle_visitor *visitor = reader_of(pickle)->visitor;
	/* if a mark is right below the dict, the dict has no name */
	bool named = pickle->depth > pickle->floor + 1;

	if (dict && count % 2 != 0)
		return neap_pickle_fail(pickle, "a key without a value");
	if (dict && count > 0)
		visitor->items(visitor->context, named ? container - 1 : &none, items, count);
	return NEAP_OK;
}

/* --- instructions that only checkpoints have --- */

/* Reads what follows an instruction's code; *operand is its lines. False: it goes beyond the end. */
static bool read_operand(struct neap_pickle *pickle, const struct neap_pickle_code *row, struct operand *operand)
{
	const unsigned char *at = pickle->at;

	for (unsigned i = 0; i < row->lines; i++) {
		at = memchr(at, '\n', (size_t)(pickle->end - at));
		if (!at)
			return false;
		*operand = (struct operand){pickle->at, (size_t)(at++ - pickle->at)};
	}
	size_t left = (size_t)(pickle->end - at), width = row->bytes + row->count;
	if (left < width)
		return false;
	uint64_t length = neap_pickle_number(at, row->count);
	if (length > left - width)
		return false;
	pickle->at = at + width + length;
	return true;
}

/* PUT and GET: the number is a line. */
static enum neap_status use_memo(struct neap_pickle *pickle, bool into, const struct operand *operand)
{
	struct neap_pickled line = line_value(operand, false);

	if (line.type != NEAP_PICKLE_INT || line.integer < 0)
		return neap_pickle_fail(pickle, "a number in the memo is none");
	return into ? put(pickle, line.a) : get(pickle, line.a);
}

/* Removes the values that an instruction takes, and pushes the one that it makes: mostly a blank one. */
static enum neap_status take_other(struct neap_pickle *pickle, unsigned char code)
{
	const struct neap_pickle_code *row = &neap_pickle_codes[code];
	struct neap_pickled made = {.type = NEAP_PICKLE_OTHER}, top = made;
	struct operand operand = {0};
	size_t count;

	if (!row->name)
		return neap_pickle_fail(pickle, "0x%02x is not an instruction of a pickle", code);
	if (!read_operand(pickle, row, &operand))
		return neap_pickle_cut_short(pickle, row->name);
	enum neap_status status = neap_pickle_need(pickle, row->takes, row->name);
	if (status)
		return status;
	if (row->takes > 0)
		top = pickle->stack[pickle->depth - 1];
	switch (code) {
	case 0x98: /* READONLY_BUFFER */
		return NEAP_OK;
	case '2': /* DUP */
		return push(pickle, top);
	case 'p':
	case 'g':
		return use_memo(pickle, code == 'p', &operand);
	case 0x90: /* ADDITEMS */
		return neap_pickle_drop_marked(pickle, row->name, &count);
	case 'i':  /* INST */
	case 'o':  /* OBJ */
	case 0x91: /* FROZENSET */
		status = neap_pickle_drop_marked(pickle, row->name, &count);
		break;
	case 'b': /* BUILD: the object stays */
		made = pickle->stack[pickle->depth - 2];
		break;
	case 'Q': /* BINPERSID loads a storage by its name */
		made = top.type == CHECKPOINT_PICKLE_STORAGE ? top : made;
		break;
	case 'R': /* REDUCE: a call makes a scalar, or a blank value */
		made = top;
		made.type = top.type == CHECKPOINT_PICKLE_ARGUMENTS ? CHECKPOINT_PICKLE_SCALAR : NEAP_PICKLE_OTHER;
		break;
	case 0x93: /* STACK_GLOBAL: module and name */
		made = top;
		made.type = top.type == NEAP_PICKLE_TEXT ? CHECKPOINT_PICKLE_GLOBAL : NEAP_PICKLE_OTHER;
		break;
	case 'I': /* INT, LONG, FLOAT */
	case 'L':
	case 'F':
		made = line_value(&operand, code == 'F');
		break;
	case 'V': /* UNICODE */
		made = text_value(NEAP_PICKLE_TEXT, &operand);
		break;
	case 'c': /* GLOBAL */
		made = text_value(CHECKPOINT_PICKLE_GLOBAL, &operand);
		break;
	default: /* bytes and texts of Python 2, sets, objects, extensions */
		break;
	}
	pickle->depth -= row->takes;
	return status ? status : push(pickle, made);
}

enum neap_status checkpoint_pickle_scan(const void *pickle, size_t length,
					const struct checkpoint_pickle_visitor *visitor, struct neap_error *err)
{
	static const struct neap_pickle_reader functions = {.text = take_text,
							    .put = put,
							    .get = get,
							    .tuple = take_tuple,
							    .add = add,
							    .other = take_other,
							    .marks_max = VALUES_MOST};
	const unsigned char *begin = pickle;
	struct reader reader = {.pickle = {.reader = &functions,
					   .err = err,
					   .begin = begin,
					   .at = begin,
					   .end = begin + length,
					   .input_bytes = length},
				.visitor = visitor};
	enum neap_status status = neap_pickle_run(&reader.pickle);

	neap_pickle_fini(&reader.pickle);
	free(reader.memo);
	return status;
}
