/* sim/driver/engine_private.h: shared by the engine's source files: engine.c (streams, order, time) and
 * engine_event.c. The top of engine.c has the picture and the invariants. The caller holds the engine's lock. */
#ifndef NEAP_SIM_ENGINE_PRIVATE_H
#define NEAP_SIM_ENGINE_PRIVATE_H

#include "sim/driver/engine.h"
#include "sim/driver/engine_heap.h"
#include "sim/driver/engine_history.h"

#include <pthread.h>

struct stream {
	uint32_t number, lane;
	bool non_blocking;
	uint64_t *clock;
	uint64_t end_ns; /* when its last work ends, or the event that it waits for */
};

struct event {
	uint64_t *clock; /* `capacity` counts; an unused one is zero. NULL: the event was never recorded */
	uint32_t capacity;
	uint64_t end_ns; /* when all work before it has run, but not earlier than it was recorded */
};

struct sim_engine {
	pthread_mutex_t lock;
	pthread_cond_t idle; /* signalled when `completing` becomes false */
	pthread_t completer; /* valid while completing */
	bool completing, held;

	uint64_t now_ns, submissions, last_end_ns;
	uint32_t next_stream, next_event;

	uint32_t lanes, capacity; /* lanes in use or departed; the length of every clock */
	struct stream **streams;  /* by lane; NULL: departed */
	uint64_t *host, *completed, *submitted, *departed, *scratch;
	uint64_t departed_end_ns;

	struct sim_table stream_table, event_table;
	struct sim_heap heap; /* all pending work */
	struct sim_history history;
	char fault[512];
};

/* Clocks: arrays of counts. */
void sim_clock_join(uint64_t *into, const uint64_t *from, uint32_t count);
bool sim_clock_grow(uint64_t **clock, uint32_t from, uint32_t to); /* false: host out of memory */

/* Adds to `clock` all that the stream's next action comes after. Returns when that ends. */
uint64_t sim_stream_action(struct sim_engine *engine, const struct stream *stream, uint64_t *clock);
/* Completes due work; with `wait`, it first moves the clock to `end_ns`. Returns OK if all work that `clock` counts
 * has then run and `end_ns` has passed. */
enum sim_order sim_clock_settle(struct sim_engine *engine, const uint64_t *clock, uint32_t count, uint64_t end_ns,
				bool wait);
struct stream *sim_stream_find(struct sim_engine *engine, uint32_t stream); /* NULL: unknown */
struct event *sim_event_find(struct sim_engine *engine, uint32_t event);
void sim_event_free(struct event *event);

#endif
