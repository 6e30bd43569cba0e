/* sim/driver/engine.c: see the header.
 *
 * Queues are FIFO and a wait names an event recorded before it. So when work is submitted, everything that it waits
 * for is known, and so is its end:
 *
 *   start = max(now, end of the stream's last work, end of the work before the awaited events)
 *   end   = start + duration
 *
 * One heap orders all pending work by (end, submission). Work ends no earlier than the work it is ordered after, and
 * is submitted later. So popping the heap's head repeatedly runs functions in stream order and in event order.
 *
 * A stream owns a *lane*, one component of the vector clocks; its n-th work has count n on it. All clocks are arrays
 * of `capacity` counts, indexed by lane:
 *
 *   stream->clock   all that comes before work submitted to the stream now
 *   event->clock    the stream's clock when the event was recorded (shorter when lanes were added since)
 *   host            all that the host has seen through synchronisations and queries that returned OK
 *   completed       how far each lane has run
 *   departed        work of destroyed blocking streams: stream 0 still waits for it
 *
 *   host[lane] <= completed[lane] <= submitted[lane]
 *
 * A new stream reuses a lane, and continues its count, once the host has seen all of the old stream's work.
 *
 * Functions run without the lock, so only one thread at a time completes work (`completing`), to keep the order;
 * others wait for it. A function that calls the engine is on the completing thread: the clock moves, nothing
 * completes inside the call, and pending work returns SIM_ORDER_NOT_READY.
 */
#include "sim/driver/engine_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 8 };

/* Clocks. */

void sim_clock_join(uint64_t *into, const uint64_t *from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (from[i] > into[i])
			into[i] = from[i];
}

static bool includes(const uint64_t *clock, const uint64_t *other, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (other[i] > clock[i])
			return false;
	return true;
}

bool sim_clock_grow(uint64_t **clock, uint32_t from, uint32_t to)
{
	uint64_t *bigger = realloc(*clock, to * sizeof *bigger);

	if (!bigger)
		return false;
	memset(bigger + from, 0, (to - from) * sizeof *bigger);
	*clock = bigger;
	return true;
}

static bool lanes_grow(struct sim_engine *engine)
{
	uint32_t from = engine->capacity, to = from ? 2 * from : ROOM_FIRST;
	uint64_t **clocks[] = {&engine->host, &engine->completed, &engine->submitted, &engine->departed,
			       &engine->scratch};
	struct stream **streams = realloc(engine->streams, to * sizeof(struct stream *));

	if (!streams)
		return false;
	memset(streams + from, 0, (to - from) * sizeof(struct stream *));
	engine->streams = streams;
	for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
		if (!sim_clock_grow(clocks[i], from, to))
			return false;
	for (uint32_t i = 0; i < engine->lanes; i++)
		if (streams[i] && !sim_clock_grow(&streams[i]->clock, from, to))
			return false;
	engine->capacity = to;
	return true;
}

/* Time. */

static bool from_within(const struct sim_engine *engine)
{
	return engine->completing && pthread_equal(engine->completer, pthread_self());
}

/* Moves the clock to `moment` if that is later, and completes due work. In two cases it only moves the clock: inside
 * a function, and, without `wait`, while another thread completes work, which then does the rest. The reason: a
 * function may need a lock of the caller's, such as Python's, so only a call that waits may wait for a function. */
static void run_until(struct sim_engine *engine, uint64_t moment, bool wait)
{
	if (from_within(engine) || (engine->completing && !wait)) {
		if (moment > engine->now_ns)
			engine->now_ns = moment;
		return;
	}
	while (engine->completing)
		pthread_cond_wait(&engine->idle, &engine->lock);
	engine->completing = true;
	engine->completer = pthread_self();
	for (const struct sim_pending *head;
	     (head = sim_heap_head(&engine->heap)) && (head->end_ns <= moment || head->end_ns <= engine->now_ns);) {
		struct sim_pending work = sim_heap_pop(&engine->heap);

		if (work.end_ns > engine->now_ns)
			engine->now_ns = work.end_ns;
		if (work.function) {
			pthread_mutex_unlock(&engine->lock);
			work.function(work.argument);
			pthread_mutex_lock(&engine->lock);
		}
		engine->completed[work.lane] = work.count;
	}
	if (moment > engine->now_ns)
		engine->now_ns = moment;
	engine->completing = false;
	pthread_cond_broadcast(&engine->idle);
}

/* Returns OK if all work that `clock` counts has run and `end_ns` has passed; then the host's clock includes that
 * work. */
static enum sim_order observe(struct sim_engine *engine, const uint64_t *clock, uint32_t count, uint64_t end_ns)
{
	if (engine->now_ns < end_ns || !includes(engine->completed, clock, count))
		return SIM_ORDER_NOT_READY;
	sim_clock_join(engine->host, clock, count);
	return SIM_ORDER_OK;
}

