/* alloc/core/core.h: blocks, the segments and pages they lie on, and which stream may use which.
 *
 *   allocator --- streams (dense numbers) --- caches (one per arena it was served from): tree of CACHED blocks
 *        |  \
 *        |   arenas (one per class, private pool and stream): list of UNMAPPED blocks, cache of idle ones
 *        |      |
 *        segments, by address  ------------- each belongs to one arena
 *             |
 *   [ LIVE | CACHED |  LIVE | PENDING | CACHED |      UNMAPPED      | LIVE | UNMAPPED ............ ]   blocks
 *   [ page | page | page | page | page | page |                    | page |                        ]   handles
 *
 * Invariants: the blocks of a segment cover it, in order, without gap or overlap, and two neighbours that could be
 * joined are joined. Every page under a block that is not UNMAPPED has a handle; a handle that is mapped nowhere is a
 * spare page. A byte of a page is in one block, under one address: at home, or in a view (views/views.h) while it is
 * IN_VIEW at home. Before a page leaves its home, it leaves all views, and the work on it is done. Every counter is
 * the sum over blocks that README.md defines. Other processes read the same values whenever no write is open.
 *
 * The core calls no other room. It knows them only as data: lanes, whose frozen bins count as LIVE blocks; the views
 * that exist; the plan's region, which is an arena like any other.
 *
 * Each allocator has one lock, rank 2 in ARCHITECTURE.md: a mutex, and the lanes frozen (front/front.h). The holder
 * calls only the observer, a pool's filter and the driver. The lock guards every field below, unless a field's
 * comment names another lock. Functions of this header are called with it held.
 */
#ifndef NEAP_ALLOC_CORE_H
#define NEAP_ALLOC_CORE_H

#include "base/map.h"
#include "device/driver.h"
#include "neap/alloc.h"

#include <pthread.h>

#define BLOCK_ALIGNMENT   512ull
#define SMALL_LIMIT_BYTES (1ull << 20)              /* requests up to this come from small arenas */
#define BLOCK_IN_VIEW     (NEAP_BLOCK_UNMAPPED + 1) /* a state of blocks that the public header does not know */
#define PLAIN_PAGE_BYTES  (2ull << 20) /* granularity of segments where the device has no virtual memory */

struct neap_block_chunk;
struct neap_lane;
struct neap_plan;
struct neap_stream;
struct neap_cache;
struct neap_size_trees;
struct neap_arena;
struct neap_segment;
struct neap_view;

/* One use of a block by a stream other than its own, announced by neap_record_stream. A use keeps its event when it
 * returns to the allocator's list of idle uses. recorded implies created. */
struct neap_use {
	struct neap_use *next_of_block;  /* also links idle uses */
	struct neap_use *next_of_stream; /* in the stream's queue, once the block was freed */
	struct neap_stream *stream;
	struct neap_block *block;
	CUevent event;
	bool created;  /* event exists */
	bool recorded; /* event comes after the work that the block waits for */
};

/* Address and bytes are multiples of BLOCK_ALIGNMENT; 0 < requested <= bytes while LIVE or PENDING. CACHED: in its
 * cache's tree. LIVE: in the index. A hit, or a search in a tree, reads only the first cache line of a block. */
struct neap_block {
	_Alignas(64) uint64_t address;
	uint64_t bytes;
	uint64_t requested;      /* LIVE, PENDING: the bytes that the program requested */
	uint64_t serial;         /* LIVE, PENDING: of its allocation */
	struct neap_block *left; /* with `right`: in the cache's tree, or the arena's list; in a bin: the next one */
	union {
		struct neap_block *right; /* IN_VIEW: the view's next part */
		size_t slot;              /* in a bin: its place in the index when it was put there */
	};
	struct neap_use *uses; /* LIVE, PENDING */
	uint32_t uses_left;    /* PENDING: uses whose work may still run */
	uint8_t state;         /* enum in struct neap_block_info, or BLOCK_IN_VIEW */
	uint8_t tag;           /* index into the allocator's tags */
	bool split;            /* CACHED: counted as NEAP_METRIC_INACTIVE_SPLIT */
	bool binned;           /* LIVE: in a bin of its lane; the program has freed it */
	/* PENDING, CACHED: the number of the record of the stream's event that comes after the block's work. */
	uint64_t stamp;
	struct neap_segment *segment;
	/* CACHED: the cache that has it; LIVE, PENDING: the cache to which it returns; else NULL. */
	struct neap_cache *cache;
	struct neap_block *previous, *next; /* by address within the segment */
	struct neap_block *lowest;          /* CACHED in a large arena: the lowest block of its subtree, or itself */
	struct neap_lane *lane;             /* LIVE: the lane that may keep it once freed; NULL: none (front.h) */
};

