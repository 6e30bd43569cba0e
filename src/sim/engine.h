/* sim/engine.h: streams, events, order and virtual time, for one process of the simulator.
 *
 * It knows nothing of processes, devices' capacity or addresses: memory is named physically, (space, offset, bytes),
 * where a space is one physical handle, so that two addresses of the same bytes are seen as the same bytes.
 *
 *   stream k:   [work]--[record e]--[work]            each stream is a queue; its head runs, then completes when the
 *   stream m:   [wait e]--[work]                      virtual clock reaches its end; functions run at completion
 *
 * Order is kept with vector clocks: one component per stream, one clock for the host. Work is ordered after
 * everything that its stream, the events it waited for, and the host (through synchronisations) had seen. A *race* is
 * two works that touch overlapping bytes, at least one writing, neither ordered before the other; it is reported when
 * the second is submitted, whatever the moments at which they would run. Stream 0 is the legacy default stream: it
 * orders with every stream not created non-blocking.
 *
 * Threads: any; one lock inside, not held while a work's function runs. A function may call the engine: time moves
 * and work is queued, but nothing completes from within, so waiting there for pending work answers
 * SIM_ORDER_NOT_READY.
 */
#ifndef NEAP_SIM_ENGINE_H
#define NEAP_SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_order {
	SIM_ORDER_OK = 0,
	SIM_ORDER_NOT_READY,  /* work is pending (query), or would be waited for while the clock is held */
	SIM_ORDER_RACE,       /* see sim_engine_fault_text */
	SIM_ORDER_BAD_HANDLE, /* no such stream or event */
	SIM_ORDER_NO_MEMORY,  /* host */
};

struct sim_access {
	uint64_t space, offset, bytes;
	bool write;
};

struct sim_work {
	const char *name; /* static text */
	uint64_t duration_ns;
	const struct sim_access *accesses; /* copied */
	size_t access_count;
	void (*function)(void *argument); /* NULL: none. Runs once, at completion */
	void *argument;
};

struct sim_engine;

struct sim_engine *sim_engine_create(void); /* NULL: host out of memory */
/* Pending work is dropped, its functions never run. */
void sim_engine_destroy(struct sim_engine *engine);

enum sim_order sim_stream_create(struct sim_engine *engine, bool non_blocking, uint32_t *ret_stream);
/* Work that is pending still completes; the number is not used again. Stream 0 cannot be destroyed. */
enum sim_order sim_stream_destroy(struct sim_engine *engine, uint32_t stream);
/* After SIM_ORDER_RACE or NO_MEMORY the work is not queued: its function will not run, the argument stays the
 * caller's. */
enum sim_order sim_stream_submit(struct sim_engine *engine, uint32_t stream, const struct sim_work *work);
/* Work that touches no memory and runs no function: only its time counts, and order. Allocates nothing. */
enum sim_order sim_stream_pass(struct sim_engine *engine, uint32_t stream, uint64_t duration_ns);
/* OK orders the host after the stream's work, as synchronising does. Asking about stream 0 asks about all streams
 * that it orders with. Neither moves the clock; what is due completes. */
enum sim_order sim_stream_query(struct sim_engine *engine, uint32_t stream);
/* Moves the clock to the end of the stream's last work; SIM_ORDER_NOT_READY if that is pending and the clock is held.
 */
enum sim_order sim_stream_synchronize(struct sim_engine *engine, uint32_t stream);
enum sim_order sim_stream_wait_event(struct sim_engine *engine, uint32_t stream, uint32_t event);
enum sim_order sim_engine_synchronize(struct sim_engine *engine); /* all streams */

enum sim_order sim_event_create(struct sim_engine *engine, uint32_t *ret_event);
/* An event that is destroyed while awaited still counts for those who wait. */
enum sim_order sim_event_destroy(struct sim_engine *engine, uint32_t event);
enum sim_order sim_event_record(struct sim_engine *engine, uint32_t event, uint32_t stream);
/* SIM_ORDER_OK for an event never recorded. A query that says OK orders the host after the event, as synchronising.
 */
enum sim_order sim_event_query(struct sim_engine *engine, uint32_t event);
enum sim_order sim_event_synchronize(struct sim_engine *engine, uint32_t event);
/* From what `start` stands for to what `end` stands for, in virtual time. BAD_HANDLE where one was never recorded,
 * NOT_READY where one has not run. */
enum sim_order sim_event_elapsed(struct sim_engine *engine, uint32_t start, uint32_t end, int64_t *ret_ns);

/* True when work that has not completed touches any of these bytes. `ret_name`: that work's name. */
bool sim_engine_pending(struct sim_engine *engine, uint64_t space, uint64_t offset, uint64_t bytes,
			const char **ret_name);
/* The physical memory is gone: forget what was done to it. */
void sim_engine_forget(struct sim_engine *engine, uint64_t space);

uint64_t sim_engine_now(struct sim_engine *engine);
/* A driver call cost this much: the clock moves unless it is held. Completes what is due. */
void sim_engine_advance(struct sim_engine *engine, uint64_t ns);
void sim_engine_hold(struct sim_engine *engine, bool held);
void sim_engine_step(struct sim_engine *engine, uint64_t ns); /* moves a held clock too */

/* The last race in words: both works, streams, the overlapping bytes, and what order was missing. Copied. */
void sim_engine_fault_text(struct sim_engine *engine, char *text, size_t room);

#endif
