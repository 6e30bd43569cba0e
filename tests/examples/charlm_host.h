/* A stand-in for charlm's device: memory from malloc, work done at once. It counts live memory, and can be made to
 * run out. */
#ifndef CHARLM_HOST_H
#define CHARLM_HOST_H

#include "device.h"

struct host {
	size_t live_blocks, live_bytes, peak_bytes;
	long allocations_left; /* successful ones before one fails; negative: never */
};

struct gpu *host_create(void);
struct host *host_of(struct gpu *gpu);

#endif
