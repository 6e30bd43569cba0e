/* alloc/front/front.h: the fast path of most requests, without the allocator's one lock.
 *
 * Under one lock, threads wait for each other. A best fit with its splits and joins is also far more work than needed
 * by a program that requests the same sizes again and again.
 *
 *   neap_malloc ----> lane of the stream: bin of exactly this size --- hit: done, under the lane's own lock
 *                                                   |
 *                                                   +-- no: the core (request.c), under the allocator's lock
 *   neap_free ------> lane of the block:  bin of its size, if its size comes often -- done
 *                                                   +-- no: the core
 *
 * Invariants: a block in a bin is freed by the program but LIVE for the core. It has its bin's size and no uses, is
 * joined with no other block, and stays in the index of addresses. Its lane's stamp covers all work on it. Its slot
 * names no lane. The slot of a block that the program holds names its lane, if the lane may keep the block. Bins are
 * bounded, shut while little of the device is left, and empty after neap_front_flush.
 *
 * The allocator's lock includes every lane's: neap_alloc_lock takes the mutex, then freezes the lanes. While it is
 * held, no lane works, every counter is in the allocator (`stats`, tags, streams, serial), and the core works as if
 * there were no lanes. The hot path takes one lane's lock and never the mutex.
 *
 * Counters are exact. A lane counts its own changes since it was last frozen; freezing adds them to the allocator's
 * counters. Peaks stay exact because each lane may rise and fall only within its headroom (struct neap_headroom):
 *
 *   current + sum over lanes of their headroom <= peak        (likewise for the lowest, where there is one)
 *
 * A request that would exceed the headroom goes to the core, which finds all counters exact, raises the peak and
 * assigns new headroom.
 */
#ifndef NEAP_ALLOC_FRONT_H
#define NEAP_ALLOC_FRONT_H

#include "alloc/core/core.h"

#include <time.h>

/* The hot path. Called without any lock. False: call the core. */
bool neap_front_take(struct neap_alloc *alloc, const struct neap_request *request, uint64_t *ret_address);
bool neap_front_give(struct neap_alloc *alloc, uint64_t address);

/* The rest is called with the allocator's lock held. Taking that lock calls freeze, releasing it calls thaw. */

/* Locks all lanes and adds their counters to the allocator's. Waits for each lane until `until` (CLOCK_MONOTONIC);
 * NULL: no limit. False, with no lane locked: the time is over, or a signal interrupted this thread inside a lane. */
bool neap_front_freeze(struct neap_alloc *alloc, const struct timespec *until);
void neap_front_fold(struct neap_alloc *alloc); /* only adds their counters */
void neap_front_thaw(struct neap_alloc *alloc);
/* Makes the lanes give up their slots of the observer. Called before the observer is replaced, and before a fork,
 * since parent and child must not both write to the slots. */
void neap_front_part(struct neap_alloc *alloc);
/* For a request in the core: takes a LIVE block of exactly this size from the stream's bin and counts it. NULL: there
 * is none, or pending frees must be polled first. */
struct neap_block *neap_front_pop(struct neap_alloc *alloc, const struct neap_request *request);
/* Called when the core has allocated a block. From now on its stream's lane may keep it when it is freed. */
void neap_front_adopt(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *block);
/* Called when an indexed block is allocated, used by another stream, or put into a bin. Writes to its slot whether
 * its lane may keep it. */
void neap_front_mark(struct neap_alloc *alloc, const struct neap_block *block);
/* For a free in the core. True: the block is now in a bin and counts as an inactive split. */
bool neap_front_push(struct neap_alloc *alloc, struct neap_block *block);
/* Empties all bins; their blocks become CACHED. Returns their bytes. */
uint64_t neap_front_flush(struct neap_alloc *alloc);
void neap_front_fini(struct neap_alloc *alloc);

