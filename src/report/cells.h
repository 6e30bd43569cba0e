/* report/cells.h: a run's figures as the short texts that the table and the page both show, and the order of runs.
 * One thread; only neap_report_rank allocates memory. */
#ifndef NEAP_REPORT_CELLS_H
#define NEAP_REPORT_CELLS_H

#include "base/buffer.h"
#include "store/result.h"

enum neap_report_column {
	NEAP_COLUMN_NAME,
	NEAP_COLUMN_OUTCOME,
	NEAP_COLUMN_PEAK,
	NEAP_COLUMN_HEADROOM,
	NEAP_COLUMN_FITS, /* the largest micro-batch predicted to fit */
	NEAP_COLUMN_DRAIN,
	NEAP_COLUMN_RETRIES,
	NEAP_COLUMN_RUNG,
	NEAP_COLUMN_LEAK,
	NEAP_COLUMN_TIME,
	NEAP_COLUMN_COUNT
};

enum neap_report_tone { NEAP_TONE_PLAIN, NEAP_TONE_GOOD, NEAP_TONE_WARN, NEAP_TONE_BAD };

struct neap_report_cells {
	char text[NEAP_COLUMN_COUNT][256]; /* "-": unknown; no control characters; valid UTF-8 ends */
	enum neap_report_tone tone[NEAP_COLUMN_COUNT];
};

extern const struct neap_report_heading {
	const char *title; /* "peak" */
	bool right;        /* numbers */
} neap_report_headings[NEAP_COLUMN_COUNT];

void neap_report_cells(const struct neap_result *result, struct neap_report_cells *ret_cells);

/* The run's peak: the driver's figure, or the bytes that its allocators reserved if these are more. 0: unknown. */
uint64_t neap_report_peak(const struct neap_result *result);

/* Returns `count` pointers into `results`, the largest peak first, equal ones in their order; free() it. NULL: out of
 * memory. */
const struct neap_result **neap_report_rank(const struct neap_result *results, size_t count);

/* How many columns a terminal needs for `length` bytes of UTF-8, with one column for each character. */
size_t neap_report_width(const char *text, size_t length);

#endif
