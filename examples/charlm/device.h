/* charlm/device.h: the program's one device: memory from libneap, work queued on its default stream.
 *
 * Errors stick: after a failure, allocations give NULL and launches do nothing until gpu_take_error. So the code of
 * the mathematics is free of checks, and a whole micro-batch is checked once, at its end.
 *
 * Work is asynchronous: a launch returns at once, the function runs later, in order. gpu_read waits. Memory may be
 * freed as soon as the last work that uses it is queued: libneap hands it out again behind that work.
 */
#ifndef CHARLM_DEVICE_H
#define CHARLM_DEVICE_H

#include "neap/sim.h"
#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>

struct neap_alloc;
struct gpu;

/* The most ranges that a kernel touches. */
enum { GPU_RANGES_MAX = 8 };

struct gpu_work {
	const char *name;
	void (*function)(void *arguments);
	const void *arguments; /* copied */
	size_t argument_bytes;
	struct neap_sim_range ranges[GPU_RANGES_MAX];
	size_t range_count;
	double operations; /* of floating point: they give the simulated device its time */
};

/* NEAP_ENOTSUP if the device is a real one: this program computes on the CPU, over simulated device memory. */
enum neap_status gpu_open(struct gpu **ret_gpu, struct neap_error *err);
/* Waits for what is queued. NULL is fine. */
void gpu_close(struct gpu *gpu);

struct neap_alloc *gpu_alloc(struct gpu *gpu);

/* `tag` says what the memory is for; libneap counts by it. NULL after a failure. */
void *gpu_new(struct gpu *gpu, const char *tag, size_t bytes);
void gpu_free(struct gpu *gpu, void *memory); /* NULL is fine */
void gpu_launch(struct gpu *gpu, const struct gpu_work *work);

void gpu_write(struct gpu *gpu, void *memory, const void *host,
	       size_t bytes);                                                 /* `host` is copied before it returns */
void gpu_read(struct gpu *gpu, void *host, const void *memory, size_t bytes); /* waits */

bool gpu_failed(const struct gpu *gpu);
/* The first failure since the last call, or NEAP_OK; everything works again. */
enum neap_status gpu_take_error(struct gpu *gpu, struct neap_error *ret_error);

#endif
