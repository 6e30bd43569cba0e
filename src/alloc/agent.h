/* alloc/agent.h: the agent's calls beyond the public ones. They empty the cache or set the limit and return exact
 * figures, give cached memory back for the sake of another process, and stop the allocator around a fork.
 *
 * The lock is held from the first figure to the last, so before.reserved - after.reserved = freed_bytes, whatever the
 * program allocates a moment later.
 */
#ifndef NEAP_ALLOC_AGENT_H
#define NEAP_ALLOC_AGENT_H

#include "neap/alloc.h"

#include <time.h>

struct neap_emptied {
	struct neap_stats before, after;
	uint64_t freed_bytes;
	uint64_t nanoseconds;
	bool free_known;                  /* the driver reported its free bytes both times */
	uint64_t free_before, free_after; /* bytes */
};

/* As neap_empty_cache. On failure *ret_emptied is untouched. */
enum neap_status neap_empty_cache_measured(struct neap_alloc *alloc, struct neap_emptied *ret_emptied,
					   struct neap_error *err);

/* A change of the limit, with exact figures. */
struct neap_limited {
	uint64_t limit_before, limit_after; /* bytes; UINT64_MAX: none */
	bool emptied;                       /* more was reserved than the new limit allows */
	struct neap_emptied cache;          /* always filled; freed_bytes is 0 if the cache was not emptied */
};

/* As neap_set_fraction. *ret_limited is untouched for a fraction outside (0, 1], and filled otherwise: the limit is
 * in force even if emptying the cache failed. */
enum neap_status neap_set_fraction_measured(struct neap_alloc *alloc, double fraction,
					    struct neap_limited *ret_limited, struct neap_error *err);

struct neap_given_back {
	uint64_t bytes;
	bool more; /* another call may give back more: this one reached its maximum, or some work is still running */
};

/* Gives at most 1 GiB of cached pages whose work is done back to the driver, without disturbing this process: it only
 * tries the allocator's lock, and does not wait for the device. Private pools keep their pages. Errors:
 * NEAP_EBUSY: another thread has the allocator's lock; NEAP_ESTATE: a graph capture may be under way, or the device
 * has no virtual memory (there, giving memory back would wait for the device); NEAP_EDRIVER. */
enum neap_status neap_give_back(struct neap_alloc *alloc, struct neap_given_back *ret_given, struct neap_error *err);

/* Takes the allocator's lock and keeps it during a fork, so that the child does not inherit a lock that is never
 * released. The child may free blocks and destroy the allocator; the driver does not survive a fork. The agent calls
 * this, because its own thread may be inside an allocator. It gives up at `until` (CLOCK_MONOTONIC): a program may
 * fork where it should not, for example in a crash handler. Returns whether parent and child must call
 * neap_alloc_fork_end. */
bool neap_alloc_fork_begin(struct neap_alloc *alloc, const struct timespec *until);
void neap_alloc_fork_end(struct neap_alloc *alloc);

#endif
