/* sim/driver/engine_table.c: see the header. */
#include "sim/driver/engine_table.h"

#include <stdlib.h>

enum { ROOM_FIRST = 16 };

static size_t home(const struct sim_table *table, uint64_t number)
{
	uint64_t mixed = number * UINT64_C(0x9E3779B97F4A7C15);

	return (size_t)(mixed ^ (mixed >> 32)) & (table->capacity - 1);
}

/* Returns the number's place, or the empty place where it belongs. The table has one. */
static size_t place(const struct sim_table *table, uint64_t number)
{
	size_t at = home(table, number);

	while (table->entries[at].value && table->entries[at].number != number)
		at = (at + 1) & (table->capacity - 1);
	return at;
}

void *sim_table_find(const struct sim_table *table, uint64_t number)
{
	return table->capacity ? table->entries[place(table, number)].value : NULL;
}

static bool grow(struct sim_table *table)
{
	struct sim_table bigger = {.capacity = table->capacity ? 2 * table->capacity : ROOM_FIRST,
				   .count = table->count};

	bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
	if (!bigger.entries)
		return false;
	for (size_t i = 0; i < table->capacity; i++)
		if (table->entries[i].value)
			bigger.entries[place(&bigger, table->entries[i].number)] = table->entries[i];
	free(table->entries);
	*table = bigger;
	return true;
}

bool sim_table_put(struct sim_table *table, uint64_t number, void *value)
{
	if (2 * (table->count + 1) > table->capacity && !grow(table))
		return false;
	table->entries[place(table, number)] = (struct sim_table_entry){number, value};
	table->count++;
	return true;
}

void *sim_table_take(struct sim_table *table, uint64_t number)
{
	size_t mask = table->capacity - 1;

	if (!table->capacity)
		return NULL;

	size_t hole = place(table, number);
	void *value = table->entries[hole].value;

	if (!value)
		return NULL;
	/* Move later entries of the same run back over the hole, unless their home comes after it. */
	for (size_t at = (hole + 1) & mask; table->entries[at].value; at = (at + 1) & mask) {
		size_t distance = (at - home(table, table->entries[at].number)) & mask;

		if (distance >= ((at - hole) & mask)) {
			table->entries[hole] = table->entries[at];
			hole = at;
		}
	}
	table->entries[hole] = (struct sim_table_entry){0};
	table->count--;
	return value;
}

void sim_table_fini(struct sim_table *table)
{
	free(table->entries);
	*table = (struct sim_table){0};
}