/* One contiguous reservation of addresses; its blocks cover it without gaps. */
struct neap_segment {
	struct neap_segment *next, *previous; /* by address */
	struct neap_arena *arena;
	uint64_t address, bytes;
	struct neap_block *first;
	uint64_t held_pages;    /* handles that are not 0; for a plain segment, all its pages */
	uint64_t stuck_pages;   /* handles under UNMAPPED blocks: left without access by a rollback that failed */
	bool plain;             /* one cuMemAlloc: no handles, never UNMAPPED */
	struct neap_view *view; /* the view that owns these addresses; NULL: they are home to their pages */
	/* One handle per page, in parts that are allocated as pages come: a segment has far more addresses than
	 * pages, and there may be thousands of segments. */
	size_t part_count;
	CUmemGenericAllocationHandle *handles[];
};

#define HANDLES_PART 512

/* Returns 0 if the page has no handle. */
static inline CUmemGenericAllocationHandle segment_handle(const struct neap_segment *segment, uint64_t page)
{
	const CUmemGenericAllocationHandle *part = segment->handles[page / HANDLES_PART];
	return part ? part[page % HANDLES_PART] : 0;
}

/* The CACHED blocks that one stream freed in one arena. That stream may reuse them at once. */
struct neap_cache {
	struct neap_cache *next_of_arena;
	struct neap_cache *next_of_stream;
	struct neap_arena *arena;
	struct neap_stream *stream; /* NULL: the arena's idle blocks, which any stream may use */
	struct neap_block *tree;    /* ordered by (bytes, address) */
	/* For a small arena with many blocks: a tree for each size (cache.h); then `tree` has only blocks larger than
	 * SMALL_LIMIT_BYTES. NULL: `tree` has all blocks. */
	struct neap_size_trees *sizes;
	size_t count; /* how many blocks it has */
	/* largest.c: */
	struct neap_cache *next_noted;
	uint64_t largest; /* bytes of its largest block when it was last measured */
	size_t place;     /* in the heap */
	bool noted;       /* the tree may have changed since that measurement */
};

/* A heap of all caches by their largest block (largest.c). Zeroed: empty. */
struct neap_largest {
	struct neap_cache **heap;
	size_t count, capacity;
	struct neap_cache *noted;
};

/* The addresses for requests of one class. They serve one stream, or, while streams share, all streams. */
struct neap_arena {
	struct neap_arena *next;
	struct neap_arena *next_of_stream;
	struct neap_pool *pool;     /* NULL: the common one */
	struct neap_stream *stream; /* the stream that it serves while streams do not share */
	bool small;
	bool planned;                /* a plan's region: only planned.c serves requests from it */
	struct neap_block *unmapped; /* UNMAPPED blocks */
	size_t segment_count;
	struct neap_cache *caches; /* one for each stream that has freed blocks here */
	struct neap_cache idle;
	bool lowest_fit; /* this and the next two fields: see fit.c */
	uint32_t fits, thin_fits;
};

