/* alloc/lane.h: one stream's bins and counters, for front*.c.
 *
 * Everything in it is guarded by its lock, which the holder of the allocator's lock holds too. No driver call and
 * nothing that waits happens under it, but for the observer.
 *
 * The lock costs an atomic exchange, as much as a quarter of a hit. So a thread that has taken it many times in a row
 * becomes the lane's owner, which locks by plain stores:
 *
 *   owner                            other
 *     owner == my seat?                locked = 1
 *     busy = 1                         owner = NULL
 *     owner == my seat still?          BARRIER
 *     work (no: lock as others do)     wait until busy == 0
 *     busy = 0                         work
 *
 * The barrier (lane_lock.c) makes every processor that runs a thread of this process execute one: either the owner's
 * second look came after it and sees another owner, or its `busy` came before it and is waited for. A thread keeps
 * its seat, so that one which was held up between its looks does not change the `busy` of a later owner.
 */
#ifndef NEAP_ALLOC_LANE_H
#define NEAP_ALLOC_LANE_H

#include "alloc/front.h"
#include "alloc/internal.h"

#define DIRECT_BINS (SMALL_LIMIT_BYTES / BLOCK_ALIGNMENT + 1) /* a bin for each size up to 1 MiB */
#define HASHED_BINS 2048 /* larger sizes share these, one size in each at a time */
#define LANE_SEATS  8    /* threads that take turns in owning a lane; further ones lock it */
#define TAGS        (NEAP_TAGS_MAX + 2)

struct neap_bin {
	uint64_t bytes; /* of each block; 0: no size yet */
	struct neap_block *first;
	uint64_t last_seen; /* the lane's core_frees when the core last freed a block of this size */
};

/* How far a class moved since the last freeze. Differences: below 0 where more was freed. */
struct neap_level {
	int64_t blocks, bytes, requested;
};

/* How far it may: up, and down as positive numbers. */
struct neap_room {
	int64_t blocks_high, bytes_high, requested_high;
	int64_t blocks_low, bytes_low;
};

/* What was taken since the last freeze; what was given back is that less the level. */
struct neap_takes {
	int64_t blocks, bytes, requested;
};

struct neap_tag_level {
	int64_t blocks, bytes, bytes_high;
};

/* The time of a lane's events. Reading the clock takes as long as a hit: so while events come fast, less than PACE_NS
 * apart, one reading serves those of the next SHARED_NS at this pace, unless the kernel's tick, which is cheap to
 * read, has moved. */
#define PACE_NS   256
#define SHARED_NS 4096
#define TIME_USES 64 /* at most */
struct neap_lane_time {
	uint64_t ns, tick_ns; /* at the last reading */
	uint32_t uses, left;  /* events that it may serve, besides its own; those that are left */
};

/* A thread that may own the lane. */
struct neap_seat {
	const void *thread; /* NULL: free */
	uint32_t busy;      /* it is at work in the lane; written by this thread alone */
};

struct neap_lane {
	uint32_t locked;                      /* by others than the owner */
	struct neap_seat *owner;              /* NULL: none. Changed by the holder of `locked` */
	bool left;                            /* an earlier owner, not waited for yet, may be at work in it */
	const void *last;                     /* the thread that locked it last */
	uint32_t streak;                      /* how often in a row it did */
	bool open;                            /* bins are in use */
	bool moved;                           /* since the last freeze, in the core; while frozen: at all */
	bool tagged;                          /* allocations are counted by tag, too */
	unsigned recent;                      /* above 0: it is given room */
	uint32_t polls_left;                  /* hits until pending frees must be asked for */
	const struct neap_observer *observer; /* gets events; NULL: none */
	struct neap_event_run run;            /* the observer's, as its slots for them */
	struct neap_lane_time time;
	struct neap_published_lane *published; /* of NEAP_PUBLISHED_PARTS; NULL: nobody reads */
	uint64_t published_sequence[NEAP_PUBLISHED_PARTS];
	struct neap_level level[NEAP_CLASS_COUNT]; /* of large and small, as are `takes` */
	struct neap_room room[NEAP_CLASS_COUNT];
	struct neap_takes takes[NEAP_CLASS_COUNT]; /* of large and small */
	uint64_t serial;       /* allocations of all lanes, as of the last freeze, and own ones since */
	uint64_t binned_bytes; /* in the bins, as of the last freeze */
	uint64_t stamp;        /* as of struct neap_block: behind the work on every block in a bin */
	uint64_t core_frees;
	struct neap_seat seats[LANE_SEATS];
	uint16_t device; /* ordinal */
	struct neap_alloc *alloc;
	struct neap_stream *stream;
	struct neap_tag_level tags[TAGS];
	struct neap_bin bins[DIRECT_BINS + HASHED_BINS];
};

/* Of both classes together. */
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

/* lane_lock.c: the lock, for a thread that does not own the lane. `core`: the allocator, if its mutex is not held. */
void neap_lane_lock(struct neap_alloc *core, struct neap_lane *lane);
/* All of them, with the mutex held. False, with none locked: a lane was not free until then (CLOCK_REALTIME), or the
 * calling thread itself is in one, interrupted by a signal. `until` NULL: waits for each, and succeeds. */
bool neap_lanes_lock(struct neap_alloc *alloc, const struct timespec *until);
/* Its address tells threads apart. One that has ended may pass its address on, with its seats. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) char neap_lane_self;

static inline struct neap_seat *lane_lock_as_owner(struct neap_lane *lane)
{
	struct neap_seat *seat = __atomic_load_n(&lane->owner, __ATOMIC_ACQUIRE);
	if (!seat || seat->thread != &neap_lane_self)
		return NULL;
	/* Acquires what a thread of this address did before. */
	(void)__atomic_load_n(&seat->busy, __ATOMIC_ACQUIRE);
	__atomic_store_n(&seat->busy, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&lane->owner, __ATOMIC_ACQUIRE) == seat)
		return seat;
	__atomic_store_n(&seat->busy, 0, __ATOMIC_RELEASE);
	return NULL;
}

/* No lock is held. Returns the seat of the owner, if that is who holds it now. */
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
/* Whether lanes may have owners: the kernel has the barrier. */
bool neap_lanes_may_be_owned(void);

/* front.c: all that the allocator may reserve: its limit, or the device's bytes less the context's. */
uint64_t neap_front_limit(const struct neap_alloc *alloc);
/* front_room.c: how many bytes the bins of one lane may hold. */
uint64_t neap_front_room_bytes(const struct neap_alloc *alloc);
/* front_room.c: gives every open lane new room to move in. */
void neap_front_room(struct neap_alloc *alloc);
/* front_room.c: adds what the lane counted to the allocator's counters, and starts it again from 0. */
void neap_lane_fold(struct neap_alloc *alloc, struct neap_lane *lane);

#endif
