/* analyze/lives.h: from events to lives: when each allocation began and ended. Pure.
 *
 * A trace may begin after its process did, and may have lost its first events: an allocation existed before the trace
 * if it is freed but never allocated in it, or if the final state has it live but no event allocates it.
 */
#ifndef NEAP_ANALYZE_LIVES_H
#define NEAP_ANALYZE_LIVES_H

#include "base/map.h"
#include "trace/trace.h"

#define NEAP_LIFE_BEFORE UINT64_MAX /* begin: before the first event */
#define NEAP_LIFE_AFTER  UINT64_MAX /* freed, end: not within the trace */

struct neap_life {
	uint64_t address, size; /* size: requested bytes, as in the trace's events */
	uint64_t begin;         /* the event of its allocation */
	uint64_t freed;         /* the event in which the program freed it */
	/* The event from which on its bytes are reusable: `freed`, or a later one after record_stream. */
	uint64_t end;
	uint32_t stack; /* where it was allocated; 0: unknown */
	/* Where it was freed; 0: it was not, or the place is unknown, or the file has the allocation's stack
	 * instead. */
	uint32_t freed_stack;
	uint16_t stream;
	bool paired; /* neap_categories_pair found another block with a matching size */
};

/* All lives of a device: those from before the first event, whole, then one for each ALLOC event, in their order. Of
 * the latter it keeps only the facts that are not in their events, in some 9 bytes each (13 with stacks of frees). So
 * a cursor visits the lives. The trace is borrowed. */
struct neap_lives {
	const struct neap_trace *trace;
	size_t device;
	struct neap_life *early; /* from before the first event */
	size_t count, before;    /* before: how many are early */
	/* How many events do not fit: a block is freed twice, or allocated where another lives. */
	uint64_t odd;
	uint64_t *resized; /* the events of frees whose size differs from their life's, in order */
	size_t resized_count;
	/* For the other lives, by number: when they were freed and ended, and where; see lives.c. */
	uint32_t *freed, *freed_stacks;
	uint8_t *tails;
	struct neap_map far_freed, far_end, stacks;
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_lives_find(const struct neap_trace *trace, size_t device, struct neap_lives *ret_lives,
				 struct neap_error *err);
void neap_lives_fini(struct neap_lives *lives);

/* Visits the lives in their order:
 *
 *     struct neap_life_cursor cursor = neap_lives_begin(lives, 0);
 *     struct neap_life life;
 *     while (neap_lives_next(&cursor, &life)) ... it is number cursor.next - 1 */
struct neap_life_cursor {
	const struct neap_lives *lives;
	size_t next;
	struct neap_trace_cursor events;
	uint64_t first_event; /* the store's number of the device's first event */
};

/* Begins to visit lives. `first`: 0, or lives->before to skip the early ones. */
struct neap_life_cursor neap_lives_begin(const struct neap_lives *lives, size_t first);
/* Returns the next life. False: there is none, and *ret_life is untouched. */
bool neap_lives_next(struct neap_life_cursor *cursor, struct neap_life *ret_life);
/* Sets `paired` of the life with this number. */
void neap_lives_pair(struct neap_lives *lives, size_t number);

/* Whether the life holds its bytes just after `event`. NEAP_LIFE_BEFORE: before the first. */
static inline bool neap_life_at(const struct neap_life *life, uint64_t event)
{
	if (event == NEAP_LIFE_BEFORE)
		return life->begin == NEAP_LIFE_BEFORE;
	return (life->begin == NEAP_LIFE_BEFORE || life->begin <= event) &&
	       (life->end == NEAP_LIFE_AFTER || life->end > event);
}

#endif