/* done <= recorded; live_blocks counts the LIVE blocks that the program holds on it. */
struct neap_stream {
	struct neap_stream *next;
	void *handle;
	uint32_t number;
	uint64_t live_blocks; /* allocated on it. The handle is valid, and used, only while there are any */
	struct neap_cache *caches;
	uint64_t pages;                          /* used by fit.c while it compares streams */
	struct neap_arena *arenas;               /* the arenas that serve it while streams do not share */
	struct neap_use *waiting, **waiting_end; /* uses of freed blocks, oldest first */
	/* order.c: how often the event was recorded, and the last record whose work is known to be done. */
	CUevent event;
	bool event_made;
	uint64_t recorded, done;
	struct neap_map waited; /* another stream's number -> the last of its records that this stream waits for */
};

/* Blocks of a private pool are in arenas of its own. The pool is freed once it has neither owners nor arenas. */
struct neap_pool {
	struct neap_pool *next; /* the pool begun last comes first */
	uint64_t high, low;
	bool (*filter)(void *context, void *stream); /* NULL: not between begin and end */
	void *context;
	bool captures; /* a graph is captured between begin and end */
	/* How often it was begun minus how often it was released; while above 0 its pages stay, because a graph may
	 * have their addresses */
	uint64_t owners;
};

/* A second mapping of pages, for a block made of ends of pages (views/views.h). Its block, if any, is LIVE or PENDING
 * and as large as its parts together. */
struct neap_view {
	struct neap_view *next;       /* the view used last comes first */
	struct neap_segment *segment; /* its addresses; in no list, without handles of its own */
	struct neap_block *block;     /* LIVE or PENDING; NULL: the view is kept for later */
	struct neap_block *parts;     /* the IN_VIEW blocks at home that make up the block, linked by `right` */
	struct neap_stream *stream;   /* the stream of its last block, whose stamp follows; NULL: never used */
	uint64_t stamp;
	bool broken; /* the driver failed while pages were exchanged: it is never used again */
	uint64_t pages;
	uint64_t homes[]; /* per page: its address at home; 0: not mapped */
};

/* The index: the block that begins at an address. A free in the front reads the slot, not the block. Only the holder
 * of the allocator's lock adds and removes addresses. Any thread may look one up without a lock (index.c).
 * Invariants: count <= capacity * 3/4; capacity is a power of two. */

/* Half a cache line of the processor. */
struct neap_index_slot {
	_Alignas(32) uint64_t address; /* 0: free */
	struct neap_block *block;
	struct neap_lane *lane; /* may keep the block when the program frees it; NULL: the core frees it. Written by
				 * the holder of the allocator's lock or of this lane's */
	uint64_t asked;         /* with `lane`: the block's `requested`, and above INDEX_TAG_SHIFT its tag */
};

#define INDEX_TAG_SHIFT 56

struct neap_index_table {
	struct neap_index_table *older;
	unsigned shift; /* the upper 64 - shift bits of an address's product are its slot */
	size_t mask;
	struct neap_index_slot slots[];
};

/* Zeroed: empty. */
struct neap_index {
	struct neap_index_table *table;
	size_t count;
};

/* The lanes (front/front.h), as the hot path reads them. */
#define FRONT_LANES 16 /* streams with a lane; the core serves further streams */
struct neap_front {
	struct neap_lane *lanes[FRONT_LANES]; /* set once, for the allocator's life */
	void *streams[FRONT_LANES];           /* their streams, read without a lock */
	uint32_t count;                       /* stored last */
	bool owned;                           /* lanes may have owners */
	uint64_t binned_bytes;                /* in all bins, while frozen */
};

/* A name for allocations. Its live bytes and blocks are sums over the LIVE blocks that have it. */
#define TAG_NONE    0
#define TAG_OTHER   (NEAP_TAGS_MAX + 1)
#define TAG_UNKNOWN UINT8_MAX /* not in the allocator's list yet */
struct neap_tag {
	char text[NEAP_RECORD_NAME_ROOM];
	uint16_t number; /* the observer's, once asked for */
	bool numbered;
	uint64_t live_bytes, peak_bytes, live_blocks;
};

struct neap_alloc {
	struct neap_device *device; /* constant, as are the next three */
	const struct neap_cuda *cuda;
	uint64_t page_bytes;
	bool plain;
	bool shareable; /* pages can be exported; false once the driver has refused to create such pages */