/* Order. */

/* An action comes after all that the host has seen. On stream 0 it also comes after all work of blocking streams; on
 * a blocking stream, after stream 0. Adds all that to `clock`, and returns when it ends. */
uint64_t sim_stream_action(struct sim_engine *engine, const struct stream *stream, uint64_t *clock)
{
	uint64_t end_ns = stream->end_ns;

	sim_clock_join(clock, engine->host, engine->lanes);
	if (stream->non_blocking)
		return end_ns;
	for (uint32_t i = 0; i < (stream->lane == 0 ? engine->lanes : 1); i++) {
		const struct stream *other = engine->streams[i];

		if (!other || other == stream || other->non_blocking)
			continue;
		sim_clock_join(clock, other->clock, engine->lanes);
		end_ns = other->end_ns > end_ns ? other->end_ns : end_ns;
	}
	if (stream->lane == 0) {
		sim_clock_join(clock, engine->departed, engine->lanes);
		end_ns = engine->departed_end_ns > end_ns ? engine->departed_end_ns : end_ns;
	}
	return end_ns;
}

struct stream *sim_stream_find(struct sim_engine *engine, uint32_t stream)
{
	return sim_table_find(&engine->stream_table, stream);
}

static void describe_race(struct sim_engine *engine, const struct sim_work *work, const struct sim_access *access,
			  uint32_t stream, const struct sim_history_entry *other)
{
	uint64_t begin, end;

	sim_access_interval(access, &begin, &end);
	begin = other->begin > begin ? other->begin : begin;
	end = other->end < end ? other->end : end;
	snprintf(engine->fault, sizeof engine->fault,
		 "race: \"%s\" on stream %" PRIu32 " %s bytes %" PRIu64 " to %" PRIu64 " of memory %" PRIu64
		 ", which \"%s\" on stream %" PRIu32
		 " %s, and nothing orders \"%s\" after \"%s\": let stream %" PRIu32
		 " wait for an event recorded on stream %" PRIu32 " after it, or synchronise",
		 work->name, stream, access->write ? "writes" : "reads", begin, end, access->space, other->name,
		 other->stream, other->write ? "writes" : "reads", work->name, other->name, stream, other->stream);
}

/* Creation and destruction. */

static void stream_free(struct stream *stream)
{
	if (!stream)
		return;
	free(stream->clock);
	free(stream);
}

/* Returns a lane whose work the host has seen, or a new one. The caller increases `lanes` once it succeeds. */
static uint32_t choose_lane(const struct sim_engine *engine)
{
	for (uint32_t i = 0; i < engine->lanes; i++)
		if (!engine->streams[i] && engine->host[i] == engine->submitted[i])
			return i;
	return engine->lanes;
}

static enum sim_order stream_create(struct sim_engine *engine, bool non_blocking, uint32_t *ret_stream)
{
	struct stream *stream = NULL;
	uint32_t lane = choose_lane(engine);

	if (lane == engine->capacity && !lanes_grow(engine))
		return SIM_ORDER_NO_MEMORY;
	stream = calloc(1, sizeof *stream);
	if (!stream)
		return SIM_ORDER_NO_MEMORY;
	*stream = (struct stream){.number = engine->next_stream, .lane = lane, .non_blocking = non_blocking};
	if (!sim_clock_grow(&stream->clock, 0, engine->capacity) ||
	    !sim_table_put(&engine->stream_table, stream->number, stream)) {
		stream_free(stream);
		return SIM_ORDER_NO_MEMORY;
	}
	engine->streams[lane] = stream;
	if (lane == engine->lanes)
		engine->lanes++;
	*ret_stream = engine->next_stream++;
	return SIM_ORDER_OK;
}

struct sim_engine *sim_engine_create(void)
{
	struct sim_engine *engine = calloc(1, sizeof *engine);
	uint32_t zero;

	if (!engine)
		return NULL;
	pthread_mutex_init(&engine->lock, NULL);
	pthread_cond_init(&engine->idle, NULL);
	engine->next_event = 1;
	if (stream_create(engine, false, &zero) != SIM_ORDER_OK) {
		sim_engine_destroy(engine);
		return NULL;
	}
	return engine;
}

void sim_engine_destroy(struct sim_engine *engine)
{
	if (!engine)
		return;
	for (uint32_t i = 0; i < engine->lanes; i++)
		stream_free(engine->streams[i]);
	for (size_t i = 0; i < engine->event_table.capacity; i++)
		sim_event_free(engine->event_table.entries[i].value);
	sim_table_fini(&engine->stream_table);
	sim_table_fini(&engine->event_table);
	sim_history_fini(&engine->history);
	sim_heap_fini(&engine->heap);
	free(engine->streams);
	free(engine->host);
	free(engine->completed);
	free(engine->submitted);
	free(engine->departed);
	free(engine->scratch);
	pthread_cond_destroy(&engine->idle);
	pthread_mutex_destroy(&engine->lock);
	free(engine);
}

