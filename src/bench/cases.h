/* bench/cases.h: the cases of `neap bench alloc`: what each does with a heap, and how long that takes.
 *
 *   hit          one size, allocated and freed, beside `live` blocks of that size
 *   batch        allocates 64 blocks of one size, then frees them in the same order
 *   replacement frees a random one of `live` blocks, and allocates another, of a random size from 512 B to 1 MiB
 *   shapes       the same with 48 sizes, as in training
 *   populated    allocates and frees a random size, beside `live` free blocks of such sizes that live blocks keep
 *                apart
 *   miss         allocates and frees a size that was not requested lately: each pair has another size
 *   cross        one thread allocates, another frees, through a ring of 1024
 *
 * Every thread has a stream of its own and its own blocks. A run lasts some 20 ms; the figures are those of 7 runs.
 * They measure processor time, which other programs disturb less than elapsed time; a thread that waits for another
 * one without sleeping uses processor time, too. `elapsed` is from the first thread's start to the last one's end.
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

/* Errors: NEAP_EOOM if the heap has too little memory, NEAP_ENOMEM, NEAP_EUNAVAILABLE if a thread cannot be
 * started. */
enum neap_status neap_bench_run(struct neap_bench_heap *heap, const struct neap_bench_plan *plan,
				struct neap_bench_figures *ret_figures, struct neap_error *err);

#endif
