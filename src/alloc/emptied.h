/* alloc/emptied.h: emptying the cache of an allocator that others use meanwhile, with exact figures: everything
 * here is read under the same hold of the lock, so that
 *
 *   before.reserved - after.reserved = freed_bytes
 *
 * however much the program takes again a moment later. For the agent.
 */
#ifndef NEAP_ALLOC_EMPTIED_H
#define NEAP_ALLOC_EMPTIED_H

#include "neap/alloc.h"

struct neap_emptied {
	struct neap_stats before, after;
	uint64_t freed_bytes;
	uint64_t nanoseconds;
	bool free_known;                  /* the driver answered what it had free, both times */
	uint64_t free_before, free_after; /* bytes */
};

/* As neap_empty_cache. On failure *ret_emptied is untouched. */
enum neap_status neap_empty_cache_measured(struct neap_alloc *alloc, struct neap_emptied *ret_emptied,
					   struct neap_error *err);

/* A new limit, with exact figures in the same way. */
struct neap_limited {
	uint64_t limit_before, limit_after; /* bytes; UINT64_MAX: none */
	bool emptied;                       /* more was reserved than the new limit allows */
	struct neap_emptied cache;          /* filled in any case; freed_bytes is 0 where nothing was emptied */
};

/* As neap_set_fraction. *ret_limited is untouched for a fraction outside (0, 1] and filled in any other case: where
 * emptying the cache failed the limit is in force all the same. */
enum neap_status neap_set_fraction_measured(struct neap_alloc *alloc, double fraction,
					    struct neap_limited *ret_limited, struct neap_error *err);

#endif