/* A lane: one stream's bins and counters. Its lock guards everything in it; the holder of the allocator's lock holds
 * it, too. Under it nothing waits or calls the driver, except perhaps the observer.
 *
 * The lock costs an atomic exchange, a quarter of the time of a hit. So a thread that has taken it many times in a
 * row becomes the lane's owner, which locks by plain stores:
 *
 *   owner                            other
 *     owner == my seat?                locked = 1
 *     busy = 1                         owner = NULL
 *     owner == my seat still?          BARRIER
 *     work (no: lock as others do)     wait until busy == 0
 *     busy = 0                         work
 *
 * The barrier (lane_lock.c) makes every processor that runs a thread of this process execute one. If the owner's
 * second read of `owner` comes after it, the owner sees that it lost the lane. Otherwise its `busy` came before the
 * barrier, and the other thread waits for it. A thread keeps its seat, so a former owner that was delayed between its
 * two reads does not change the `busy` of a later one.
 */

#define DIRECT_BINS (SMALL_LIMIT_BYTES / BLOCK_ALIGNMENT + 1) /* a bin for each size up to 1 MiB */
#define HASHED_BINS 2048                                      /* for larger sizes, one size in each at a time */
#define LANE_SEATS  8 /* threads that can become owner of a lane; all others lock it */
#define TAGS        (NEAP_TAGS_MAX + 2)

/* The blocks of a bin are LIVE and binned, have `bytes` each, and have no uses. The lane's stamp covers all work on
 * them. */
struct neap_bin {
	uint64_t bytes; /* of each block; 0: no size yet */
	struct neap_block *first;
	uint64_t last_seen; /* the lane's core_frees when the core last freed a block of this size */
};

/* Allocated minus freed in one class since the last freeze; negative if more was freed. */
struct neap_level {
	int64_t blocks, bytes, requested;
};

/* The headroom of a level: how far it may rise and fall, both as positive numbers. */
struct neap_headroom {
	int64_t blocks_high, bytes_high, requested_high;
	int64_t blocks_low, bytes_low;
};

/* Allocations since the last freeze. Their number minus the level gives the frees. */
struct neap_takes {
	int64_t blocks, bytes, requested;
};

struct neap_tag_level {
	int64_t blocks, bytes, bytes_high;
};

/* The time of a lane's events. Reading the clock takes as long as a hit. So while events come less than PACE_NS
 * apart, one reading serves the events of about the next SHARED_NS, or until the kernel's tick, which is cheap to
 * read, moves. left <= uses. An event also has the other lanes' bytes. If other
 * threads own such lanes, these bytes are read with the clock, and not for each event: to read a counter that another
 * processor writes costs more than a hit. */
#define PACE_NS   256
#define SHARED_NS 4096
#define TIME_USES 64 /* at most */
struct neap_lane_time {
	uint64_t ns, tick_ns; /* at the last reading */
	uint32_t uses, left;  /* how many more events the reading may serve, and how many of those are left */
	int64_t others_bytes; /* bytes allocated on other lanes since the last freeze, at the last reading */
	bool foreign;         /* another thread owned a lane at the last reading */
};

/* A thread that may own the lane. */
struct neap_seat {
	const void *thread; /* NULL: free */
	uint32_t busy;      /* the thread works in the lane; only this thread writes it */
};

struct neap_lane {
	uint32_t locked;                      /* by a thread other than the owner */
	struct neap_seat *owner;              /* NULL: none. Changed by the holder of `locked` */
	bool left;                            /* an earlier owner may still work in it */
	const void *last;                     /* the thread that locked it last */
	uint32_t streak;                      /* how often in a row that thread locked it */
	bool open;                            /* bins are in use */
	bool moved;                           /* used in the core since the last freeze; while frozen: used at all */
	bool tagged;                          /* allocations are counted by tag, too */
	unsigned recent;                      /* while above 0, the lane gets headroom */
	uint32_t polls_left;                  /* hits until pending frees must be polled */
	const struct neap_observer *observer; /* gets events; NULL: none */
	struct neap_event_run run;            /* the observer's slots for its events */
	struct neap_lane_time time;
	struct neap_published_lane *published; /* NEAP_PUBLISHED_PARTS of them; NULL: no readers */
	uint64_t published_sequence[NEAP_PUBLISHED_PARTS];
	struct neap_level level[NEAP_CLASS_COUNT]; /* large and small only */
	struct neap_headroom headroom[NEAP_CLASS_COUNT];
	struct neap_takes takes[NEAP_CLASS_COUNT]; /* large and small only */
	uint64_t serial;       /* the allocator's at the last freeze, plus own allocations since */
	uint64_t binned_bytes; /* the bytes in the bins at the last freeze */
	uint64_t stamp;        /* as in struct neap_block; covers the work on every block in a bin */
	uint64_t core_frees;
	struct neap_seat seats[LANE_SEATS];
	uint16_t device; /* ordinal */
	struct neap_alloc *alloc;
	struct neap_stream *stream;
	struct neap_tag_level tags[TAGS];
	struct neap_bin bins[DIRECT_BINS + HASHED_BINS];
};