	pthread_mutex_t lock;
	struct neap_stream *streams;
	uint32_t stream_count;
	struct neap_map streams_by_handle; /* handle -> struct neap_stream */
	struct neap_arena *arenas;
	uint64_t common_arenas; /* how many arenas have the caches of two streams or more */
	struct neap_segment *segments;
	struct neap_segment *newest; /* the segment that was made last; NULL: none */
	struct neap_largest largest;
	struct neap_view *views; /* the view used last comes first */
	uint64_t view_pages;     /* pages mapped in views as well as at home */
	struct neap_pool *pools;
	uint64_t pools_open;
	uint64_t captures_open; /* how many of pools_open capture a graph */
	uint64_t serial;        /* allocations ever made */
	struct neap_index live; /* LIVE blocks by address */
	struct neap_front front;

	struct neap_block_chunk *chunks;
	struct neap_block *idle_blocks; /* linked by next */
	size_t idle_count, block_count; /* block_count includes the idle ones */

	struct neap_use *idle_uses;
	uint64_t waiting_uses; /* in all streams' queues */
	bool dirty;            /* a block was freed since the device was last synchronised */

	/* Handles mapped nowhere: about to be mapped elsewhere, or left over by a failed call. The array has space
	 * for every handle held. */
	CUmemGenericAllocationHandle *spare;
	size_t spare_count, spare_capacity;
	uint64_t held_pages; /* handles held, spare ones included */

	/* fit.c: */
	struct neap_stream *home; /* the stream whose arenas serve all; NULL: each stream has its own */
	uint64_t moved_pages;     /* from one place to another, ever */
	uint64_t demand_bytes;    /* the most bytes that were ever active or requested at once when no block fitted */

	/* The plan's (plan/plan.h): */
	struct neap_plan *plan;               /* NULL: plans are switched off */
	struct neap_arena *region;            /* of the plan in force; NULL: none is */
	uint64_t region_address, region_last; /* its first address; the address of the last planned block */
	uint64_t plan_moved;                  /* with plan_retries: moved_pages and num_alloc_retries as last read */
	int64_t plan_retries;

	struct neap_stats stats;
	uint64_t limit_bytes; /* UINT64_MAX: none */
	double fraction;
	uint64_t largest_free_bytes;
	uint64_t lowest_allocated, highest_allocated;
	struct neap_published own_published;
	struct neap_published *published;
	uint64_t published_sequence; /* odd while a write is open */

	const struct neap_observer *observer;
	uint64_t event_ns;                       /* when the last event happened, on lanes too; never decreases */
	struct neap_watcher watcher;             /* `changed` is NULL: none */
	struct neap_tag tags[NEAP_TAGS_MAX + 2]; /* untagged, the named ones, "other" */
	size_t tag_count;                        /* named ones in use */

	neap_oom_callback oom_callback;
	void *oom_context;
	struct neap_asked asked; /* the other processes that were asked for the last request that found no memory */
};

struct neap_request {
	uint64_t bytes, rounded;
	void *stream;
	uint8_t tag;
	bool capturing; /* the stream was being captured into a graph when the request was tried */
};

static inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
static inline uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
static inline uint64_t block_end(const struct neap_block *block) { return block->address + block->bytes; }
static inline bool block_active(const struct neap_block *block)
{
	return block->state == NEAP_BLOCK_LIVE || block->state == NEAP_BLOCK_PENDING;
}
/* No request may get its bytes. */
static inline bool block_busy(const struct neap_block *block)
{
	return block_active(block) || block->state == BLOCK_IN_VIEW;
}
static inline bool block_small(const struct neap_block *block) { return block->segment->arena->small; }
/* The block must not be UNMAPPED. NULL: it is idle and belongs to no stream. */
static inline struct neap_stream *block_stream(const struct neap_block *block) { return block->cache->stream; }
static inline uint64_t metric_now(const struct neap_alloc *alloc, enum neap_metric metric)
{
	return (uint64_t)alloc->stats.metric[metric][NEAP_CLASS_ALL].current;
}

