/* analyze/oom.h: the OOM card: why a request failed, and what would have helped. Pure.
 *
 *   a recording's journal ──── oom_journal.c ─┐            ┌─ the cause                        oom_cause.c
 *                                             ├─ one card ─┼─ the steps before                 oom_steps.c
 *   a snapshot, a text trace ─ oom_trace.c ───┘            ├─ what a whole step needs          oom_need.c
 *                                                          ├─ what would have helped           fix.c
 *                                                          └─ other settings, by replay        oom_replay.c
 *
 * One struct, one text (report/report.h) and one JSON (report/oom_json.c) serve every source; fields that a source
 * cannot fill are marked as unknown. The parent (`neap run`), or a command on demand, makes the card, but never the
 * process that has just run out of memory. Every figure was measured in this run, or is marked as predicted, with the
 * reason in words.
 *
 * A recording's journal has the device's size, the limit and the tags. A snapshot or a text trace has none of them:
 * its reserved bytes and the free bytes of the device count as the memory that the process could have had. If these
 * were enough but the request failed, a limit (a fraction) refused it, and the reserved bytes are all it could have.
 */
#ifndef NEAP_ANALYZE_OOM_H
#define NEAP_ANALYZE_OOM_H

#include "analyze/categories.h"
#include "analyze/fragments.h"
#include "analyze/predict.h"
#include "analyze/timeline.h"
#include "analyze/whatif.h"
#include "neap/train.h"
#include "trace/record.h"

enum neap_oom_cause {
	NEAP_OOM_CAPACITY,      /* live bytes and the request exceed what the device or the limit leaves */
	NEAP_OOM_LIMIT,         /* would have fitted the device, not the fraction set on the process */
	NEAP_OOM_NEIGHBOURS,    /* would have fitted without what other processes hold */
	NEAP_OOM_FRAGMENTATION, /* enough cached bytes, none of them in one piece */
	NEAP_OOM_PENDING,       /* enough bytes, but still in use by queued work */
};

/* PyTorch's allocator serves requests up to 1 MiB from one pool of segments and larger ones from another. */
enum neap_oom_pool { NEAP_OOM_POOL_UNKNOWN, NEAP_OOM_POOL_SMALL, NEAP_OOM_POOL_LARGE };

enum neap_fix_kind {
	NEAP_FIX_SMALLER_MICRO_BATCH, /* with accumulation, effective batch kept */
	NEAP_FIX_EFFICIENT_ATTENTION,
	NEAP_FIX_MIXED_PRECISION,
	NEAP_FIX_CHECKPOINTING,
	NEAP_FIX_RAISE_LIMIT,
	NEAP_FIX_FREE_NEIGHBOURS,
	NEAP_FIX_EXPANDABLE_SEGMENTS,
	NEAP_FIX_LEAK, /* memory grew from step to step: repair that first */
	NEAP_FIX_SMALLER_MODEL,
	NEAP_FIX_WAIT,      /* synchronise before the request: bytes freed are still in use by queued work */
	NEAP_FIX_SETTING,   /* of PyTorch's allocator, or neap's instead: replayed with it, the trace completes */
	NEAP_FIX_UPDATE,    /* the optimizer updates one parameter after another, without temporaries of all */
	NEAP_FIX_OPTIMIZER, /* one with less state */
	NEAP_FIX_SHARDING,  /* over several devices, or to the host */
	NEAP_FIX_NO_GRAD,   /* an evaluation without a graph, which no backward uses */
};

/* Even if this request fits, the rest of the step may not. How much a step takes is known from whole steps before it
 * that ran with the same settings and peaked higher than this one so far; else oom_need.c may predict it. */
enum neap_fix_step { NEAP_FIX_STEP_UNKNOWN, NEAP_FIX_STEP_ENOUGH, NEAP_FIX_STEP_NOT_ENOUGH };

struct neap_fix {
	enum neap_fix_kind kind;
	uint64_t saving_bytes;      /* predicted, at the moment of the failure */
	uint64_t uncertainty_bytes; /* half-width of the prediction's interval; `how` explains it */
	bool sufficient;     /* the saving covers the shortfall; replayed: the trace completes; if the step's need is
			    known: it covers that too */
	bool active_already; /* in force when it failed: shown as already in use */
	char text[160];      /* "micro-batch 64 -> 16, accumulation 1 -> 4 (effective batch stays 64)" */
	char how[240];       /* where the prediction comes from */
	enum neap_fix_step step; /* whether the saving, less its uncertainty, covers the whole step */
	bool replayed;           /* no saving is predicted: `how` says what the replay did */
	/* By kind: the micro-batch (if the card `evaluates`: the batch of the evaluation) is divided by it; the
	 * limit, as a share of the device; the parameters, as a share; bytes of state for each byte of the
	 * parameters; devices. 0: none. */
	double amount;
	/* The fix may not be enough: its saving or the step's need is a guess, or later steps may need more. */
	bool perhaps;
	/* If only later steps are unknown: how large a later step may be. Its bytes that depend on the batch may be
	 * so many tenths of this step's. 0: something else is unknown, or nothing. */
	unsigned later_tenths;
	const char *setting; /* SETTING: the value of PYTORCH_CUDA_ALLOC_CONF, static; NULL: of neap's allocator */
	int order;           /* in which the fixes were found; sorting keeps it among equals */
};

