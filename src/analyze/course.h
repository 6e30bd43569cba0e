/* analyze/course.h: what a step of a trace is like: how far its memory swings and where it is in the mean, how long
 * it takes, how often it calls the driver, how many micro-batches it has. Pure.
 *
 * Of steps that are whole in the trace; the first one, if there are three or more, warms up and is left out. Of a
 * long run, whose recording keeps only the net effect of most steps, those with at least half as many events as its
 * newest steps are whole.
 */
#ifndef NEAP_ANALYZE_COURSE_H
#define NEAP_ANALYZE_COURSE_H

#include "analyze/steps.h"
#include "analyze/timeline.h"

struct neap_course_levels {
	uint64_t swing_bytes; /* median over steps of (highest - lowest) */
	uint64_t mean_bytes;  /* over time; over events if the trace has no times */
};

struct neap_course {
	size_t whole; /* steps that the figures are of; 0: there is none, and all else but step_ns is 0 */
	struct neap_course_levels allocated, reserved; /* reserved: 0 where the timeline does not know it */
	uint64_t driver_calls, updates;                /* of all whole steps: segments made, grown or given back */
	size_t micro_batches; /* of a step, by its rhythm (rhythm.h): median over the newest; 1: no rhythm */
	uint64_t step_ns;     /* of an update, median over all steps; 0: the trace has no times */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_course_find(const struct neap_timeline *timeline, const struct neap_steps *steps,
				  struct neap_course *ret_course, struct neap_error *err);

/* The least that the process could reserve of the device, as far as the recording says; UINT64_MAX: it does not. */
uint64_t neap_course_headroom(const struct neap_timeline *timeline);

#endif