/* index.c */
/* The address must not be 0 nor in the index. The new slot has no lane. False: no host memory, nothing changed. */
bool neap_index_put(struct neap_index *index, uint64_t address, struct neap_block *block);
/* Does nothing if the address is not there. Never allocates. */
void neap_index_remove(struct neap_index *index, uint64_t address);
/* NULL: not there. */
struct neap_block *neap_index_find(const struct neap_index *index, uint64_t address);
void neap_index_fini(struct neap_index *index);

static inline size_t neap_index_home(const struct neap_index_table *table, uint64_t address)
{
	return (size_t)((address * 0x9e3779b97f4a7c15ull) >> table->shift);
}

/* The address's slot, or the free one where it would go. */
static inline struct neap_index_slot *neap_index_slot(struct neap_index_table *table, uint64_t address)
{
	size_t i = neap_index_home(table, address);
	for (;; i = (i + 1) & table->mask) {
		uint64_t at = __atomic_load_n(&table->slots[i].address, __ATOMIC_ACQUIRE);
		if (at == address || !at)
			return &table->slots[i];
	}
}

/* block.c: blocks and their neighbours. Nothing here talks to the driver. */
bool neap_blocks_add(struct neap_alloc *alloc, size_t count);
/* Makes sure that the next `count` calls of neap_block_new succeed. False: no host memory. */
static inline bool neap_blocks_ensure(struct neap_alloc *alloc, size_t count)
{
	return alloc->idle_count >= count || neap_blocks_add(alloc, count);
}
struct neap_block *neap_block_new(struct neap_alloc *alloc);
/* Cuts `block` (in no index) to `bytes`. Returns the rest: a block of the same state, also in no index. */
struct neap_block *neap_block_cut(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes);
/* Makes a CACHED block LIVE, for `cache` (a cache of the block's arena). The bytes beyond `bytes` stay CACHED. Ensure
 * one block before. */
void neap_block_take(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes, struct neap_cache *cache);
/* Makes `block`, in no index, CACHED or UNMAPPED: joins it with neighbours of that state (and cache) and indexes the
 * result. */
struct neap_block *neap_block_settle(struct neap_alloc *alloc, struct neap_block *block, uint8_t state);
/* Moves the first `bytes` of a CACHED block to another cache of its arena. Returns their block. Ensure one block
 * before. */
struct neap_block *neap_block_adopt(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes,
				    struct neap_cache *cache);
/* Makes [address, address + bytes) one LIVE block of `cache`. The range lies in `first` and the blocks after it, all
 * CACHED. Ensure two blocks before. */
struct neap_block *neap_block_carve(struct neap_alloc *alloc, struct neap_block *first, uint64_t address,
				    uint64_t bytes, struct neap_cache *cache);
void neap_block_unindex(struct neap_alloc *alloc, struct neap_block *block); /* CACHED or UNMAPPED */
void neap_block_drop(struct neap_alloc *alloc, struct neap_block *block);
void neap_blocks_fini(struct neap_alloc *alloc);

/* order.c. Whether a call failed with this result because a capture is under way anywhere in the process. */
bool neap_capture_forbids(CUresult result);
/* Whether the stream is being captured into a graph. The context must be current. */
enum neap_status neap_stream_capturing(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
				       struct neap_error *err);
/* Whether a capture is under way that a memory call or a wait, from any thread, would break. Asks `stream`, the
 * default stream, and all streams with live blocks. */
enum neap_status neap_capture_under_way(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
					struct neap_error *err);

/* The functions from here on need the current context, and no capture under way. neap_stamp_idle: whether the
 * stream's work up to the stamp is known to be done; true for NULL. Never waits. */
bool neap_stamp_idle(struct neap_alloc *alloc, struct neap_stream *stream, uint64_t stamp);
/* The same for a CACHED block. */
bool neap_block_idle(struct neap_alloc *alloc, const struct neap_block *block);
/* Makes `stream` wait for that work. The host waits only if there is no other way; then `ret_waited` is set, and any
 * block may have been joined with others. */
