/* trace/pickle.h: reads a PyTorch snapshot; internal to pickle.c (the reader and its memo), snapshot.c and
 * snapshot_list.c (the shapes) and snapshot_end.c (all that is known only at the end).
 *
 * The machine is that of pickle/pickle.h. Instructions that would import or call something are refused by name. A
 * container is recognised when its items arrive, converted (to an event of the store, a frame, a stack, ...), and
 * from then on is a small value. Values cannot be changed after that, so no container can hold itself.
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

#include "pickle/pickle.h"

/* The types of values beside those of every pickle. A LIST or DICT is empty so far. A TEXT's `a` is its number in the
 * trace. `list` says that a value stands for a list; otherwise EVENTS, BLOCKS, ... are runs of bare items. */
enum value_type {
	VALUE_PAIR = NEAP_PICKLE_OWN, /* two integers, from a tuple or a list: a, b */
	VALUE_INTS,                   /* a list with one integer so far: a */
	VALUE_FRAME,                  /* a: number */
	VALUE_STACK,                  /* a list of frames; a: the stack's number */
	VALUE_HISTORY,  /* of a block, in older layouts: a: stack, b: requested bytes. One, or the first of a list. */
	VALUE_EVENTS,   /* a run of events, bare or as a list: a: first, b: count */
	VALUE_BLOCKS,   /* likewise */
	VALUE_SEGMENTS, /* likewise */
	VALUE_TRACES,   /* the list of lists of events: they are in reader.traces */
	VALUE_MARKS,    /* external annotations, already taken */
	VALUE_DIVISIONS, /* of roundup_power2_divisions: they are in reader.divisions */
	VALUE_SETTINGS,  /* already taken */
	VALUE_TOP,       /* the whole snapshot */
	VALUE_COUNT,
};

/* The known texts. They are interned first, in this order, so the order gives their numbers. */
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

struct reader {
	struct neap_pickle pickle; /* first, because functions of the reader are given only this */
	struct neap_input *input;
	struct neap_build *build;
	struct neap_memo memo;
	struct neap_pools pools;
	uint32_t *frames; /* collects the frames of a stack */
	size_t frame_capacity;
	struct range traces[256], host_trace;
	size_t trace_count;
	uint32_t divisions[16];
	uint64_t free_requests, free_completions;
	bool has_segments, has_traces;
	/* The first and last release of PyTorch 2 that write these keys; 0: not bounded. */
	unsigned torch_from, torch_to;
};

/* Adds `count` values (key, value, key, ...) to `dict`, which is below them on the stack. */
enum neap_status neap_snapshot_dict(struct reader *reader, struct neap_pickled *dict, struct neap_pickled *items,
				    size_t count);
/* Adds items to `list`, which is below them on the stack. */
enum neap_status neap_snapshot_list(struct reader *reader, struct neap_pickled *list, struct neap_pickled *items,
				    size_t count);
void neap_snapshot_tuple(const struct neap_pickled *items, size_t count, struct neap_pickled *ret_tuple);
/* Interns the known texts. */
void neap_snapshot_begin(struct reader *reader);

static inline void neap_value_become(struct neap_pickled *value, unsigned type, uint64_t a, uint64_t b)
{
	value->type = (uint8_t)type;
	value->a = a;
	value->b = b;
}
/* Sets the metadata of the next event, as the numbers of texts. */
void neap_beside_event(struct reader *reader, uint32_t user, uint32_t internal, uint32_t compile);
/* Makes the trace from the value of the whole pickle. */
enum neap_status neap_snapshot_end(struct reader *reader, const struct neap_pickled *top);

#endif
