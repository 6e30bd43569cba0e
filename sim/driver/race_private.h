/* sim/driver/race_private.h: shared by races.c and race_waits.c. */
#ifndef NEAP_SIM_RACE_PRIVATE_H
#define NEAP_SIM_RACE_PRIVATE_H

#include "sim/driver/race_cells.h"
#include "sim/driver/race_late.h"
#include "sim/driver/races.h"

#include <stdatomic.h>

/* An allocated block. It stays until other blocks take its bytes, also while it is free. */
struct block {
	struct sim_span span;
	uint32_t life;
	bool freed, waits;  /* `waits`: it was freed, and is not reusable yet */
	bool kept;          /* a graph uses it even after it was freed */
	struct block *next; /* of races->waiting */
	/* If `waits`: the work that an allocator or a watchdog has found finished since the free */
	struct race_clock release;
};

struct sim_races {
	pthread_mutex_t lock; /* guards all but `late`, which has a lock of its own; take this one first */
	void (*report)(const struct neap_sim_race *race);
	void (*limited)(const char *what);
	uint32_t limits_reported; /* a bit for each of `limits` */
	bool left_out;            /* races beyond REPORTS_MOST were not reported */
	struct race_order order;
	struct race_cells cells;
	struct sim_spans blocks;
	struct block *waiting;
	struct life *lives;
	uint32_t lives_made;
	struct neap_map reported; /* pairs of places that were reported */
	atomic_bool delays;       /* some streams run their work late */
	struct race_late late;
};

#endif
