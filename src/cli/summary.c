/* cli/summary.c: see summary.h. A size goes up a unit while it is at least 768 times 1024 of the smaller one, a count
 * while it is at least 750000. */
#include "cli/summary.h"

#include <inttypes.h>
#include <string.h>

#define WIDTH 75

static void rule(FILE *stream, char c)
{
	fputc('|', stream);
	for (int i = 0; i < WIDTH; i++)
		fputc(c, stream);
	fputs("|\n", stream);
}

static void centred(FILE *stream, const char *text, int width)
{
	int length = (int)strlen(text);
	int left = length < width ? (width - length) / 2 : 0;
	int right = length < width ? width - length - left : 0;
	fprintf(stream, "|%*s%.*s%*s", left, "", width, text, right, "");
}

/* Ten columns either way. */
static void print_value(FILE *stream, int64_t value, int is_bytes)
{
	static const char *const sizes[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
	static const char *const counts[] = {" ", "K", "M"};
	size_t unit = 0;
	if (is_bytes) {
		for (; unit < 5 && (value >= 768 * 1024 || value <= -768 * 1024); unit++)
			value /= 1024;
		fprintf(stream, "| %6" PRId64 " %s ", value, sizes[unit]);
	} else {
		for (; unit < 2 && (value >= 750000 || value <= -750000); unit++)
			value /= 1000;
		fprintf(stream, "| %7" PRId64 " %s  ", value, counts[unit]);
	}
}

static void row(FILE *stream, const char *name, const struct neap_stat *stat, int is_bytes)
{
	fprintf(stream, "| %-22s", name);
	print_value(stream, stat->current, is_bytes);
	print_value(stream, stat->peak, is_bytes);
	print_value(stream, stat->allocated, is_bytes);
	print_value(stream, stat->freed, is_bytes);
	fputs("|\n", stream);
}

static const struct {
	const char *name;
	enum neap_metric metric;
	int is_bytes;
} rows[] = {
	{"Allocated memory", NEAP_METRIC_ALLOCATED_BYTES, 1},
	{"Active memory", NEAP_METRIC_ACTIVE_BYTES, 1},
	{"Requested memory", NEAP_METRIC_REQUESTED_BYTES, 1},
	{"GPU reserved memory", NEAP_METRIC_RESERVED_BYTES, 1},
	{"Non-releasable memory", NEAP_METRIC_INACTIVE_SPLIT_BYTES, 1},
	{"Allocations", NEAP_METRIC_ALLOCATION, 0},
	{"Active allocs", NEAP_METRIC_ACTIVE, 0},
	{"GPU reserved segments", NEAP_METRIC_SEGMENT, 0},
	{"Non-releasable allocs", NEAP_METRIC_INACTIVE_SPLIT, 0},
};

void summary_print(FILE *stream, const char *title, const struct neap_stats *stats)
{
	char line[64];
	rule(stream, '=');
	centred(stream, title, WIDTH);
	fputs("|\n", stream);
	rule(stream, '-');
	snprintf(line, sizeof(line), "CUDA OOMs: %" PRId64, stats->num_ooms);
	centred(stream, line, 36);
	snprintf(line, sizeof(line), "cudaMalloc retries: %" PRId64, stats->num_alloc_retries);
	centred(stream, line, 38);
	fputs("|\n", stream);
	rule(stream, '=');
	fputs("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n", stream);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct neap_stat *stat = stats->metric[rows[i].metric];
		rule(stream, '-');
		row(stream, rows[i].name, &stat[NEAP_CLASS_ALL], rows[i].is_bytes);
		row(stream, "      from large pool", &stat[NEAP_CLASS_LARGE], rows[i].is_bytes);
		row(stream, "      from small pool", &stat[NEAP_CLASS_SMALL], rows[i].is_bytes);
	}
	rule(stream, '-');
	row(stream, "Oversize allocations", &stats->oversize_allocations, 0);
	rule(stream, '-');
	row(stream, "Oversize GPU segments", &stats->oversize_segments, 0);
	rule(stream, '=');
}
