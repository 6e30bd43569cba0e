/* alloc/internal.h: what the files of the allocator share. README.md here says what each layer does and lists the
 * invariants as equations.
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
 *   views --- second addresses of some of these pages, for blocks made of ends of pages: view.h
 *
 * One lock per allocator, rank 2 in ARCHITECTURE.md: a mutex, and the lanes of front.h frozen. Inside it only the
 * observer, a pool's filter and the driver are called. It guards every field below, unless a field's comment names
 * another lock. Functions of this header are called with it held.
 */
#ifndef NEAP_ALLOC_INTERNAL_H
#define NEAP_ALLOC_INTERNAL_H

#include "alloc/front.h"
#include "alloc/index.h"
#include "base/map.h"
#include "device/driver.h"
#include "neap/alloc.h"

#include <pthread.h>

#define BLOCK_ALIGNMENT   512ull
#define SMALL_LIMIT_BYTES (1ull << 20)              /* requests up to this come from small arenas */
#define BLOCK_IN_VIEW     (NEAP_BLOCK_UNMAPPED + 1) /* a state of blocks that only view.h knows of */
#define PLAIN_PAGE_BYTES  (2ull << 20) /* granularity of segments where the device has no virtual memory */

struct neap_stream;
struct neap_cache;
struct neap_arena;
struct neap_segment;
struct neap_view;

/* One use of a block by a stream other than its own, announced by neap_record_stream. Its event is made once and kept
 * when the use goes back to the allocator's list of idle uses. */
struct neap_use {
	struct neap_use *next_of_block;  /* also links idle uses */
	struct neap_use *next_of_stream; /* in the stream's queue, once the block was freed */
	struct neap_stream *stream;
	struct neap_block *block;
	CUevent event;
	bool created;  /* event exists */
	bool recorded; /* event stands behind the work the block waits for */
};

/* The first line of the processor's cache is all that a hit touches. */
struct neap_block {
	_Alignas(64) uint64_t address;
	uint64_t bytes;
	uint64_t requested;      /* LIVE, PENDING: what was asked for */
	uint64_t serial;         /* LIVE, PENDING: of its allocation */
	size_t slot;             /* in a bin: where it was in the index when it came there */
	struct neap_block *left; /* with `right`, CACHED: in the cache's tree; UNMAPPED: neighbours in the arena's
				  * list. In a bin: the next one */
	struct neap_use *uses;   /* LIVE, PENDING */
	uint32_t uses_left;      /* PENDING: uses whose work is not known to be done */
	uint8_t state;           /* enum in struct neap_block_info, or BLOCK_IN_VIEW */
	uint8_t tag;             /* index into the allocator's tags */
	bool split;              /* CACHED: counted as NEAP_METRIC_INACTIVE_SPLIT */
	bool binned;             /* LIVE: in a bin of its lane: free for the program */
	struct neap_block *right;
	uint64_t stamp; /* PENDING, CACHED: which record of the stream's event stands behind its work */
	struct neap_segment *segment;
	struct neap_cache *cache;           /* LIVE, PENDING: where it returns to. CACHED: where it is. Else NULL */
	struct neap_block *previous, *next; /* by address within the segment */
	struct neap_block *lowest;          /* CACHED: of the blocks at and below it in the tree, the lowest */
	struct neap_lane *lane;             /* LIVE: may keep it when it is freed; NULL: none. See front.h */
};

/* Storage for blocks comes in chunks, so that an operation can make sure of all it needs before it changes anything.
 * A program with many blocks gets chunks of a huge page. */
struct neap_block_chunk {
	struct neap_block_chunk *next;
	/* blocks follow, aligned */
};

/* One contiguous reservation of addresses; its blocks cover it without gaps. */
struct neap_segment {
	struct neap_segment *next; /* by address */
	struct neap_arena *arena;
	uint64_t address, bytes;
	struct neap_block *first;
	uint64_t held_pages;  /* handles that are not 0; for a plain segment, all its pages */
	uint64_t stuck_pages; /* handles under UNMAPPED blocks: mapped without access, left by a rollback that failed
			       */
	bool plain;           /* one cuMemAlloc: no handles, never UNMAPPED */
	struct neap_view *view;                 /* whose addresses these are; NULL: they are home to their pages */
	CUmemGenericAllocationHandle handles[]; /* per page; 0: none */
};