/* Streams. */

enum sim_order sim_stream_create(struct sim_engine *engine, bool non_blocking, uint32_t *ret_stream)
{
	pthread_mutex_lock(&engine->lock);
	enum sim_order order = stream_create(engine, non_blocking, ret_stream);
	pthread_mutex_unlock(&engine->lock);
	return order;
}

enum sim_order sim_stream_destroy(struct sim_engine *engine, uint32_t number)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	struct stream *stream = number ? sim_table_take(&engine->stream_table, number) : NULL;
	if (stream) {
		if (!stream->non_blocking) {
			sim_clock_join(engine->departed, stream->clock, engine->lanes);
			if (stream->end_ns > engine->departed_end_ns)
				engine->departed_end_ns = stream->end_ns;
		}
		engine->streams[stream->lane] = NULL;
		stream_free(stream);
		order = SIM_ORDER_OK;
	}
	pthread_mutex_unlock(&engine->lock);
	return order;
}

/* Returns when work ends that may start at `start_ns`. */
static uint64_t end_of(const struct sim_engine *engine, uint64_t start_ns, uint64_t duration_ns)
{
	if (engine->now_ns > start_ns)
		start_ns = engine->now_ns;
	return duration_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + duration_ns;
}

/* Checks and allocates everything before it changes anything. Refused work changes only the text of the fault. */
static enum sim_order submit(struct sim_engine *engine, struct stream *stream, const struct sim_work *work)
{
	uint64_t *clock = engine->scratch;

	memcpy(clock, stream->clock, engine->lanes * sizeof *clock);
	uint64_t start_ns = sim_stream_action(engine, stream, clock);
	for (size_t i = 0; i < work->access_count; i++) {
		const struct sim_history_entry *other =
			sim_history_conflict(&engine->history, &work->accesses[i], clock, engine->host);

		if (other) {
			describe_race(engine, work, &work->accesses[i], stream->number, other);
			return SIM_ORDER_RACE;
		}
	}
	if (!sim_heap_reserve(&engine->heap))
		return SIM_ORDER_NO_MEMORY;
	for (size_t i = 0; i < work->access_count; i++)
		if (!sim_history_reserve(&engine->history, work->accesses[i].space, work->access_count))
			return SIM_ORDER_NO_MEMORY;

	clock[stream->lane] = ++engine->submitted[stream->lane];
	memcpy(stream->clock, clock, engine->lanes * sizeof *clock);
	for (size_t i = 0; i < work->access_count; i++) {
		struct sim_history_entry entry = {.count = clock[stream->lane],
						  .lane = stream->lane,
						  .stream = stream->number,
						  .name = work->name,
						  .write = work->accesses[i].write};

		sim_access_interval(&work->accesses[i], &entry.begin, &entry.end);
		if (entry.begin < entry.end)
			sim_history_add(&engine->history, work->accesses[i].space, &entry, clock);
	}
	stream->end_ns = end_of(engine, start_ns, work->duration_ns);
	if (stream->end_ns > engine->last_end_ns)
		engine->last_end_ns = stream->end_ns;
	sim_heap_push(&engine->heap, (struct sim_pending){.end_ns = stream->end_ns,
							  .submission = engine->submissions++,
							  .count = clock[stream->lane],
							  .lane = stream->lane,
							  .function = work->function,
							  .argument = work->argument});
	return SIM_ORDER_OK;
}

enum sim_order sim_stream_submit(struct sim_engine *engine, uint32_t number, const struct sim_work *work)
{
	pthread_mutex_lock(&engine->lock);
	struct stream *stream = sim_stream_find(engine, number);
	enum sim_order order = stream ? submit(engine, stream, work) : SIM_ORDER_BAD_HANDLE;
	pthread_mutex_unlock(&engine->lock);
	return order;
}

/* Work that touches no memory has an end but cannot race, so it needs no number on its lane. */
enum sim_order sim_stream_pass(struct sim_engine *engine, uint32_t number, uint64_t duration_ns)
{
	pthread_mutex_lock(&engine->lock);
	struct stream *stream = sim_stream_find(engine, number);
	if (stream) {
		uint64_t end_ns = sim_stream_action(engine, stream, stream->clock);

		if (duration_ns > 0) {
			end_ns = end_of(engine, end_ns, duration_ns);
			if (end_ns > engine->last_end_ns)
				engine->last_end_ns = end_ns;
		}
		stream->end_ns = end_ns;
	}
	pthread_mutex_unlock(&engine->lock);
	return stream ? SIM_ORDER_OK : SIM_ORDER_BAD_HANDLE;
}

