/* neap/leak.h: does memory grow with the steps? A pure function, for loops that have no session (neap/train.h).
 *
 * Input: the lowest allocated bytes within each step (its low-water mark), in order. Warm-up steps are found and left
 * out; then a robust slope (Theil-Sen, the median of pairwise slopes) and a rank test for a trend (Mann-Kendall). A
 * leak is reported only if the slope is positive, its confidence is at least 0.999, and growth continues in the last
 * third: a change that levels off (warm-up, a cache that fills, another shape) is no leak. With fewer than 40 steps
 * the confidence must be higher (0.9999). If a bent warm-up hides a leak, the second half of at least 60 steps is
 * tested alone.
 *
 * Sources: Sen (1968), doi:10.1080/01621459.1968.10480934; Mann (1945), doi:10.2307/1907187.
 */
#ifndef NEAP_LEAK_H
#define NEAP_LEAK_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_leak_verdict {
	NEAP_LEAK_TOO_SHORT, /* fewer than 20 steps after warm-up: no statement */
	NEAP_LEAK_CLEAN,
	NEAP_LEAK_FOUND,
};

struct neap_leak {
	enum neap_leak_verdict verdict;
	double bytes_per_step; /* the slope after warm-up, whatever the verdict */
	/* Of a leak that was found: between them it lies with 99 % confidence (Sen 1968). Else both are the slope. */
	double low_bytes_per_step, high_bytes_per_step;
	double confidence;    /* 0..0.9999 that there is an upward trend */
	size_t warm_up_steps; /* left out */
	size_t steps;         /* looked at */
	/* From the last step, with `free_bytes` left; UINT64_MAX: never at this slope,
	 * or not known, where `free_bytes` was UINT64_MAX. `low`: at the highest slope of
	 * the interval, `high`: at its lowest. */
	uint64_t steps_until_full, low_steps_until_full, high_steps_until_full;
};

/* Of more than 512 steps, the lowest of each of 512 equal stretches is used. O(steps) plus a bounded part (a
 * few milliseconds at 512); no allocation, 12 KiB of stack. `low_bytes` may be NULL when `steps` is 0. */
NEAP_API void neap_leak_test(const uint64_t *low_bytes, size_t steps, uint64_t free_bytes,
			     struct neap_leak *ret_leak);

#ifdef __cplusplus
}
#endif
#endif