#define NEAP_OOM_FIXES         21
#define NEAP_OOM_TAGS          33
#define NEAP_OOM_PURPOSES      NEAP_CATEGORIES
#define NEAP_OOM_NAME_CAPACITY 160
#define NEAP_OOM_UNKNOWN       UINT64_MAX

/* Who holds memory: a tag, or a line of the program. */
struct neap_oom_tag {
	char tag[NEAP_OOM_NAME_CAPACITY];
	uint64_t live_bytes, peak_bytes /* NEAP_OOM_UNKNOWN: not known */, live_blocks;
};

/* A leak before the failure, of growth_bytes a step. */
struct neap_oom_leak {
	uint64_t since_step, bytes;          /* the first step that it is seen in; how much it took in all */
	uint64_t ends_step;                  /* the last step that there was memory for */
	char holder[NEAP_OOM_NAME_CAPACITY]; /* the line that holds most of it; "": not known */
	uint64_t holder_bytes;               /* the bytes that it keeps from each step */
	bool of_line;                        /* the holder is a line of the program, or a tag: not only a size */
};

/* Figures that only a replay of the trace can tell. */
struct neap_oom_replays {
	bool done;             /* false: nothing was replayed */
	bool unrecorded;       /* why not: another allocator's (PyTorch's own) allocations are not recorded */
	bool overwritten;      /* why not: the recording has lost every allocation before the failure */
	uint64_t memory_bytes; /* of the replay's device: what this process could have had */
	struct neap_whatifs whatifs;
	uint64_t smallest_bytes; /* the smallest device on which the trace, and a whole step if one is known, complete
				    with their own settings; 0: not found, or not tried */
	bool smallest_tried;
	bool smallest_whole;       /* false: a lower bound, since the rest of the failed step is not known */
	uint64_t step_bytes;       /* for a whole step, repeated with the micro-batch that failed; 0: not known */
	uint64_t step_micro_batch; /* of the recorded step that was repeated */
	uint64_t lost_events;      /* overwritten in the recording's ring */
	uint64_t before_bytes;     /* live all along, with no other detail: replayed as one block */
	uint64_t began_bytes;      /* of a snapshot: live before its first event; other settings place them again */
};

/* The predicted peak of a whole step, split by how a smaller micro-batch changes it. */
struct neap_oom_need {
	bool known;   /* for PyTorch's own allocator, if its events are recorded or its process described its model */
	bool sure;    /* false: unknown is how far the step was, or how much the optimizer keeps */
	bool alike;   /* whole steps before took as much; else later ones may take more than this one */
	bool repeats; /* the sizes are those of the step before, but the model holds more: its state, its gradients */
	uint64_t model_bytes;  /* parameters, gradients and optimizer state */
	uint64_t fixed_bytes;  /* model_bytes and all else that does not depend on the micro-batch */
	uint64_t scaled_bytes; /* with the micro-batch that failed */
	uint64_t update_bytes; /* temporaries of an update, after the scaled bytes are freed */
};

