#include "alloc/index.h"
#include "base/large.h"

#include <stdlib.h>

#define FIRST_BITS 6
#define TRIES      16

static size_t home(const struct neap_index_table *table, uint64_t address)
{
	return (size_t)((address * 0x9e3779b97f4a7c15ull) >> table->shift);
}

static uint64_t address_at(const struct neap_index_table *table, size_t i)
{
	return __atomic_load_n(&table->slots[i].address, __ATOMIC_ACQUIRE);
}

/* Releases, so that none of it is seen before `version` became odd. */
static void set(struct neap_index_table *table, size_t i, struct neap_index_slot slot)
{
	__atomic_store_n(&table->slots[i].block, slot.block, __ATOMIC_RELEASE);
	__atomic_store_n(&table->slots[i].address, slot.address, __ATOMIC_RELEASE);
}

/* The address's slot, or the free one where it would go. */
static size_t find_slot(const struct neap_index_table *table, uint64_t address)
{
	size_t i = home(table, address);
	for (uint64_t at = address_at(table, i); at && at != address; at = address_at(table, i))
		i = (i + 1) & table->mask;
	return i;
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
			table->slots[find_slot(table, old->slots[i].address)] = old->slots[i];
	__atomic_store_n(&index->table, table, __ATOMIC_RELEASE);
	return true;
}

static void change_begin(struct neap_index *index)
{
	__atomic_store_n(&index->version, index->version + 1, __ATOMIC_RELEASE);
}

static void change_end(struct neap_index *index)
{
	__atomic_store_n(&index->version, index->version + 1, __ATOMIC_RELEASE);
}

bool neap_index_put(struct neap_index *index, uint64_t address, struct neap_block *block)
{
	if ((!index->table || index->count >= (index->table->mask + 1) / 4 * 3) && !grow(index))
		return false;
	change_begin(index);
	set(index->table, find_slot(index->table, address), (struct neap_index_slot){address, block});
	index->count++;
	change_end(index);
	return true;
}

void neap_index_remove(struct neap_index *index, uint64_t address)
{
	struct neap_index_table *table = index->table;
	size_t hole = table ? find_slot(table, address) : 0;
	if (!table || !table->slots[hole].address)
		return;
	change_begin(index);
	for (size_t i = (hole + 1) & table->mask; table->slots[i].address; i = (i + 1) & table->mask) {
		/* A slot may fill the hole if the hole lies on its way from home. */
		size_t from = home(table, table->slots[i].address);
		if (((i - from) & table->mask) >= ((i - hole) & table->mask)) {
			set(table, hole, table->slots[i]);
			hole = i;
		}
	}
	set(table, hole, (struct neap_index_slot){0});
	index->count--;
	change_end(index);
}

struct neap_block *neap_index_find(const struct neap_index *index, uint64_t address)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t version = __atomic_load_n(&index->version, __ATOMIC_ACQUIRE);
		const struct neap_index_table *table = __atomic_load_n(&index->table, __ATOMIC_ACQUIRE);
		if (!table)
			return NULL;
		if (version % 2 == 1)
			continue;
		size_t i = find_slot(table, address);
		bool there = address_at(table, i) == address;
		struct neap_block *block = __atomic_load_n(&table->slots[i].block, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&index->version, __ATOMIC_RELAXED) == version)
			return there ? block : NULL;
	}
	return NULL;
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
