/* alloc/space.h: the cached bytes of all streams as a view can use them: whole pages, and ends of pages.
 *
 *        | a | .... free .... | b |        one run: a suffix of a's page, whole pages, a prefix of b's
 *   |         |         |         |
 *
 * A snapshot of one moment: a change of any block makes it invalid. Nothing here talks to the driver.
 */
#ifndef NEAP_ALLOC_SPACE_H
#define NEAP_ALLOC_SPACE_H

#include "alloc/internal.h"

/* CACHED blocks that adjoin. */
struct neap_free_run {
	struct neap_block *first;
	uint64_t start, end;
	uint64_t pages_start, pages; /* the whole ones */
	size_t taken;                /* the index of its first page in `taken` below */
};

struct neap_space {
	uint64_t page_bytes;
	struct neap_free_run *runs; /* by address */
	size_t count, room;
	struct neap_free_run **by_pages; /* those with the fewest whole pages first */
	bool *taken;                     /* per whole page of all runs */
	uint64_t pages;
	size_t next_run, next_page; /* whole pages before this one, by `by_pages`, are all taken */
};

/* What a block is made of: a suffix of one page, whole pages, and a prefix of another. */
struct neap_stitch {
	uint64_t suffix_page, suffix_bytes; /* the page's address; 0 bytes: none. As the next two */
	uint64_t prefix_page, prefix_bytes;
	uint64_t whole_pages;
};

/* Of everything that is cached, but for private pools and a plan's region. False: no host memory. */
bool neap_space_init(struct neap_alloc *alloc, struct neap_space *ret_space);
void neap_space_fini(struct neap_space *space);
/* The run that holds the byte; NULL: it is not free. */
struct neap_free_run *neap_space_run(const struct neap_space *space, uint64_t address);
/* How many bytes at the end, or the beginning, of the page are free. */
uint64_t neap_space_suffix(const struct neap_space *space, uint64_t page);
uint64_t neap_space_prefix(const struct neap_space *space, uint64_t page);
/* Whether the page is free as a whole, and not taken. */
bool neap_space_whole(const struct neap_space *space, uint64_t page);
void neap_space_take(struct neap_space *space, uint64_t page); /* it is so */
/* Takes any whole page: one of the smallest run. 0: there is none. */
uint64_t neap_space_take_any(struct neap_space *space);
/* Chooses what makes a block of `bytes` with the least loss. `more`: further whole pages that could be had. False:
 * there is not enough, or no host memory. */
bool neap_space_stitch(const struct neap_space *space, uint64_t bytes, uint64_t more, struct neap_stitch *ret_stitch);

#endif
