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
		/* The bytes that its allocators reserve, with the contexts if the limit is the device's; 0: not
		 * attached */
		uint64_t used_bytes;
		/* The fraction of the device that it may use, or the whole device; UINT64_MAX: unknown. */
		uint64_t limit_bytes;
		/* The time that its last successful run took, minus the elapsed time; UINT64_MAX: unknown. */
		uint64_t left_ns;
	} running[NEAP_SPEC_PARALLEL];
};

/* Formats the line, at most `width` columns. "" if nothing runs, or if the width is too small for any of it. Pure.
 * `capacity`: of ret_text. */
void neap_series_progress_format(const struct neap_series_progress *progress, size_t width, char *ret_text,
				 size_t capacity);

#endif
