/* analyze/advice.h: upward advice: the largest micro-batch that is predicted to fit, from a recording. Pure, but for
 * host memory.
 *
 * How: blocks that are live when a step begins keep their size; blocks that a step allocates have a fixed number of
 * bytes and a number of bytes per sample. neap's own allocator (or the model of PyTorch's: advice_torch.h) then
 * repeats a recorded step at other micro-batches, on a simulated device with the memory that this process could have
 * (NEAP_EVENT_ROOM). So the result includes rounding, pages and fragmentation.
 *
 * Which bytes scale: if the recording has two splits, the sizes in both show it; if not, sizes that the micro-batch
 * divides scale, except those tagged "parameters", "gradients", "optimizer" or "workspace". PyTorch's own allocator
 * has no such tags: there the optimizer's blocks do not scale, nor do blocks of a parameter's size that a step
 * leaves. Large sizes that the micro-batch does not divide may be a kernel's scratch, which grows up to a bound. The
 * first steps of the program are repeated, too, since they leave the free pieces that later steps find. The advice is
 * at most 8 times the micro-batch in force: beyond that PyTorch may choose other kernels.
 *
 * If the recording holds no whole step (the ring has wrapped within one), the prediction is a straight line through
 * the lowest and highest bytes of the steps; `replayed` is false, and the uncertainty is large. If it is above an
 * eighth of the headroom, there is no advice.
 *
 * If memory ran out before the first whole step, the advice comes from how much was missing and what the model needs
 * (advice_failed.c).
 *
 * The micro-batch is the session's; without a session, the one that neap found in the program (NEAP_EVENT_BATCH),
 * named with its source. If two sources differ, or there is none, the answer says how to name it. A program without a
 * session that uses several devices gets the advice of the tightest one.
 *
 * Uncertainty: the error of the prediction at the measured micro-batch, and pages for blocks that are live but not in
 * the recording; of PyTorch's own allocator also what it reserved beyond the repeated steps. The advised micro-batch
 * fits even if the prediction is too low by the whole uncertainty.
 */
#ifndef NEAP_ANALYZE_ADVICE_H
#define NEAP_ANALYZE_ADVICE_H

#include "analyze/step_model.h"
#include "neap/train.h"
#include "train/leak.h"

/* Another allocator than neap's: the meaning of its tags, and how it repeats a step. */
struct neap_advice_way {
	const struct neap_step_tags *tags;
	enum neap_status (*rerun)(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
				  struct neap_error *err);
	const void *context;
};

struct neap_advice {
	bool given;    /* false: only `why` is set */
	char why[160]; /* why there is no advice; else how it was computed */
	/* No advice is needed: nothing that a step allocates grows with the micro-batch. */
	bool unaffected;
	char where[96];          /* " on CUDA device 1, the tightest of 2"; "": there is one device */
	bool replayed;           /* false: a straight line through the steps' extremes */
	bool guessed;            /* the program has no whole step, so the micro-batch may not fit */
	bool two_splits;         /* two splits in the recording show which bytes scale */
	struct neap_split split; /* the split in force at the end */
	/* Where the micro-batch comes from, if no session reports it; UNKNOWN: a session does. */
	enum neap_batch_source source;
	uint64_t room_bytes;   /* the most that the process could reserve */
	uint64_t fixed_bytes;  /* live bytes that do not depend on the micro-batch */
	uint64_t sample_bytes; /* bytes for each sample, at the peak */
	uint64_t micro_batch;  /* the largest one predicted to fit; at least the one in force */
	bool bounded; /* larger ones were not tried: with PyTorch's own allocator, at most 8 times the one in force */
	/* With that micro-batch: the bytes that the process can reserve, minus the predicted peak. */
	uint64_t headroom_bytes;
	uint64_t uncertainty_bytes; /* headroom_bytes may be wrong by this much, either way */
	/* The largest micro-batch that fits and keeps the effective batch; into how many parts, perhaps unequal, it
	 * divides it; and its headroom. 0: none is known. */
	uint64_t kept_micro_batch, kept_accumulate, kept_headroom_bytes;
};

/* Gives advice from a recording. `leak`: of the same recording; a run that leaks gets no advice. `way` NULL: neap's
 * own allocator. It gives none if the host runs out of memory. */
void neap_advice(const struct neap_record *record, const struct neap_leak *leak, const struct neap_advice_way *way,
		 struct neap_advice *ret_advice);

/* advice_failed.c: advice for a program without session and without any whole step, by its last out-of-memory error.
 * Fills `given`, the split, and the members that follow from the error. False: there was no such error, or nothing
 * follows from it. */
bool neap_advice_of_failure(const struct neap_record *record, const struct neap_last_settings *settings,
			    struct neap_advice *advice);

/* Whether the first of two places bounds the micro-batch more. A place without advice bounds it most, unless nothing
 * there grows with the micro-batch. */
bool neap_advice_tighter(const struct neap_advice *one, const struct neap_advice *than);
/* Notes the place that the advice is for ("rank 3"), and how many places there are. */
void neap_advice_place(struct neap_advice *advice, const char *place, size_t count);

/* "micro-batch 93 is the largest predicted to fit, ...", on one line, for people. */
void neap_advice_text(const struct neap_advice *advice, char *text, size_t capacity);

#endif
