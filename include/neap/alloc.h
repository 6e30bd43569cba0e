/* neap/alloc.h: a caching, stream-ordered allocator for one device.
 *
 * Memory freed on a stream may be reused at once on that stream; elsewhere only after the work queued before the free
 * has finished. A block that other streams use must be announced by neap_record_stream before it is freed. Blocks are
 * aligned to 512 bytes. A request of 0 bytes gives address 0, which neap_free accepts.
 *
 *   allocated + cached = reserved          bytes held from the driver
 *   reserved <= limit (neap_set_fraction)
 *
 * Threads: every function may be called from any thread at any time; the allocator makes its device's context current
 * while it talks to the driver and restores what was. Callbacks are called without its lock unless said otherwise.
 *
 * Streams are the driver's CUstream as void *; NULL is the default stream. A stream must exist while blocks allocated
 * on it are live, and until the frees of blocks recorded on it have completed. Synchronise a stream before destroying
 * it: a later stream may get the same handle, and with it the cached blocks of the old one.
 */
#ifndef NEAP_ALLOC_H
#define NEAP_ALLOC_H

#include "neap/device.h"
#include "neap/stats.h"
#include "neap/trace.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_alloc;

/* A zeroed struct is the default. */
struct neap_alloc_options {
	double fraction;                      /* of the device's total that may be reserved; 0: no limit */
	const struct neap_observer *observer; /* gets every event; NULL: none. Outlives the allocator */
	struct neap_published *published;     /* where to keep the counters; NULL: the allocator's own memory */
	bool shareable;                       /* use pages that other processes can open, if the driver has them */
	/* Make no plans. A plan: once memory is so short that pages have to move, neap learns a step that repeats,
	 * lays its blocks out once, and serves the next steps from that layout as long as they are equal. A step ends
	 * with neap_emit_step; in a program that never calls it, neap finds steps by the sizes and the order of the
	 * requests. While a plan learns or serves, every request takes the allocator's lock. */
	bool no_plan;
};

/* Errors: NEAP_ENOMEM, NEAP_EDRIVER, NEAP_EINVAL for a fraction outside (0, 1]. `options` may be NULL: the
 * defaults. The device outlives the allocator. */
NEAP_API enum neap_status neap_alloc_create(struct neap_device *device, const struct neap_alloc_options *options,
					    struct neap_alloc **ret_alloc, struct neap_error *err);
/* Waits for pending frees and gives everything back, live blocks included. NULL is fine. */
NEAP_API void neap_alloc_destroy(struct neap_alloc *alloc);

NEAP_API struct neap_device *neap_alloc_device(struct neap_alloc *alloc);

/* Errors: NEAP_EOOM after every cached byte that may be returned was returned, whatever its stream, other processes
 * of the run were asked for theirs (neap/attach.h), and the OOM callback, if any, gave up. The message (at least as
 * informative as PyTorch's) names the request, the bytes that the device and the limit had, the bytes allocated,
 * cached and pending, and the largest free block. NEAP_ESTATE: the request needs a driver call that a graph capture
 * under way forbids: cuMemAlloc, if the device has no virtual memory. With virtual memory, a request may map new
 * pages during a capture, but gives no cached memory back. NEAP_EDRIVER otherwise. A request that succeeds after the
 * cache was given back is a success: *err is untouched. */
NEAP_API enum neap_status neap_malloc(struct neap_alloc *alloc, size_t bytes, void *stream, uint64_t *ret_address,
				      struct neap_error *err);

/* The block must be live. Errors: NEAP_EINVAL when the address is not the start of a live block (nothing changes).
 * Address 0 is fine. */
NEAP_API enum neap_status neap_free(struct neap_alloc *alloc, uint64_t address);

/* Announces that work queued on `stream` uses the block: after its free it is not reused before that work is done. */
NEAP_API enum neap_status neap_record_stream(struct neap_alloc *alloc, uint64_t address, void *stream);

/* Gives back to the driver every page that holds no live block and no pending one (it waits for pending ones first).
 * Under graph capture: NEAP_ESTATE, nothing is done. */
NEAP_API enum neap_status neap_empty_cache(struct neap_alloc *alloc, uint64_t *ret_freed_bytes,
					   struct neap_error *err);

/* Limits what may be reserved to `fraction` of the device's total, from now on; if less than is reserved now, empties
 * the cache first. Live blocks are never touched: reserved bytes may stay above the limit, and further growth then
 * fails. 1 removes the limit. Errors: NEAP_EINVAL outside (0, 1]; those of neap_empty_cache; the new limit is in
 * force even then. */
NEAP_API enum neap_status neap_set_fraction(struct neap_alloc *alloc, double fraction, struct neap_error *err);
NEAP_API double neap_get_fraction(struct neap_alloc *alloc);

/* Called without the lock when a request finds no memory, after the cache was emptied and other processes were asked,
 * before the request fails. True: try once more. Called up to eight times for one request, with `attempt` 0 to 7. */
