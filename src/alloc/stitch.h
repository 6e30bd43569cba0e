/* alloc/stitch.h: a block put together of ends of pages and whole pages, wherever they lie. view.h says how. */
#ifndef NEAP_ALLOC_STITCH_H
#define NEAP_ALLOC_STITCH_H

#include "alloc/internal.h"

/* A block of `bytes` for the cache, LIVE and in the index, of a view that is kept and free again: without a call
 * about pages. NULL: there is none. For both: the context is current, no capture is under way and no private pool is
 * open. */
struct neap_block *neap_stitch_kept(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes);
/* The same of whatever is cached or spare. NEAP_EOOM: that is not enough. */
enum neap_status neap_stitch_new(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				 struct neap_block **ret_block, struct neap_error *err);

#endif
