/* Runs to report on: one of each kind that a series of training runs produces. */
#ifndef TESTS_REPORT_RUNS_H
#define TESTS_REPORT_RUNS_H

#include "analyze/oom.h"
#include "store/result.h"

#define RUN_COUNT 5

/* Fills RUN_COUNT results; runs_fini frees them. */
void runs_init(struct neap_result results[RUN_COUNT]);
void runs_fini(struct neap_result results[RUN_COUNT]);

/* A request that did not fit, and another one with another cause. */
void card_of_capacity(struct neap_oom_card *ret_card);
void card_of_fragmentation(struct neap_oom_card *ret_card);

#endif
