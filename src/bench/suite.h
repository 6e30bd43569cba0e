/* bench/suite.h: the rows of `neap bench alloc`: the cases, each with several sizes and numbers of blocks. They are
 * measured for neap's allocator and for glibc's malloc within the same minutes. One thread.
 *
 *   bytes, threads   the caller's choices
 *   add              adds a case's rows, or all
 *   measure          fills the rows' figures
 */
#ifndef NEAP_BENCH_SUITE_H
#define NEAP_BENCH_SUITE_H

#include "bench/cases.h"

#define NEAP_BENCH_ROWS 64

struct neap_bench_row {
	const char *name;
	struct neap_bench_plan plan;
	bool recorded;  /* with the recorder on */
	bool has_glibc; /* false: its blocks would take too much of this machine */
	struct neap_bench_figures own, glibc;
};

struct neap_bench_suite {
	size_t bytes;     /* of the cases with one size; 0: each case's own */
	unsigned threads; /* of the case "threads": the most; at most NEAP_BENCH_STREAMS */
	struct neap_bench_row rows[NEAP_BENCH_ROWS];
	size_t count;
	double loop_ns; /* of a pair of calls that do nothing */
};

/* Adds the rows of a case, each once. `name`: NULL all cases. Returns false if there is no such case. */
bool neap_bench_suite_add(struct neap_bench_suite *suite, const char *name);

/* Measures all rows. Calls `progress` (may be NULL) before each, with its number from 1. Errors: those of
 * neap_bench_run, and of making the recording in /tmp. */
enum neap_status neap_bench_suite_measure(struct neap_bench_suite *suite,
					  void (*progress)(size_t number, size_t count), struct neap_error *err);

#endif
