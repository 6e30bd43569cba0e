/* analyze/trace_oom.h: the OOM card of a trace: by its own figures, and by replaying it on that device. Pure.
 *
 * A recording's journal says what the device, the limit and the tags were. Of a snapshot or a text trace the device
 * is what was reserved when it failed and what the device had free; where that was enough for the request and it
 * failed all the same, a limit (a fraction) refused: the device is then what was reserved.
 */
#ifndef NEAP_ANALYZE_TRACE_OOM_H
#define NEAP_ANALYZE_TRACE_OOM_H

#include "analyze/categories.h"
#include "analyze/oom.h"
#include "analyze/timeline.h"

/* What is known of the device whose failure is asked for; all borrowed. */
struct neap_trace_parts {
	const struct neap_timeline *timeline;
	const struct neap_lives *lives;
	const struct neap_sites *sites;
	const struct neap_steps *steps;
};

struct neap_trace_oom_options {
	size_t index; /* which of the device's, from 0; SIZE_MAX: the last */
	/* Instead: one that no trace has, but a replay of it on a device of memory_bytes had, under its own settings;
	 * NULL: none. */
	const struct neap_replay_oom *predicted;
	uint64_t memory_bytes; /* what this process could have had; 0: what the trace tells */
	uint64_t deadline_ns;  /* of neap_clock_system: replays that it leaves no time for are named as not tried; 0:
				  none */
	/* As in neap_replay_options. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* Errors: NEAP_ENOENT when there is none; as neap_replay. */
enum neap_status neap_trace_oom_card(const struct neap_trace_parts *parts,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err);

/* The same of a trace that is not analysed otherwise. */
enum neap_status neap_trace_oom_read(const struct neap_trace *trace, size_t device,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err);

/* The same of a recording, by the number among all devices' that neap_oom_count counts; options->index is ignored. */
enum neap_status neap_trace_oom_recorded(const struct neap_trace *trace, size_t index,
					 const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
					 struct neap_error *err);

#endif
