/* replay/policy.h: one table of functions for an allocator, or a model of one, through which a trace is replayed.
 *
 * Time is counted in events of the trace: `at` is called with the number of each. Blocks are named by opaque handles,
 * never 0, that live from `alloc` to `free`.
 *
 * Threads: one. Ownership: the creator of a policy destroys it with `destroy`.
 */
#ifndef NEAP_REPLAY_POLICY_H
#define NEAP_REPLAY_POLICY_H

#include "neap/stats.h"

/* Calls of the driver that take or give back memory or addresses. */
struct neap_policy_calls {
	uint64_t allocs, failed_allocs, frees;      /* cuMemAlloc (cudaMalloc), cuMemFree */
	uint64_t creates, failed_creates, releases; /* cuMemCreate, cuMemRelease */
	uint64_t maps, accesses, unmaps;            /* cuMemMap, cuMemSetAccess, cuMemUnmap */
	uint64_t reserves, address_frees;           /* cuMemAddressReserve, cuMemAddressFree */
};

struct neap_policy_usage {
	struct neap_stats stats; /* with PyTorch's names, since the policy was created */
	struct neap_policy_calls calls;
	uint64_t rejections; /* PyTorch's num_oom_rejections */
	/* How often it waited for the device, a stream or an event; a plain free of device memory counts. */
	uint64_t synchronizations;
	uint64_t events_recorded;
	/* A replay on any device of [same_from, same_below) bytes would have gone the same way: the driver would have
	 * granted and refused the same requests. The device's own size is in this interval. */
	uint64_t same_from_bytes, same_below_bytes;
	uint64_t largest_bytes; /* of a request or a free block; PyTorch's only */
	/* Segments that were made, given back, mapped and unmapped: how often, and how many bytes in all. */
	uint64_t segment_allocs, segment_frees, segment_maps, segment_unmaps;
	uint64_t segment_alloc_bytes, segment_free_bytes, segment_map_bytes, segment_unmap_bytes;
};

/* Totals that a replay reads after every event: cheap to compute. */
struct neap_policy_totals {
	uint64_t calls;  /* of the driver, the sum of struct neap_policy_calls */
	uint64_t taking; /* how many of them took memory or addresses, or mapped memory */
	uint64_t synchronizations;
	uint64_t peak_bytes; /* the most bytes that the driver had given out at once */
};

/* The sum of the calls, failed ones too. */
uint64_t neap_policy_driver_calls(const struct neap_policy_calls *calls);
/* The sum of the calls that took memory or addresses, or mapped memory, without failing. */
uint64_t neap_policy_taking_calls(const struct neap_policy_calls *calls);

struct neap_policy {
	/* Sets the number of the trace's event that is replayed from now on. */
	void (*at)(struct neap_policy *policy, uint64_t event);
	/* Called at the end of a step of the program. NULL: the policy does not use steps. */
	void (*step)(struct neap_policy *policy);
	/* `stream`: any number, 0 is the default stream. `pool`: 0, or the number of a graph's private pool. Errors:
	 * NEAP_EOOM: the policy is out of device memory, which is an outcome and counted; NEAP_ENOMEM and others: the
	 * replay itself failed. `bytes` is not 0. */
	enum neap_status (*alloc)(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool,
				  void **ret_block, struct neap_error *err);
	enum neap_status (*free)(struct neap_policy *policy, void *block, struct neap_error *err);
	/* Frees a block that other streams still use. It stays in use until `complete` is called, or until the policy
	 * waits for these streams. For recordings, which show when a free completed. `token` names the free: any
	 * number not in use. */
	enum neap_status (*free_held)(struct neap_policy *policy, void *block, uint64_t token,
				      struct neap_error *err);
	void (*complete)(struct neap_policy *policy, uint64_t token); /* does nothing if it is complete already */
	enum neap_status (*record_stream)(struct neap_policy *policy, void *block, uint64_t stream,
					  struct neap_error *err);
	enum neap_status (*empty_cache)(struct neap_policy *policy, struct neap_error *err);
	void (*usage)(struct neap_policy *policy, struct neap_policy_usage *ret_usage);
	void (*totals)(struct neap_policy *policy, struct neap_policy_totals *ret_totals);
	/* Checks the policy's invariants. NEAP_EINTERNAL: the message names the broken one. For tests. */
	enum neap_status (*check)(struct neap_policy *policy, struct neap_error *err);
	void (*destroy)(struct neap_policy *policy);
};

#endif