/* The CACHED blocks that one stream left in one arena: it may have them at once. */
struct neap_cache {
	struct neap_cache *next_of_arena;
	struct neap_cache *next_of_stream;
	struct neap_arena *arena;
	struct neap_stream *stream; /* NULL: the arena's idle blocks, which any stream may have */
	struct neap_block *tree;    /* ordered by (bytes, address) */
};

/* Addresses for requests of one class on one stream, or, where streams share, for those of all. */
struct neap_arena {
	struct neap_arena *next;
	struct neap_pool *pool;     /* NULL: the common one */
	struct neap_stream *stream; /* whose requests it serves while streams do not share */
	bool small;
	bool planned;                /* a plan's region: only planned.c serves requests from it */
	struct neap_block *unmapped; /* UNMAPPED blocks */
	size_t segment_count;
	struct neap_cache *caches; /* of streams */
	struct neap_cache idle;
	bool lowest_fit; /* fit.c, as the next two */
	uint32_t fits, thin_fits;
};

struct neap_stream {
	struct neap_stream *next;
	void *handle;
	uint32_t number;
	uint64_t live_blocks; /* allocated on it. The handle is valid while there are any, and only then is it used */
	struct neap_cache *caches;
	struct neap_use *waiting, **waiting_end; /* uses of freed blocks, oldest first */
	/* order.c: the event's records so far, and the last of them whose work is known to be done. */
	CUevent event;
	bool event_made;
	uint64_t recorded, done;
	struct neap_map waited; /* another stream's number -> the last of its records that this one waits for */
};

struct neap_pool {
	struct neap_pool *next; /* the last one begun comes first */
	uint64_t high, low;
	bool (*filter)(void *context, void *stream); /* NULL: not between begin and end */
	void *context;
	bool captures;   /* a graph is captured between begin and end */
	uint64_t owners; /* begins minus releases; while positive its pages stay: a graph may have their addresses */
};

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
	bool shareable; /* pages are made so that they can be exported; false once the driver has refused that */

	pthread_mutex_t lock;
	struct neap_stream *streams;
	uint32_t stream_count;
	struct neap_arena *arenas;
	struct neap_segment *segments;
	struct neap_view *views; /* view.h */
	uint64_t view_pages;     /* mapped in views, besides at home */
	struct neap_pool *pools;
	uint64_t pools_open;
	uint64_t captures_open; /* of pools_open, those of a graph capture */
	uint64_t serial;        /* allocations ever made */
	struct neap_index live; /* LIVE blocks by address */
	struct neap_front front;

	struct neap_block_chunk *chunks;
	struct neap_block *idle_blocks; /* linked by next */
	size_t idle_count, block_count; /* those that are idle; all, idle ones included */

	struct neap_use *idle_uses;
	uint64_t waiting_uses; /* in all streams' queues */
	bool dirty;            /* a block was freed since the device was last synchronised */

	/* Handles held and mapped nowhere: on their way to another place, or left over by a failed call. Room for
	 * every handle held. */
	CUmemGenericAllocationHandle *spare;
	size_t spare_count, spare_room;
	uint64_t held_pages; /* handles held, spare ones included */

	/* share.c */
	struct neap_stream *home; /* whose arenas serve all streams; NULL: each has its own */
	uint64_t moved_pages;     /* from one place to another, ever */
	uint64_t demand_bytes;    /* the most that was active or requested at a time when no block fitted */

	/* planned.c */
	struct neap_plan *plan;               /* NULL: none is wanted */
	struct neap_arena *region;            /* of the plan in force; NULL: none is */
	uint64_t region_address, region_last; /* where it begins; the last planned block */
	uint64_t plan_moved;                  /* moved_pages and num_alloc_retries that the plan knows of */
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
	uint64_t event_ns; /* of the last event, those of lanes included: times never go back from one to the next */
	struct neap_watcher watcher;             /* changed: NULL: none */
	struct neap_tag tags[NEAP_TAGS_MAX + 2]; /* untagged, the named ones, "other" */
	size_t tag_count;                        /* named ones in use */

	neap_oom_callback oom_callback;
	void *oom_context;
	struct neap_asked asked; /* for the last request that found no memory */
};