typedef bool (*neap_oom_callback)(void *context, struct neap_alloc *alloc, size_t bytes, unsigned attempt);
NEAP_API void neap_set_oom_callback(struct neap_alloc *alloc, neap_oom_callback callback, void *context);

/* The memory that other processes gave back for the last request that found none: neap/attach.h says which processes
 * are asked, and when. All zero: no process was asked for that request, or there was no such request. */
struct neap_asked {
	uint64_t processes;   /* that were asked */
	uint64_t answered;    /* of these, in time, even with 0 bytes */
	uint64_t freed_bytes; /* according to their answers */
};
NEAP_API void neap_last_asked(struct neap_alloc *alloc, struct neap_asked *ret_asked);

/* Tags the allocations of this thread from now on. The tag goes into every event and into per-tag counters, by which
 * neap explains an OOM and predicts the largest micro-batch. Some tags have a meaning for this: "parameters",
 * "gradients", "optimizer" and "workspace" (scratch memory sized by the model) do not grow with the micro-batch;
 * "activations", "attention", "batch" and "temporaries" do. Returns the previous name, for restoring. Static or
 * long-lived text only; at most NEAP_TAGS_MAX different ones per allocator, the rest count as "other". */
#define NEAP_TAGS_MAX 32
NEAP_API const char *neap_tag_set(const char *tag);

struct neap_tag_bytes {
	const char *tag; /* "" for untagged */
	uint64_t live_bytes, peak_bytes, live_blocks;
};
/* Copies up to `capacity` tags that ever held bytes, returns how many there are: at most NEAP_TAGS_MAX + 2 ("" and
 * "other"). The texts live as long as the allocator. */
NEAP_API size_t neap_tag_stats(struct neap_alloc *alloc, struct neap_tag_bytes *ret_tags, size_t capacity);

/* Private pools for graph capture: between begin and end, requests on streams for which `filter` returns true come
 * from the pool, which shares no memory with anything outside. A captured graph has the pool's addresses. So the
 * pool's pages stay, even with free blocks, until there were as many releases as begins; then they are ordinary
 * cached memory. Between begin and end nothing is given back to the driver. `filter` is called under the allocator's
 * lock and must not call the allocator. Errors: NEAP_ESTATE for a begin without an end, an end without a begin, a
 * release of a pool that is not held; NEAP_EINVAL without a filter; NEAP_ENOMEM. */
NEAP_API enum neap_status neap_pool_begin(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
					  bool (*filter)(void *context, void *stream), void *context,
					  struct neap_error *err);
/* As neap_pool_begin, but no graph is captured: the cache of everything else may be given back meanwhile. Ends with
 * neap_pool_end, too. */
NEAP_API enum neap_status neap_pool_use(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
					bool (*filter)(void *context, void *stream), void *context,
					struct neap_error *err);
NEAP_API enum neap_status neap_pool_end(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low);
NEAP_API enum neap_status neap_pool_release(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low);
/* As neap_empty_cache, but only for this pool, once nothing owns it. Gives nothing back before that, or if there is
 * no such pool. */
NEAP_API enum neap_status neap_pool_empty(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
					  uint64_t *ret_freed_bytes, struct neap_error *err);

/* Statistics: see neap/stats.h. */
NEAP_API void neap_get_stats(struct neap_alloc *alloc, struct neap_stats *ret_stats);
NEAP_API void neap_reset_peak_stats(struct neap_alloc *alloc);
NEAP_API void neap_reset_accumulated_stats(struct neap_alloc *alloc);
/* Moves the published counters to other memory (an agent's shared page) or, with NULL, back to the allocator's own.
 * When it returns, nothing writes to the old place any more. */
NEAP_API void neap_publish(struct neap_alloc *alloc, struct neap_published *published);
/* Exchanges the observer; NULL: none. When it returns, the old one is not called any more. */
NEAP_API void neap_observe(struct neap_alloc *alloc, const struct neap_observer *observer);
/* Sets the observer if there is none. Returns whether it did. For the agent. */
NEAP_API bool neap_observe_if_none(struct neap_alloc *alloc, const struct neap_observer *observer);

/* Hands an event to the allocator's observer, if any, after filling in time, sequence (0), device, and the held
 * bytes, if the kind has them and both are zero. For events other than allocations: marks, steps, cleanups,
 * metrics. */
NEAP_API void neap_emit(struct neap_alloc *alloc, struct neap_event event);

