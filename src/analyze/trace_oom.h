/* analyze/trace_oom.h: why a request of a trace found no memory, and what would have helped: by the trace's own
 * figures, and by replaying it on that device. Pure.
 *
 * The device: what was reserved when it failed and what the device had free. Where that was enough for the request
 * and it failed all the same, a limit (a fraction) refused: the device is then what was reserved.
 */
#ifndef NEAP_ANALYZE_TRACE_OOM_H
#define NEAP_ANALYZE_TRACE_OOM_H

#include "analyze/categories.h"
#include "analyze/fragments.h"
#include "analyze/predict.h"
#include "analyze/timeline.h"
#include "analyze/whatif.h"

enum neap_trace_oom_cause {
	NEAP_TRACE_OOM_CAPACITY,      /* live and asked bytes exceed the device */
	NEAP_TRACE_OOM_LIMIT,         /* a limit on the process, below what the device had free */
	NEAP_TRACE_OOM_FRAGMENTATION, /* they do not: what was cached was not in one piece */
};

struct neap_trace_oom {
	uint64_t event;       /* the last of the device's */
	uint64_t count;       /* how many there are */
	uint64_t asked_bytes; /* as rounded */
	uint64_t device_free_bytes;
	uint32_t stack;
	struct neap_trace_levels levels; /* just before it */
	enum neap_trace_oom_cause cause;
	uint64_t memory_bytes;  /* what this process could have had */
	uint64_t missing_bytes; /* requested + asked beyond memory_bytes; 0: none */
	bool at_end;            /* nothing was allocated or freed after it: the final state is that of the failure */
	struct neap_whatifs whatifs;
	uint64_t smallest_bytes; /* device on which the trace ends under its own settings; 0: not found */
	/* By what memory was for at the failure, where it is known; predictions. */
	struct neap_prediction half_batch;
	bool half_batch_known;
	struct neap_saving savings[NEAP_SAVINGS];
	size_t saving_count;
	uint64_t unknown_bytes; /* whose purpose nothing tells: of these the savings say nothing */
};

/* Errors: NEAP_ENOENT when there is none; as neap_replay. `options` as for neap_whatifs_find; its memory_bytes, when
 * not 0, is the device's instead of what the trace tells. */
enum neap_status neap_trace_oom_find(const struct neap_timeline *timeline, const struct neap_lives *lives,
				     const struct neap_sites *sites, const struct neap_steps *steps,
				     const struct neap_replay_options *options, struct neap_trace_oom *ret_oom,
				     struct neap_error *err);

#endif
