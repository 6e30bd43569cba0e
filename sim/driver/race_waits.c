/* sim/driver/race_waits.c: orders work and runs late work: see races.h. */
#include "sim/driver/race_private.h"

void sim_races_record(struct sim_races *races, uint64_t event, struct sim_race_stream stream, bool of_allocator)
{
	pthread_mutex_lock(&races->lock);
	race_order_record(&races->order, event, stream, of_allocator);
	pthread_mutex_unlock(&races->lock);
}

void sim_races_wait(struct sim_races *races, struct sim_race_stream what, uint64_t event)
{
	pthread_mutex_lock(&races->lock);
	struct race_stream *stream = race_order_now(&races->order, what);
	struct race_event *after = race_order_event(&races->order, event);
	if (after)
		after->awaited = true;
	if (stream && after)
		race_clock_join(&stream->clock, &after->clock);
	pthread_mutex_unlock(&races->lock);
}

/* Called when the host has waited, with the lock held. Releases the lock. */
static void host_saw(struct sim_races *races)
{
	struct race_clock seen = races->order.host;

	pthread_mutex_unlock(&races->lock);
	if (atomic_load(&races->delays))
		race_late_run(&races->late, &seen);
}

void sim_races_host_event(struct sim_races *races, uint64_t event)
{
	pthread_mutex_lock(&races->lock);
	const struct race_event *after = race_order_event(&races->order, event);
	if (after)
		race_clock_join(&races->order.host, &after->clock);
	host_saw(races);
}

void sim_races_host_stream(struct sim_races *races, struct sim_race_stream what)
{
	pthread_mutex_lock(&races->lock);
	const struct race_stream *stream = race_order_now(&races->order, what);
	if (stream)
		race_clock_join(&races->order.host, &stream->clock);
	host_saw(races);
}

void sim_races_host_device(struct sim_races *races, uint32_t device)
{
	pthread_mutex_lock(&races->lock);
	race_order_host_device(&races->order, device);
	host_saw(races);
}

/* HIDDEN_QUERIES: how many queries of a program's thread find finished work unfinished; PyTorch asks twice before it
 * waits. PATIENCE: how often a watchdog asks before it learns the end of a collective for which nothing waits, and
 * before late work runs for it. */
enum { HIDDEN_QUERIES = 2, PATIENCE = 50 };

static const uint64_t WATCHDOG = UINT64_MAX; /* the asker that stands for all watchdogs */

/* Counts how often the thread has asked about the event, this time included. */
static uint32_t times_asked(struct race_event *event, uint64_t thread)
{
	size_t i = 0;

	while (i < RACE_ASKERS - 1 && event->askers[i].thread && event->askers[i].thread != thread)
		i++;
	event->askers[i].thread = thread;
	return ++event->askers[i].times;
}

static bool may_report(struct sim_races *races, struct race_event *event, uint64_t thread)
{
	const struct race_order *order = &races->order;

	if (atomic_load(&races->delays) && race_late_holds(&races->late, &event->clock))
		return !event->of_allocator &&
		       times_asked(event, thread ? thread : WATCHDOG) > (thread ? HIDDEN_QUERIES : PATIENCE);
	if (event->of_allocator)
		return true;
	if (thread)
		return race_order_is_seen(order, event) || times_asked(event, thread) > HIDDEN_QUERIES;
	return !event->of_collective || race_order_is_awaited(order, event) ||
	       times_asked(event, WATCHDOG) > PATIENCE;
}

bool sim_races_asked(struct sim_races *races, uint64_t key, uint64_t thread)
{
	struct race_clock finished = {{0}};

	pthread_mutex_lock(&races->lock);
	struct race_event *event = race_order_event(&races->order, key);
	bool reports = !event || may_report(races, event, thread);
	if (event && reports)
		finished = event->clock;
	if (!thread)
		race_clock_join(&races->order.watchdogs, &finished);
	for (struct block *block = races->waiting; event && reports && block; block = block->next)
		race_clock_join(&block->release, &finished);
	pthread_mutex_unlock(&races->lock);
	if (reports && atomic_load(&races->delays))
		race_late_run(&races->late, &finished);
	return reports;
}

void sim_races_forget_event(struct sim_races *races, uint64_t event)
{
	pthread_mutex_lock(&races->lock);
	race_order_forget(&races->order, event);
	pthread_mutex_unlock(&races->lock);
}

void sim_races_forget_stream(struct sim_races *races, uint64_t stream)
{
	pthread_mutex_lock(&races->lock);
	race_order_forget_stream(&races->order, stream);
	pthread_mutex_unlock(&races->lock);
}

/* -- late work --------------------------------------------------------------------------------------------------- */

void sim_races_delay(struct sim_races *races, uint64_t seed)
{
	races->late.seed = seed;
	atomic_store(&races->delays, true);
}

bool sim_races_delays(struct sim_races *races) { return atomic_load(&races->delays); }

void sim_races_later(struct sim_races *races, struct sim_race_stream what, void (*function)(void *), void *argument)
{
	pthread_mutex_lock(&races->lock);
	struct race_stream *stream = race_order_now(&races->order, what);
	if (!stream) {
		pthread_mutex_unlock(&races->lock);
		race_late_run(&races->late, NULL);
		function(argument);
		return;
	}
	stream->clock.seen[stream->lane] = ++races->order.counts[stream->lane];
	struct race_clock clock = stream->clock;
	uint32_t lane = stream->lane, number = stream->number;
	pthread_mutex_unlock(&races->lock);
	race_late_add(&races->late, &clock, lane, number, function, argument);
}

/* Returns a clock of the work before the stream's next work; an empty one if host memory is short. */
static struct race_clock before(struct sim_races *races, struct sim_race_stream what)
{
	struct race_clock clock = {{0}};

	pthread_mutex_lock(&races->lock);
	const struct race_stream *stream = race_order_now(&races->order, what);
	if (stream)
		clock = stream->clock;
	pthread_mutex_unlock(&races->lock);
	return clock;
}

void sim_races_settle(struct sim_races *races, struct sim_race_stream stream)
{
	if (!atomic_load(&races->delays))
		return;
	struct race_clock clock = before(races, stream);
	race_late_run(&races->late, &clock);
}

void sim_races_settle_all(struct sim_races *races)
{
	if (atomic_load(&races->delays))
		race_late_run(&races->late, NULL);
}

bool sim_races_asked_stream(struct sim_races *races, struct sim_race_stream what)
{
	if (!atomic_load(&races->delays))
		return true;
	struct race_clock clock = before(races, what);
	if (!race_late_holds(&races->late, &clock))
		return true;
	pthread_mutex_lock(&races->lock);
	struct race_stream *stream = race_order_now(&races->order, what);
	bool reports = !stream || ++stream->asked > HIDDEN_QUERIES;
	if (stream && reports)
		stream->asked = 0;
	pthread_mutex_unlock(&races->lock);
	if (reports)
		race_late_run(&races->late, &clock);
	return reports;
}
