/* alloc/index.h: the block that begins at an address, with what a free in the front needs: it reads the slot and
 * not the block. Only the holder of the allocator's lock puts addresses in and takes them out. Any thread may look
 * one up meanwhile, without a lock.
 *
 * Open addressing with linear probing and backward-shift deletion, as base/map.h. A lookup without a lock may miss
 * an address that is being moved, or find a slot that is another block's by then: the caller takes the lane that the
 * slot names and looks again. While a lane is locked nothing holds the allocator's lock, and slots stay where they
 * are. A table that became too small is kept until the end, because a lookup may still be in it: together they take
 * less than the one in use.
 *
 *   invariant: count <= capacity * 3/4; capacity is a power of two
 */
#ifndef NEAP_ALLOC_INDEX_H
#define NEAP_ALLOC_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct neap_block;
struct neap_lane;

/* Half a line of the processor's cache. */
struct neap_index_slot {
	_Alignas(32) uint64_t address; /* 0: free */
	struct neap_block *block;
	struct neap_lane *lane; /* it may keep the block when the program frees it; NULL: ask the core. Written by the
				 * holder of the allocator's lock or of this lane's */
	uint64_t asked;         /* with `lane`: the block's `requested`, and above INDEX_TAG_SHIFT its tag */
};

#define INDEX_TAG_SHIFT 56

struct neap_index_table {
	struct neap_index_table *older;
	unsigned shift; /* the slot of an address is in the upper 64 - shift bits of its product */
	size_t mask;
	struct neap_index_slot slots[];
};

/* Zeroed: empty. */
struct neap_index {
	struct neap_index_table *table;
	size_t count;
};

/* False when the host is out of memory (nothing changed). The address is not 0 and not in the index. The slot names
 * no lane. */
bool neap_index_put(struct neap_index *index, uint64_t address, struct neap_block *block);
/* Nothing when the address is not there. Never allocates. */
void neap_index_remove(struct neap_index *index, uint64_t address);
/* NULL: not there. */
struct neap_block *neap_index_find(const struct neap_index *index, uint64_t address);
void neap_index_fini(struct neap_index *index);

static inline size_t neap_index_home(const struct neap_index_table *table, uint64_t address)
{
	return (size_t)((address * 0x9e3779b97f4a7c15ull) >> table->shift);
}

/* The address's slot, or the free one where it would go. */
static inline struct neap_index_slot *neap_index_slot(struct neap_index_table *table, uint64_t address)
{
	size_t i = neap_index_home(table, address);
	for (;; i = (i + 1) & table->mask) {
		uint64_t at = __atomic_load_n(&table->slots[i].address, __ATOMIC_ACQUIRE);
		if (at == address || !at)
			return &table->slots[i];
	}
}

#endif
