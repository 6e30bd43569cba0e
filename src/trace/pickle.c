/* trace/pickle.c: the reader of snapshots' pickles: texts, memo, the instructions that it refuses, and a fast path.
 * Protocols 2 to 5.
 *
 * Bounds: memo numbers are compared with the bytes there are, and a fetched value is a copy of 8 bytes, so a pickle
 * that repeats itself costs no more than its length.
 */
#include "trace/pickle.h"

#include <stdlib.h>
#include <string.h>

#define MARKS_MAX 64u /* a snapshot needs 9 */

static struct reader *reader_of(struct neap_pickle *pickle) { return (struct reader *)pickle; }

/* --- the input ---------------------------------------------------------------------------------------------------
 */

static void show_window(struct reader *reader)
{
	const struct neap_input *input = reader->input;

	reader->pickle.begin = input->window;
	reader->pickle.at = input->at;
	reader->pickle.end = input->end;
	reader->pickle.base = input->base;
}

static bool fill(struct neap_pickle *pickle, size_t bytes)
{
	struct reader *reader = reader_of(pickle);

	reader->input->at = pickle->at;
	bool filled = neap_input_fill(reader->input, bytes);
	show_window(reader);
	return filled;
}

static enum neap_status take_text(struct neap_pickle *pickle, uint64_t length)
{
	struct neap_build *build = reader_of(pickle)->build;
	size_t kept = length < NEAP_BUILD_TEXT_BYTES ? (size_t)length : NEAP_BUILD_TEXT_BYTES;

	if (!neap_pickle_has(pickle, kept))
		return neap_pickle_cut_short(pickle, "a text");
	uint32_t text = neap_build_text(build, (const char *)pickle->at, kept);
	if (length > kept)
		neap_build_warn(build, pickle->position, "a text of more than %u bytes is cut",
				NEAP_BUILD_TEXT_BYTES);
	enum neap_status status = neap_pickle_skip(pickle, length, "a text");
	return status == NEAP_OK ? neap_pickle_push(pickle, NEAP_PICKLE_TEXT, text, 0) : status;
}

static enum neap_status refuse(struct neap_pickle *pickle, unsigned char code)
{
	const struct neap_pickle_code *row = &neap_pickle_codes[code];

	if (!row->name)
		return neap_pickle_fail(pickle, "0x%02x is not an instruction of a pickle", code);
	if (row->calls)
		return neap_pickle_fail(pickle,
					"%s would execute code of the file's choosing: refused; a snapshot holds "
					"only plain data",
					row->name);
	return neap_pickle_fail(pickle, "%s does not occur in snapshots", row->name);
}

/* --- the memo ----------------------------------------------------------------------------------------------------
 */

/* A value in 8 bytes: type in the low 5 bits. */
#define ENTRY_BITS 59

static enum neap_status pack_entry(struct reader *reader, const struct neap_pickled *value, uint64_t *ret_entry)
{
	uint64_t payload = value->a;
	unsigned type = value->type;

	switch (type) {
	case VALUE_PAIR:
		if (value->a >> 32 || value->b >> (ENTRY_BITS - 32))
			type = NEAP_PICKLE_OTHER;
		payload = value->a | value->b << 32;
		break;
	case NEAP_PICKLE_INT:
	case NEAP_PICKLE_FLOAT:
		return neap_pickle_fail(&reader->pickle, "a number is put into the memo: no pickler does that");
	case VALUE_HISTORY:
		type = NEAP_PICKLE_OTHER; /* no layout shares histories */
		break;
	default:
		break;
	}
	*ret_entry = payload << 5 | (uint64_t)type;
	return NEAP_OK;
}

/* Whether a value is used only once: nothing refers again to a run, nor to a value that was taken already. */
static bool is_single_use(const struct neap_pickled *value)
{
	return value->type == VALUE_EVENTS || value->type == VALUE_BLOCKS || value->type == VALUE_SEGMENTS ||
	       value->type == VALUE_TRACES || value->type == VALUE_TOP;
}

static enum neap_status memo_failed(struct reader *reader, enum neap_memo_result result, uint64_t number)
{
	if (result == NEAP_MEMO_NO_MEMORY)
		return neap_pickle_no_memory(&reader->pickle);
	return neap_pickle_fail(&reader->pickle, "memo %llu is put out of order", (unsigned long long)number);
}

static enum neap_status put(struct neap_pickle *pickle, uint64_t number)
{
	struct reader *reader = reader_of(pickle);
	enum neap_memo_result result;
	uint64_t entry = 0;
	enum neap_status status = neap_pickle_need(pickle, 1, "a put into the memo");

