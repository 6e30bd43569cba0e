/* alloc/views/views.h: blocks made of ends of pages, which are mapped a second time, outside their home segment.
 *
 *   home     [ live |//][  //////////  ] ... [///| live ]       /: IN_VIEW
 *                    |         |               |
 *   view     [      |//][ //////////// ][/////|         ]       one range of addresses, mapped from the same handles
 *                   `----- one block ---------'
 *
 * Invariants: free bytes are known only at home. A block of a view counts like any other. While it lives, its bytes
 * at home are IN_VIEW, so no request gets them there. They become CACHED again once the block is freed and its work
 * is done. So every byte of a page belongs to one block, under one address. The pages stay mapped at home: a page
 * with IN_VIEW bytes never moves.
 *
 * A view stays mapped after its block is freed. A later request of its size gets it without calls that map pages, if
 * all its bytes at home are free again. Before a page leaves its home, it leaves such views. At most as many pages as
 * the device has are mapped a second time. Small requests, private pools and a plan's region get no views.
 *
 * This room makes views. Existing views belong to the core (core/view.c), which ends their blocks and unmaps their
 * pages. Only obtain.c calls this room.
 */
#ifndef NEAP_ALLOC_VIEWS_H
#define NEAP_ALLOC_VIEWS_H

#include "alloc/core/core.h"

/* The addresses of pages at home, in the order of a view. */
struct neap_homes {
	const uint64_t *addresses;
	uint64_t count;
};

/* map.c. Maps the pages into `view`, which is not in use and has at least as many; pages that are already in place
 * stay. If `view` is NULL, makes a new one. The device's context is current. On failure the view is dropped, unless
 * the driver refuses. */
enum neap_status neap_view_map(struct neap_alloc *alloc, const struct neap_homes *homes, struct neap_view *view,
			       struct neap_view **ret_view, struct neap_error *err);

/* space.c: the cached bytes of all streams as a view can use them: whole pages, and ends of pages.
 *
 *        | a | .... free .... | b |        one run: a suffix of a's page, whole pages, a prefix of b's
 *   |         |         |         |
 *
 * It is a snapshot: a change of any block makes it invalid. Nothing here calls the driver.
 */

/* Adjacent CACHED blocks, as many as there are: [start, end) is their union. */
struct neap_free_run {
	struct neap_block *first;
	uint64_t start, end;
	uint64_t pages_start, pages; /* its whole pages: where the first begins, and how many */
	size_t taken;                /* the index of its first page in `taken` below */
};

struct neap_space {
	uint64_t page_bytes;
	struct neap_free_run *runs; /* by address */
	size_t count, capacity;
	struct neap_free_run **by_pages; /* the same, by their number of whole pages */
	bool *taken;                     /* per whole page of all runs */
	uint64_t pages;
	size_t next_run, next_page; /* by `by_pages`, all whole pages before this one are taken */
};

/* The parts of a block: a suffix of one page, whole pages, and a prefix of another page. */
struct neap_stitch {
	uint64_t suffix_page, suffix_bytes; /* the page's address; 0 bytes: none. Likewise the next two */
	uint64_t prefix_page, prefix_bytes;
	uint64_t whole_pages;
};

/* Collects all cached bytes, except of private pools and a plan's region. False: no host memory. */
bool neap_space_init(struct neap_alloc *alloc, struct neap_space *ret_space);
void neap_space_fini(struct neap_space *space);
/* The run that holds the byte; NULL: it is not free. */
struct neap_free_run *neap_space_run(const struct neap_space *space, uint64_t address);
/* How many bytes at the end, or the beginning, of the page are free. */
uint64_t neap_space_suffix(const struct neap_space *space, uint64_t page);
uint64_t neap_space_prefix(const struct neap_space *space, uint64_t page);
/* Whether the whole page is free and not taken. */
bool neap_space_whole(const struct neap_space *space, uint64_t page);
void neap_space_take(struct neap_space *space, uint64_t page); /* requires neap_space_whole(space, page) */
/* Takes a whole page from the run that has the fewest. 0: there is none. */
uint64_t neap_space_take_any(struct neap_space *space);
/* Chooses the parts of a block of `bytes` with the least loss. `more`: the number of spare pages, which could be
 * used, too. False: there is not enough, or no host memory. */
bool neap_space_stitch(const struct neap_space *space, uint64_t bytes, uint64_t more, struct neap_stitch *ret_stitch);

/* stitch.c: blocks made of ends of pages and whole pages from anywhere. */

/* Returns a block of `bytes` for the cache, LIVE and in the index. Its view was kept, and all bytes of the view are
 * free again, so no pages are mapped. NULL: there is none. Both functions need the current context, no capture under
 * way, and no open private pool. */
struct neap_block *neap_stitch_kept(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes);
/* The same, with a new or changed view of any cached or spare pages. NEAP_EOOM: there are not enough. */
enum neap_status neap_stitch_new(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				 struct neap_block **ret_block, struct neap_error *err);

#endif
