/* report/comparison.h: one run beside another of the same series, after a change of settings: what it saved and what
 * it cost, as measured, and what had been to expect. */
#ifndef NEAP_REPORT_COMPARISON_H
#define NEAP_REPORT_COMPARISON_H

#include "analyze/predict.h"
#include "base/buffer.h"

struct neap_compared {
	char name[160];
	struct neap_train_settings settings; /* in force at its end; zero: no session */
	uint64_t peak_bytes;                 /* allocated, highest */
	uint64_t step_ns;                    /* time of a step, of the fastest tenth; 0 unknown */
	uint64_t step_median_ns;             /* likewise, half of them: how far the figure may be off; 0: unknown */
};

struct neap_comparison {
	struct neap_compared run, base;
	struct neap_prediction prediction; /* of run's peak, from nothing but base's recording */
	bool predicted;
};

/* One line and, indented, its figures:
 *
 *     mixed against plain: mixed precision
 *       peak allocated 12.1 MiB -> 7.24 MiB (-40 %), predicted 8.4 MiB ± 1.3 MiB;
 *       a step 28.2 ms -> 29.1 ms (x 1.13, 1.02 to 1.21)
 *
 * Names are only cleaned of bytes that are not text: a page escapes what it is given. */
void neap_report_comparison_head(struct neap_buffer *out, const struct neap_comparison *comparison);
void neap_report_comparison_figures(struct neap_buffer *out, const struct neap_comparison *comparison);

/* All of them for a terminal, below a table; nothing when there are none. */
void neap_report_comparisons(struct neap_buffer *out, const struct neap_comparison *comparisons, size_t count);

#endif
