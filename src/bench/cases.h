/* bench/cases.h: what `neap bench alloc` makes a heap do, and how long it takes.
 *
 *   hit          one size, taken and given back, beside `live` blocks of that size
 *   batch        64 of one size are taken, then given back in the order of their taking
 *   replacement  of `live` blocks one at random is given back and another taken, of a random size from 512 B to 1 MiB
 *   shapes       the same, of 48 sizes, as training has them
 *   populated    a random size is taken and given back, beside `live` free blocks of such sizes that live ones keep
 *                apart
 *   miss         a size that was not asked for lately is taken and given back: each pair has another one
 *   cross        one thread takes, another gives back, through a ring of 1024
 *
 * Every thread has a stream of its own and its own blocks. A run lasts some 20 ms; the figures are those of 7 runs.
 * They are of processor time, which other programs disturb less than the time that elapsed; a thread that waits for
 * another one without sleeping uses it as well. `elapsed` is from the first thread's start to the last one's end.
 */
#ifndef NEAP_BENCH_CASES_H
#define NEAP_BENCH_CASES_H

#include "bench/heap.h"

enum neap_bench_kind {
	NEAP_BENCH_HIT,
	NEAP_BENCH_BATCH,
	NEAP_BENCH_REPLACEMENT,
	NEAP_BENCH_SHAPES,
	NEAP_BENCH_POPULATED,
	NEAP_BENCH_MISS,
	NEAP_BENCH_CROSS,
	NEAP_BENCH_KINDS
};

struct neap_bench_plan {
	enum neap_bench_kind kind;
	size_t bytes; /* of hit, batch, cross; else 0 */
	size_t live;  /* blocks of each thread */
	unsigned threads;
};

struct neap_bench_figures {
	double ns;        /* per pair, of the thread that used most: the median of the runs */
	double low, high; /* the fastest and the slowest run */
	double elapsed;   /* per pair of each thread: the median of the runs */
	double p999;      /* of single pairs, in a run of its own, less what reading the clock takes */
};

/* Errors: NEAP_EOOM where the heap has not enough, NEAP_ENOMEM, NEAP_EUNAVAILABLE where a thread cannot be had. */
enum neap_status neap_bench_run(struct neap_bench_heap *heap, const struct neap_bench_plan *plan,
				struct neap_bench_figures *ret_figures, struct neap_error *err);

#endif
