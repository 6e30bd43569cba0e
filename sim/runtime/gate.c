/* Gates: results that arrive when the process reads them (services.h).
 *
 *   stream A   --[gate 1]--[gate 2]--record e--        A is the *origin* of gates 1 and 2, numbered on it
 *   stream B   ------------wait e-------- synchronise: opens gates 1 and 2 of A
 *
 * Each stream and event has a clock: for each origin, the number of the last gate before it. Synchronising with a
 * stream or event opens the gates that its clock has seen, in order. Reading a range opens the gates over it and
 * those before them on their origins. The null stream comes after everything.
 *
 * A gate opens once, on one thread, without the lock; others that need it wait for that thread. A query opens the
 * gates that open without blocking. A gate whose destination the program overwrites or frees opens too, but writes
 * nothing. A program that never makes a gate pays one atomic load.
 */
#include "base/map.h"
#include "sim/runtime/runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Further streams share the last number, and may wait for more gates than necessary. */
#define ORIGIN_LIMIT 32

struct clock {
	uint64_t seen[ORIGIN_LIMIT];
};

struct gate {
	struct gate *next;
	size_t origin;
	uint64_t number; /* its number on its origin, from 1 */
	uint64_t address, bytes;
	const struct runtime_gate *functions;
	void *argument;
	bool busy;      /* a thread runs one of its functions */
	pthread_t user; /* that thread; valid while busy */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	struct gate *first, **last; /* closed, the oldest first */
	struct clock latest;        /* by origin, the number of its newest gate */
	size_t origin_count;
	struct neap_map origins; /* stream -> number of its origin */
	struct neap_map clocks;  /* stream or event -> struct clock */
} gates = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER, .last = &gates.first};

static atomic_bool any; /* this process has had a gate */

static bool writes_over(const struct gate *gate, uint64_t address, size_t bytes)
{
	return gate->bytes && gate->address < address + bytes && address < gate->address + gate->bytes;
}

static bool null_stream(CUstream stream) { return (uintptr_t)stream <= 2; }

static uint64_t key(const void *handle) { return (uint64_t)(uintptr_t)handle; }

/* Lock held. NULL: no gate is before it. */
static struct clock *clock_of(const void *handle)
{
	uint64_t value;

	return neap_map_get(&gates.clocks, key(handle), &value) ? (struct clock *)(uintptr_t)value : NULL;
}

/* Lock held. Orders the handle also after all that `clock` has seen. If the host is out of memory this order is lost,
 * but a read of the range still opens its gates. */
static void join(const void *handle, const struct clock *clock)
{
	struct clock *own = clock_of(handle);
	size_t i;

	if (!own) {
		own = calloc(1, sizeof *own);
		if (!own || !neap_map_put(&gates.clocks, key(handle), (uint64_t)(uintptr_t)own)) {
			free(own);
			return;
		}
	}
	for (i = 0; i < ORIGIN_LIMIT; i++)
		if (own->seen[i] < clock->seen[i])
			own->seen[i] = clock->seen[i];
}

/* Lock held. */
static const struct clock *stream_clock(CUstream stream)
{
	return null_stream(stream) ? &gates.latest : clock_of(stream);
}

static void forget(const void *handle)
{
	uint64_t value;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	pthread_mutex_lock(&gates.lock);
	if (neap_map_remove(&gates.clocks, key(handle), &value))
		free((void *)(uintptr_t)value);
	neap_map_remove(&gates.origins, key(handle), NULL);
	pthread_mutex_unlock(&gates.lock);
}

void gate_forget_event(CUevent event) { forget(event); }
void gate_forget_stream(CUstream stream) { forget(stream); }

/* Lock held. */
static size_t origin_of(CUstream stream)
{
	uint64_t number;

	if (neap_map_get(&gates.origins, key(stream), &number))
		return (size_t)number;
	number = gates.origin_count < ORIGIN_LIMIT - 1 ? gates.origin_count++ : ORIGIN_LIMIT - 1;
	return neap_map_put(&gates.origins, key(stream), number) ? (size_t)number : ORIGIN_LIMIT - 1;
}

