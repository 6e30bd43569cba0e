/* replay/torch_internal.h: the model's parts. They have PyTorch's names for the same things.
 *
 *   torch_policy.c   the path of a request, frees, statistics
 *   torch_events.c   frees that wait for other streams
 *   torch_pools.c    the default pool and private ones
 *   torch_collect.c  garbage collection
 *   torch_blocks.c   blocks, their neighbours, the ordered sets of free ones
 *   torch_age.c      the age of blocks that a recording begins with, learned from its choices
 *   torch_segments.c the driver: plain and expandable segments, and when they are given back
 *   torch_state.c    restoring, checking
 *
 * Invariants (neap_torch_check):
 *
 *   the blocks of a segment are a list by address without gaps
 *   two free neighbours are never both mapped, nor both unmapped
 *   a block is in its pool's `free` set exactly when it is mapped, neither allocated nor pending; in `unmapped`
 *   exactly when it is not mapped
 *   reserved = sum of mapped bytes = driver's used bytes; allocated, active, requested: likewise sums over blocks
 */
#ifndef NEAP_REPLAY_TORCH_INTERNAL_H
#define NEAP_REPLAY_TORCH_INTERNAL_H

#include "base/map.h"
#include "replay/torch_policy.h"

#define SMALL_REQUEST   (1ull << 20) /* requests up to this size come from the small pool */
#define SMALL_SEGMENT   (2ull << 20)
#define MEDIUM_REQUEST  (10ull << 20) /* requests below this size share segments */
#define LARGE_ROUNDING  (2ull << 20)
#define SMALLEST_BLOCK  512ull
#define LARGEST_REQUEST (1ull << 60) /* PyTorch refuses a larger request */
#define UNBOUNDED       (1ull << 50) /* the bytes of a device without a bound */
/* How many bytes of addresses an expandable segment has on such a device, unless a request is larger: the segments of
 * 65536 streams with two pools each fit side by side. */
#define UNBOUNDED_RANGE (1ull << 45)
#define AGE_STEP        (1ull << 20) /* so large that other ages fit between two */

struct use {
	uint64_t stream;
	struct use *next;
};

struct block {
	/* The first cache line has the fields that a search in a set reads. */
	_Alignas(64) uint64_t address;
	uint64_t size, stream;
	uint64_t serial;   /* distinguishes blocks that hostile recordings put at one address */
	uint64_t priority; /* in the treap: a hash of the serial */
	/* Of blocks of equal size, the older memory comes first; 0: only the address decides. */
	uint64_t age;
	struct block *left, *right; /* its children in a set; `right` also links the list of idle blocks */
	uint64_t requested;
	struct pool *pool;
	struct segment *segment;
	struct block *prev, *next; /* its neighbours by address */
	/* Its neighbours in the pool's list of blocks that a flush may give back. */
	struct block *givable_prev, *givable_next;
	struct use *uses; /* the streams that were recorded for it since its alloc */
	/* The value of the pool's free_calls when the block went into the set. */
	uint64_t free_calls_base;
	uint32_t events; /* how many of its events have not completed */
	bool allocated, mapped;
	bool givable;       /* it is in that list */
	bool restored;      /* as in struct segment */
	bool guessed;       /* for start.c: as in struct neap_torch_piece */
	struct event *held; /* the event that a recording completes */
};

/* One driver allocation, or one reserved range of addresses. */
struct segment {
	struct segment *prev, *next; /* in the order they were made */
	struct block *first;
	uint64_t address, size; /* of the whole range */
	uint64_t age;           /* larger for later segments; 0: not in use */
	uint16_t stream;        /* for start.c: index in the trace's streams */
	bool expandable;
	bool restored; /* it existed when the recording began, so its age is a guess */
};

/* An ordered set of blocks: a treap whose priorities are hashes of the serials. The order is (stream, size, age,
 * address) or, with `by_address`, (stream, address). */
struct set {
	struct block *root;
	bool by_address;
};

struct pool {
	struct set free, unmapped;
	/* The blocks of `free` that a flush may give back: plain segments without a split, and blocks with whole
	 * pages. */
	struct block *givable;
	size_t givable_count;
	uint64_t page; /* page_bytes */
	/* How many searches it has had while garbage collection was on; ages of blocks are measured by it. */
	uint64_t free_calls;
	uint32_t number; /* of the private pool; 0: none */
	/* Its place in the order of releases: flushes free the memory of released pools; 0: not released. */
	uint32_t released;
	struct pool *large;            /* the large half of its pair */
	struct neap_stat reserved;     /* bytes */
	struct neap_stat reserved_all; /* both halves together; only the large half counts it */
	uint64_t largest;              /* the bytes of the largest request or free block so far */
	bool small;
	bool whole; /* blocks are not split: MemPool(no_split=True) */
	bool plain; /* no expandable segments: its memory comes from an allocator of its own */
};

struct event {
	struct event *next, *prev; /* of its stream */
	struct block *block;
	uint64_t token; /* of a held one */
	uint64_t ready; /* it is complete from this event of the trace on */
};

/* Events of one stream, oldest first. */
struct queue {
	struct event *first, *last;
	uint64_t stream;
};

