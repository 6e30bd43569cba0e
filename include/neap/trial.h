/* neap/trial.h: trials inside one process. Each trial returns memory to the baseline, and reports the allocations
 * that survived it.
 *
 *     for each learning rate:
 *         neap_trial_begin(&trial, alloc, log, "lr=0.1")
 *         train, free everything
 *         neap_trial_end(&trial, &result)            empties the cache, compares with the beginning, logs:
 *
 *     trial lr=0.1: 3 allocations survive, 12.0 MiB: 8.00 MiB activations, 4.00 MiB batch
 *     trial lr=0.1:   8.00 MiB activations at 0x7f1c40000000, stream 0, allocation 12 of 340
 *
 * A survivor is a block that was allocated after the trial began and is live when it ends: this is exact, by the
 * number that the allocator gives each allocation. Blocks that were live before are the baseline and never survivors.
 *
 * Trials may nest: each counts from its own beginning, so what an inner one left is a survivor of the outer one too,
 * unless it was freed in between. One allocator has one baseline: with several devices, one trial for each.
 *
 * Threads: a struct neap_trial is used by one thread at a time; what other threads allocate meanwhile counts too.
 */
#ifndef NEAP_TRIAL_H
#define NEAP_TRIAL_H

#include "neap/train.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NEAP_TRIAL_SURVIVORS 16 /* named one by one: the largest */

/* The caller's storage; its fields are the library's. */
struct neap_trial {
	struct neap_scope scope;
	char name[64];
	uint64_t first_serial; /* of the first allocation made inside */
};

struct neap_survivor {
	uint64_t address, bytes, requested_bytes;
	uint64_t number; /* it was the trial's Nth allocation, from 1 */
	void *stream;
	char tag[48]; /* "" untagged */
};

struct neap_trial_tag {
	char tag[48];
	uint64_t bytes, blocks;
};

struct neap_trial_result {
	uint64_t allocations;                    /* made inside */
	uint64_t survivor_count, survivor_bytes; /* all of them; bytes as the allocator rounded them */
	size_t tag_count, listed_count;
	struct neap_trial_tag tags[NEAP_TAGS_MAX + 2];     /* survivors by tag, largest first */
	struct neap_survivor listed[NEAP_TRIAL_SURVIVORS]; /* largest first; of equal ones the older first */
	uint64_t baseline_bytes;                           /* allocated when it began */
	uint64_t baseline_freed_bytes;                     /* of those, what was freed inside */
	uint64_t allocated_bytes, reserved_bytes;          /* at its end, after the cleanup */
	uint64_t cleanup_freed_bytes, cleanup_ns;
	struct neap_error cleanup; /* status NEAP_OK; else why the cache was not emptied */
	bool back_to_baseline;     /* nothing survived and the cache was emptied */
};

/* Empties the cache that an earlier stretch of the program left, if there is any, and takes the baseline. `name` (cut
 * at 63 bytes) and `log` (NULL: silent) as in neap_scope_begin. If the cache cannot be emptied, this is logged: the
 * baseline counts live blocks, and so does not depend on the cache. */
NEAP_API void neap_trial_begin(struct neap_trial *trial, struct neap_alloc *alloc, const struct neap_log_sink *log,
			       const char *name);

/* Empties the cache, finds the survivors, logs. After it the struct can begin another trial; a second end finds
 * nothing and changes nothing, and gives a zeroed result. `ret_result` may be NULL. Takes no host memory. */
NEAP_API void neap_trial_end(struct neap_trial *trial, struct neap_trial_result *ret_result);

#ifdef __cplusplus
}
#endif
#endif
