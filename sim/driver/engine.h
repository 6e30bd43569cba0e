/* sim/driver/engine.h: streams, events, order and virtual time, for one process of the simulator.
 *
 * It knows nothing about processes, device capacity or addresses. Memory is named physically: (space, offset, bytes),
 * where a space is one physical handle. So two addresses of the same bytes count as the same bytes.
 *
 *   stream k:   [work]--[record e]--[work]            each stream is a queue; its head runs, then completes when the
 *   stream m:   [wait e]--[work]                      virtual clock reaches its end; functions run at completion
 *
 * Vector clocks keep the order: one component per stream, one clock for the host. Work is ordered after everything
 * that its stream, the events it waited for, and the host (through synchronisations) had seen. A *race* is two pieces
 * of work that touch overlapping bytes, at least one writing, neither ordered before the other. The engine reports it
 * when the second is submitted, regardless of when they would run. Stream 0 is the legacy default stream: it orders
 * with every stream not created non-blocking.
 *
 * Threads: any; one lock inside, not held while a work's function runs. A function may call the engine: time moves
 * and work is queued, but nothing completes inside it, so waiting there for pending work returns SIM_ORDER_NOT_READY.
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
/* Drops pending work; its functions never run. */
void sim_engine_destroy(struct sim_engine *engine);

enum sim_order sim_stream_create(struct sim_engine *engine, bool non_blocking, uint32_t *ret_stream);
/* Work that is pending still completes. The stream's number is not reused. Stream 0 cannot be destroyed. */
enum sim_order sim_stream_destroy(struct sim_engine *engine, uint32_t stream);
/* After SIM_ORDER_RACE or NO_MEMORY the work is not queued: its function will not run, and the caller still owns the
 * argument. */
enum sim_order sim_stream_submit(struct sim_engine *engine, uint32_t stream, const struct sim_work *work);
/* Queues work that touches no memory and runs no function: only its duration and its order count. Allocates
 * nothing. */
enum sim_order sim_stream_pass(struct sim_engine *engine, uint32_t stream, uint64_t duration_ns);
/* OK orders the host after the stream's work, as synchronising does. A query of stream 0 covers all streams that it
 * orders with. Queries do not move the clock; work that is due completes. */
enum sim_order sim_stream_query(struct sim_engine *engine, uint32_t stream);
/* Moves the clock to the end of the stream's last work; SIM_ORDER_NOT_READY if that is pending and the clock is held.
 */
enum sim_order sim_stream_synchronize(struct sim_engine *engine, uint32_t stream);
enum sim_order sim_stream_wait_event(struct sim_engine *engine, uint32_t stream, uint32_t event);
enum sim_order sim_engine_synchronize(struct sim_engine *engine); /* all streams */

enum sim_order sim_event_create(struct sim_engine *engine, uint32_t *ret_event);
/* A destroyed event still counts for the streams that already wait for it. */
enum sim_order sim_event_destroy(struct sim_engine *engine, uint32_t event);
enum sim_order sim_event_record(struct sim_engine *engine, uint32_t event, uint32_t stream);
/* SIM_ORDER_OK for an event never recorded. A query that returns OK orders the host after the event, as synchronising
 * does. */
enum sim_order sim_event_query(struct sim_engine *engine, uint32_t event);
enum sim_order sim_event_synchronize(struct sim_engine *engine, uint32_t event);
/* Returns the virtual time between two events. BAD_HANDLE if one was never recorded, NOT_READY if one has not run. */
enum sim_order sim_event_elapsed(struct sim_engine *engine, uint32_t start, uint32_t end, int64_t *ret_ns);

/* Forgets all accesses to physical memory that was freed. */
void sim_engine_forget(struct sim_engine *engine, uint64_t space);

uint64_t sim_engine_now(struct sim_engine *engine);
/* Adds the cost of a driver call: the clock moves unless it is held. Completes due work. */
void sim_engine_advance(struct sim_engine *engine, uint64_t ns);
/* Moves the clock to the end of the stream's last work, but orders nothing after it. False: there is no such stream,
 * or the clock is held. */
bool sim_stream_go_on(struct sim_engine *engine, uint32_t stream);
void sim_engine_hold(struct sim_engine *engine, bool held);
void sim_engine_step(struct sim_engine *engine, uint64_t ns); /* moves a held clock too */

/* Copies a description of the last race: both pieces of work, their streams, the overlapping bytes and the missing
 * order. */
void sim_engine_fault_text(struct sim_engine *engine, char *text, size_t capacity);

#endif
