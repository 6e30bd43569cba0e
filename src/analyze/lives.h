/* analyze/lives.h: from events to lives: when each allocation began and ended. Pure.
 *
 * A trace may begin after its process did, and may have lost its first events: an allocation that is freed without
 * having been allocated, or that the file's final state shows live without an event, was there before the beginning.
 */
#ifndef NEAP_ANALYZE_LIVES_H
#define NEAP_ANALYZE_LIVES_H

#include "trace/trace.h"

#define NEAP_LIFE_BEFORE UINT64_MAX /* begin: before the first event */
#define NEAP_LIFE_AFTER  UINT64_MAX /* freed, end: not within the trace */

struct neap_life {
	uint64_t address, size; /* size: requested bytes, as in the trace's events */
	uint64_t begin;         /* the event of its allocation */
	uint64_t freed;         /* the event in which the program freed it */
	uint64_t end;           /* from this event on its bytes are reusable: `freed`, or later after record_stream */
	uint32_t stack;         /* where it was allocated; 0: unknown */
	uint32_t freed_stack;   /* where it was freed; 0: unknown, or it was not, or the file has its allocation's */
	uint16_t stream;
	bool paired; /* neap_categories_pair found another block of this size that goes with it */
};

struct neap_lives {
	struct neap_life *items; /* lives from before the first event come first; then in order of `begin` */
	size_t count, before;    /* before: how many began before the first event */
	uint64_t odd;            /* events that do not fit: freed twice, allocated where something lives */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_lives_find(const struct neap_trace *trace, size_t device, struct neap_lives *ret_lives,
				 struct neap_error *err);
void neap_lives_fini(struct neap_lives *lives);

/* Whether it holds its bytes just after `event`. NEAP_LIFE_BEFORE: before the first. */
static inline bool neap_life_at(const struct neap_life *life, uint64_t event)
{
	if (event == NEAP_LIFE_BEFORE)
		return life->begin == NEAP_LIFE_BEFORE;
	return (life->begin == NEAP_LIFE_BEFORE || life->begin <= event) &&
	       (life->end == NEAP_LIFE_AFTER || life->end > event);
}

#endif
