/* alloc/index.h: the block that begins at an address. One thread at a time may change it (the one that holds the
 * allocator's lock); any thread may look up meanwhile, without a lock.
 *
 * Open addressing with linear probing and backward-shift deletion, as base/map.h. A change makes `version` odd and
 * then even again; a lookup that meets a change starts again. A table that became too small is kept until the end,
 * because a lookup may still be in it: together they take less than the one in use.
 *
 *   invariant: count <= capacity * 3/4; capacity is a power of two
 */
#ifndef NEAP_ALLOC_INDEX_H
#define NEAP_ALLOC_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_block;

struct neap_index_slot {
	uint64_t address; /* 0: free */
	struct neap_block *block;
};

struct neap_index_table {
	struct neap_index_table *older;
	unsigned shift; /* the slot of an address is in the upper 64 - shift bits of its product */
	size_t mask;
	struct neap_index_slot slots[];
};

/* Zeroed: empty. */
struct neap_index {
	struct neap_index_table *table;
	uint64_t version; /* odd while it changes */
	size_t count;
};

/* False when the host is out of memory (nothing changed). The address is not 0 and not in the index. */
bool neap_index_put(struct neap_index *index, uint64_t address, struct neap_block *block);
/* Nothing when the address is not there. Never allocates. */
void neap_index_remove(struct neap_index *index, uint64_t address);
/* Any thread. NULL: not there, or, without the allocator's lock, changed too often meanwhile. */
struct neap_block *neap_index_find(const struct neap_index *index, uint64_t address);
void neap_index_fini(struct neap_index *index);

#endif
