/* sim/driver/race_cells.h: the last uses of each byte. For races.c. Nothing here locks. */
#ifndef NEAP_SIM_RACE_CELLS_H
#define NEAP_SIM_RACE_CELLS_H

#include "sim/driver/race_order.h"
#include "sim/driver/spans.h"

struct race_use {
	const char *name;
	uint64_t count; /* of its lane */
	uint32_t life;  /* the life of its block; 0: the bytes are in no known block */
	uint32_t stack;
	uint32_t stream, device; /* as reports name them */
	uint8_t lane, use;       /* the lane of its stream; a value of enum neap_sim_use */
};

struct race_cell {
	struct sim_span span;
	struct race_use *uses;
	uint32_t count, capacity;
};

enum { RACE_CELLS_MOST = 1 << 18 };

struct race_cells {
	struct sim_spans spans;
	uint32_t count;
	bool full; /* there were too many, or the host was out of memory: uses are lost, races may be missed */
};

static inline bool race_seen(const struct race_use *use, const struct race_clock *clock)
{
	return clock->seen[use->lane] >= use->count;
}

static inline bool race_is_dense_write(const struct race_use *use) { return use->use == NEAP_SIM_WRITES; }

/* Records a use of the bytes from `begin` to `end`. Drops the earlier uses that come before it: a later use that
 * races with one of those races with this one, too. `clock`: the clock of its stream. */
void race_cells_use(struct race_cells *cells, uint64_t begin, uint64_t end, const struct race_use *use,
		    const struct race_clock *clock, const struct race_clock *host);
/* Removes the uses that `clock` includes; NULL: all. */
void race_cells_drop(struct race_cells *cells, uint64_t begin, uint64_t end, const struct race_clock *clock);
void race_cells_fini(struct race_cells *cells);

#endif
