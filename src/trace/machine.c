/* trace/machine.c: the stack and the memo of the machine that reads pickles, and the instructions on them.
 *
 * Bounds: the stack has at most STACK_MAX values and MARKS_MAX open marks, memo numbers are compared with the bytes
 * there are, and a fetched value is a copy of 8 bytes, so a pickle that repeats itself costs no more than its length.
 */
#include "trace/pickle.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STACK_MAX (1u << 20)
#define MARKS_MAX 64u /* a snapshot needs 9 */

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

/* --- the stack ---------------------------------------------------------------------------------------------------
 */

enum neap_status neap_machine_grow(struct machine *machine)
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

enum neap_status neap_machine_push(struct machine *machine, enum value_type type, uint64_t a, uint64_t b)
{
	if (machine->depth == machine->room) {
		enum neap_status status = neap_machine_grow(machine);
		if (status)
			return status;
	}
	machine->stack[machine->depth++] = (struct value){.type = (uint8_t)type, .fresh = true, .a = a, .b = b};
	return NEAP_OK;
}

enum neap_status neap_machine_push_mark(struct machine *machine)
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
	return neap_machine_push(machine, VALUE_MARK, 0, 0);
}

/* The lowest depth that the current instruction may touch: above the innermost mark. */
static size_t floor_of(const struct machine *machine)
{
	return machine->mark_count ? machine->marks[machine->mark_count - 1] + 1 : 0;
}

enum neap_status neap_machine_need(struct machine *machine, size_t count, const char *name)
{
	if (machine->depth < floor_of(machine) + count)
		return neap_pickle_fail(machine, "%s needs %zu value%s on the stack", name, count,
					count == 1 ? "" : "s");
	return NEAP_OK;
}

/* Removes the innermost mark; *ret_items are the values above it, which stay on the stack. With `owner`, a container
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

/* Whether a value is used only once: nothing refers again to runs, or to values that were taken already. */
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

enum neap_status neap_machine_put(struct machine *machine, uint64_t number)
{
	enum neap_memo_result result;
	uint64_t entry = 0;
	enum neap_status status = neap_machine_need(machine, 1, "a put into the memo");

	if (status)
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
		if (status)
			return status;
		result = neap_memo_put(&machine->memo, number, entry);
		top->memoised = true;
		top->memo = number;
	}
	return result == NEAP_MEMO_DONE ? NEAP_OK : memo_failed(machine, result, number);
}

/* Updates the memo when a value became something else after it was put. */
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
		*entry = VALUE_MARK; /* counts as forgotten */
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

enum neap_status neap_machine_get(struct machine *machine, uint64_t number)
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
	enum neap_status status = neap_machine_push(machine, type, a, type == VALUE_PAIR ? payload >> 32 : 0);
	if (!status) {
		struct value *value = &machine->stack[machine->depth - 1];
		value->fresh = false;
		value->list = type == VALUE_LIST || type == VALUE_STACK;
	}
	return status;
}

/* --- containers
 * ------------------------------------------------------------------------------------------------------ */

/* After items were added to the value at `at`: joins neighbouring runs of bare events, blocks or segments. */
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

	if (!status) {
		update_memo(machine, &stack[at]);
		merge_run(machine, at);
	}
	return status;
}

enum neap_status neap_machine_add_marked(struct machine *machine, bool dict)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status = pop_mark(machine, true, dict ? "SETITEMS" : "APPENDS", &items, &count);

	if (status)
		return status;
	size_t first = (size_t)(items - machine->stack);
	return add_items(machine, first - 2, first, dict);
}

enum neap_status neap_machine_add_one(struct machine *machine, bool dict)
{
	size_t count = dict ? 2 : 1;
	enum neap_status status = neap_machine_need(machine, count + 1, dict ? "SETITEM" : "APPEND");

	if (status)
		return status;
	return add_items(machine, machine->depth - count - 1, machine->depth - count, dict);
}

/* DICT and LIST: replaces everything above the mark by one container. */
enum neap_status neap_machine_collect(struct machine *machine, bool dict)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status = pop_mark(machine, false, dict ? "DICT" : "LIST", &items, &count);

	if (status)
		return status;
	size_t at = (size_t)(items - machine->stack) - 1;
	machine->stack[at] = (struct value){.type = dict ? VALUE_DICT : VALUE_LIST, .fresh = true, .list = !dict};
	return add_items(machine, at, at + 1, dict);
}

enum neap_status neap_machine_make_tuple(struct machine *machine, size_t count)
{
	enum neap_status status = neap_machine_need(machine, count, "TUPLE");
	struct value tuple = {0};

	if (status)
		return status;
	neap_snapshot_tuple(machine->stack + machine->depth - count, count, &tuple);
	machine->depth -= count;
	return neap_machine_push(machine, tuple.type, tuple.a, tuple.b);
}

enum neap_status neap_machine_make_marked_tuple(struct machine *machine)
{
	struct value *items = NULL, tuple = {0};
	size_t count = 0;
	enum neap_status status = pop_mark(machine, false, "TUPLE", &items, &count);

	if (status)
		return status;
	neap_snapshot_tuple(items, count, &tuple);
	machine->depth = (size_t)(items - machine->stack) - 1;
	return neap_machine_push(machine, tuple.type, tuple.a, tuple.b);
}

enum neap_status neap_machine_pop(struct machine *machine)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status;

	/* As Python's: a POP right after a MARK takes the mark. */
	if (machine->mark_count && machine->depth == floor_of(machine)) {
		status = pop_mark(machine, false, "POP", &items, &count);
	} else {
		status = neap_machine_need(machine, 1, "POP");
	}
	if (!status)
		machine->depth--;
	return status;
}

enum neap_status neap_machine_pop_marked(struct machine *machine)
{
	struct value *items = NULL;
	size_t count = 0;
	enum neap_status status = pop_mark(machine, false, "POP_MARK", &items, &count);

	if (!status)
		machine->depth -= count + 1;
	return status;
}

void neap_machine_fini(struct machine *machine)
{
	free(machine->stack);
	free(machine->marks);
	free(machine->frames);
	neap_memo_fini(&machine->memo);
	neap_pools_fini(&machine->pools);
}
