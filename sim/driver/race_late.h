/* sim/driver/race_late.h: runs work as late as its order allows. For races.c.
 *
 *   stream s:   [a]  [b]         queued: nothing has run
 *   stream t:        wait b [c]
 *   the host waits for t   -->   a, b, c run, in the order they were queued; other queued work stays
 *
 * If a stream is not late, its work runs at once, or as soon as the work before it has run. Functions run one at a
 * time, without any lock. If such a function calls race_late_run, no work runs. Threads: any. */
#ifndef NEAP_SIM_RACE_LATE_H
#define NEAP_SIM_RACE_LATE_H

#include "sim/driver/race_order.h"

#include <pthread.h>

struct race_late_work;

struct race_late {
	pthread_mutex_t lock; /* a leaf */
	pthread_cond_t idle;
	uint64_t seed;
	bool running; /* `runner` runs functions */
	pthread_t runner;
	struct {
		struct race_late_work *first, **last;
	} lanes[RACE_LANES]; /* the work that has not run */
	uint64_t queued;     /* how much work was queued so far */
	size_t pending;
};

void race_late_init(struct race_late *late);
/* Drops the work that has not run: it never runs. */
void race_late_fini(struct race_late *late);
/* Adds work of a stream. `clock` includes the work before it, and the work itself on its lane. `function` may run
 * now, later, or never. */
void race_late_add(struct race_late *late, const struct race_clock *clock, uint32_t lane, uint32_t stream,
		   void (*function)(void *), void *argument);
/* Runs the work that `clock` includes; NULL: all. */
void race_late_run(struct race_late *late, const struct race_clock *clock);
/* Whether any work that `clock` includes has not run. */
bool race_late_holds(struct race_late *late, const struct race_clock *clock);

#endif
