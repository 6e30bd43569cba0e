/* alloc/view.h: views: second addresses of pages that have their home in a segment.
 *
 *   home     [ live |//][  //////////  ] ... [///| live ]       /: IN_VIEW
 *                    |         |               |
 *   view     [      |//][ //////////// ][/////|         ]       one range of addresses, mapped from the same handles
 *                   `----- one block ---------'
 *
 * What is free is only ever known at home. A block of a view counts as any other; the bytes at home that it is made
 * of are IN_VIEW meanwhile, which is free for nobody, and CACHED again once the block is freed and its work is done.
 * So every byte of a page belongs to one block, under one address. The pages stay at home, whole and mapped: a page
 * with IN_VIEW bytes never moves.
 *
 * A view stays mapped after its block was freed. A later request of its size, whose bytes at home are all free again,
 * gets it without a call of the driver. Before a page leaves its home it leaves such views.
 */
#ifndef NEAP_ALLOC_VIEW_H
#define NEAP_ALLOC_VIEW_H

#include "alloc/internal.h"

struct neap_view {
	struct neap_view *next;       /* the one used last comes first */
	struct neap_segment *segment; /* its addresses: in no list, no handles of its own */
	struct neap_block *block;     /* LIVE or PENDING; NULL: the view is kept for later */
	struct neap_block *parts;     /* what the block is made of: IN_VIEW blocks at home, linked by `right` */
	struct neap_stream *stream;   /* once it was used: of its last block, whose stamp is the next */
	uint64_t stamp;
	bool broken; /* the driver failed while pages were exchanged: it is never used again */
	uint64_t pages;
	uint64_t homes[]; /* per page: its address at home; 0: not mapped */
};

/* Pages by their address at home, in the order of a view. */
struct neap_homes {
	const uint64_t *addresses;
	uint64_t count;
};

/* Maps the pages: into `view`, which is not in use and has at least as many, where it has others; or, where that is
 * NULL, into a new one. The device's context is current. On failure what cannot be used is dropped, as far as the
 * driver lets it. */
enum neap_status neap_view_map(struct neap_alloc *alloc, const struct neap_homes *homes, struct neap_view *view,
			       struct neap_view **ret_view, struct neap_error *err);
/* Whether the work of its last block is known to be done, so that its pages may be unmapped. */
bool neap_view_idle(struct neap_alloc *alloc, const struct neap_view *view);
/* Makes `block` the view's, whose `parts` are chosen. Cannot fail. */
void neap_view_begin(struct neap_alloc *alloc, struct neap_view *view, struct neap_block *block);
/* The view's block was freed and its work is done: its bytes are CACHED at home again, and the block is no more. */
void neap_view_end(struct neap_alloc *alloc, struct neap_block *block);
/* The pages of [address, address + bytes), which are free at home and idle, leave all views. */
enum neap_status neap_views_leave(struct neap_alloc *alloc, uint64_t address, uint64_t bytes, struct neap_error *err);
/* Drops all views that are not in use and idle. What the driver refuses stays, and its pages at home with it. */
void neap_views_drop(struct neap_alloc *alloc);
/* The segment, or the view in use, that has the address; NULL: none. */
struct neap_segment *neap_segment_at(const struct neap_alloc *alloc, uint64_t address);
void neap_views_fini(struct neap_alloc *alloc, bool talk); /* as neap_segments_fini */

#endif