/* For each kind: neap_emit_step(alloc, (struct neap_event_step){...}) makes the event and hands it to neap_emit. */
#define NEAP_EMIT_ONE(member, only)                                                                                  \
	static inline void neap_emit_##member(struct neap_alloc *alloc, struct neap_event_##member what)             \
	{                                                                                                            \
		neap_emit(alloc, neap_event_of_##member(0, what));                                                   \
	}
#define NEAP_EMIT_FAMILY(member, first, last)                                                                        \
	static inline void neap_emit_##member(struct neap_alloc *alloc, enum neap_event_kind which,                  \
					      struct neap_event_##member what)                                       \
	{                                                                                                            \
		neap_emit(alloc, neap_event_of_##member(which, 0, what));                                            \
	}
NEAP_EVENT_STRUCTS(NEAP_EMIT_ONE, NEAP_EMIT_FAMILY)
#undef NEAP_EMIT_ONE
#undef NEAP_EMIT_FAMILY

/* The observer's number for a name; 0 without an observer. */
NEAP_API uint16_t neap_emit_name(struct neap_alloc *alloc, const char *text);

/* One change of a block or of a segment's pages, as it is made. Unlike an event it names the stream's handle and the
 * private pool. `kind`: NEAP_EVENT_ALLOC, FREE_REQUESTED, FREE_COMPLETED, or one of NEAP_EVENT_SEGMENT_*. */
struct neap_alloc_change {
	enum neap_event_kind kind;
	bool small_pool;
	void *stream;
	uint64_t address, bytes;
	uint64_t requested;           /* of a block */
	uint64_t pool_high, pool_low; /* 0, 0: none */
};

/* A second reader beside the observer. `changed` is called under the allocator's lock, with the device's context
 * current when pages change, and must not call the allocator. Pages are reported after they can be used (MAP, ALLOC),
 * and after they cannot any more (UNMAP, FREE). */
struct neap_watcher {
	void (*changed)(void *context, const struct neap_alloc_change *change);
	void *context;
	bool blocks; /* blocks as well, not only pages */
};
/* Exchanges the watcher, which is copied; NULL: none. When it returns, the old one is not called any more. */
NEAP_API void neap_watch(struct neap_alloc *alloc, const struct neap_watcher *watcher);

/* The lowest and highest allocated bytes since the last call of this function (for example a step's lowest point and
 * its peak). */
NEAP_API void neap_take_extremes(struct neap_alloc *alloc, uint64_t *ret_lowest, uint64_t *ret_highest);

/* Calls `visit` for every block in address order, under the lock: for snapshots. */
enum neap_block_state { NEAP_BLOCK_LIVE, NEAP_BLOCK_PENDING, NEAP_BLOCK_CACHED, NEAP_BLOCK_UNMAPPED };
struct neap_block_info {
	uint64_t segment_address, segment_bytes;
	uint64_t address, bytes, requested_bytes;
	const char *tag;
	void *stream;
	enum neap_block_state state;
	bool small_pool;
	uint64_t serial;              /* live and pending: it was the allocator's Nth allocation, from 1 */
	uint64_t pool_high, pool_low; /* of the private pool; 0, 0: none */
};
NEAP_API void neap_each_block(struct neap_alloc *alloc, void (*visit)(void *context, const struct neap_block_info *),
			      void *context);

/* The live block that starts at `address`. NEAP_EINVAL: there is none. */
NEAP_API enum neap_status neap_block_at(struct neap_alloc *alloc, uint64_t address,
					struct neap_block_info *ret_block);

/* Makes the `bytes` of cached memory at `address` a live block again, in a private pool: for a program that puts a
 * pool back into an earlier state. `block` is what neap_block_at returned in that state. NEAP_EINVAL: these bytes are
 * not all cached memory of the pool, or their number is not a multiple of 512 or below the requested bytes.
 * NEAP_ENOMEM. */
NEAP_API enum neap_status neap_pool_restore(struct neap_alloc *alloc, const struct neap_block_info *block,
					    struct neap_error *err);

/* How many allocations were ever made: a live block with a greater `serial` was made after this call. */
NEAP_API uint64_t neap_alloc_serial(struct neap_alloc *alloc);

/* Checks every invariant of the allocator (src/alloc/README.md lists them as equations) and says which one is broken:
 * NEAP_EINTERNAL. For tests and debug builds; takes the lock, linear in the number of blocks; changes nothing. */
NEAP_API enum neap_status neap_alloc_check(struct neap_alloc *alloc, struct neap_error *err);

/* Called whenever an allocator has been created, and before one is destroyed, without its lock. One hook per process
 * (the one global of the library besides the agent's instance; it is set and read atomically and must stay valid),
 * set by the agent when the library is loaded into an attached process; NULL removes it. Not for applications. */
struct neap_alloc_hook {
	void (*created)(struct neap_alloc *alloc);
	void (*destroying)(struct neap_alloc *alloc);
	/* NULL: none. Called when the device has no memory for a request, the allocator's own cache was given back,
	 * and memory of other processes could serve the request. Called without any lock, in the thread of the
	 * request, before the OOM callback, and not for requests that an OOM callback makes. It may ask other
	 * processes for memory, and must not call the allocator. If a process answered, the request is tried
	 * again. */
	void (*lacking)(struct neap_alloc *alloc, struct neap_asked *ret_asked);
};
NEAP_API void neap_set_alloc_hook(const struct neap_alloc_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
