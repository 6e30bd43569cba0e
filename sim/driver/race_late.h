/* sim/driver/race_late.h: work that comes as late as its orders allow. For races.c.
 *
 *   stream s:   [a]  [b]         queued: nothing has run
 *   stream t:        wait b [c]
 *   the host waits for t   -->   a, b, c run, in the order they were queued; what else is queued stays
 *
 * Work of a stream that is not late runs at once, or as soon as what it comes after has run. Functions run one at a
 * time, without any lock; one that asks for more work to run gets none. Threads: any. */
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
	} lanes[RACE_LANES]; /* what has not run */
	uint64_t queued;     /* so far */
	size_t pending;
};

void race_late_init(struct race_late *late);
/* What has not run never does. */
void race_late_fini(struct race_late *late);
/* Work of a stream: what comes before it, with itself on its lane. `function` may run now, later, or never. */
void race_late_add(struct race_late *late, const struct race_clock *clock, uint32_t lane, uint32_t stream,
		   void (*function)(void *), void *argument);
/* Runs what `clock` includes; NULL: all. */
void race_late_run(struct race_late *late, const struct race_clock *clock);
/* Whether something that `clock` includes has not run. */
bool race_late_holds(struct race_late *late, const struct race_clock *clock);

#endif