struct neap_request {
	uint64_t bytes, rounded;
	void *stream;
	uint8_t tag;
	bool capturing; /* it was tried while its stream was being captured into a graph */
};

static inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
static inline uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
static inline uint64_t block_end(const struct neap_block *block) { return block->address + block->bytes; }
static inline bool block_active(const struct neap_block *block)
{
	return block->state == NEAP_BLOCK_LIVE || block->state == NEAP_BLOCK_PENDING;
}
/* Its bytes are free for nobody. */
static inline bool block_busy(const struct neap_block *block)
{
	return block_active(block) || block->state == BLOCK_IN_VIEW;
}
static inline bool block_small(const struct neap_block *block) { return block->segment->arena->small; }
/* Not of an UNMAPPED block. NULL: it is idle, and no stream's. */
static inline struct neap_stream *block_stream(const struct neap_block *block) { return block->cache->stream; }
static inline uint64_t metric_now(const struct neap_alloc *alloc, enum neap_metric metric)
{
	return (uint64_t)alloc->stats.metric[metric][NEAP_CLASS_ALL].current;
}

/* block.c: blocks, their neighbours and the index of free ones. Nothing here talks to the driver. */

/* Makes sure that the next `count` neap_block_new succeed. False: the host is out of memory. */
bool neap_blocks_ensure(struct neap_alloc *alloc, size_t count);
struct neap_block *neap_block_new(struct neap_alloc *alloc);
/* Cuts `block` (in no index) to `bytes`; what follows becomes a block of the same state, in no index either. */
struct neap_block *neap_block_cut(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes);
/* The smallest CACHED block that holds `bytes`, the lowest of equals; NULL: none. */
struct neap_block *neap_cache_best(const struct neap_cache *cache, uint64_t bytes);
/* The lowest CACHED block that holds `bytes`; NULL: none. */
struct neap_block *neap_cache_lowest(const struct neap_cache *cache, uint64_t bytes);
/* The CACHED block that comes before (or after) (bytes, address) in the order of the tree; NULL: none. */
struct neap_block *neap_cache_before(const struct neap_cache *cache, uint64_t bytes, uint64_t address);
struct neap_block *neap_cache_after(const struct neap_cache *cache, uint64_t bytes, uint64_t address);
uint64_t neap_cache_largest(const struct neap_cache *cache);
/* CACHED to LIVE in `cache`, which may be another of the arena; what exceeds `bytes` stays. One block must be
 * ensured.
 */
void neap_block_take(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes, struct neap_cache *cache);
/* Makes `block`, in no index, CACHED or UNMAPPED: joins it with neighbours of that state (and cache) and indexes the
 * result. */
struct neap_block *neap_block_settle(struct neap_alloc *alloc, struct neap_block *block, uint8_t state);
/* Hands the first `bytes` of a CACHED block to another cache of its arena. The block they joined. One block must be
 * ensured. */
struct neap_block *neap_block_adopt(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes,
				    struct neap_cache *cache);
/* A neighbour of `block`, which may be NULL, became active or is so no more. */
void neap_block_recount(struct neap_alloc *alloc, struct neap_block *block);
/* Makes [address, address + bytes) one LIVE block of `cache`: `first` and those after it, all CACHED, hold it. Two
 * blocks are ensured. */
struct neap_block *neap_block_carve(struct neap_alloc *alloc, struct neap_block *first, uint64_t address,
				    uint64_t bytes, struct neap_cache *cache);
/* Takes a CACHED or UNMAPPED block out of its index. */
void neap_block_unindex(struct neap_alloc *alloc, struct neap_block *block);
void neap_blocks_fini(struct neap_alloc *alloc);
void neap_block_drop(struct neap_alloc *alloc, struct neap_block *block);

/* order.c: whether the work on a freed block is done. The context is current and no capture under way. */

