/* sim/driver/race_late.c: see the header. Each lane is a queue. Only the first work of a queue can run, and only when
 * no other queue has work that comes before it. */
#include "sim/driver/race_late.h"

#include <stdlib.h>

enum { PENDING_MOST = 1 << 16 }; /* with more, all of it runs: the program waits for nothing */

struct race_late_work {
	struct race_late_work *next; /* of its lane */
	struct race_clock clock;     /* the work before it, and itself */
	uint64_t number;             /* in the order they were queued */
	uint32_t lane;
	bool late;
	void (*function)(void *);
	void *argument;
};

void race_late_init(struct race_late *late)
{
	*late = (struct race_late){0};
	pthread_mutex_init(&late->lock, NULL);
	pthread_cond_init(&late->idle, NULL);
	for (uint32_t lane = 0; lane < RACE_LANES; lane++)
		late->lanes[lane].last = &late->lanes[lane].first;
}

void race_late_fini(struct race_late *late)
{
	for (uint32_t lane = 0; lane < RACE_LANES; lane++)
		while (late->lanes[lane].first) {
			struct race_late_work *work = late->lanes[lane].first;

			late->lanes[lane].first = work->next;
			free(work);
		}
	pthread_cond_destroy(&late->idle);
	pthread_mutex_destroy(&late->lock);
}

/* Returns whether the stream's work is late. Seed 0: all but the default stream; 1: only the default stream; others:
 * about half of the streams. */
static bool is_late(uint64_t seed, uint32_t stream)
{
	uint64_t hash = (seed << 32 ^ stream) * 0x9e3779b97f4a7c15u;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93u;
	return seed < 2 ? (stream != 0) == (seed == 0) : hash >> 63;
}

static bool includes(const struct race_clock *clock, const struct race_late_work *work)
{
	return clock->seen[work->lane] >= work->clock.seen[work->lane];
}

/* Lock held. */
static bool is_blocked(const struct race_late *late, const struct race_late_work *work)
{
	for (uint32_t lane = 0; lane < RACE_LANES; lane++) {
		const struct race_late_work *first = late->lanes[lane].first;

		if (first && first != work && includes(&work->clock, first))
			return true;
	}
	return false;
}

/* Returns the oldest work that may run. It chooses from all work if `all` is set; else from the work that is not late
 * or that `clock` includes. Lock held. */
static struct race_late_work *choose(const struct race_late *late, bool all, const struct race_clock *clock)
{
	struct race_late_work *chosen = NULL;

	for (uint32_t lane = 0; lane < RACE_LANES; lane++) {
		struct race_late_work *first = late->lanes[lane].first;

		if (first && (!chosen || first->number < chosen->number) &&
		    (all || !first->late || (clock && includes(clock, first))) && !is_blocked(late, first))
			chosen = first;
	}
	return chosen;
}

static void take(struct race_late *late, struct race_late_work *work)
{
	late->lanes[work->lane].first = work->next;
	if (!work->next)
		late->lanes[work->lane].last = &late->lanes[work->lane].first;
	late->pending--;
}

static void run(struct race_late *late, bool all, const struct race_clock *clock)
{
	struct race_late_work *work;

	pthread_mutex_lock(&late->lock);
	bool within = late->running && pthread_equal(late->runner, pthread_self());
	while (late->running && !within)
		pthread_cond_wait(&late->idle, &late->lock);
	if (!within) {
		late->running = true;
		late->runner = pthread_self();
		while ((work = choose(late, all, clock)) != NULL) {
			take(late, work);
			pthread_mutex_unlock(&late->lock);
			work->function(work->argument);
			free(work);
			pthread_mutex_lock(&late->lock);
		}
		late->running = false;
		pthread_cond_broadcast(&late->idle);
	}
	pthread_mutex_unlock(&late->lock);
}

void race_late_add(struct race_late *late, const struct race_clock *clock, uint32_t lane, uint32_t stream,
		   void (*function)(void *), void *argument)
{
	struct race_late_work *work = malloc(sizeof *work);

	if (!work) {
		race_late_run(late, clock);
		function(argument);
		return;
	}
	pthread_mutex_lock(&late->lock);
	*work = (struct race_late_work){.clock = *clock,
					.number = late->queued++,
					.lane = lane,
					.late = is_late(late->seed, stream),
					.function = function,
					.argument = argument};
	*late->lanes[work->lane].last = work;
	late->lanes[work->lane].last = &work->next;
	bool all = ++late->pending > PENDING_MOST, none = work->late && !all;
	pthread_mutex_unlock(&late->lock);
	if (!none)
		run(late, all, NULL);
}

void race_late_run(struct race_late *late, const struct race_clock *clock) { run(late, !clock, clock); }

bool race_late_holds(struct race_late *late, const struct race_clock *clock)
{
	bool holds = false;

	pthread_mutex_lock(&late->lock);
	for (uint32_t lane = 0; lane < RACE_LANES; lane++)
		holds = holds || (late->lanes[lane].first && includes(clock, late->lanes[lane].first));
	pthread_mutex_unlock(&late->lock);
	return holds;
}
