/* replay/torch_policy.h: a model of PyTorch's native caching allocator over a device of given bytes.
 *
 * It is exact: it makes the same segments in the same order and chooses the same block for every request as PyTorch
 * 2.4 to 2.15, with default or expandable segments. Only the addresses of new segments differ. Here new segments
 * lie side by side in address space and no address is used twice, unless `place` says otherwise.
 *
 * The model is of one device of one process, without other users of its memory. Threads: one.
 */
#ifndef NEAP_REPLAY_TORCH_POLICY_H
#define NEAP_REPLAY_TORCH_POLICY_H

#include "replay/policy.h"
#include "replay/torch_settings.h"
#include "replay/torch_version.h"

#include <stdbool.h>
#include <stddef.h>

/* The allocator's actions, in PyTorch's words and order. */
enum neap_torch_action {
	NEAP_TORCH_ALLOC, /* size: as requested */
	NEAP_TORCH_FREE_REQUESTED,
	NEAP_TORCH_FREE_COMPLETED,
	NEAP_TORCH_SEGMENT_ALLOC,
	NEAP_TORCH_SEGMENT_FREE,
	NEAP_TORCH_SEGMENT_MAP,
	NEAP_TORCH_SEGMENT_UNMAP,
	NEAP_TORCH_OOM, /* address: the device's free bytes; size: rounded */
	NEAP_TORCH_ACTIONS
};

struct neap_torch_options {
	struct neap_torch_settings settings;
	struct neap_torch_rules rules; /* the rules of a release */
	uint64_t device_bytes;         /* how many bytes the driver may give out; 0: no bound */
	uint64_t event_delay;          /* an event completes this many events of the trace after it was recorded */
	uint64_t first_address;        /* where the first segment goes; 0: 0x7f0000000000 */
	uint32_t addresses;            /* where the next segments go: see neap_replay_options */
	/* Called for every action; may be NULL. Must not call the policy. */
	void (*observe)(void *context, enum neap_torch_action action, uint64_t address, uint64_t size,
			uint64_t stream);
	/* Returns the address of the next segment; 0: any. `size` is the whole range of an expandable segment, and
	 * `page_bytes` the size of its pages; 0 for a plain one. NULL: always any address. */
	uint64_t (*place)(void *context, uint64_t size, uint64_t stream, uint32_t pool, uint64_t page_bytes);
	void *context;
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_torch_create(const struct neap_torch_options *options, struct neap_policy **ret_policy,
				   struct neap_error *err);

/* Whether a segment's addresses, mapped or not, include this one. */
bool neap_torch_covers(const struct neap_policy *policy, uint64_t address);

/* Returns the bytes of the cached block that would serve the request; 0: none would. */
uint64_t neap_torch_cached(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool);

/* The largest cached blocks after a request failed: of its own stream and pool, and of all others. Neither includes a
 * block of its own that is large enough but that a setting kept from it. */
struct neap_torch_pieces {
	uint64_t usable_bytes, elsewhere_bytes; /* 0: none */
	/* The block elsewhere has the request's stream and pool, but the other class of sizes. */
	bool elsewhere_other_size;
};
void neap_torch_pieces(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool,
		       struct neap_torch_pieces *ret_pieces);

/* Whether the driver would grant `growth` bytes more, for a request of `bytes`, if `freed` bytes had been given
 * back. */
bool neap_torch_has_headroom(struct neap_policy *policy, uint64_t bytes, uint64_t growth, uint64_t freed);

/* Lists the segments that garbage collection would free for a request of `bytes`, in order, up to `capacity` of them.
 * Returns how many there are in all. */
struct neap_torch_collected {
	uint64_t address, size;
};
size_t neap_torch_collects(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool,
			   struct neap_torch_collected *ret_collected, size_t capacity);

/* Makes the driver refuse the next request's first `count` calls for memory: for a recording of a device that was
 * full, but whose size is not known. */
void neap_torch_refuse(struct neap_policy *policy, unsigned count);

/* Fails a request whose pool is not known, whatever is cached. */
void neap_torch_fail(struct neap_policy *policy, uint64_t bytes, uint64_t stream);
/* Whether garbage collection is on. */
bool neap_torch_collecting(const struct neap_policy *policy);

/* Forbids the next request to flush caches, because it is made while a graph is captured, or the like. */
void neap_torch_capture(struct neap_policy *policy);

/* A private pool: torch.cuda.MemPool, or a graph's. */
struct neap_torch_pool {
	bool whole; /* MemPool(no_split=True): blocks are not split */
	bool plain; /* it has an allocator of its own, so its segments are not expandable */
};
/* Errors: NEAP_ENOMEM. */
enum neap_status neap_torch_pool(struct neap_policy *policy, uint32_t number, const struct neap_torch_pool *traits,
				 struct neap_error *err);
/* Returns PyTorch's reserved_bytes_by_private_pools. False: the pool never had memory. */
bool neap_torch_pool_reserved(struct neap_policy *policy, uint32_t number,
			      struct neap_stat ret_reserved[NEAP_CLASS_COUNT]);
/* Marks the pool as released by the program: from now on flushes free its memory too. Errors: NEAP_ENOMEM. */
enum neap_status neap_torch_pool_release(struct neap_policy *policy, uint32_t number, struct neap_error *err);
/* Returns approximately how many bytes a flush would free in pool `number`; UINT32_MAX: in the default pool and all
 * released ones. */
uint64_t neap_torch_flushable(struct neap_policy *policy, uint32_t number);
/* Frees only what is cached in a released pool: torch.cuda.empty_cache(pool). */
enum neap_status neap_torch_pool_empty(struct neap_policy *policy, uint32_t number, struct neap_error *err);

/* The state of a block when a recording begins. Blocks follow one another by address and fill the segment without
 * gaps. */
enum neap_torch_state { NEAP_TORCH_FREE, NEAP_TORCH_LIVE, NEAP_TORCH_PENDING, NEAP_TORCH_UNMAPPED };
struct neap_torch_piece {
	uint64_t size;
	uint64_t requested;
	enum neap_torch_state state; /* UNMAPPED: of expandable segments only, in whole pages */
	bool guessed;                /* start.h guessed by how much it exceeds its requested size */
	uint64_t token;              /* PENDING: the token, as in free_held */
	void *block;                 /* LIVE: its handle, which restore sets */
};
struct neap_torch_segment {
	uint64_t address;
	uint64_t stream;
	uint32_t pool;
	bool large;
	bool expandable;
	struct neap_torch_piece *pieces;
	size_t piece_count;
};
/* Adds a segment that holds memory already; the statistics count it as if it had just been made. It counts as newer
 * than the segments restored before it, unless neap_torch_learn corrects that. Errors: NEAP_EINVAL for pieces that
 * cannot be; NEAP_EOOM when the device is too small; NEAP_ENOMEM. Nothing is added then.
 */
enum neap_status neap_torch_restore(struct neap_policy *policy, struct neap_torch_segment *segment,
				    struct neap_error *err);

/* Learns that the recording's next request got the block at `address`. If that block ties with the block that the
 * model would choose, and their ages are guesses, it counts as the older from now on. */
void neap_torch_learn(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool, uint64_t address);
/* Learns the order of two equal free segments that a recording freed one right after the other: the first counts as
 * older. */
void neap_torch_learn_freed(struct neap_policy *policy, uint64_t first_address, uint64_t second_address);

#endif
