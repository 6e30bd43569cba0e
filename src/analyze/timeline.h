/* analyze/timeline.h: a device's memory after each event of a trace. Pure.
 *
 *   requested   sum of the sizes that the program asked for, until their bytes are reusable
 *   rounded     the same as the settings round them, until the program frees them: PyTorch's "allocated", without
 *               the rests of blocks that could not be split off
 *   reserved    segments; known where the trace has events of segments or a final state
 *
 * The bytes reserved before the first event follow from the file's final state with all events undone.
 */
#ifndef NEAP_ANALYZE_TIMELINE_H
#define NEAP_ANALYZE_TIMELINE_H

#include "analyze/lives.h"
#include "replay/torch_settings.h"

struct neap_trace_levels {
	uint64_t requested, rounded, reserved; /* bytes */
	uint64_t time_us;                      /* 0: the trace has no times */
	uint64_t event;                        /* just after this event; NEAP_LIFE_BEFORE: before the first one */
};

/* How much one event changes each level, all its effects together. */
struct neap_timeline_change {
	uint64_t event;
	int64_t requested, rounded;
};

struct neap_timeline {
	const struct neap_trace *trace;
	size_t device;
	uint64_t count; /* events */
	/* How each event changes the levels, in four bits, and the changes that four bits cannot hold: see
	 * timeline.c. */
	uint8_t *changes;
	struct neap_timeline_change *odd; /* by event */
	size_t odd_count;
	struct neap_torch_settings settings;
	struct neap_trace_levels start;
	bool reserved_known;
};

/* The timeline takes half a byte of memory per event, and borrows the trace. Errors: NEAP_ENOMEM. */
enum neap_status neap_timeline_make(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
				    const struct neap_torch_settings *settings, struct neap_timeline *ret_timeline,
				    struct neap_error *err);
void neap_timeline_fini(struct neap_timeline *timeline);

struct neap_timeline_cursor {
	const struct neap_timeline *timeline;
	struct neap_trace_cursor events;
	size_t odd;                    /* the index of the next odd event */
	struct neap_trace_event event; /* the last event that was visited */
	struct neap_trace_levels now;  /* the levels after it */
};

struct neap_timeline_cursor neap_timeline_begin(const struct neap_timeline *timeline);
/* Visits the next event. False: there is none, and nothing has changed. */
bool neap_timeline_next(struct neap_timeline_cursor *cursor);

/* Figures of the events [from, to). */
struct neap_profile {
	uint64_t from, to;
	uint64_t kinds[16]; /* how many events of each enum neap_trace_kind */
	uint64_t first_time_us, last_time_us;
	struct neap_trace_levels start, end;
	/* The levels at the first instant of each peak. */
	struct neap_trace_levels requested_peak, rounded_peak, reserved_peak;
	double utilization; /* requested / reserved: the mean over the events where reserved is not 0; 0: unknown */
};

void neap_profile_take(const struct neap_timeline *timeline, uint64_t from, uint64_t to,
		       struct neap_profile *ret_profile);

#endif
