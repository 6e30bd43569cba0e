/* sim/driver/engine_table.h: numbers to pointers, for the engine's streams, events and spaces.
 *
 * Open addressing with backward-shift deletion, so that numbers can be added and removed for ever without leaving a
 * trace. It does not own its values. Threads: the caller's lock.
 */
#ifndef NEAP_SIM_ENGINE_TABLE_H
#define NEAP_SIM_ENGINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_table_entry {
	uint64_t number;
	void *value; /* NULL: empty */
};

/* A zeroed struct is an empty table. */
struct sim_table {
	struct sim_table_entry *entries; /* `capacity` of them, a power of two, at most half used */
	size_t capacity, count;
};

void *sim_table_find(const struct sim_table *table, uint64_t number); /* NULL: not there */
/* The number must be new and the value not NULL. False: host out of memory. */
bool sim_table_put(struct sim_table *table, uint64_t number, void *value);
/* Returns the removed value, or NULL. */
void *sim_table_take(struct sim_table *table, uint64_t number);
/* Frees the table itself. */
void sim_table_fini(struct sim_table *table);

#endif