/* Whether the stream's work up to the stamp is known to be done. NULL: there is none. Never waits. */
bool neap_stamp_idle(struct neap_alloc *alloc, struct neap_stream *stream, uint64_t stamp);
/* Whether the CACHED block's work is. */
bool neap_block_idle(struct neap_alloc *alloc, const struct neap_block *block);
/* Makes `stream` wait for that work, without waiting here unless nothing else can be done. `ret_waited`: it waited
 * here, so that any block may have been joined with others. */
enum neap_status neap_block_order(struct neap_alloc *alloc, const struct neap_block *block,
				  struct neap_stream *stream, bool *ret_waited, struct neap_error *err);
/* Waits here for that work, and for no more of the device than it must. Any block may be joined with others. */
enum neap_status neap_block_finish(struct neap_alloc *alloc, const struct neap_block *block, struct neap_error *err);
/* Learns how far the stream has come, without waiting: its blocks are idle up to the stamp `done`, and those up to
 * `recorded` will be. */
void neap_stream_look(struct neap_alloc *alloc, struct neap_stream *stream);
/* The last live block of the stream is being freed: records its event while the handle is valid. Enters the context.
 */
void neap_stream_close(struct neap_alloc *alloc, struct neap_stream *stream);
/* The context was synchronised: everything freed so far is idle. */
void neap_streams_done(struct neap_alloc *alloc);
void neap_stream_event_fini(struct neap_alloc *alloc, struct neap_stream *stream, bool talk);

/* share.c: whether streams share one arena. */

/* No block fits `bytes`: decides again. */
void neap_share_decide(struct neap_alloc *alloc, uint64_t bytes);
/* Where streams share an arena: gathers the idle blocks of all in its idle cache. The context is current and no
 * capture under way. */
void neap_share_idle(struct neap_alloc *alloc);

/* fit.c */

/* The block that is to serve a request of `bytes`, of those that the stream may have at once; NULL: none fits. */
struct neap_block *neap_fit_find(const struct neap_cache *cache, uint64_t bytes);
/* One does, and the request is a sample of all. */
void neap_fit_count(const struct neap_cache *cache, uint64_t bytes);
/* Whether the device or the limit has no new pages for `bytes`. */
bool neap_fit_full(const struct neap_alloc *alloc, uint64_t bytes);
/* Whether a further block of `bytes` leaves so little memory free that ends of pages must not be lost. */
bool neap_fit_tight(const struct neap_alloc *alloc, uint64_t bytes);
/* Whether so little memory is left that small requests do without further pages. */
bool neap_fit_short(const struct neap_alloc *alloc);
/* The smallest block that fits, of those that the stream may have at once; NULL: none, or it holds a whole page. */
struct neap_block *neap_fit_page_end(const struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes);

/* planned.c: what a plan (plan.h) decides is done here. */

/* A step of the program ends: a plan may start, which may wait for streams, or stop. Enters the context. */
void neap_planned_step(struct neap_alloc *alloc);
/* While a plan watches: the block that it has for the request, LIVE and in the index; NULL: the rest of the core
 * serves it. A plan may start or stop before, as with a step. */
struct neap_block *neap_planned_take(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request);
/* Nothing else that is cached fits, and the program is out of step, or there is no other memory either (`last`): a
 * block of the region, as above; NULL: none. */
struct neap_block *neap_planned_lend(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request, bool last);
/* There is a plan, and the request was served. */
void neap_planned_note(struct neap_alloc *alloc, const struct neap_stream *stream,
		       const struct neap_request *request);
/* Gives up the plan in force: its region is memory like any other. Whether there was one. */
bool neap_planned_stop(struct neap_alloc *alloc);

/* obtain.c */

/* Makes the cache, or its arena's idle one, hold a block of `bytes`: by idle blocks of other streams, pages from the
 * driver, blocks of other streams behind an event, or pages from under any cached blocks; while `capturing`, by pages
 * from the driver alone. Or sets *ret_block, where that is wanted, to a block of a view, LIVE and in the index.
 * NEAP_EOOM: none of that is enough; no more is held than before. The context is current. */
enum neap_status neap_cache_obtain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool capturing,
				   struct neap_block **ret_block, struct neap_error *err);

/* segment.c: addresses and pages. The device's context must be current. */

