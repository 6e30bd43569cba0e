/* train/session_internal.h: the session's parts, for the files of src/train alone. */
#ifndef NEAP_TRAIN_SESSION_INTERNAL_H
#define NEAP_TRAIN_SESSION_INTERNAL_H

#include "train/cleanup.h"

#define LOW_MARKS 512 /* of the newest steps; as many as the leak test looks at */

struct neap_train {
	struct neap_alloc *alloc;
	struct neap_train_options options; /* pointers in it: name is replaced by ours, log is the host's */
	char name[64];
	struct neap_train_settings now; /* in force */
	uint64_t steps, ticks, ticks_in_step, epochs;
	struct neap_train_summary summary;
	unsigned fruitless; /* cleanups in a row that gave nothing back */
	bool failed;        /* the ladder is at its end */
	/* The leak watch: lowest allocated bytes of the newest steps since the split last changed, as a ring. */
	uint64_t low_marks[LOW_MARKS];
	uint64_t low_count;   /* ever put into the ring */
	uint64_t recent_peak; /* highest allocated bytes of a step since the watch last looked */
	bool leak_suspected;  /* found at the last look */
	bool leak_told;
};

/* session.c */

/* One cleanup, counted; warns when they give nothing. */
void neap_session_cleanup(struct neap_train *train, enum neap_cleanup_reason reason);
/* The event and the line of a mark. */
void neap_session_mark(struct neap_train *train, enum neap_mark mark, uint64_t value);

/* recover.c */

/* One rung down the ladder, if there is one: false at its end. Between two steps, or two tries at one. */
bool neap_session_degrade(struct neap_train *train);

/* leaks.c */

/* Looks for a leak in the newest steps. */
void neap_session_watch_leak(struct neap_train *train);

#endif