/* The level of both classes together. */
static inline struct neap_level lane_level(const struct neap_lane *lane)
{
	const struct neap_level *large = &lane->level[NEAP_CLASS_LARGE], *small = &lane->level[NEAP_CLASS_SMALL];
	return (struct neap_level){large->blocks + small->blocks, large->bytes + small->bytes,
				   large->requested + small->requested};
}

static inline bool lane_moved(const struct neap_lane *lane)
{
	return lane->moved || lane->takes[NEAP_CLASS_LARGE].blocks || lane->takes[NEAP_CLASS_SMALL].blocks ||
	       lane->level[NEAP_CLASS_LARGE].blocks || lane->level[NEAP_CLASS_SMALL].blocks;
}

static inline struct neap_bin *lane_bin(struct neap_lane *lane, uint64_t bytes)
{
	if (bytes <= SMALL_LIMIT_BYTES)
		return &lane->bins[bytes / BLOCK_ALIGNMENT];
	return &lane->bins[DIRECT_BINS + (bytes * 0x9e3779b97f4a7c15ull >> 53) % HASHED_BINS];
}

/* lane_lock.c: locks a lane that this thread does not own. `core`: the allocator, if its mutex is not held. */
void neap_lane_lock(struct neap_alloc *core, struct neap_lane *lane);
/* Its address identifies the thread. A new thread may get the address, and the seats, of one that ended. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) char neap_lane_self;

static inline struct neap_seat *lane_lock_as_owner(struct neap_lane *lane)
{
	struct neap_seat *seat = __atomic_load_n(&lane->owner, __ATOMIC_ACQUIRE);
	if (!seat || seat->thread != &neap_lane_self)
		return NULL;
	/* Acquires the writes of an earlier thread with this address. */
	(void)__atomic_load_n(&seat->busy, __ATOMIC_ACQUIRE);
	__atomic_store_n(&seat->busy, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&lane->owner, __ATOMIC_ACQUIRE) == seat)
		return seat;
	__atomic_store_n(&seat->busy, 0, __ATOMIC_RELEASE);
	return NULL;
}

/* Called without any lock. Returns the owner's seat if this thread locked the lane as its owner, otherwise NULL. */
static inline struct neap_seat *lane_lock(struct neap_alloc *alloc, struct neap_lane *lane)
{
	struct neap_seat *seat = lane_lock_as_owner(lane);
	if (!seat)
		neap_lane_lock(alloc, lane);
	return seat;
}
static inline void lane_unlock(struct neap_lane *lane, struct neap_seat *seat)
{
	__atomic_store_n(seat ? &seat->busy : &lane->locked, 0, __ATOMIC_RELEASE);
}
/* Whether lanes may have owners: only if the kernel has the barrier. */
bool neap_lanes_may_be_owned(void);

/* frozen.c: how many bytes the bins of one lane may hold. */
uint64_t neap_front_headroom_bytes(const struct neap_alloc *alloc);

/* Takes the allocator's lock and freezes every lane. */
static inline void neap_alloc_lock(struct neap_alloc *alloc)
{
	pthread_mutex_lock(&alloc->lock);
	neap_front_freeze(alloc, NULL);
}
/* Also closes the published write. */
static inline void neap_alloc_unlock(struct neap_alloc *alloc)
{
	neap_front_thaw(alloc);
	pthread_mutex_unlock(&alloc->lock);
}

#endif
