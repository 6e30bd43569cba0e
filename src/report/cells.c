/* report/cells.c: turns figures into words. An unknown figure is "-", never 0. */
#include "report/cells.h"
#include "base/printable.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct neap_report_heading neap_report_headings[NEAP_COLUMN_COUNT] = {
	[NEAP_COLUMN_NAME] = {"name", false},      [NEAP_COLUMN_OUTCOME] = {"outcome", false},
	[NEAP_COLUMN_PEAK] = {"peak", true},       [NEAP_COLUMN_HEADROOM] = {"headroom", true},
	[NEAP_COLUMN_FITS] = {"fits", true},       [NEAP_COLUMN_DRAIN] = {"drain", true},
	[NEAP_COLUMN_RETRIES] = {"retries", true}, [NEAP_COLUMN_RUNG] = {"rung", false},
	[NEAP_COLUMN_LEAK] = {"leak", false},      [NEAP_COLUMN_TIME] = {"time", true},
};

size_t neap_report_width(const char *text, size_t length)
{
	size_t width = 0;

	for (size_t i = 0; i < length; i++)
		width += ((unsigned char)text[i] & 0xc0) != 0x80;
	return width;
}

uint64_t neap_report_peak(const struct neap_result *result)
{
	return result->peak_device_bytes > result->peak_reserved_bytes ? result->peak_device_bytes
								       : result->peak_reserved_bytes;
}

static bool never_ran(const struct neap_result *result)
{
	return result->outcome == NEAP_OUTCOME_NO_MEMORY || result->outcome == NEAP_OUTCOME_LOST ||
	       result->outcome == NEAP_OUTCOME_NOT_FOUND;
}

static enum neap_report_tone outcome_tone(enum neap_outcome outcome)
{
	if (outcome == NEAP_OUTCOME_OK)
		return NEAP_TONE_GOOD;
	bool asked = outcome == NEAP_OUTCOME_CANCELED || outcome == NEAP_OUTCOME_STOPPED;
	return asked ? NEAP_TONE_WARN : NEAP_TONE_BAD;
}

static void leak_cell(const struct neap_result *result, char *text, size_t capacity, enum neap_report_tone *tone)
{
	char delta[NEAP_UNITS_CAPACITY];

	if (strcmp(result->leak_verdict, "leak") == 0) {
		neap_size_format_delta((int64_t)result->leak_bytes_per_step, delta);
		snprintf(text, capacity, "%s/step", delta);
		*tone = NEAP_TONE_BAD;
		return;
	}
	neap_printable(text, capacity, result->leak_verdict[0] ? result->leak_verdict : "-");
	if (strcmp(result->leak_verdict, "clean") == 0)
		*tone = NEAP_TONE_GOOD;
}

void neap_report_cells(const struct neap_result *result, struct neap_report_cells *ret_cells)
{
	const size_t capacity = sizeof ret_cells->text[0];
	uint64_t peak = neap_report_peak(result);

	for (int i = 0; i < NEAP_COLUMN_COUNT; i++) {
		strcpy(ret_cells->text[i], "-");
		ret_cells->tone[i] = NEAP_TONE_PLAIN;
	}
	neap_printable(ret_cells->text[NEAP_COLUMN_NAME], capacity, result->name[0] ? result->name : "-");
	strcpy(ret_cells->text[NEAP_COLUMN_OUTCOME], neap_outcome_name(result->outcome));
	ret_cells->tone[NEAP_COLUMN_OUTCOME] = outcome_tone(result->outcome);
	if (peak > 0)
		neap_size_format(peak, ret_cells->text[NEAP_COLUMN_PEAK]);
	if (peak > 0 && result->device_total_bytes > 0) {
		neap_size_format(result->headroom_bytes, ret_cells->text[NEAP_COLUMN_HEADROOM]);
		if (result->headroom_bytes < result->device_total_bytes / 20)
			ret_cells->tone[NEAP_COLUMN_HEADROOM] = NEAP_TONE_WARN;
	}
	if (result->advised_micro_batch)
		snprintf(ret_cells->text[NEAP_COLUMN_FITS], capacity, "%" PRIu64, result->advised_micro_batch);
	if (!never_ran(result)) {
		if (result->drained) {
			neap_duration_format(result->drain_ns, ret_cells->text[NEAP_COLUMN_DRAIN]);
		} else if (result->drain_note[0]) { /* else nobody watched the memory come back */
			strcpy(ret_cells->text[NEAP_COLUMN_DRAIN], "not free");
			ret_cells->tone[NEAP_COLUMN_DRAIN] = NEAP_TONE_BAD;
		}
		neap_duration_format(result->duration_ns, ret_cells->text[NEAP_COLUMN_TIME]);
	}
	snprintf(ret_cells->text[NEAP_COLUMN_RETRIES], capacity, "%" PRIu32, result->retries);
	if (result->rung[0]) {
		neap_printable(ret_cells->text[NEAP_COLUMN_RUNG], capacity, result->rung);
		ret_cells->tone[NEAP_COLUMN_RUNG] = NEAP_TONE_WARN;
	}
	leak_cell(result, ret_cells->text[NEAP_COLUMN_LEAK], capacity, &ret_cells->tone[NEAP_COLUMN_LEAK]);
}

static int by_peak(const void *a, const void *b)
{
	const struct neap_result *left = *(const struct neap_result *const *)a;
	const struct neap_result *right = *(const struct neap_result *const *)b;
	uint64_t left_peak = neap_report_peak(left), right_peak = neap_report_peak(right);

	if (left_peak != right_peak)
		return left_peak < right_peak ? 1 : -1;
	return left < right ? -1 : left > right; /* they lie in one array */
}

const struct neap_result **neap_report_rank(const struct neap_result *results, size_t count)
{
	const struct neap_result **ranked = calloc(count ? count : 1, sizeof *ranked);

	if (!ranked)
		return NULL;
	for (size_t i = 0; i < count; i++)
		ranked[i] = &results[i];
	qsort(ranked, count, sizeof *ranked, by_peak);
	return ranked;
}
