/* alloc/give_back.h: cached memory for another process, without disturbing this one: the allocator's lock is only
 * tried, and no work of the device is waited for. For the agent. */
#ifndef NEAP_ALLOC_GIVE_BACK_H
#define NEAP_ALLOC_GIVE_BACK_H

#include "neap/alloc.h"

struct neap_given_back {
	uint64_t bytes;
	bool more; /* another call may give more: there was more than one call gives, or work is still under way */
};

/* Gives cached pages whose work is done back to the driver, at most 1 GiB. Private pools keep theirs. Errors:
 * NEAP_EBUSY: another thread has the allocator's lock; NEAP_ESTATE: a graph capture may be under way, or the device
 * has no virtual memory (there, giving memory back would wait for the device); NEAP_EDRIVER. */
enum neap_status neap_give_back(struct neap_alloc *alloc, struct neap_given_back *ret_given, struct neap_error *err);

#endif