enum neap_status neap_block_order(struct neap_alloc *alloc, const struct neap_block *block,
				  struct neap_stream *stream, bool *ret_waited, struct neap_error *err);
/* Waits until that work is done, and for as little other work as possible. Any block may be joined with others
 * meanwhile. */
enum neap_status neap_block_finish(struct neap_alloc *alloc, const struct neap_block *block, struct neap_error *err);
/* Updates how far the stream has come, without waiting: blocks with stamps up to `done` are idle. */
void neap_stream_poll(struct neap_alloc *alloc, struct neap_stream *stream);
/* Called when the stream's last live block is freed: records its event while the handle is valid. Enters the
 * context. */
void neap_stream_close(struct neap_alloc *alloc, struct neap_stream *stream);

/* fit.c: which block serves, and whether streams share one arena. */
/* Chooses the block for a request of `bytes` among those that the stream may use at once; NULL: none fits. */
struct neap_block *neap_fit_find(const struct neap_cache *cache, uint64_t bytes);
/* Counts how well the best fit fits. Some block must fit. The caller samples requests. */
void neap_fit_count(const struct neap_cache *cache, uint64_t bytes);
/* Whether new pages for `bytes` would exceed the device or the limit. */
bool neap_fit_full(const struct neap_alloc *alloc, uint64_t bytes);
/* Whether so little memory is left after another block of `bytes` that ends of pages must be used, too. */
bool neap_fit_tight(const struct neap_alloc *alloc, uint64_t bytes);
/* Called when a request's own class has no block for it. Returns an end of a page in the other class and sets *cache
 * to that cache; NULL: none. Small requests get one as soon as memory is short, large ones as the `last` resort. A
 * private pool keeps its classes apart. */
struct neap_block *neap_fit_borrow(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_cache **cache,
				   uint64_t bytes, bool last);
/* The most that the allocator may reserve: the lower of its limit and the device's bytes minus the context's. */
uint64_t neap_limit_bytes(const struct neap_alloc *alloc);
/* Called when no block fits `bytes`. Decides whether streams share. */
void neap_share_decide(struct neap_alloc *alloc, uint64_t bytes);
/* Moves the idle blocks of all streams that share an arena to its idle cache. The context is current and no capture
 * under way. */
void neap_share_idle(struct neap_alloc *alloc);

/* segment.c: addresses and pages. The device's context must be current. */
/* A place for a new block in an arena. It begins at `block` and covers CACHED and UNMAPPED blocks. */
struct neap_place {
	struct neap_block *block;
	uint64_t lacking_pages;
};
/* Finds the place that lacks the fewest pages, among equals the lowest. It covers only blocks that the cache's stream
 * may use at once; with `any`, also blocks for whose work the stream must wait. Reserves addresses if there is no
 * place. */
enum neap_status neap_place_find(struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes, bool any,
				 struct neap_place *ret_place, struct neap_error *err);
/* Maps spare pages into the place, so that it becomes one CACHED block. There must be enough of them. */
enum neap_status neap_place_fill(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_place place,
				 uint64_t bytes, struct neap_error *err);
/* Makes the place for `bytes` that lacks the fewest pages one CACHED block, with pages from the driver. NEAP_EOOM:
 * the device or the limit does not allow it; pages that were created stay spare. */
enum neap_status neap_pages_grow(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				 struct neap_error *err);
/* move.c: as neap_pages_grow, with pages from under cached blocks; with `wait`, also from blocks whose work is not
 * done yet. */
enum neap_status neap_pages_move(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool wait,
				 struct neap_error *err);
/* Unmaps the last whole pages inside a CACHED block, at most `most` of them; they become spare. The work on them must
 * be done. `ret_next`: the next block by address. */
enum neap_status neap_block_unmap(struct neap_alloc *alloc, struct neap_block *block, uint64_t most,
				  struct neap_block **ret_next, struct neap_error *err);