struct neap_oom_card {
	enum neap_trace_source source;
	bool other_allocator;   /* a recording of another allocator than neap's: PyTorch's own */
	bool predicted;         /* nothing failed: a replay on a device of that size did */
	uint64_t time_ns;       /* only in recordings */
	uint64_t event;         /* of the device, in the trace; NEAP_OOM_UNKNOWN: made from the journal alone */
	uint64_t number, count; /* it is OOM `number`, from 1, of the device's `count`; 0: not counted */
	uint64_t step;          /* the step in which it failed, from 1; 0: unknown */
	uint32_t device;
	uint64_t requested_bytes, block_bytes;
	char tag[NEAP_OOM_NAME_CAPACITY]; /* what it was for, or the line that asked; "" if unknown */
	/* Unknown: a total of 0, others_bytes and largest_free_bytes of NEAP_OOM_UNKNOWN. The limit is UINT64_MAX if
	 * there is none, or if it is unknown. */
	uint64_t device_total_bytes, device_free_bytes, limit_bytes;
	uint64_t allocated_bytes, reserved_bytes, cached_bytes, pending_bytes, others_bytes, largest_free_bytes;
	uint64_t others_asked,
		others_freed_bytes; /* processes that were asked before to empty their cache; bytes that they freed */
	uint64_t room_bytes; /* what this process could have had in all, within its limit; if the limit is unknown:
				what it had */
	/* Free where the request could not go: the largest piece of another stream, pool or class of sizes, and (in a
	 * trace with addresses) everything in the private pools of captured graphs that are not its own. */
	uint64_t elsewhere_free_bytes, pools_free_bytes;
	/* The pool of the request, and the pool of the piece elsewhere if that is why it could not be used. */
	enum neap_oom_pool asked_pool, elsewhere_pool;
	double fraction;               /* set in a snapshot's settings; 0: not known */
	uint64_t context_bytes;        /* this process's own context, a part of others_bytes; 0: not known */
	uint64_t shortfall_bytes;      /* bytes missing for this one request */
	uint64_t live_requested_bytes; /* before rounding; NEAP_OOM_UNKNOWN: from the journal alone */
	uint64_t unknown_bytes;        /* live, for an unknown purpose */
	uint64_t
		step_peak_bytes; /* the highest allocated bytes of whole steps before, with these settings; 0: none */
	uint64_t step_reserved_bytes; /* the most reserved at the end of any of those steps */
	bool steps_vary;              /* the peaks of those steps differ: a later one may take more than any before */
	uint64_t growth_bytes;        /* how much more each step needs than the one before: a leak; 0: none found */
	struct neap_oom_leak leak;
	/* Live bytes that forward made in steps that earlier failures ended: an exception that is kept also keeps the
	 * blocks that its frames held. 0: none, or hardly any. */
	uint64_t left_bytes;
	struct neap_event_oom_model model; /* as the process described it; zero: it did not */
	struct neap_oom_need need;
	bool evaluates;       /* the step that failed was evaluating: no backward would have followed */
	uint64_t graph_bytes; /* evaluates: what its graph held. 0: none, or not known */
	/* How many times as much the request asked for as its line ever did in whole steps before. 0: not more, or
	 * not known. */
	double larger;
	bool model_alone; /* its parameters, gradients and optimizer state exceed room_bytes */
	enum neap_oom_cause cause;
	struct neap_oom_tag tags[NEAP_OOM_TAGS]; /* largest first */
	size_t tag_count;
	/* Where the tags are lines, from events: what is live by purpose; of the model, what the process itself
	 * counted. Largest first. */
	struct neap_oom_tag purposes[NEAP_OOM_PURPOSES];
	size_t purpose_count;
	struct neap_fix fixes[NEAP_OOM_FIXES]; /* a leak first; then those that suffice, the cheapest first; those
						that do not, by saving; last, those already in force */
	size_t fix_count;
	struct neap_split split;   /* in force when it failed; zero: unknown */
	uint32_t rungs_active;     /* likewise: bits 1u << enum neap_rung */
	uint32_t layers;           /* of the model; 0: unknown */
	enum neap_rung rung_taken; /* by the process itself, after the failure; NEAP_RUNG_NONE */
	struct neap_split split_after;
#define NEAP_OOM_PINS 3
	/* The holder of most live bytes in each of the most pinned segments. */
	char pins[NEAP_OOM_PINS][NEAP_OOM_NAME_CAPACITY];
	struct neap_fragments fragments; /* at the failure; known: false where addresses are not */
	struct neap_oom_replays replays;
};

/* How many OOMs the recording has. */
size_t neap_oom_count(const struct neap_record *record);
/* The card of OOM number `index` (from 0), from the journal alone, without replays. Errors: NEAP_ENOENT. */
enum neap_status neap_oom_card(const struct neap_record *record, size_t index, struct neap_oom_card *ret_card,
			       struct neap_error *err);

/* The analysis of the device that failed; all borrowed. */
struct neap_trace_parts {
	const struct neap_timeline *timeline;
	const struct neap_lives *lives;
	const struct neap_sites *sites;
	const struct neap_steps *steps;
};

struct neap_trace_oom_options {
	size_t index; /* the number of the device's OOM, from 0; SIZE_MAX: the last */
	/* Instead: a failure that is not in the trace, but happened in a replay of it on a device of memory_bytes,
	 * with its own settings. NULL: none. */
	const struct neap_replay_oom *predicted;
	uint64_t memory_bytes;         /* what this process could have had; 0: derive it from the trace */
	struct neap_deadline deadline; /* replays not done by then count as not tried */
	/* As in neap_replay_options. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
};

/* The card of a trace's failure. Errors: NEAP_ENOENT when there is none; as neap_replay. */
enum neap_status neap_trace_oom_card(const struct neap_trace_parts *parts,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err);

/* The same for a trace that has not been analysed: does the analysis itself. */
enum neap_status neap_trace_oom_read(const struct neap_trace *trace, size_t device,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err);

/* The same for a recording. `index` counts the OOMs of all devices, as neap_oom_count does; options->index is
 * ignored. */
enum neap_status neap_trace_oom_recorded(const struct neap_trace *trace, size_t index,
					 const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
					 struct neap_error *err);

/* The peak of a step with this need, once its micro-batch is divided by `divisor`. */
uint64_t neap_oom_needed(const struct neap_oom_need *need, double divisor);

/* "capacity", "limit", "neighbours", "fragmentation", "pending"; "smaller micro-batch", ... Static. */
const char *neap_oom_cause_name(enum neap_oom_cause cause);
const char *neap_fix_name(enum neap_fix_kind kind);

#endif
