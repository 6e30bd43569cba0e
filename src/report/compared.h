/* report/compared.h: what `neap compare` shows of two traces, A and B: figures side by side, who holds more and who
 * holds less, and whether cleanups pay. One thread.
 *
 *   load A, load B --> find --> text or JSON --> fini
 */
#ifndef NEAP_REPORT_COMPARED_H
#define NEAP_REPORT_COMPARED_H

#include "analyze/analysis.h"
#include "analyze/changes.h"
#include "base/buffer.h"
#include "store/json.h"

/* UINT64_MAX in any of these figures: not known. */
struct neap_compared_side {
	const char *path; /* borrowed; it is shown */
	struct neap_trace *trace;
	struct neap_analysis analysis;
	uint64_t cleanups, cleanup_ns, cleanup_freed; /* only recordings of neap's have them */
	bool unrecorded;                              /* it has no allocation, only what its process counted */
	/* By the process's count, or an exact replay. */
	uint64_t allocated_peak, counted_reserved_peak;
};

/* A zeroed struct is empty. */
struct neap_compared {
	struct neap_compared_side before, after;
	struct neap_change *changes;
	size_t change_count;
};

/* Reads a trace into `side`, and analyzes the device that has most of its events. neap_compared_fini frees it, also
 * after a failure. Errors: those of reading it. */
enum neap_status neap_compared_load(const char *path, struct neap_compared_side *side, struct neap_error *err);

/* Finds the changes, once both sides are loaded. Errors: NEAP_ENOMEM. */
enum neap_status neap_compared_find(struct neap_compared *compared, struct neap_error *err);
void neap_compared_fini(struct neap_compared *compared);

/* Whether one of the two ran on the simulator, so that their times do not compare. */
bool neap_compared_simulated(const struct neap_compared *compared);

void neap_report_compared(struct neap_buffer *out, const struct neap_compared *compared);

/* compared_page.c. A page for a browser, which needs nothing else and no script. Errors: NEAP_ENOMEM. */
enum neap_status neap_compared_page(struct neap_buffer *out, const struct neap_compared *compared,
				    struct neap_error *err);

/* Schema 1. The caller owns the result. Failed allocations are counted (neap_json_failures). */
json_t *neap_compared_json(const struct neap_compared *compared);

#endif