	if (status)
		return status;
	struct neap_pickled *top = &pickle->stack[pickle->depth - 1];
	if (number == NEAP_PICKLE_NEXT)
		number = reader->memo.next;
	if (top->memoised)
		return neap_pickle_fail(&reader->pickle, "a value is put into the memo twice");
	/* Each number was stored by an instruction of its own. */
	if (number > reader->pickle.position)
		return neap_pickle_fail(&reader->pickle, "memo %llu is more than a file of this length can have",
					(unsigned long long)number);
	if (is_single_use(top)) {
		result = neap_memo_skip(&reader->memo, number);
	} else {
		status = pack_entry(reader, top, &entry);
		if (status)
			return status;
		result = neap_memo_put(&reader->memo, number, entry);
		top->memoised = true;
		top->memo = number;
	}
	return result == NEAP_MEMO_DONE ? NEAP_OK : memo_failed(reader, result, number);
}

/* Updates the memo after a value that it has became something else. */
static void update_memo(struct reader *reader, struct neap_pickled *value)
{
	uint64_t *entry;

	if (!value->memoised)
		return;
	if (is_single_use(value) && neap_memo_forget(&reader->memo, value->memo)) {
		value->memoised = false;
		return;
	}
	entry = neap_memo_get(&reader->memo, value->memo);
	if (!entry)
		return;
	if (is_single_use(value))
		*entry = NEAP_PICKLE_MARK; /* counts as forgotten */
	else
		pack_entry(reader, value, entry);
}

static bool has_number(const struct neap_pickled *value, uint64_t number)
{
	return value->fresh && value->memoised && value->memo == number;
}

/* Whether this value is an empty container that is being filled: it is below a mark, or on top for APPEND and
 * SETITEM.
 */
static bool is_open(const struct neap_pickle *pickle, uint64_t number)
{
	const struct neap_pickled *stack = pickle->stack;

	for (size_t i = 1; i <= 2 && i <= pickle->depth; i++)
		if (has_number(&stack[pickle->depth - i], number))
			return true;
	for (size_t floor = pickle->floor; floor > 1; floor = (size_t)stack[floor - 1].a)
		if (has_number(&stack[floor - 2], number))
			return true;
	return false;
}

static enum neap_status get(struct neap_pickle *pickle, uint64_t number)
{
	struct reader *reader = reader_of(pickle);
	const uint64_t *entry = neap_memo_get(&reader->memo, number);

	if (!entry && number >= reader->memo.next)
		return neap_pickle_fail(&reader->pickle, "memo %llu is fetched before it was put",
					(unsigned long long)number);
	if (!entry || (*entry & 31) == NEAP_PICKLE_MARK)
		return neap_pickle_fail(&reader->pickle,
					"the event, block or segment of memo %llu is used a second time",
					(unsigned long long)number);
	unsigned type = *entry & 31;
	if ((type == NEAP_PICKLE_LIST || type == NEAP_PICKLE_DICT) && is_open(pickle, number))
		return neap_pickle_fail(&reader->pickle, "the list or dict of memo %llu contains itself",
					(unsigned long long)number);
	uint64_t payload = *entry >> 5;
	uint64_t a = type == VALUE_PAIR ? payload & UINT32_MAX : payload;
	enum neap_status status = neap_pickle_push(pickle, type, a, type == VALUE_PAIR ? payload >> 32 : 0);
	if (!status) {
		struct neap_pickled *value = &pickle->stack[pickle->depth - 1];
		value->fresh = false;
		value->list = type == NEAP_PICKLE_LIST || type == VALUE_STACK;
	}
	return status;
}

/* --- containers --------------------------------------------------------------------------------------------------
 */

/* Called after items were added to the value on top. Joins neighbouring runs of bare events, blocks or segments. */
static void merge_run(struct neap_pickle *pickle)
{
	if (pickle->depth <= pickle->floor + 1)
		return;
	struct neap_pickled *item = &pickle->stack[pickle->depth - 1], *before = item - 1;
	if (item->type != before->type || item->list || before->list || before->a + before->b != item->a ||
	    (item->type != VALUE_EVENTS && item->type != VALUE_BLOCKS && item->type != VALUE_SEGMENTS))
		return;
	before->b += item->b;
	pickle->depth--;
}

