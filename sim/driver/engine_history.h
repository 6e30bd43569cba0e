/* sim/driver/engine_history.h: records which work touched which bytes, as long as it can still race.
 *
 * A piece of work is named by (lane, count): its stream's component of the vector clocks, and its number there. A
 * clock has seen it when clock[lane] >= count. An entry is dropped when it can no longer prove a race:
 *
 *   - the host has seen it: all later work is ordered after it; or
 *   - a later access, ordered after it, covers its bytes and is at least as exclusive (a write, or both reads):
 *     an access unordered with the older one is also unordered with the newer one.
 *
 * So the size of the history depends on the work in flight and on how finely memory is cut, not on how long a program
 * runs.
 *
 * Threads: the engine's lock.
 */
#ifndef NEAP_SIM_ENGINE_HISTORY_H
#define NEAP_SIM_ENGINE_HISTORY_H

#include "sim/driver/engine.h"
#include "sim/driver/engine_table.h"

struct sim_history_entry {
	uint64_t begin, end; /* the touched range of the space, in bytes; begin < end */
	uint64_t count;
	uint32_t lane;
	uint32_t stream; /* for messages */
	const char *name;
	bool write;
};

/* A zeroed struct is an empty history. */
struct sim_history {
	struct sim_table spaces; /* of struct space */
};

void sim_history_fini(struct sim_history *history);

/* Returns the bytes of an access as an interval. An empty one has begin == end. */
void sim_access_interval(const struct sim_access *access, uint64_t *ret_begin, uint64_t *ret_end);

/* Returns an entry that conflicts with the access and that `clock` has not seen; NULL: none. Drops entries that
 * `host` has seen. The entry is valid until the next call. */
const struct sim_history_entry *sim_history_conflict(struct sim_history *history, const struct sim_access *access,
						     const uint64_t *clock, const uint64_t *host);
/* Makes room for this many adds to this space. False: host out of memory. */
bool sim_history_reserve(struct sim_history *history, uint64_t space, size_t adds);
/* The caller has reserved room for `entry`. `clock` is the clock of the entry's own work and has seen it. */
void sim_history_add(struct sim_history *history, uint64_t space, const struct sim_history_entry *entry,
		     const uint64_t *clock);
void sim_history_forget(struct sim_history *history, uint64_t space);
/* Drops every entry that the host has seen. Linear in the number of entries. */
void sim_history_prune(struct sim_history *history, const uint64_t *host);

#endif
