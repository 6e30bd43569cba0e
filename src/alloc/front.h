/* alloc/front.h: the fast way of most requests, before the one lock of the allocator.
 *
 * The problem: under one lock threads wait for each other, and a best fit with its splits and joins is far more work
 * than a program that asks for the same sizes again and again needs.
 *
 *   neap_malloc ----> lane of the stream: bin of exactly this size --- hit: done, under the lane's own lock
 *                                                   |
 *                                                   +-- no: the core (alloc.c), under the allocator's lock
 *   neap_free ------> lane of the block:  bin of its size, if its size comes often -- done
 *                                                   +-- no: the core
 *
 * A block in a bin is free for the program and LIVE for the core: it is joined with nothing, and stays in the index
 * of addresses. Bins are bounded, shut while little of the device is left, and emptied by neap_front_flush.
 *
 * The allocator's lock is also every lane's: neap_alloc_lock takes the mutex, then freezes the lanes. While it is
 * held, no lane moves, every counter stands in the allocator's own (`stats`, tags, streams, serial), and the core
 * works as if there were no lanes. The hot way takes one lane's lock and never the mutex.
 *
 * Counters are exact. A lane counts what it did since it was last frozen; freezing adds that to the allocator's. For
 * peaks each lane has a room to move in: it may rise and fall only so far that
 *
 *   current + sum over lanes of how far they may rise <= peak        (and likewise for the lowest, where there is
 * one)
 *
 * and a request that would leave its room goes to the core, which finds all counters exact, raises the peak and gives
 * out new room.
 */
#ifndef NEAP_ALLOC_FRONT_H
#define NEAP_ALLOC_FRONT_H

#include "neap/alloc.h"

#include <time.h>

#define FRONT_LANES 16 /* streams that have one; further streams are served by the core */

struct neap_block;
struct neap_lane;
struct neap_request;
struct neap_stream;

struct neap_front {
	struct neap_lane *lanes[FRONT_LANES]; /* set once, for the allocator's life */
	void *streams[FRONT_LANES];           /* their streams, read without a lock */
	uint32_t count;                       /* stored last */
	bool owned;                           /* lanes may have owners: see lane.h */
	uint64_t binned_bytes;                /* in all bins, while frozen */
};

/* The hot way. No lock is held. False: ask the core. */
bool neap_front_take(struct neap_alloc *alloc, const struct neap_request *request, uint64_t *ret_address);
bool neap_front_give(struct neap_alloc *alloc, uint64_t address);

/* The rest is called with the allocator's lock held, freeze and thaw by what takes and gives up that lock. */

/* `until`: as of neap_lanes_lock; false: nothing is frozen. */
bool neap_front_freeze(struct neap_alloc *alloc, const struct timespec *until);
void neap_front_thaw(struct neap_alloc *alloc);
/* Lanes give up their slots of the observer: before it goes, and before a fork, as parent and child must not both
 * write to them. */
void neap_front_part(struct neap_alloc *alloc);
/* For the core's way of a request: a block of exactly this size out of the stream's bin, counted and LIVE; NULL:
 * none, or it is time to ask for pending frees. */
struct neap_block *neap_front_pop(struct neap_alloc *alloc, const struct neap_request *request);
/* A block that the core has given out: from now on its stream's lane may keep it when it is freed. */
void neap_front_adopt(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *block);
/* The block, which is in the index, was given out, got a use or went into a bin: whether its lane may have it. */
void neap_front_mark(struct neap_alloc *alloc, const struct neap_block *block);
/* For the core's way of a free, before anything of it: true: the block went into a bin and is counted as freed. */
bool neap_front_push(struct neap_alloc *alloc, struct neap_block *block);
/* Empties all bins: their blocks become CACHED in the core. Returns their bytes. */
uint64_t neap_front_flush(struct neap_alloc *alloc);
void neap_front_fini(struct neap_alloc *alloc);

#endif
