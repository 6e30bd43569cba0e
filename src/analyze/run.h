/* analyze/run.h: the figures of one recording, for reports. Pure functions over a struct neap_record. */
#ifndef NEAP_ANALYZE_RUN_H
#define NEAP_ANALYZE_RUN_H

#include "neap/train.h"
#include "trace/record.h"
#include "train/leak.h"

/* One point of the memory curve. */
struct neap_curve_point {
	uint64_t time_ns; /* since the first event */
	uint64_t allocated_bytes, reserved_bytes;
};

enum neap_fluctuation_cause {
	NEAP_FLUCTUATION_NONE,         /* amplitude below 5 % of the peak */
	NEAP_FLUCTUATION_STEP,         /* once per step: forward and backward */
	NEAP_FLUCTUATION_ACCUMULATION, /* several teeth per step: one per micro-batch */
	NEAP_FLUCTUATION_OTHER,
};

/* The kind of process, from the last NEAP_EVENT_PROCESS. Without one: a plain process, and all else is unknown. */
struct neap_run_process {
	enum neap_process_role role;
	uint64_t rank, local_rank, ranks, parent; /* UINT64_MAX: unknown */
	/* UUIDs of the devices that it used, separated by spaces; as many as fit. */
	char devices[4 * NEAP_RECORD_NAME_ROOM];
};

/* Steps, ticks, settings and the loss are those of the lane (lanes.h) with the most steps; the leak is the steepest
 * of any lane; OOMs, rungs and cleanups are counted over all lanes; peaks are the highest of any device. */
struct neap_run_facts {
	uint64_t steps, ticks, ooms, rungs, cleanups;
	uint64_t last_step;    /* its number */
	const char *steps_are; /* if not updates: NEAP_STEP_BATCH or NEAP_STEP_FORWARD; else NULL */
	uint64_t cleanup_freed_bytes, cleanup_ns;
	/* Bytes that were freed, but reserved again by the next cleanup; the figures above exclude them. */
	uint64_t cleanup_retaken_bytes;
	uint64_t peak_allocated_bytes, peak_reserved_bytes; /* as far back as the recording goes */
	struct neap_split first_split, last_split;          /* zero without a session */
	/* The rungs in force at the first and at the last split: bits 1u << enum neap_rung. */
	uint32_t first_rungs, last_rungs;
	uint32_t layers;  /* of the model; 0: unknown */
	double last_loss; /* NAN when there was none */
	struct neap_leak leak;
	uint64_t restarts; /* how often the process restarted in place */
	/* The last forecast of the session itself: the step at which memory ends, and its interval; 0: none, or the
	 * run went beyond it. */
	uint64_t memory_ends_step, memory_ends_low_step, memory_ends_high_step;
	struct neap_run_process process;
	struct {
		uint64_t amplitude_bytes; /* median over steps of (peak - lowest) */
		double teeth_per_step; /* how often allocated rises and falls by half the amplitude within a step */
		enum neap_fluctuation_cause cause;
	} fluctuation;
};

void neap_run_facts(const struct neap_record *record, uint64_t device_total_bytes, struct neap_run_facts *ret_facts);

/* The last NEAP_EVENT_REQUEST that is still open: no step of its device and no restart came after it. NULL: none.
 * Borrowed. */
const struct neap_event_request *neap_run_request(const struct neap_record *record);

/* The memory curve of the device whose memory rose highest, with at most `capacity` points: allocations, and steps'
 * peaks and troughs where the ring no longer has the allocations. Keeps every local extreme that fits. Returns
 * the number written. */
size_t neap_run_curve(const struct neap_record *record, struct neap_curve_point *ret_points, size_t capacity);

#endif
