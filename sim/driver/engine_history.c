/* sim/driver/engine_history.c: see the header. One array of entries per space, searched in full: few are live at
 * a time. */
#include "sim/driver/engine_history.h"

#include <stdlib.h>

struct space {
	struct sim_history_entry *entries;
	size_t count, capacity;
};

static bool seen(const struct sim_history_entry *entry, const uint64_t *clock)
{
	return clock[entry->lane] >= entry->count;
}

static bool overlaps(const struct sim_history_entry *entry, uint64_t begin, uint64_t end)
{
	return entry->begin < end && begin < entry->end;
}

static void space_destroy(struct space *space)
{
	if (!space)
		return;
	free(space->entries);
	free(space);
}

static void space_prune(struct space *space, const uint64_t *host)
{
	size_t kept = 0;

	for (size_t i = 0; i < space->count; i++)
		if (!seen(&space->entries[i], host))
			space->entries[kept++] = space->entries[i];
	space->count = kept;
}

void sim_history_fini(struct sim_history *history)
{
	for (size_t i = 0; i < history->spaces.capacity; i++)
		space_destroy(history->spaces.entries[i].value);
	sim_table_fini(&history->spaces);
}

void sim_access_interval(const struct sim_access *access, uint64_t *ret_begin, uint64_t *ret_end)
{
	*ret_begin = access->offset;
	*ret_end = access->bytes > UINT64_MAX - access->offset ? UINT64_MAX : access->offset + access->bytes;
}

const struct sim_history_entry *sim_history_conflict(struct sim_history *history, const struct sim_access *access,
						     const uint64_t *clock, const uint64_t *host)
{
	struct space *space = sim_table_find(&history->spaces, access->space);
	uint64_t begin, end;

	if (!space)
		return NULL;
	sim_access_interval(access, &begin, &end);
	space_prune(space, host);
	for (size_t i = 0; i < space->count; i++) {
		const struct sim_history_entry *entry = &space->entries[i];

		if ((entry->write || access->write) && overlaps(entry, begin, end) && !seen(entry, clock))
			return entry;
	}
	return NULL;
}

bool sim_history_reserve(struct sim_history *history, uint64_t number, size_t adds)
{
	struct space *space = sim_table_find(&history->spaces, number);

	if (!space) {
		space = calloc(1, sizeof *space);
		if (!space || !sim_table_put(&history->spaces, number, space)) {
			free(space);
			return false;
		}
	}
	if (space->count + adds <= space->capacity)
		return true;

	size_t capacity = 2 * (space->count + adds);
	struct sim_history_entry *entries = realloc(space->entries, capacity * sizeof *entries);

	if (!entries)
		return false;
	space->entries = entries;
	space->capacity = capacity;
	return true;
}

/* Removes from `old` the bytes that `entry` covers. `entry` is ordered after `old`. Does not cut a hole in the
 * middle. False: nothing of `old` remains. */
static bool trim(struct sim_history_entry *old, const struct sim_history_entry *entry)
{
	if (entry->begin <= old->begin && entry->end >= old->end)
		return false;
	if (entry->begin <= old->begin && entry->end > old->begin)
		old->begin = entry->end;
	else if (entry->end >= old->end && entry->begin < old->end)
		old->end = entry->begin;
	return true;
}

void sim_history_add(struct sim_history *history, uint64_t number, const struct sim_history_entry *entry,
		     const uint64_t *clock)
{
	struct space *space = sim_table_find(&history->spaces, number);
	size_t kept = 0;

	for (size_t i = 0; i < space->count; i++) {
		struct sim_history_entry old = space->entries[i];
		bool replaced = (entry->write || !old.write) && seen(&old, clock);

		if (!replaced || trim(&old, entry))
			space->entries[kept++] = old;
	}
	space->entries[kept++] = *entry;
	space->count = kept;
}

void sim_history_forget(struct sim_history *history, uint64_t number)
{
	space_destroy(sim_table_take(&history->spaces, number));
}

void sim_history_prune(struct sim_history *history, const uint64_t *host)
{
	for (size_t i = 0; i < history->spaces.capacity; i++)
		if (history->spaces.entries[i].value)
			space_prune(history->spaces.entries[i].value, host);
}