/* A query and a synchronisation differ only in moving the clock. `clock` is a copy: while functions run without the
 * lock, another thread may submit more work, or destroy the stream or the event. */
enum sim_order sim_clock_settle(struct sim_engine *engine, const uint64_t *clock, uint32_t count, uint64_t end_ns,
				bool wait)
{
	uint64_t few[32], *target = few;
	enum sim_order order;

	if (count > sizeof few / sizeof *few) {
		target = malloc(count * sizeof *target);
		if (!target)
			return SIM_ORDER_NO_MEMORY;
	}
	memcpy(target, clock, count * sizeof *target);
	run_until(engine, wait && !engine->held && !from_within(engine) ? end_ns : engine->now_ns, wait);
	order = observe(engine, target, count, end_ns);
	if (target != few)
		free(target);
	return order;
}

static enum sim_order stream_settle(struct sim_engine *engine, uint32_t number, bool wait)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	struct stream *stream = sim_stream_find(engine, number);
	if (stream) {
		memcpy(engine->scratch, stream->clock, engine->lanes * sizeof *engine->scratch);
		uint64_t end_ns = sim_stream_action(engine, stream, engine->scratch);
		order = sim_clock_settle(engine, engine->scratch, engine->lanes, end_ns, wait);
	}
	pthread_mutex_unlock(&engine->lock);
	return order;
}

enum sim_order sim_stream_query(struct sim_engine *engine, uint32_t stream)
{
	return stream_settle(engine, stream, false);
}

enum sim_order sim_stream_synchronize(struct sim_engine *engine, uint32_t stream)
{
	return stream_settle(engine, stream, true);
}

enum sim_order sim_stream_wait_event(struct sim_engine *engine, uint32_t number, uint32_t event_number)
{
	enum sim_order order = SIM_ORDER_BAD_HANDLE;

	pthread_mutex_lock(&engine->lock);
	struct stream *stream = sim_stream_find(engine, number);
	struct event *event = sim_event_find(engine, event_number);
	if (stream && event) {
		stream->end_ns = sim_stream_action(engine, stream, stream->clock);
		if (event->clock) {
			sim_clock_join(stream->clock, event->clock, event->capacity);
			if (event->end_ns > stream->end_ns)
				stream->end_ns = event->end_ns;
		}
		order = SIM_ORDER_OK;
	}
	pthread_mutex_unlock(&engine->lock);
	return order;
}

enum sim_order sim_engine_synchronize(struct sim_engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	enum sim_order order = sim_clock_settle(engine, engine->submitted, engine->lanes, engine->last_end_ns, true);
	if (order == SIM_ORDER_OK)
		sim_history_prune(&engine->history, engine->host);
	pthread_mutex_unlock(&engine->lock);
	return order;
}

/* Memory. */

void sim_engine_forget(struct sim_engine *engine, uint64_t space)
{
	pthread_mutex_lock(&engine->lock);
	sim_history_forget(&engine->history, space);
	pthread_mutex_unlock(&engine->lock);
}

/* The clock. */

uint64_t sim_engine_now(struct sim_engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	uint64_t now_ns = engine->now_ns;
	pthread_mutex_unlock(&engine->lock);
	return now_ns;
}

static void move(struct sim_engine *engine, uint64_t ns)
{
	run_until(engine, ns > UINT64_MAX - engine->now_ns ? UINT64_MAX : engine->now_ns + ns, false);
}

void sim_engine_advance(struct sim_engine *engine, uint64_t ns)
{
	pthread_mutex_lock(&engine->lock);
	move(engine, engine->held ? 0 : ns);
	pthread_mutex_unlock(&engine->lock);
}

bool sim_stream_go_on(struct sim_engine *engine, uint32_t number)
{
	pthread_mutex_lock(&engine->lock);
	const struct stream *stream = sim_stream_find(engine, number);
	bool moves = stream && !engine->held;
	if (moves)
		run_until(engine, stream->end_ns, true);
	pthread_mutex_unlock(&engine->lock);
	return moves;
}

void sim_engine_hold(struct sim_engine *engine, bool held)
{
	pthread_mutex_lock(&engine->lock);
	engine->held = held;
	pthread_mutex_unlock(&engine->lock);
}

void sim_engine_step(struct sim_engine *engine, uint64_t ns)
{
	pthread_mutex_lock(&engine->lock);
	move(engine, ns);
	pthread_mutex_unlock(&engine->lock);
}

void sim_engine_fault_text(struct sim_engine *engine, char *text, size_t capacity)
{
	pthread_mutex_lock(&engine->lock);
	snprintf(text, capacity, "%s", engine->fault);
	pthread_mutex_unlock(&engine->lock);
}
