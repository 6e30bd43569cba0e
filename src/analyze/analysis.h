/* analyze/analysis.h: everything `neap analyze` reports about one device of a trace. Pure.
 *
 *   trace ── lives ── timeline ── profile (peaks)
 *     │        └───── holders, categories at the peak, trends over steps
 *     ├── sites, steps
 *     ├── fragments: the state at the end, and at the peak of reserved memory
 *     └── replays: under its own settings (is the model exact here?); under others, if more than NEAP_WASTE_MIN of
 *         the reserved bytes were never requested, or a request failed
 *
 * Memory: half a byte per event, 9 to 13 per allocation, and a replay's own.
 */
#ifndef NEAP_ANALYZE_ANALYSIS_H
#define NEAP_ANALYZE_ANALYSIS_H

#include "analyze/categories.h"
#include "analyze/fragments.h"
#include "analyze/holders.h"
#include "analyze/oom.h"
#include "analyze/trends.h"

#define NEAP_WASTE_MIN 0.02

enum neap_instant_kind { NEAP_INSTANT_NONE, NEAP_INSTANT_TIME, NEAP_INSTANT_EVENT, NEAP_INSTANT_STEP };

/* A place in a trace. */
struct neap_instant {
	enum neap_instant_kind kind;
	uint64_t value; /* TIME: microseconds since the first event; EVENT: from 0; STEP: where this one begins, from
			   1 */
};

/* Reads "250ms", "event:1200" or "step:12". `text`: NULL leaves *ret_instant as it is. Errors: NEAP_EINVAL. */
enum neap_status neap_instant_parse(const char *text, struct neap_instant *ret_instant, struct neap_error *err);

struct neap_analysis;

struct neap_analysis_options {
	size_t device; /* SIZE_MAX: the one that neap_analysis_device returns */
	struct neap_instant from, to;
	/* The memory of the device that ran out; 0: derive it from the trace. If the trace has no failure: the memory
	 * of a device on which to replay it, where it may fail. */
	uint64_t memory_bytes;
	/* Called before the replays under other settings: all but `oom` and `whatifs` is final then. May be NULL. */
	void (*answered)(void *context, const struct neap_analysis *analysis);
	/* As in neap_replay_options. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* The peaks that the program would have had with warm caches, when nothing has to be compiled. They come from a
 * replay without the blocks that torch.compile, and the choice among its kernels, allocated and freed.
 */
struct neap_compiled {
	bool known; /* one of these peaks is lower than the program's own */
	uint64_t requested_peak, allocated_peak, reserved_peak;
};

/* Whether a trace without a failure fits on the device of the options, by a replay. */
struct neap_analysis_fit {
	uint64_t memory_bytes; /* the memory of that device; 0: none was given, or the trace does not fit */
	uint64_t reserved_peak, left_bytes;
	uint64_t
		/* With a leak: about how many steps after the trace's end the device is full; 0: no leak, or it is
		 * full at once. */
		more_steps;
};

struct neap_analysis {
	const struct neap_trace *trace; /* borrowed */
	size_t device;
	struct neap_lives lives;
	struct neap_sites sites;
	struct neap_steps steps;
	struct neap_timeline timeline;
	struct neap_profile profile;
	struct neap_holder *holders; /* at the requested peak */
	size_t holder_count;
	struct neap_categories categories; /* likewise */
	struct neap_replay_result replay;  /* under the trace's own settings */
	struct neap_compiled compiled;
	uint16_t streams; /* how many streams allocations of this device use */
	struct neap_trends trends;
	struct neap_fragments fragments;         /* at the end */
	struct neap_fragments fragments_at_peak; /* of reserved memory */
	struct neap_analysis_fit fit;
	bool has_oom;
	struct neap_oom_card oom; /* of the last failure, on its device */
	/* Without a failure, on a device without a bound; count 0: nothing can be gained. */
	struct neap_whatifs whatifs;
};

/* The caller calls neap_analysis_fini, also after a failure. Errors: NEAP_EINVAL for a device or an instant that is
 * not there; NEAP_ENOMEM; NEAP_ECANCELED. */
enum neap_status neap_analyze(const struct neap_trace *trace, const struct neap_analysis_options *options,
			      struct neap_analysis *ret_analysis, struct neap_error *err);
void neap_analysis_fini(struct neap_analysis *analysis);
/* The first returns the device with the most events. The second returns the default device: the one that ran out of
 * memory (of several, the last to do so), else the busiest. */
size_t neap_analysis_busiest(const struct neap_trace *trace);
size_t neap_analysis_device(const struct neap_trace *trace);
/* How many requests of a device ran out of memory. */
uint64_t neap_analysis_failures(const struct neap_trace *trace, size_t device);

/* Whether there was nothing to analyse, because the device allocated nothing, or its allocations were not
 * recorded. */
static inline bool neap_analysis_empty(const struct neap_analysis *analysis)
{
	return analysis->lives.count == 0 && analysis->profile.reserved_peak.reserved == 0;
}

/* Whether every block and segment of the replay matches the recording: then its allocated bytes are exact.
 */
static inline bool neap_analysis_exact(const struct neap_analysis *analysis)
{
	return analysis->replay.match.compared && analysis->replay.match.first_difference == UINT64_MAX &&
	       analysis->replay.events > 0;
}

#endif
