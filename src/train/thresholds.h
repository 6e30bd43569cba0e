/* train/thresholds.h: when little memory is left, what to do at a step boundary. A pure function over numbers. */
#ifndef NEAP_TRAIN_THRESHOLDS_H
#define NEAP_TRAIN_THRESHOLDS_H

#include "neap/train.h"

#define NEAP_LEFT_UNKNOWN UINT64_MAX
/* A rung or a stop needs so many steps below its threshold in a row: one dip is none. */
#define NEAP_THRESHOLD_STEPS 2
/* After a rung, so many steps are waited for its effect before anything else is done. */
#define NEAP_THRESHOLD_SETTLE 8

/* What was seen of one kind of memory so far. Zeroed: nothing. */
struct neap_threshold {
	bool warned;                        /* until a quarter more than the threshold is left again */
	uint64_t below_degrade, below_stop; /* steps in a row */
	uint64_t settled_at;                /* the step from which on something may be done again */
};

/* Decides for the end of step `step` (from 1), `left_bytes` being left (NEAP_LEFT_UNKNOWN: nothing happens, and what
 * was counted in a row begins anew). `rung_left`: the ladder has a rung to take. Degrading comes before stopping: a
 * stop is decided only when no rung can be taken or degrading is not asked for. */
enum neap_threshold_act {
	NEAP_THRESHOLD_NOTHING,
	NEAP_THRESHOLD_WARN,    /* once, until it has risen again */
	NEAP_THRESHOLD_DEGRADE, /* take a rung */
	NEAP_THRESHOLD_STOP,
};
enum neap_threshold_act neap_threshold_decide(struct neap_threshold *threshold, const struct neap_levels *levels,
					      uint64_t left_bytes, bool rung_left, uint64_t step);

/* Below what it warns: where no rung is left, the threshold of degrading warns too. */
uint64_t neap_threshold_warns_below(const struct neap_levels *levels, bool rung_left);

#endif