bool gate_add(CUstream stream, uint64_t address, size_t bytes, const struct runtime_gate *functions, void *argument)
{
	struct clock own = {{0}};
	struct gate *gate;

	if (runtime_capturing(stream)) {
		functions->drop(argument);
		return true;
	}
	gate = calloc(1, sizeof *gate);
	if (!gate)
		return false;
	pthread_mutex_lock(&gates.lock);
	gate->origin = origin_of(stream);
	gate->number = ++gates.latest.seen[gate->origin];
	gate->address = address;
	gate->bytes = bytes;
	gate->functions = functions;
	gate->argument = argument;
	*gates.last = gate;
	gates.last = &gate->next;
	runtime_keep(KEPT_GATES, true);
	own.seen[gate->origin] = gate->number;
	join(stream, &own);
	pthread_mutex_unlock(&gates.lock);
	atomic_store_explicit(&any, true, memory_order_release);
	return true;
}

void gate_recorded(CUevent event, CUstream stream)
{
	const struct clock *clock;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	forget(event); /* only the last record counts */
	pthread_mutex_lock(&gates.lock);
	clock = stream_clock(stream);
	if (clock)
		join(event, clock);
	pthread_mutex_unlock(&gates.lock);
}

void gate_waited(CUstream stream, CUevent event)
{
	const struct clock *clock;

	if (!atomic_load_explicit(&any, memory_order_acquire) || null_stream(stream))
		return;
	pthread_mutex_lock(&gates.lock);
	clock = clock_of(event);
	if (clock)
		join(stream, clock);
	pthread_mutex_unlock(&gates.lock);
}

/* Lock held. */
static void unlink_gate(const struct gate *gate)
{
	struct gate **link = &gates.first;

	while (*link != gate)
		link = &(*link)->next;
	*link = gate->next;
	if (!gate->next)
		gates.last = link;
	runtime_keep(KEPT_GATES, gates.first);
}

/* Lock held. Takes the gate for this thread. If another thread has it, waits for that thread and sets *ret_again: the
 * list must be searched again. False: this thread is inside one of the gate's functions. */
static bool take(struct gate *gate, bool *ret_again)
{
	*ret_again = gate->busy;
	if (gate->busy && pthread_equal(gate->user, pthread_self()))
		return false;
	if (gate->busy) {
		pthread_cond_wait(&gates.opened, &gates.lock);
		return true;
	}
	gate->busy = true;
	gate->user = pthread_self();
	return true;
}

/* Lock held, gate taken. */
static void open_taken(struct gate *gate)
{
	pthread_mutex_unlock(&gates.lock);
	gate->functions->open(gate->argument);
	pthread_mutex_lock(&gates.lock);
	unlink_gate(gate);
	free(gate);
	pthread_cond_broadcast(&gates.opened);
}

/* Lock held; true if the gate was opened or waited for, so the list must be searched again. */
static bool pass(struct gate *gate)
{
	bool again;

	if (!take(gate, &again))
		return false; /* the gate's own function reads */
	if (!again)
		open_taken(gate);
	return true;
}

/* Lock held. Opens the gates that `clock` has seen. `clock` is a copy, because the handle's clock may be freed
 * meanwhile. */
static void open_seen(struct clock clock)
{
	struct gate *gate = gates.first;

	while (gate) {
		if (gate->number <= clock.seen[gate->origin] && pass(gate))
			gate = gates.first;
		else
			gate = gate->next;
	}
}

void gate_open_stream(CUstream stream)
{
	const struct clock *clock;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	pthread_mutex_lock(&gates.lock);
	clock = stream_clock(stream);
	if (clock)
		open_seen(*clock);
	pthread_mutex_unlock(&gates.lock);
}