/* Where in an arena a block is to be: from `block` on, over CACHED and UNMAPPED blocks. */
struct neap_place {
	struct neap_block *block;
	uint64_t lacking_pages;
};
/* The place that lacks the fewest pages, the lowest of equals, over blocks that the cache's stream may have, or, with
 * `any`, must first wait for. Reserves addresses where there are none. */
enum neap_status neap_place_find(struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes, bool any,
				 struct neap_place *ret_place, struct neap_error *err);
/* Maps spare pages, so that the place is one CACHED block. There must be enough of them. */
enum neap_status neap_place_fill(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_place place,
				 uint64_t bytes, struct neap_error *err);
/* A new segment where the device has no virtual memory. */
enum neap_status neap_segment_plain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				    struct neap_error *err);
/* Creates pages until there are `count` spare ones. NEAP_EOOM: the device or the limit does not allow it; those that
 * it did create stay spare. */
enum neap_status neap_spare_create(struct neap_alloc *alloc, uint64_t count, struct neap_error *err);
/* Makes at most `most` whole pages inside a CACHED block spare, the last ones. No work on them may be pending.
 * `ret_next`: the block from which to go on by address. */
enum neap_status neap_block_unmap(struct neap_alloc *alloc, struct neap_block *block, uint64_t most,
				  struct neap_block **ret_next, struct neap_error *err);
/* Makes every whole page of the segment spare that holds no LIVE or PENDING byte; gives back a plain segment that is
 * CACHED as a whole. No work on them may be pending. */
enum neap_status neap_segment_release(struct neap_alloc *alloc, struct neap_segment *segment, struct neap_error *err);
/* Gives spare pages back, all but `keep`. */
enum neap_status neap_spare_release(struct neap_alloc *alloc, uint64_t keep, struct neap_error *err);
/* Frees the addresses of segments that hold nothing, and what stood above them. */
void neap_segments_trim(struct neap_alloc *alloc);
/* Gives back everything, whatever its state, and forgets it even where the driver refuses. `talk`: the context is
 * current; without it (the process has forked) only host memory is freed. The same for neap_pending_fini. */
void neap_segments_fini(struct neap_alloc *alloc, bool talk);

/* arena.c: streams, arenas, caches and private pools. The finders make what is not there; NULL: host memory. */
struct neap_stream *neap_stream_find(struct neap_alloc *alloc, void *handle);
struct neap_cache *neap_cache_find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small);
struct neap_arena *neap_arena_make(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small);
/* The stream's cache in the arena. */
struct neap_cache *neap_cache_of(struct neap_stream *stream, struct neap_arena *arena);
/* The open pool whose filter takes the stream; NULL: none. */
struct neap_pool *neap_pool_match(struct neap_alloc *alloc, void *stream);
/* Forgets arenas without segments, and pools without owners and arenas. */
void neap_arenas_trim(struct neap_alloc *alloc);
/* NULL: there is none. */
struct neap_pool *neap_pool_find(struct neap_alloc *alloc, uint64_t high, uint64_t low);
void neap_arenas_fini(struct neap_alloc *alloc, bool talk);
/* Whether a call failed because of a capture under way, anywhere in the process. */
bool neap_capture_forbids(CUresult result);
/* Whether the stream is being captured into a graph. The context must be current. */
enum neap_status neap_stream_capturing(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
				       struct neap_error *err);
/* Whether a capture is under way that calls about memory, or waits, would spoil from any thread: on `stream`, or on
 * any other that can be asked (the default one, and those with live blocks). */
enum neap_status neap_capture_under_way(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
					struct neap_error *err);

/* A freed block's last step: CACHED, counted, its event emitted. */
void neap_block_complete(struct neap_alloc *alloc, struct neap_block *block);

/* alloc.c: a block that becomes live or active (1), or is so no more (-1), in the statistics. */
void neap_count_live(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign);
void neap_count_active(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign);

/* watch.c: the same changes as event.c's, for the watcher. */
void neap_change_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block);
void neap_change_range(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_stream *stream,
		       uint64_t address, uint64_t bytes);

/* pending.c: blocks that wait for other streams. */
enum neap_status neap_use_add(struct neap_alloc *alloc, struct neap_block *block, struct neap_stream *stream);
/* The block was freed and has uses: queues them and records their events, now or, where that fails, at a later poll.
 */
