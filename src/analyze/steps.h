/* analyze/steps.h: finds where a trace's training steps end. Pure.
 *
 * The ends come from marks of steps (the session's, `s` of a text trace); else from ranges whose names differ only in
 * numbers ("iter 0", "iter 1", ...; "Optimizer.step#AdamW.step"). It takes the name with the most ends, at least two;
 * names about steps or iterations come before others. Steps that ended before the first event (of a recording that
 * has lost its oldest allocations: the first allocation that it kept) do not count.
 */
#ifndef NEAP_ANALYZE_STEPS_H
#define NEAP_ANALYZE_STEPS_H

#include "trace/trace.h"

struct neap_steps {
	uint64_t *ends;     /* by order: a step ends before this event of the device */
	uint64_t *numbers;  /* the number of each step in its training; a step may lack a mark. In the same memory */
	uint64_t *times_us; /* when each step ended; 0: the trace has no times. In the same memory */
	size_t count;
	uint64_t first_begin; /* the first step begins before this event; UINT64_MAX: not known */
	bool midway;          /* training had begun before the first event: steps had ended, or events were lost */
	char how[96];         /* "marks of steps", "ranges named 'iter #'"; "": no steps */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_steps_find(const struct neap_trace *trace, size_t device, struct neap_steps *ret_steps,
				 struct neap_error *err);
void neap_steps_fini(struct neap_steps *steps);

/* The device's first event of an allocation, if a recording has lost its oldest allocations: older failures and
 * emptyings of the cache come before it. Else 0. */
uint64_t neap_steps_first_kept(const struct neap_trace *trace, size_t device);

/* If several trainings follow one another: the first returns the steps of the longest one, the second the steps
 * before `event` of the last training that began before it. Both borrow. */
struct neap_steps neap_steps_longest(const struct neap_steps *steps);
struct neap_steps neap_steps_last(const struct neap_steps *steps, uint64_t event);

/* Returns how many updates step `i` stands for, which are those since the mark before it. 0: not known. */
uint64_t neap_steps_updates(const struct neap_steps *steps, size_t i);

/* Returns how many steps have ended when `event` happens. */
size_t neap_steps_before(const struct neap_steps *steps, uint64_t event);

#endif
