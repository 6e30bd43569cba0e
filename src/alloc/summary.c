/* The counters as the box that PyTorch's users know (torch.cuda.memory_summary): 75 columns between the bars. A size
 * goes up a unit while it is at least 768 times 1024 of the smaller one, a count while it is at least 750000; the two
 * rows of the pools take the units of the row above them. */
#include "base/buffer.h"
#include "neap/stats.h"

#include <inttypes.h>
#include <string.h>

#define WIDTH 75

static void rule(struct neap_buffer *out, char c)
{
	char line[WIDTH + 1];

	memset(line, c, WIDTH);
	line[WIDTH] = '\0';
	neap_buffer_format(out, "|%s|\n", line);
}

static void heading(struct neap_buffer *out, const char *title)
{
	int length = (int)strlen(title);
	int left = length < WIDTH ? (WIDTH + 1 - length) / 2 : 0;
	int right = length < WIDTH ? WIDTH - length - left : 0;

	neap_buffer_format(out, "|%*s%.*s%*s|\n", left, "", WIDTH, title, right, "");
}

/* In the unit of `like`: ten columns either way. */
static void value(struct neap_buffer *out, int64_t count, int64_t like, bool is_bytes)
{
	static const char *const sizes[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
	static const char *const counts[] = {" ", "K", "M"};
	double left = (double)like;
	size_t unit = 0;

	if (is_bytes) {
		for (; unit < 5 && left >= 768.0 * 1024; unit++, left /= 1024)
			count /= 1024;
		neap_buffer_format(out, "| %6" PRId64 " %s ", count, sizes[unit]);
	} else {
		for (; unit < 2 && left >= 750000; unit++, left /= 1000)
			count /= 1000;
		neap_buffer_format(out, "| %7" PRId64 " %s  ", count, counts[unit]);
	}
}

static void row(struct neap_buffer *out, const char *name, const struct neap_stat *stat, const struct neap_stat *like,
		bool is_bytes)
{
	neap_buffer_format(out, "| %-22s", name);
	value(out, stat->current, like->current, is_bytes);
	value(out, stat->peak, like->peak, is_bytes);
	value(out, stat->allocated, like->allocated, is_bytes);
	value(out, stat->freed, like->freed, is_bytes);
	neap_buffer_format(out, "|\n");
}

static const struct {
	const char *name;
	enum neap_metric metric;
	bool is_bytes;
} rows[] = {
	{"Allocated memory", NEAP_METRIC_ALLOCATED_BYTES, true},
	{"Active memory", NEAP_METRIC_ACTIVE_BYTES, true},
	{"Requested memory", NEAP_METRIC_REQUESTED_BYTES, true},
	{"GPU reserved memory", NEAP_METRIC_RESERVED_BYTES, true},
	{"Non-releasable memory", NEAP_METRIC_INACTIVE_SPLIT_BYTES, true},
	{"Allocations", NEAP_METRIC_ALLOCATION, false},
	{"Active allocs", NEAP_METRIC_ACTIVE, false},
	{"GPU reserved segments", NEAP_METRIC_SEGMENT, false},
	{"Non-releasable allocs", NEAP_METRIC_INACTIVE_SPLIT, false},
};

enum neap_status neap_stats_summary(const struct neap_stats *stats, const char *title, bool abbreviated,
				    char *ret_text)
{
	struct neap_buffer out = {0};
	enum neap_status status = NEAP_OK;

	rule(&out, '=');
	heading(&out, title);
	rule(&out, '-');
	neap_buffer_format(&out, "|  %9s CUDA OOMs: %-12" PRId64 " | %6s cudaMalloc retries: %-8" PRId64 "  |\n", "",
			   stats->num_ooms, "", stats->num_alloc_retries);
	rule(&out, '=');
	neap_buffer_text(&out, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct neap_stat *stat = stats->metric[rows[i].metric];
		rule(&out, '-');
		row(&out, rows[i].name, &stat[NEAP_CLASS_ALL], &stat[NEAP_CLASS_ALL], rows[i].is_bytes);
		if (abbreviated)
			continue;
		row(&out, "      from large pool", &stat[NEAP_CLASS_LARGE], &stat[NEAP_CLASS_ALL], rows[i].is_bytes);
		row(&out, "      from small pool", &stat[NEAP_CLASS_SMALL], &stat[NEAP_CLASS_ALL], rows[i].is_bytes);
	}
	rule(&out, '-');
	row(&out, "Oversize allocations", &stats->oversize_allocations, &stats->oversize_allocations, false);
	rule(&out, '-');
	row(&out, "Oversize GPU segments", &stats->oversize_segments, &stats->oversize_segments, false);
	rule(&out, '=');
	status = neap_buffer_status(&out, NULL);
	if (!status && out.length >= NEAP_SUMMARY_ROOM)
		status = NEAP_ENOSPC;
	if (!status)
		memcpy(ret_text, out.data, out.length + 1);
	neap_buffer_fini(&out);
	return status;
}