static enum neap_status add(struct neap_pickle *pickle, struct neap_pickled *container, struct neap_pickled *items,
			    size_t count, bool dict)
{
	struct reader *reader = reader_of(pickle);
	enum neap_status status = dict ? neap_snapshot_dict(reader, container, items, count)
				       : neap_snapshot_list(reader, container, items, count);

	if (!status) {
		update_memo(reader, container);
		merge_run(pickle);
	}
	return status;
}

/* --- reading ---------------------------------------------------------------------------------------------------
 */

/* Executes a run of the most frequent instructions: those that push a small number or fetch a text, a frame or a
 * stack. Keeps everything in registers, and stops before any other instruction or an error. */
static bool push_run(struct neap_pickle *pickle)
{
	const struct reader *reader = reader_of(pickle);
	if (reader->build->failed)
		return false;
	if ((size_t)(pickle->end - pickle->at) < NEAP_PICKLE_ARGUMENT_MAX)
		return true;
	const unsigned char *at = pickle->at, *last = pickle->end - NEAP_PICKLE_ARGUMENT_MAX;
	struct neap_pickled *top = pickle->stack + pickle->depth, *limit = pickle->stack + pickle->capacity;
	uint64_t low = reader->memo.next < NEAP_MEMO_LOW ? reader->memo.next : NEAP_MEMO_LOW;

	/* Conditions in this order, not a switch: the processor predicts them, since keys and values take turns. */
	for (; at <= last && top < limit; top++) {
		uint64_t number = at[1];
		if (*at == 'h' || *at == 'j') {
			size_t width = *at == 'h' ? 1 : 4;
			if (width == 4)
				number = neap_pickle_number(at + 1, 4);
			if (number >= low)
				break;
			uint64_t entry = reader->memo.low[number];
			unsigned type = entry & 31;
			if (type != NEAP_PICKLE_TEXT && type != VALUE_FRAME && type != VALUE_STACK)
				break;
			*top = (struct neap_pickled){
				.type = (uint8_t)type, .list = type == VALUE_STACK, .a = entry >> 5};
			at += 1 + width;
			continue;
		}
		if (*at == 0x8a) { /* LONG1, here only of 1 to 7 bytes, as addresses and times are */
			if (number < 1 || number > 7)
				break;
			unsigned spare = 64 - 8 * (unsigned)number;
			at += 2 + number;
			number = (uint64_t)((int64_t)(neap_pickle_number(at - number - 1, 8) >> 8 << spare) >> spare);
		} else if (*at == 'J') {
			number = (uint64_t)(int64_t)(int32_t)neap_pickle_number(at + 1, 4);
			at += 5;
		} else if (*at == 'K') {
			at += 2;
		} else if (*at == 'M') {
			number = neap_pickle_number(at + 1, 2);
			at += 3;
		} else {
			break;
		}
		*top = (struct neap_pickled){.type = NEAP_PICKLE_INT, .fresh = true, .a = number};
	}
	pickle->at = at;
	pickle->depth = (size_t)(top - pickle->stack);
	return true;
}

enum neap_status neap_pickle_read(struct neap_input *input, struct neap_build *build, struct neap_error *err)
{
	static const struct neap_pickle_reader functions = {.fill = fill,
							    .ahead = push_run,
							    .text = take_text,
							    .put = put,
							    .get = get,
							    .tuple = neap_snapshot_tuple,
							    .add = add,
							    .other = refuse,
							    .marks_max = MARKS_MAX,
							    .wide = true};
	struct reader reader = {.pickle = {.reader = &functions, .err = err}, .input = input, .build = build};
	struct neap_pickle *pickle = &reader.pickle;

	pickle->input_bytes = input->compressed ? UINT64_MAX : input->file_bytes;
	show_window(&reader);
	neap_snapshot_begin(&reader);
	enum neap_status status = neap_pickle_run(pickle);
	if (pickle->cut_short && input->failed) {
		if (err)
			*err = input->error;
		status = input->failed;
	}
	if (!status && !build->failed && (pickle->depth != 1 || pickle->floor))
		status = neap_pickle_fail(pickle, "%zu values are left at STOP, not one", pickle->depth);
	if (!status && !build->failed && neap_pickle_has(pickle, 1))
		neap_build_warn(build, neap_pickle_position(pickle), "bytes follow the end of the pickle");
	/* If reading failed only after STOP, the pickle is whole: the failure concerns the bytes after it. */
	if (!status && !build->failed)
		status = neap_snapshot_end(&reader, &pickle->stack[0]);
	input->at = pickle->at;
	neap_pickle_fini(pickle);
	free(reader.frames);
	neap_memo_fini(&reader.memo);
	neap_pools_fini(&reader.pools);
	return status;
}
