/* analyze/oom_internal.h: the parts of an OOM card: see the picture in oom.h. A source fills the figures of the card
 * and the inputs; the rest follows from both, whatever the source. */
#ifndef NEAP_ANALYZE_OOM_INTERNAL_H
#define NEAP_ANALYZE_OOM_INTERNAL_H

#include "analyze/oom.h"
#include "base/units.h"
#include "train/leak.h"

/* The bytes that the driver itself may hold; the uncertainty of neap_oom_neighbours; and the bytes that other
 * processes hold, as far as these can be separated from contexts and the driver. */
uint64_t neap_oom_driver_share(const struct neap_oom_card *card);
uint64_t neap_oom_neighbours_unsure(const struct neap_oom_card *card);
uint64_t neap_oom_neighbours(const struct neap_oom_card *card);

/* How many bytes the whole step needs, judged by the steps before it; 0: not known. A step that already needs more
 * than they did is another kind of step, unless a leak explains the difference. */
uint64_t neap_oom_step_need(const struct neap_oom_card *card);

/* A whole step before the failure. */
struct neap_oom_step {
	uint64_t low_bytes, peak_bytes; /* allocated within it: the lowest, the highest */
	uint64_t reserved_bytes;        /* at its end; 0: not known */
	uint64_t number;                /* in its training */
	size_t settings; /* the number of the settings that it ran with; numbers only grow, with each training too */
};

/* Besides the card's figures, all that finding the cause and the fixes needs. */
struct neap_oom_inputs {
	uint64_t live_bytes;    /* as requested if known, else as allocated: no setting makes them less */
	uint64_t segment_bytes; /* what the allocator would have asked the driver for, to serve the request */
	uint64_t memory_bytes;  /* the device's, given by the user; 0: as measured */
	uint64_t pool_bytes;    /* cached where the request could use them, were they in one piece; UINT64_MAX: not
				   known */
	bool hidden_limit;      /* the device had room for the segment, but the request failed: an unrecorded limit */
	struct neap_oom_step *steps; /* in order of time; freed by neap_oom_inputs_fini */
	size_t step_count;
	size_t settings;           /* in force at the failure, by the steps' numbers */
	struct neap_demand demand; /* at the failure; includes the request if its purpose is known */
	bool training;             /* enough is known of what memory is for to predict changes of training */
	bool pages_mapped;         /* segments grow in place already */
	uint64_t scaled_bytes;     /* the most since the step began of what the micro-batch decides; 0: not known */
	uint64_t repeated_bytes;   /* the same of the step before, whose sizes this one repeats; 0: it does not */
	uint64_t largest_bytes;    /* of a forward without that graph: its largest block */
};

void neap_oom_inputs_fini(struct neap_oom_inputs *inputs);

/* One source: the OOM at that index of the journal. Errors: NEAP_ENOMEM. */
enum neap_status neap_oom_read_journal(const struct neap_record *record, size_t at, struct neap_oom_card *ret_card,
				       struct neap_oom_inputs *ret_inputs, struct neap_error *err);

/* The other: an event of a trace. */
struct neap_oom_failure {
	struct neap_trace_event event;
	struct neap_trace_levels levels;        /* just before it */
	uint64_t number, count;                 /* which of the device's it is, from 1; how many there are */
	bool predicted;                         /* it did not fail: a replay did */
	const struct neap_replay_oom *replayed; /* predicted: the state there, which the recording never was in */
#define NEAP_OOM_EARLIER 16
	uint64_t earlier[NEAP_OOM_EARLIER]; /* events of the device's first failures, before it */
	size_t earlier_count;
};
/* Fills a card whose `fragments` and `event` are set. `memory_bytes`: the device's; 0: derive it from the trace.
 * Errors: NEAP_ENOMEM. */
enum neap_status neap_oom_read_trace(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     uint64_t memory_bytes, struct neap_oom_card *card,
				     struct neap_oom_inputs *ret_inputs, struct neap_error *err);

/* The largest first. */
void neap_oom_sort_tags(struct neap_oom_tag *tags, size_t count);

/* Adds to a card from the journal what the events of PyTorch's own allocator tell: holders, purposes and free pieces.
 * The card's `fragments` and `event` are set. Errors: NEAP_ENOMEM. */
enum neap_status neap_oom_add_events(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     struct neap_oom_card *card, struct neap_oom_inputs *inputs,
				     struct neap_error *err);
/* oom_before.c: compares the step that failed with those before it, by stacks: fills evaluates, graph_bytes, larger
 * and repeated_bytes. Errors: NEAP_ENOMEM. */
