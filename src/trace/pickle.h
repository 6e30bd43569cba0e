/* trace/pickle.h: reads a PyTorch snapshot; internal to pickle.c (the instructions), machine.c (stack and
 * memo), snapshot.c and snapshot_list.c (the shapes) and snapshot_end.c (all that is known only at the end).
 *
 * A pickle is a program for a stack machine. Only the instructions that build plain data are carried out; those that
 * would import or call something are refused by name. No tree of objects is built: a container is recognised when its
 * items arrive, converted (to an event of the store, a frame, a stack, ...), and from then on is a small value.
 * Values cannot be changed after that, so no container can hold itself.
 *
 *   stack:  ... LIST MARK  DICT MARK "action" "alloc" "addr" 140.. "frames" STACK(17)     SETITEMS
 *           ... LIST MARK  EVENTS(first 512, 1 of them)                                   next event, and so on
 *           ... LIST MARK  EVENTS(first 512, 1000 of them)                                APPENDS
 *           ... EVENTS(first 512, 1000 of them)                                           one value for the list
 */
#ifndef NEAP_TRACE_PICKLE_H
#define NEAP_TRACE_PICKLE_H

#include "trace/formats.h"
#include "trace/memo.h"
#include "trace/pools.h"

enum value_type {
	VALUE_OTHER, /* anything that we do not use: its content is dropped */
	VALUE_NONE,
	VALUE_BOOL,     /* a: 0 or 1 */
	VALUE_INT,      /* a: two's complement; b: 0; 1: a is unsigned; 2: it needs more than 64 bits */
	VALUE_FLOAT,    /* a: bits of a double */
	VALUE_TEXT,     /* a: number */
	VALUE_LIST,     /* empty so far */
	VALUE_DICT,     /* empty so far */
	VALUE_PAIR,     /* two integers, from a tuple or a list: a, b */
	VALUE_INTS,     /* a list with one integer so far: a */
	VALUE_FRAME,    /* a: number */
	VALUE_STACK,    /* a list of frames: a: number */
	VALUE_HISTORY,  /* of a block, in older layouts: a: stack, b: requested bytes. One, or the first of a list. */
	VALUE_EVENTS,   /* a run of events, bare or as a list: a: first, b: count */
	VALUE_BLOCKS,   /* likewise */
	VALUE_SEGMENTS, /* likewise */
	VALUE_TRACES,   /* the list of lists of events: they are in machine.traces */
	VALUE_MARKS,    /* external annotations, already taken */
	VALUE_DIVISIONS, /* of roundup_power2_divisions: they are in machine.divisions */
	VALUE_SETTINGS,  /* already taken */
	VALUE_TOP,       /* the whole snapshot */
	VALUE_MARK,      /* not a value: MARK */
};

struct value {
	uint8_t type;  /* enum value_type */
	bool list;     /* a list (EVENTS, BLOCKS, ... are runs of bare items otherwise) */
	bool fresh;    /* made here, not fetched from the memo: items may still be added */
	bool memoised; /* the field memo has its number */
	uint64_t memo;
	uint64_t a, b;
};

/* Known texts are interned first, in this order, which gives them their numbers. */
enum known_text {
#define KNOWN(name, text) NAME_##name,
	NAME_EMPTY,
#include "trace/snapshot_names.h"
	NAME_COUNT,
#undef KNOWN
};

struct range {
	uint64_t first, count;
};

struct machine {
	struct neap_input *input;
	struct neap_build *build;
	struct neap_error *err;
	struct value *stack;
	size_t depth, room;
	size_t *marks; /* depths of MARKs */
	size_t mark_count, mark_room;
	struct neap_memo memo;
	struct neap_pools pools;
	uint64_t position; /* of the instruction */
	uint32_t *frames;  /* buffer in which a stack is gathered */
	size_t frame_room;
	struct range traces[256], host_trace;
	size_t trace_count;
	uint32_t divisions[16];
	uint64_t free_requests, free_completions;
	bool has_segments, has_traces;
	unsigned torch_from, torch_to; /* the first and last release of PyTorch 2 that write these keys; 0: any */
};

/* Fails at the current instruction; always returns NEAP_EPARSE. */
enum neap_status neap_pickle_fail(struct machine *machine, const char *format, ...) NEAP_PRINTF(2, 3);
enum neap_status neap_pickle_no_memory(struct machine *machine);

/* Makes room for more values. */
enum neap_status neap_machine_grow(struct machine *machine);
void neap_machine_fini(struct machine *machine);

/* The instructions; each fails at the current one. `need`: at least so many values above the innermost mark. */
enum neap_status neap_machine_need(struct machine *machine, size_t count, const char *name);
enum neap_status neap_machine_push(struct machine *machine, enum value_type type, uint64_t a, uint64_t b);
enum neap_status neap_machine_push_mark(struct machine *machine);
enum neap_status neap_machine_pop(struct machine *machine);
enum neap_status neap_machine_pop_marked(struct machine *machine);
enum neap_status neap_machine_put(struct machine *machine, uint64_t number);
enum neap_status neap_machine_get(struct machine *machine, uint64_t number);
/* SETITEMS or APPENDS; SETITEM or APPEND; DICT or LIST. */
enum neap_status neap_machine_add_marked(struct machine *machine, bool dict);
enum neap_status neap_machine_add_one(struct machine *machine, bool dict);
enum neap_status neap_machine_collect(struct machine *machine, bool dict);
enum neap_status neap_machine_make_tuple(struct machine *machine, size_t count);
enum neap_status neap_machine_make_marked_tuple(struct machine *machine);

/* Adds `count` values, key and value in turn, to `dict`, which is below them. */
enum neap_status neap_snapshot_dict(struct machine *machine, struct value *dict, struct value *items, size_t count);
/* Adds items to `list`, which is below them. */
enum neap_status neap_snapshot_list(struct machine *machine, struct value *list, struct value *items, size_t count);
void neap_snapshot_tuple(const struct value *items, size_t count, struct value *ret_tuple);
/* Interns the known texts. */
void neap_snapshot_begin(struct machine *machine);

static inline void neap_value_become(struct value *value, enum value_type type, uint64_t a, uint64_t b)
{
	value->type = (uint8_t)type;
	value->a = a;
	value->b = b;
}
/* Sets the metadata of the next event, as numbers of texts. */
void neap_beside_event(struct machine *machine, uint32_t user, uint32_t internal, uint32_t compile);
/* Makes the trace from the value of the whole pickle. */
enum neap_status neap_snapshot_end(struct machine *machine, const struct value *top);

#endif
