/* analyze/whatif.h: replays a trace under other settings of the allocator: how much it would have reserved, and
 * whether it would have completed on the device that ran out. Pure.
 *
 * Every figure holds for this trace alone: a longer one, another batch or another order may give others.
 */
#ifndef NEAP_ANALYZE_WHATIF_H
#define NEAP_ANALYZE_WHATIF_H

#include "base/clock.h"
#include "replay/replay.h"

#include <pthread.h>

struct neap_whatif {
	/* "expandable_segments:True", "neap's allocator"; for a recording "PyTorch: max_...". If the trace has
	 * settings of its own: "with max_..." adds to them, "only max_..." replaces them. */
	char name[48];
	enum neap_replay_policy policy;
	const char *settings; /* NULL: the trace's, or not a row of PyTorch; "": PyTorch's defaults */
	bool alone;           /* replaces the trace's own settings; else adds to them */
	bool own;             /* the row with the trace's own settings, which change nothing */
	bool active;          /* another name for the trace's own settings */
	bool tried;           /* false: time ran out before it, and the fields below are not set */
	bool fits;            /* no request ran out of memory */
	uint64_t reserved_peak, first_oom_event, driver_calls, retries;
};

#define NEAP_WHATIFS 8
struct neap_whatifs {
	/* The trace's own first; then those that fit, the cheapest to adopt first; then those that do not, the least
	 * reserved first; the active one last. Without a bound: the least reserved first. */
	struct neap_whatif items[NEAP_WHATIFS];
	size_t count;
	bool own_set;          /* the trace has settings of PyTorch's that are not its defaults */
	uint64_t memory_bytes; /* the memory of the replayed device; 0: no bound */
};

/* Limits the time of all replays together, for a supervisor that has other work to do. */
struct neap_patience {
	struct neap_deadline deadline;
	const struct neap_replay_options *asked; /* its progress function is called too */
	bool over;                               /* set when a replay was stopped because the time was over */
	pthread_mutex_t *lock;                   /* held while progress is reported, or NULL */
};

/* Makes the options of a replay that `patience` (whose `asked` is set) may stop. */
struct neap_replay_options neap_patience_options(struct neap_patience *patience);
/* Whether a replay ended with this status because `patience` stopped it. */
bool neap_patience_ended(const struct neap_patience *patience, enum neap_status status);

/* Replays under other settings. Of `options`, only device, memory_bytes, fraction and progress are used. `own`: the
 * replay under the trace's own settings, with the same options and go_on; NULL: none was made yet. Without a deadline
 * the others are replayed by as many threads as there are processors, and progress is reported by one of them at a
 * time. Settings for which the deadline leaves no time are listed as not tried. Errors: as neap_replay. */
enum neap_status neap_whatifs_find(const struct neap_trace *trace, const struct neap_replay_options *options,
				   const struct neap_replay_result *own, struct neap_deadline deadline,
				   struct neap_whatifs *ret_whatifs, struct neap_error *err);

#endif
