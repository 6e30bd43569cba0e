/* analyze/advice.h: upward advice: the largest micro-batch that is predicted to fit, from a recording. Pure, but for
 * host memory.
 *
 * How: what is live when a step begins stays as it is; what a step allocates is a fixed number of bytes and a number
 * of bytes per sample. A step of the recording is then done again at other micro-batches through neap's own
 * allocator, on a counted device of the room that this process had (NEAP_EVENT_ROOM): so rounding, pages and
 * fragmentation are in it.
 *
 * Which bytes scale: seen at two splits, they are solved for from both; else sizes that the micro-batch divides do, but
 * those tagged "parameters", "gradients", "optimizer" or "workspace".
 *
 * Where no whole step is left (the ring has wrapped within one): from the steps' lowest and highest bytes, in a straight
 * line; `replayed` is false and the uncertainty wide. Above an eighth of the room it is no advice.
 *
 * Uncertainty: what the prediction misses at the micro-batch that was measured, and pages for what is live but not in
 * the recording. The micro-batch fits with the uncertainty taken away from the room.
 */
#ifndef NEAP_ANALYZE_ADVICE_H
#define NEAP_ANALYZE_ADVICE_H

#include "train/leak.h"
#include "neap/train.h"
#include "trace/record.h"

struct neap_advice {
	bool given;                 /* false: only `why` is meant */
	char why[160];              /* why there is no advice; else how it was found */
	bool replayed;              /* false: a straight line through the steps' extremes */
	bool two_splits;            /* what scales is known from two splits */
	struct neap_split split;    /* in force at the end */
	uint64_t room_bytes;        /* that the process could reserve */
	uint64_t fixed_bytes;       /* live whatever the micro-batch */
	uint64_t sample_bytes;      /* per sample, at the peak */
	uint64_t micro_batch;       /* the largest that is predicted to fit; at least the one in force */
	uint64_t headroom_bytes;    /* with it: room less the predicted peak of reserved bytes */
	uint64_t uncertainty_bytes; /* of that, to either side */
	/* The largest micro-batch that fits and keeps the effective batch, in so many parts, unequal ones perhaps. 0: none
	 * is known to. */
	uint64_t kept_micro_batch, kept_accumulate, kept_headroom_bytes;
};

/* `leak`: of the same recording; a run that leaks gets no advice. Out of host memory is a reason for none. */
void neap_advice(const struct neap_record *record, const struct neap_leak *leak, struct neap_advice *ret_advice);

/* "micro-batch 93 is the largest predicted to fit, ...", on one line, for people. */
void neap_advice_text(const struct neap_advice *advice, char *text, size_t room);

#endif
