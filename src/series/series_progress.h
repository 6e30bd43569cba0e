/* series/series_progress.h: the state of a series, for one line on a terminal. Unknown figures have values of their
 * own. */
#ifndef NEAP_SERIES_SERIES_PROGRESS_H
#define NEAP_SERIES_SERIES_PROGRESS_H

#include "series/spec.h"

#include <stddef.h>
#include <stdint.h>

struct neap_series_progress {
	size_t count, ended; /* experiments in all, and those that have ended */
	size_t running_count;
	struct neap_progress_run {
		const char *name;
		size_t number;       /* in the file, from 1 */
		uint64_t elapsed_ns; /* since its attempt began */
		uint64_t step;       /* 0: unknown */
		double loss;         /* NaN: unknown */
		uint64_t used_bytes; /* reserved by its allocators, plus its contexts if the limit is the device's; 0:
					not attached */
		uint64_t limit_bytes; /* a fraction of the device, or all it has; UINT64_MAX unknown */
		uint64_t left_ns; /* as long as its last successful run took, less what has passed; UINT64_MAX unknown
				   */
	} running[NEAP_SPEC_PARALLEL];
};

/* The line, at most `width` columns; "" if nothing runs or nothing would fit. Pure. `capacity`: of ret_text. */
void neap_series_progress_format(const struct neap_series_progress *progress, size_t width, char *ret_text,
				 size_t capacity);

#endif