enum neap_status neap_oom_compare(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				  struct neap_oom_card *card, struct neap_oom_inputs *inputs, struct neap_error *err);
/* Whether such events were added to the card. */
static inline bool neap_oom_has_events(const struct neap_oom_card *card)
{
	return card->other_allocator && card->live_requested_bytes != NEAP_OOM_UNKNOWN;
}

/* OOMs in a journal, of one device or of all. */
#define NEAP_OOM_ANY_DEVICE SIZE_MAX
/* How many OOMs come before the journal's index `end`; the journal's index of OOM number `index` (from 0), or
 * journal_count. */
size_t neap_oom_count_before(const struct neap_record *record, size_t device, size_t end);
size_t neap_oom_find(const struct neap_record *record, size_t device, size_t index);

/* Adds the rest to a card that has the figures of its failure: cause, steps before, fixes. Errors: NEAP_ENOMEM. */
enum neap_status neap_oom_conclude(struct neap_oom_card *card, const struct neap_oom_inputs *inputs,
				   struct neap_error *err);

/* oom_need.c: predicts what the whole step needs. `demand`: at the failure; if PyTorch's events were recorded, the
 * request is added to it. */
void neap_oom_find_need(struct neap_oom_card *card, const struct neap_oom_inputs *inputs, struct neap_demand *demand);
/* How many bytes such a need takes, together with the pieces that PyTorch's cache leaves. */
uint64_t neap_oom_with_pieces(uint64_t bytes);

/* The need to be ready for: of a step like those before, or if none took as much, of a later one twice as large. */
struct neap_oom_need neap_oom_later(const struct neap_oom_need *need);
/* Whether a step with this need fits in so many bytes, with the micro-batch divided. */
bool neap_oom_step_fits(const struct neap_oom_need *need, double divisor, uint64_t room_bytes);

#define NEAP_OOM_DIVISOR_MAX 64 /* of a micro-batch that is not known */
/* Adds a fix at the end. */
struct neap_fix *neap_fix_add(struct neap_oom_card *card, enum neap_fix_kind kind, uint64_t saving_bytes,
			      uint64_t uncertainty_bytes);
/* Sorts the card's fixes. */
void neap_fix_sort(struct neap_oom_card *card);
/* fix_need.c: adds the fixes of the model and its optimizer; the need and the model are known. */
void neap_fix_model_by_need(struct neap_oom_card *card);
/* Adds what an evaluation without a graph would save. */
void neap_fix_no_grad(struct neap_oom_card *card, const struct neap_oom_inputs *inputs);
/* Sets whether the fix leaves enough for the whole step; the need is known. */
void neap_fix_judge_by_need(const struct neap_oom_card *card, struct neap_fix *fix);

/* The parts of neap_oom_conclude. */
void neap_oom_find_cause(struct neap_oom_card *card, const struct neap_oom_inputs *inputs);
/* The steps before the failure in which a leak would show, and whether it does. */
struct neap_oom_floor {
	const struct neap_oom_step *steps;
	size_t count;
	struct neap_leak leak;
};
void neap_oom_fixes(struct neap_oom_card *card, const struct neap_oom_inputs *inputs,
		    const struct neap_oom_floor *floor);

/* Replays the trace on a device with card->replays.memory_bytes, and adds the results to the card and its fixes. */
enum neap_status neap_oom_replay(const struct neap_trace *trace, const struct neap_trace_oom_options *options,
				 struct neap_oom_card *card, struct neap_error *err);
/* The last part of neap_oom_replay. */
void neap_oom_replay_fixes(struct neap_oom_card *card);

/* step_headroom.c: how much memory a whole step takes with the settings under which a request failed.
 *
 * Even if the failed request fits, the rest of its step may not. If the recording holds whole steps with the same
 * settings, or with settings that differ only in the micro-batch (after a rung), neap's allocator repeats one of
 * them, with the sizes of the micro-batch that failed, on ever smaller devices. */
struct neap_step_headroom {
	uint64_t bytes;       /* of device memory: for the blocks live between steps, and the step */
	uint64_t micro_batch; /* of the step that was repeated */
	bool scaled;          /* it differs from the micro-batch that failed */
};

/* `oom`: index of the failure in the journal. Errors: NEAP_ENOENT: the recording holds no such step; NEAP_ENOMEM. */
enum neap_status neap_step_headroom(const struct neap_record *record, size_t oom, struct neap_step_headroom *ret_room,
				    struct neap_error *err);

#endif
