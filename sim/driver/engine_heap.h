/* sim/driver/engine_heap.h: a heap of pending work, ordered by (end, submission): its head completes next.
 *
 * Threads: the engine's lock.
 */
#ifndef NEAP_SIM_ENGINE_HEAP_H
#define NEAP_SIM_ENGINE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_pending {
	uint64_t end_ns, submission;
	uint64_t count; /* the work's number on its lane, see engine_history.h */
	uint32_t lane;
	void (*function)(void *argument); /* NULL: none */
	void *argument;
};

/* A zeroed struct is an empty heap. */
struct sim_heap {
	struct sim_pending *works;
	size_t count, capacity;
};

/* Makes room for one push. False: host out of memory. */
bool sim_heap_reserve(struct sim_heap *heap);
void sim_heap_push(struct sim_heap *heap, struct sim_pending work);
const struct sim_pending *sim_heap_head(const struct sim_heap *heap); /* NULL: empty */
struct sim_pending sim_heap_pop(struct sim_heap *heap);               /* not when empty */
void sim_heap_fini(struct sim_heap *heap);

#endif
