/* analyze/trends.h: a trace over its steps: whether and where memory grows, and how it swings within steps and across
 * them. Pure.
 *
 *   amplitude   median over steps of (highest - lowest requested bytes)
 *   teeth       per step: how often the level falls and rises again by half the amplitude
 *   period      after how many steps the peaks repeat: the smallest such number, from 2 to a third of the steps.
 *               Peaks that differ by less than 5 % of their median have no period
 */
#ifndef NEAP_ANALYZE_TRENDS_H
#define NEAP_ANALYZE_TRENDS_H

#include "analyze/course.h"
#include "analyze/holders.h"
#include "analyze/steps.h"
#include "analyze/timeline.h"
#include "train/leak.h"

struct neap_step_levels {
	uint64_t high, low;             /* requested bytes within the step */
	uint64_t high_event, low_event; /* just after these events */
};

/* A line (or tag, or size) whose bytes grow with the steps. */
struct neap_growing {
	/* At the last step's end; kind and frame identify it, the other fields are amounts. */
	struct neap_holder holder;
	struct neap_leak leak; /* fitted to its bytes at each step's end */
};

enum neap_swing {
	NEAP_SWING_UNKNOWN,      /* no steps */
	NEAP_SWING_NONE,         /* amplitude below 5 % of the peak, and the peaks alike */
	NEAP_SWING_STEP,         /* once per step: forward and backward */
	NEAP_SWING_ACCUMULATION, /* several teeth per step, or a rhythm (rhythm.h): one per micro-batch */
	/* The peaks differ, but less than half as much without the steps that have marks of evaluation. */
	NEAP_SWING_EVALUATION,
	NEAP_SWING_CLEANUP,  /* with this period the lowest levels rise step by step, and fall at once */
	NEAP_SWING_PERIODIC, /* every `period` steps, by something without a mark */
	NEAP_SWING_VARIABLE, /* steps differ without a period: changing shapes */
};

#define NEAP_GROWING 5

struct neap_trends {
	struct neap_step_levels *levels; /* of each step */
	size_t steps;
	struct neap_leak leak;                     /* of the steps' lowest levels */
	struct neap_growing growing[NEAP_GROWING]; /* only with a leak; the steepest first */
	size_t growing_count;
	enum neap_swing swing;
	uint64_t amplitude_bytes, highest_bytes; /* highest: of all steps */
	double teeth_per_step;
	double spread; /* (highest - lowest peak of a step) / median peak, without warm-up and a leak */
	size_t period; /* 0: none */
	uint64_t peak_event, trough_event; /* in the step with the highest peak */
	struct neap_course course;         /* the figures of a step */
	uint64_t retries;      /* how often the cache was given back for a request that found the device full */
	uint64_t emptied;      /* how often the cache was emptied: runs of releases without a growth after them */
	size_t emptied_period; /* the steps from one emptying to the next, nearly always; 0: they vary, or are few */
};

/* Finds the holder that grows most with these steps. ret_growing->holder.kind is 0 if none does. Errors:
 * NEAP_ENOMEM. */
enum neap_status neap_trends_grower(const struct neap_lives *lives, const struct neap_sites *sites,
				    const struct neap_steps *steps, struct neap_growing *ret_growing,
				    struct neap_error *err);

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_trends_find(const struct neap_timeline *timeline, const struct neap_lives *lives,
				  const struct neap_sites *sites, const struct neap_steps *steps,
				  struct neap_trends *ret_trends, struct neap_error *err);
void neap_trends_fini(struct neap_trends *trends);

#endif