struct torch {
	struct neap_policy policy; /* first */
	struct neap_torch_options options;
	struct neap_policy_usage usage;
	uint64_t device_bytes;
	uint64_t allowed_bytes;                /* with a fraction */
	bool limited;                          /* a fraction is set */
	uint64_t reserved;                     /* the bytes now held from the driver */
	uint64_t lowest_address, next_address; /* the lowest address of all segments; the address right above them */
	uint64_t placed;                       /* how many segments have got an address */
	uint64_t event;                        /* the number of the trace's current event */
	uint64_t serial;
	uint64_t last_age;
	struct pool **pools; /* pairs: large, small; [0] and [1] are the default ones */
	size_t pool_count;
	struct neap_map pool_places; /* number -> index of the pair's large half */
	struct segment *first_segment, *last_segment;
	struct queue *queues; /* streams with events, in the order of their first one */
	size_t queue_count;
	struct queue held;           /* events of frees that a recording completes */
	struct neap_map held_tokens; /* token -> block */
	struct block *idle;
	struct chunk *chunks;
	unsigned refusals; /* how often the driver will refuse the next request */
	bool capturing;    /* the next request must not flush */
	uint32_t released; /* how many pools were released so far */
	bool starved;      /* the host ran out of memory during an operation */
};

struct request {
	uint64_t bytes, size, segment_size, stream;
	struct pool *pool;
	struct block *block;
	bool expandable; /* served from expandable segments */
	bool rejected;   /* by throw_on_cudamalloc_oom: nothing else is tried */
};

/* torch_blocks.c */
void set_insert(struct set *set, struct block *block);
void set_remove(struct set *set, struct block *block);
/* Returns the first block at or above (stream, size); in a set by address, the first block of the stream. */
struct block *set_at_least(const struct set *set, uint64_t stream, uint64_t size);
struct block *set_after(const struct set *set, const struct block *block);
struct block *set_before(const struct set *set, const struct block *block);
struct block *set_first(const struct set *set);
struct block *set_last(const struct set *set);

/* NULL: the host is out of memory, and torch->starved is set. */
struct block *block_new(struct torch *torch, struct segment *segment, struct pool *pool, uint64_t stream,
			uint64_t address, uint64_t size);
void block_drop(struct torch *torch, struct block *block);
void blocks_fini(struct torch *torch);
/* Puts `block` between `prev` and `next`, either of which may be NULL. */
void block_link(struct block *block, struct block *prev, struct block *next);
static inline bool block_is_split(const struct block *block) { return block->prev || block->next; }
/* Whether the block is neither allocated nor waiting for events. */
static inline bool block_is_idle(const struct block *block)
{
	return !block->allocated && !block->events && !block->uses;
}
/* Joins `block` (in no set) with its neighbour `other`, if both are free in the same way. Returns the bytes of
 * `other`. */
uint64_t block_merge(struct torch *torch, struct block *block, struct block *other);
void block_index(struct block *block); /* puts it into its pool's free set; its age starts now */
void block_unindex(struct block *block);
/* Compares two blocks in the order of the free set. */
int block_order(const void *left, const void *right);

/* torch_segments.c */
bool segment_alloc(struct torch *torch, struct request *request, bool retry);
/* Returns how many bytes the driver allocates for a block of `size` bytes. */
uint64_t segment_bytes(const struct torch *torch, uint64_t size);
/* Gives back the plain segment that consists of this free block. */
void segment_free(struct torch *torch, struct block *block);
bool release_oversize(struct torch *torch, const struct request *request);
void release_all(struct torch *torch);
void release_private(struct torch *torch, uint32_t number);
/* Makes an empty segment and links it. NULL: starved, because the host is out of memory. */
struct segment *segment_new(struct torch *torch, uint64_t address, uint64_t size, bool expandable);
void segment_drop(struct torch *torch, struct segment *segment);
/* Returns the size of the pages in the pool's expandable segments. */
static inline uint64_t page_bytes(const struct torch *torch, const struct pool *pool)
{
	return pool->small ? SMALL_SEGMENT : torch->options.settings.large_segment_bytes;
}

/* torch_policy.c */
void stat_add(struct neap_stat *stat, uint64_t amount);
void stat_take(struct neap_stat *stat, uint64_t amount);
void metric_add(struct torch *torch, enum neap_metric metric, const struct pool *pool, uint64_t amount);
void metric_take(struct torch *torch, enum neap_metric metric, const struct pool *pool, uint64_t amount);
/* Adds to NEAP_METRIC_RESERVED_BYTES, which each pool also counts for itself. */
void reserved_add(struct torch *torch, struct pool *pool, uint64_t bytes);
void reserved_take(struct torch *torch, struct pool *pool, uint64_t bytes);
void emit(struct torch *torch, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream);
/* Makes the block free: joins it with its neighbours and puts it into the set. */
void free_block(struct torch *torch, struct block *block);
enum neap_status torch_starved(struct torch *torch, struct neap_error *err);
/* Returns the best fitting free block, which stays in its set. NULL: none. */
struct block *choose_free(const struct torch *torch, const struct request *request);
/* Computes a request's size and finds its pool, but searches no block. NULL pool: starved. */
struct request request_make(struct torch *torch, uint64_t bytes, uint64_t stream, uint32_t number);
static inline struct torch *torch_of(struct neap_policy *policy) { return (struct torch *)policy; }

/* torch_collect.c */
void garbage_collect(struct torch *torch);

/* torch_events.c */
struct queue *queue_find(struct torch *torch, uint64_t stream); /* NULL: starved */
bool event_add(struct torch *torch, struct block *block, struct queue *queue);
void poll_events(struct torch *torch);
/* Makes `block` wait for an event, which only `complete` completes. False: starved. */
bool block_hold(struct torch *torch, struct block *block, uint64_t token);
void torch_complete(struct neap_policy *policy, uint64_t token);
/* Waits for events, and frees the blocks that wait for them: all blocks, or those of the pool with this large
 * half. */
void complete_all_events(struct torch *torch, const struct pool *large);
void events_fini(struct torch *torch);

/* torch_pools.c */
struct pool *pool_find(struct torch *torch, uint32_t number, bool small); /* NULL: starved */
void pools_fini(struct torch *torch);

/* torch_state.c */
enum neap_status torch_check(struct neap_policy *policy, struct neap_error *err);

#endif
