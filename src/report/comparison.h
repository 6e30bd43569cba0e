/* report/comparison.h: compares two runs of one series that differ in their settings: the measured savings and
 * cost, and the predicted ones. */
#ifndef NEAP_REPORT_COMPARISON_H
#define NEAP_REPORT_COMPARISON_H

#include "analyze/predict.h"
#include "base/buffer.h"

struct neap_compared {
	char name[160];
	struct neap_train_settings settings; /* in force at its end; zero: no session */
	uint64_t peak_bytes;                 /* allocated, highest */
	uint64_t step_ns;                    /* time of a step: the fastest tenth; 0: unknown */
	uint64_t step_median_ns;             /* likewise: the median; shows how far step_ns may be off. 0: unknown */
};

struct neap_comparison {
	struct neap_compared run, base;
	struct neap_prediction prediction; /* of the run's peak, from the base's recording alone */
	bool predicted;
};

/* One line and, indented, its figures:
 *
 *     mixed against plain: mixed precision
 *       peak allocated 12.1 MiB -> 7.24 MiB (-40 %), predicted 8.4 MiB ± 1.3 MiB;
 *       a step 28.2 ms -> 29.1 ms (x 1.13, 1.02 to 1.21)
 *
 * Names are only cleaned of bytes that are not text: a page escapes them itself. */
void neap_report_comparison_head(struct neap_buffer *out, const struct neap_comparison *comparison);
void neap_report_comparison_figures(struct neap_buffer *out, const struct neap_comparison *comparison);

/* All comparisons for a terminal, below a table; nothing when there are none. */
void neap_report_comparisons(struct neap_buffer *out, const struct neap_comparison *comparisons, size_t count);

#endif