void gate_open_event(CUevent event)
{
	const struct clock *clock;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	pthread_mutex_lock(&gates.lock);
	clock = clock_of(event);
	if (clock)
		open_seen(*clock);
	pthread_mutex_unlock(&gates.lock);
}

void gate_open_range(uint64_t address, size_t bytes)
{
	struct clock clock = {{0}};
	const struct gate *gate;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	pthread_mutex_lock(&gates.lock);
	for (gate = gates.first; gate; gate = gate->next)
		if (writes_over(gate, address, bytes))
			clock.seen[gate->origin] = gate->number;
	open_seen(clock);
	pthread_mutex_unlock(&gates.lock);
}

/* Lock held. Opens the gates that `clock` has seen, up to the first that would block. */
static bool try_seen(struct clock clock)
{
	struct gate *gate = gates.first;
	bool ready;

	while (gate) {
		if (gate->number > clock.seen[gate->origin] ||
		    (gate->busy && pthread_equal(gate->user, pthread_self()))) {
			gate = gate->next;
			continue;
		}
		if (gate->busy)
			return false; /* another thread is opening it */
		gate->busy = true;
		gate->user = pthread_self();
		pthread_mutex_unlock(&gates.lock);
		ready = gate->functions->ready(gate->argument);
		pthread_mutex_lock(&gates.lock);
		if (!ready) {
			gate->busy = false;
			pthread_cond_broadcast(&gates.opened);
			return false;
		}
		open_taken(gate);
		gate = gates.first;
	}
	return true;
}

bool gate_try_stream(CUstream stream)
{
	const struct clock *clock;
	bool ready;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return true;
	pthread_mutex_lock(&gates.lock);
	clock = stream_clock(stream);
	ready = !clock || try_seen(*clock);
	pthread_mutex_unlock(&gates.lock);
	return ready;
}

bool gate_try_event(CUevent event)
{
	const struct clock *clock;
	bool ready;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return true;
	pthread_mutex_lock(&gates.lock);
	clock = clock_of(event);
	ready = !clock || try_seen(*clock);
	pthread_mutex_unlock(&gates.lock);
	return ready;
}

/* Lock held, gate taken. */
static void supersede(struct gate *gate)
{
	pthread_mutex_unlock(&gates.lock);
	gate->functions->supersede(gate->argument);
	pthread_mutex_lock(&gates.lock);
	gate->bytes = 0; /* a read of the range need not open it */
	gate->busy = false;
	pthread_cond_broadcast(&gates.opened);
}

/* Supersedes the gates that write within the range. With `all`, opens the other gates over it. */
static void end_gates(uint64_t address, size_t bytes, bool all)
{
	struct gate *gate, *next;
	bool again;

	if (!atomic_load_explicit(&any, memory_order_acquire))
		return;
	pthread_mutex_lock(&gates.lock);
	for (gate = gates.first; gate; gate = next) {
		bool within = gate->address >= address && gate->address - address <= bytes &&
			      gate->bytes <= bytes - (gate->address - address);

		next = gate->next;
		if (!writes_over(gate, address, bytes) || !(within || all) || !take(gate, &again))
			continue;
		if (!again && within)
			supersede(gate);
		else if (!again)
			open_taken(gate);
		next = gates.first;
	}
	pthread_mutex_unlock(&gates.lock);
}

void gate_overwrite_range(uint64_t address, size_t bytes) { end_gates(address, bytes, true); }
void gate_free_range(uint64_t address, size_t bytes) { end_gates(address, bytes, false); }

static void forked(void)
{
	pthread_mutex_init(&gates.lock, NULL);
	pthread_cond_init(&gates.opened, NULL);
	gates.first = NULL; /* only the parent opens them */
	gates.last = &gates.first;
	runtime_keep(KEPT_GATES, false);
}

__attribute__((constructor)) static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forked); }