/* Unmaps every whole page of the segment without LIVE or PENDING bytes; these pages become spare. A plain segment
 * that is one CACHED block goes back to the driver. The work on them must be done. */
enum neap_status neap_segment_release(struct neap_alloc *alloc, struct neap_segment *segment, struct neap_error *err);
/* Gives all spare pages but `keep` back to the driver. */
enum neap_status neap_spare_release(struct neap_alloc *alloc, uint64_t keep, struct neap_error *err);
/* Frees the addresses of segments that hold no pages, and the segments themselves. */
void neap_segments_trim(struct neap_alloc *alloc);
/* Gives everything back, whatever its state, and frees its host memory even if the driver refuses. `talk`, here and
 * below: the context is current. If false (after a fork), frees only host memory. */
void neap_segments_fini(struct neap_alloc *alloc, bool talk);

/* view.c: the existing views. */
/* Whether the work on the view's last block is known to be done, so that the view's pages may be unmapped. */
bool neap_view_idle(struct neap_alloc *alloc, const struct neap_view *view);
/* Makes `block` the block of the view, whose `parts` are already chosen. Cannot fail. */
void neap_view_begin(struct neap_alloc *alloc, struct neap_view *view, struct neap_block *block);
/* Called when the view's block is freed and its work done: makes its bytes CACHED at home and drops the block. */
void neap_view_end(struct neap_alloc *alloc, struct neap_block *block);
/* Unmaps the pages of [address, address + bytes), which are free at home and idle, from all views. */
enum neap_status neap_views_leave(struct neap_alloc *alloc, uint64_t address, uint64_t bytes, struct neap_error *err);
/* Drops all views that are idle and not in use. A view stays if the driver does not unmap it. */
void neap_views_drop(struct neap_alloc *alloc);
/* Returns the segment with the address, even that of a view in use; NULL: none. */
struct neap_segment *neap_segment_at(const struct neap_alloc *alloc, uint64_t address);
void neap_views_fini(struct neap_alloc *alloc, bool talk); /* as neap_segments_fini */
/* Moves the view, which is used now, to the front of the list. */
void neap_view_used(struct neap_alloc *alloc, struct neap_view *view);
/* Unmaps those of its pages [first, end) that are mapped. */
enum neap_status neap_view_unmap(struct neap_alloc *alloc, struct neap_view *view, uint64_t first, uint64_t end,
				 struct neap_error *err);
/* Drops a view that is idle and not in use. If the driver refuses, the rest of the view stays. */
enum neap_status neap_view_drop(struct neap_alloc *alloc, struct neap_view *view, struct neap_error *err);

/* arena.c: streams, arenas, caches and private pools. The finders create what is missing; NULL: no host memory. */
struct neap_stream *neap_stream_find(struct neap_alloc *alloc, void *handle);
struct neap_cache *neap_cache_find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small);
struct neap_arena *neap_arena_make(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small);
/* The stream's cache in the arena. */
struct neap_cache *neap_cache_of(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_arena *arena);
/* The open pool whose filter accepts the stream; NULL: none. */
struct neap_pool *neap_pool_match(struct neap_alloc *alloc, void *stream);
/* Frees arenas without segments, and pools without owners and arenas. */
void neap_arenas_trim(struct neap_alloc *alloc);
/* Returns the link that points to the pool, or to NULL if there is none. */
struct neap_pool **neap_pool_find(struct neap_alloc *alloc, uint64_t high, uint64_t low);
void neap_arenas_fini(struct neap_alloc *alloc, bool talk);

/* pending.c: blocks that wait for other streams. */
/* The last step of a free: makes the block CACHED, counts it, and sends its event. */
void neap_block_complete(struct neap_alloc *alloc, struct neap_block *block);
enum neap_status neap_use_add(struct neap_alloc *alloc, struct neap_block *block, struct neap_stream *stream);
/* Called when a block with uses is freed. Queues the uses, and records their events now, or, if that fails, at a
 * poll. */
