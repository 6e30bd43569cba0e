/* sim/driver/race_private.h: what races.c and race_waits.c share. */
#ifndef NEAP_SIM_RACE_PRIVATE_H
#define NEAP_SIM_RACE_PRIVATE_H

#include "sim/driver/race_cells.h"
#include "sim/driver/race_late.h"
#include "sim/driver/races.h"

#include <stdatomic.h>

/* From its allocation until other blocks take its bytes. */
struct block {
	struct sim_span span;
	uint32_t life;
	bool freed, waits;         /* `waits`: it was freed, and is not reusable yet */
	bool kept;                 /* a graph uses it, though it is freed */
	struct block *next;        /* of races->waiting */
	struct race_clock release; /* waits: the work that somebody has found finished since */
};

struct sim_races {
	pthread_mutex_t lock; /* of all but `late`; that one's is taken after it */
	void (*report)(const struct neap_sim_race *race);
	void (*limited)(const char *what);
	uint32_t told; /* a bit for each of `limits` */
	bool left_out; /* races beyond REPORTS_MOST */
	struct race_order order;
	struct race_cells cells;
	struct sim_spans blocks;
	struct block *waiting;
	struct life *lives;
	uint32_t lives_made;
	struct neap_map reported; /* pairs of places */
	atomic_bool delays;       /* work is late */
	struct race_late late;
};

#endif
