/* tests/estimate/judge_test.h: a small made-up run for the judge, and a plan of one GPU whose memory a test sets. */
#ifndef NEAP_TESTS_JUDGE_TEST_H
#define NEAP_TESTS_JUDGE_TEST_H

#include "estimate/estimate.h"

#include "support/test.h"

#define PAGE      NEAP_REPLAY_PAGE_BYTES
#define CODE      (512 * MIB) /* what context.c assumes: for all code, */
#define LIBRARIES (256 * MIB) /* for NVIDIA's libraries, */
#define VERSIONS  (64 * MIB)  /* for other drivers */
#define BARE      (100 * MIB)
#define OWN       (10 * MIB) /* the driver's */
#define REQUESTED (20 * MIB) /* by `plain`: the smallest memory in which it completes */

extern const char plain[]; /* a trace of one block */
extern struct sim_profile profile;

struct world {
	struct neap_estimate_plan plan;
	struct neap_estimate_run run;
	struct neap_estimate_verdict verdict;
};

/* One GPU, and one process that ran until it was steady. */
struct world *make(const char *text);
void drop(struct world *world);
void add_gap(struct world *world, const char *library, const char *function, uint64_t calls, uint64_t low,
	     uint64_t high);

/* Judges for a GPU with this much memory besides what its driver takes. */
const struct neap_estimate_verdict *judge(struct world *world, uint64_t bytes);
/* Judges, and fails the test if the verdict is another one. */
void expect(struct world *world, uint64_t bytes, enum neap_estimate_fits fits, enum neap_estimate_doubt doubt,
	    int64_t headroom);

#define YES   NEAP_ESTIMATE_YES, NEAP_ESTIMATE_SURE
#define NO    NEAP_ESTIMATE_NO, NEAP_ESTIMATE_SURE
#define MAYBE NEAP_ESTIMATE_UNSURE

#endif
