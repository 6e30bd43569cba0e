/* alloc/core/index.c: finds LIVE blocks by address.
 *
 * The table uses open addressing with linear probing and backward-shift deletion, as base/map.h does. A lookup
 * without a lock may miss an address that is being moved, or find a slot that another block has taken by then. So the
 * caller locks the lane that the slot names and looks again. While a lane is locked, no thread holds the allocator's
 * lock, and slots stay where they are. A table that became too small is kept until the end, because a lookup may
 * still read it; all old tables together take less memory than the one in use.
 */
#include "alloc/core/core.h"
#include "base/large.h"

#include <stdlib.h>

#define FIRST_BITS 6

static void set(struct neap_index_slot *to, const struct neap_index_slot *from)
{
	to->block = from->block;
	to->asked = from->asked;
	__atomic_store_n(&to->lane, from->lane, __ATOMIC_RELAXED);
	__atomic_store_n(&to->address, from->address, __ATOMIC_RELEASE);
}

static bool grow(struct neap_index *index)
{
	struct neap_index_table *old = index->table;
	unsigned bits = old ? 64 - old->shift + 1 : FIRST_BITS;
	size_t capacity = (size_t)1 << bits;
	struct neap_index_table *table = neap_large_alloc(sizeof *table + capacity * sizeof table->slots[0]);
	if (!table)
		return false;
	table->older = old;
	table->shift = 64 - bits;
	table->mask = capacity - 1;
	for (size_t i = 0; old && i <= old->mask; i++)
		if (old->slots[i].address)
			set(neap_index_slot(table, old->slots[i].address), &old->slots[i]);
	__atomic_store_n(&index->table, table, __ATOMIC_RELEASE);
	return true;
}

bool neap_index_put(struct neap_index *index, uint64_t address, struct neap_block *block)
{
	if ((!index->table || index->count >= (index->table->mask + 1) / 4 * 3) && !grow(index))
		return false;
	set(neap_index_slot(index->table, address), &(struct neap_index_slot){.address = address, .block = block});
	index->count++;
	return true;
}

void neap_index_remove(struct neap_index *index, uint64_t address)
{
	struct neap_index_table *table = index->table;
	struct neap_index_slot *hole = table ? neap_index_slot(table, address) : NULL;
	if (!table || !hole->address)
		return;
	size_t at = (size_t)(hole - table->slots);
	for (size_t i = (at + 1) & table->mask; table->slots[i].address; i = (i + 1) & table->mask) {
		/* A slot may fill the hole if the hole lies on its way from home. */
		size_t from = neap_index_home(table, table->slots[i].address);
		if (((i - from) & table->mask) >= ((i - at) & table->mask)) {
			set(&table->slots[at], &table->slots[i]);
			at = i;
		}
	}
	set(&table->slots[at], &(struct neap_index_slot){0});
	index->count--;
}

struct neap_block *neap_index_find(const struct neap_index *index, uint64_t address)
{
	if (!index->table)
		return NULL;
	const struct neap_index_slot *slot = neap_index_slot(index->table, address);
	return slot->address ? slot->block : NULL;
}

void neap_index_fini(struct neap_index *index)
{
	while (index->table) {
		struct neap_index_table *older = index->table->older;
		free(index->table);
		index->table = older;
	}
	*index = (struct neap_index){0};
}
