/* bench/heap.h: the heaps that `neap bench alloc` times, behind one pair of functions: neap's allocator over a
 * simulated device, glibc's malloc, and one that does nothing, whose time is that of the loops around the calls.
 *
 * Threads: open and close from one thread; take and give from any.
 */
#ifndef NEAP_BENCH_HEAP_H
#define NEAP_BENCH_HEAP_H

#include "neap/alloc.h"

#define NEAP_BENCH_STREAMS 16

struct neap_bench_heap {
	/* Returns 0 if the heap is out of memory. `stream` is below NEAP_BENCH_STREAMS. */
	uint64_t (*take)(struct neap_bench_heap *heap, size_t bytes, unsigned stream);
	void (*give)(struct neap_bench_heap *heap, uint64_t address);
	struct neap_driver *driver;
	struct neap_device *device;
	struct neap_alloc *alloc;
	void *streams[NEAP_BENCH_STREAMS];
};

/* neap's allocator on a simulated device of 2 TiB without bytes behind it. `observer` may be NULL. */
enum neap_status neap_bench_heap_open(const struct neap_observer *observer, struct neap_bench_heap *ret_heap,
				      struct neap_error *err);
void neap_bench_heap_close(struct neap_bench_heap *heap);

struct neap_bench_heap neap_bench_heap_glibc(void);
struct neap_bench_heap neap_bench_heap_empty(void);

#endif
