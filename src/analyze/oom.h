/* analyze/oom.h: the OOM card: why a request failed, and what would have helped, computed from a recording. Pure.
 *
 * Run by the parent (`neap run`), never inside the process that has just run out. Every figure is a measured one of
 * this run or is marked as predicted, with the reason in words.
 */
#ifndef NEAP_ANALYZE_OOM_H
#define NEAP_ANALYZE_OOM_H

#include "neap/train.h"
#include "trace/record.h"

enum neap_oom_cause {
	NEAP_OOM_CAPACITY,      /* live bytes and the request exceed what the device or the limit leaves */
	NEAP_OOM_LIMIT,         /* would have fitted the device, not the fraction set on the process */
	NEAP_OOM_NEIGHBOURS,    /* would have fitted without what other processes hold */
	NEAP_OOM_FRAGMENTATION, /* enough cached bytes, none of them in one piece */
	NEAP_OOM_PENDING,       /* enough bytes, but still in use by queued work */
};

enum neap_fix_kind {
	NEAP_FIX_SMALLER_MICRO_BATCH, /* with accumulation, effective batch kept */
	NEAP_FIX_EFFICIENT_ATTENTION,
	NEAP_FIX_MIXED_PRECISION,
	NEAP_FIX_CHECKPOINTING,
	NEAP_FIX_RAISE_LIMIT,
	NEAP_FIX_FREE_NEIGHBOURS,
	NEAP_FIX_EXPANDABLE_SEGMENTS,
	NEAP_FIX_LEAK, /* memory grew with the steps: fix that first */
	NEAP_FIX_SMALLER_MODEL,
	NEAP_FIX_WAIT, /* synchronise before the request: bytes freed are still in use by queued work */
};

struct neap_fix {
	enum neap_fix_kind kind;
	uint64_t saving_bytes;      /* predicted, at the moment of the failure */
	uint64_t uncertainty_bytes; /* half-width of the prediction's interval; how: in `how` */
	bool sufficient;            /* the saving covers the shortfall */
	bool active_already;        /* struck out */
	char text[160];             /* "micro-batch 64 -> 16, accumulation 1 -> 4 (effective batch stays 64)" */
	char how[160];              /* where the prediction comes from */
};

#define NEAP_OOM_FIXES 10
#define NEAP_OOM_TAGS 33

struct neap_oom_tag {
	char tag[NEAP_RECORD_NAME_ROOM];
	uint64_t live_bytes, peak_bytes, live_blocks;
};

struct neap_oom_card {
	uint64_t time_ns, step;
	uint32_t device;
	uint64_t requested_bytes, block_bytes;
	char tag[NEAP_RECORD_NAME_ROOM]; /* what it was for; "" when untagged */
	uint64_t device_total_bytes, device_free_bytes, limit_bytes;
	uint64_t allocated_bytes, reserved_bytes, cached_bytes, pending_bytes, others_bytes, largest_free_bytes;
	uint64_t context_bytes;   /* of others_bytes, this process's own context; 0: not known */
	uint64_t shortfall_bytes; /* bytes missing for this one request */
	enum neap_oom_cause cause;
	struct neap_oom_tag tags[NEAP_OOM_TAGS]; /* largest first */
	size_t tag_count;
	struct neap_fix fixes[NEAP_OOM_FIXES]; /* a leak before all else; the sufficient, cheapest first;
						the insufficient by saving; the active already */
	size_t fix_count;
	struct neap_split split; /* in force when it failed; zero: unknown */
	uint32_t rungs_active;   /* likewise: bits 1u << enum neap_rung */
	uint32_t layers;         /* of the model; 0: unknown */
	enum neap_rung rung_taken; /* by the process itself, afterwards; NEAP_RUNG_NONE */
	struct neap_split split_after;
};

/* How many OOMs the recording has. */
size_t neap_oom_count(const struct neap_record *record);
/* The card of the `index`th (from 0). Errors: NEAP_ENOENT. */
enum neap_status neap_oom_card(const struct neap_record *record, size_t index, struct neap_oom_card *ret_card,
			       struct neap_error *err);

#endif