void neap_pending_start(struct neap_alloc *alloc, struct neap_block *block);
/* Completes the frees whose work is done. Never fails: what cannot be asked stays pending. */
void neap_pending_poll(struct neap_alloc *alloc);
/* Completes every pending free; the caller has synchronised the context. */
void neap_pending_complete_all(struct neap_alloc *alloc);
void neap_pending_fini(struct neap_alloc *alloc, bool talk);

/* release.c: giving the cache back. */
void neap_alloc_lock(struct neap_alloc *alloc);
void neap_alloc_unlock(struct neap_alloc *alloc); /* closes the published write */
/* The largest CACHED block: what a cache alone could serve. */
uint64_t neap_largest_free(struct neap_alloc *alloc);
/* Synchronises, completes pending frees and returns every cached page that may be. Context current.
 * NEAP_ESTATE: a capture is under way, nothing was done. */
enum neap_status neap_cache_release(struct neap_alloc *alloc, uint64_t *ret_freed_bytes, struct neap_error *err);
/* The same, but the pages stay the allocator's, as spare ones. */
enum neap_status neap_cache_unmap(struct neap_alloc *alloc, struct neap_error *err);
/* Synchronises the context and completes pending frees, unless nothing was freed since the last time. */
enum neap_status neap_alloc_synchronize(struct neap_alloc *alloc, struct neap_error *err);

/* oom.c: the message and the event of a request that failed, for which others were asked. Returns NEAP_EOOM. */
enum neap_status neap_oom_report(struct neap_alloc *alloc, const struct neap_request *request,
				 const struct neap_asked *asked, struct neap_error *err);

/* stats.c */
void neap_metric_add(struct neap_alloc *alloc, enum neap_metric metric, bool small, int64_t delta);
void neap_counter_add(struct neap_alloc *alloc, int64_t *counter, int64_t delta); /* counter: of alloc->stats */
void neap_stats_peaks_reset(struct neap_alloc *alloc);
void neap_stats_sums_reset(struct neap_alloc *alloc);

/* published.c: the writer's side of struct neap_published. A write opens with the first word and must be closed
 * before the lock is given up or the driver is called. */
static inline void neap_published_word(struct neap_alloc *alloc, uint64_t *word, uint64_t value)
{
	/* Inline: a dozen words change with every block. */
	if (alloc->published_sequence % 2 == 0)
		__atomic_store_n(&alloc->published->sequence, ++alloc->published_sequence, __ATOMIC_RELEASE);
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}
void neap_published_all(struct neap_alloc *alloc);
void neap_published_close(struct neap_alloc *alloc);

/* tags.c */
extern _Thread_local __attribute__((tls_model("initial-exec"))) const char *neap_thread_tag; /* NULL: none */
uint8_t neap_tag_find(struct neap_alloc *alloc); /* the calling thread's */
/* The same without adding it to the list: TAG_UNKNOWN where it is not there. Under the lock of a lane, too. */
uint8_t neap_tag_known(const struct neap_alloc *alloc);
size_t neap_tags_used(const struct neap_alloc *alloc); /* tags below this index may have been used */
void neap_tags_number(struct neap_alloc *alloc);       /* asks the observer for the numbers of all tags in use */
void neap_tag_add(struct neap_alloc *alloc, uint8_t tag, int64_t bytes);
uint16_t neap_tag_number(struct neap_alloc *alloc, uint8_t tag);
void neap_tags_renumber(struct neap_alloc *alloc); /* the observer changed */

/* event.c: fills in time and device, and hands the event to the observer, if any. */
void neap_event_send(struct neap_alloc *alloc, struct neap_event *event);
struct neap_event_held neap_event_held_now(const struct neap_alloc *alloc);
/* `stream`: the one that will use the block; NULL: its own. */
void neap_event_block(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *block,
		      const struct neap_stream *stream);
void neap_event_range(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_stream *stream,
		      uint64_t address, uint64_t bytes);
void neap_event_empty_cache(struct neap_alloc *alloc, uint64_t freed_bytes, uint64_t ns);

#endif
