/* analyze/course.h: describes a trace's steps: how far memory swings within a step, its mean, how long a step takes,
 * how often it calls the driver, how many micro-batches it has. Pure.
 *
 * The figures are of steps that are whole in the trace. If there are three or more, the first one does not count,
 * because it warms up. The recording of a long run keeps only the net effect of most steps. In it, a step is whole if
 * it has at least a sixteenth of the events of the steps that have most of all events.
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
	size_t whole; /* how many steps the figures are from; 0: none, and all members but step_ns are 0 */
	struct neap_course_levels allocated, reserved; /* reserved: 0 where the timeline does not know it */
	/* The driver's calls in all whole steps: segments made, grown or given back. */
	uint64_t driver_calls, updates;
	size_t micro_batches; /* of a step, by its rhythm (rhythm.h): median over the newest; 1: no rhythm */
	uint64_t step_ns;     /* of an update, median over all steps; 0: the trace has no times */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_course_find(const struct neap_timeline *timeline, const struct neap_steps *steps,
				  struct neap_course *ret_course, struct neap_error *err);

/* Returns the least headroom of the process on the device, as recorded; UINT64_MAX: the recording does not have
 * it. */
uint64_t neap_course_headroom(const struct neap_timeline *timeline);

#endif
