/* alloc/request.h: the steps of a request through the rooms. For the files at the top of src/alloc: only they take
 * the allocator's lock, and they call the rooms' functions with it held.
 */
#ifndef NEAP_ALLOC_REQUEST_H
#define NEAP_ALLOC_REQUEST_H

#include "alloc/core/core.h"

/* alloc.c: called for new and destroyed allocators. The one global besides the agent's instance; accessed
 * atomically. */
extern const struct neap_alloc_hook *neap_alloc_hook;

/* request.c: for requests and frees that a lane could not serve. They take the lock. */
enum neap_status neap_malloc_by_core(struct neap_alloc *alloc, struct neap_request *request, uint64_t *ret_address,
				     struct neap_error *err);
enum neap_status neap_free_by_core(struct neap_alloc *alloc, uint64_t address);

/* obtain.c: called when no block fits. On success the cache or its arena's idle one holds a block that fits, or
 * *ret_block is a block of a view, LIVE and in the index. Enters the context. */
enum neap_status neap_miss(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_request *request,
			   struct neap_block **ret_block, struct neap_error *err);
/* Follows the plan's advice before the next request. The plan may stop or start; a start obtains its region and may
 * wait for streams. Enters the context. */
void neap_plan_follow(struct neap_alloc *alloc);

/* oom.c: makes the message and sends the events of a failed request. `asked`: the processes that were asked for it.
 * Bins are empty. Returns NEAP_EOOM. */
enum neap_status neap_oom_report(struct neap_alloc *alloc, const struct neap_request *request,
				 const struct neap_asked *asked, struct neap_error *err);

#endif