void neap_pending_start(struct neap_alloc *alloc, struct neap_block *block);
/* Completes the frees whose work is done. Never fails: a free whose event cannot be queried stays pending. */
void neap_pending_poll(struct neap_alloc *alloc);
/* As neap_pending_poll, for a request on the stream, unless a capture forbids the query. Enters the context. */
void neap_pending_ask(struct neap_alloc *alloc, void *stream);
/* Completes all pending frees, after the caller has synchronised the context. */
void neap_pending_complete_all(struct neap_alloc *alloc);
void neap_pending_fini(struct neap_alloc *alloc, bool talk);

/* release.c: giving the cache back. */
/* Synchronises, completes pending frees and gives back every cached page that no graph may need: of the pool `only`,
 * or (NULL) of all. The context is current. NEAP_ESTATE: a capture is under way, nothing was done. */
enum neap_status neap_cache_release(struct neap_alloc *alloc, const struct neap_pool *only, uint64_t *ret_freed_bytes,
				    struct neap_error *err);
/* As neap_cache_release, but the allocator keeps the pages as spare ones. */
enum neap_status neap_cache_unmap(struct neap_alloc *alloc, const struct neap_pool *only, struct neap_error *err);
/* Synchronises the context and completes pending frees, unless nothing was freed since the last time. */
enum neap_status neap_alloc_synchronize(struct neap_alloc *alloc, struct neap_error *err);

/* stats.c */
void neap_metric_add(struct neap_alloc *alloc, enum neap_metric metric, bool small, int64_t delta);
void neap_counter_add(struct neap_alloc *alloc, int64_t *counter, int64_t delta); /* counter: of alloc->stats */
/* Counts a block that becomes live or active (1), or stops being so (-1). */
void neap_count_live(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign);
void neap_count_active(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign);
void neap_stats_peaks_reset(struct neap_alloc *alloc);
void neap_stats_sums_reset(struct neap_alloc *alloc);

/* published.c: the writer's side of struct neap_published. The first word opens a write. It must be closed before the
 * lock is released or the driver called. */
static inline void neap_published_open(struct neap_alloc *alloc)
{
	if (alloc->published_sequence % 2 == 0)
		__atomic_store_n(&alloc->published->sequence, ++alloc->published_sequence, __ATOMIC_RELEASE);
}
static inline void neap_published_word(struct neap_alloc *alloc, uint64_t *word, uint64_t value)
{
	neap_published_open(alloc);
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline void neap_published_close(struct neap_alloc *alloc)
{
	if (alloc->published_sequence % 2 == 1)
		__atomic_store_n(&alloc->published->sequence, ++alloc->published_sequence, __ATOMIC_RELEASE);
}
void neap_published_all(struct neap_alloc *alloc);

/* tags.c */
extern _Thread_local __attribute__((tls_model("initial-exec"))) const char *neap_thread_tag; /* NULL: none */
uint8_t neap_tag_find(struct neap_alloc *alloc); /* the calling thread's */
/* As neap_tag_find, but returns TAG_UNKNOWN instead of adding the tag. The lock of a lane is enough. */
uint8_t neap_tag_known(const struct neap_alloc *alloc);
void neap_tag_add(struct neap_alloc *alloc, uint8_t tag, int64_t bytes);
uint16_t neap_tag_number(struct neap_alloc *alloc, uint8_t tag);
void neap_tags_renumber(struct neap_alloc *alloc); /* the observer changed */

/* event.c: fills in time and device, and passes the event to the observer, if any. */
void neap_event_send(struct neap_alloc *alloc, struct neap_event *event);
struct neap_event_held neap_event_held_now(const struct neap_alloc *alloc);
/* Sends the event of a block. `stream`: the stream that will use it; NULL: its own. */
void neap_event_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block,
		      const struct neap_stream *stream);
/* Reports pages of the arena that were mapped or unmapped for the stream. */
void neap_event_range(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_arena *arena,
		      const struct neap_stream *stream, uint64_t address, uint64_t bytes);
void neap_event_empty_cache(struct neap_alloc *alloc, uint64_t freed_bytes, uint64_t ns);

#endif
