/* report/verdict.h: says in words whether a schedule of cleanups helped: how a run with it differs from a run without
 * it, or with fewer cleanups. Pure. */
#ifndef NEAP_REPORT_VERDICT_H
#define NEAP_REPORT_VERDICT_H

#include "base/buffer.h"

/* One of the two runs. UINT64_MAX: not known. */
struct neap_verdict_side {
	uint64_t emptied;                             /* how often its cache was emptied */
	bool thinned;                                 /* its recording lacks events: that often at least */
	uint64_t peak_bytes, mean_bytes, swing_bytes; /* reserved: highest, in the mean, within a step */
	uint64_t step_ns;                             /* a step's time */
	uint64_t driver_calls;                        /* in 100 steps */
	uint64_t retries;                             /* requests that found the device full */
};

/* Appends sentences, a line each; nothing if neither run emptied its cache far more often than the other, or if
 * reserved bytes are not known. */
void neap_verdict_cleanups(struct neap_buffer *out, const struct neap_verdict_side *a,
			   const struct neap_verdict_side *b);

#endif
