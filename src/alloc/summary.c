/* alloc/summary.c: the counters in PyTorch's forms: by name, as in torch.cuda.memory_stats, and as the box of
 * torch.cuda.memory_summary, 75 columns between the bars. In the box, a size takes the next larger unit while it is
 * at least 768 * 1024 of the present one, a count while it is at least 750000. The rows of the two pools take the
 * unit of the row above them. */
#include "base/buffer.h"
#include "neap/stats.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 75

/* memory_stats() sorts its keys, so this table is in their order: each row one metric, or one plain counter. */
static const struct key_row {
	const char *name;
	int metric;    /* -1: see offset */
	size_t offset; /* of a struct neap_stat or of an int64_t in struct neap_stats */
	bool counter;
} key_rows[] = {
	{"active", NEAP_METRIC_ACTIVE},
	{"active_bytes", NEAP_METRIC_ACTIVE_BYTES},
	{"allocated_bytes", NEAP_METRIC_ALLOCATED_BYTES},
	{"allocation", NEAP_METRIC_ALLOCATION},
	{"inactive_split", NEAP_METRIC_INACTIVE_SPLIT},
	{"inactive_split_bytes", NEAP_METRIC_INACTIVE_SPLIT_BYTES},
	{"max_split_size", -1, offsetof(struct neap_stats, max_split_size), true},
	{"num_alloc_retries", -1, offsetof(struct neap_stats, num_alloc_retries), true},
	{"num_device_alloc", -1, offsetof(struct neap_stats, num_device_alloc), true},
	{"num_device_free", -1, offsetof(struct neap_stats, num_device_free), true},
	{"num_ooms", -1, offsetof(struct neap_stats, num_ooms), true},
	{"num_sync_all_streams", -1, offsetof(struct neap_stats, num_sync_all_streams), true},
	{"oversize_allocations", -1, offsetof(struct neap_stats, oversize_allocations), false},
	{"oversize_segments", -1, offsetof(struct neap_stats, oversize_segments), false},
	{"requested_bytes", NEAP_METRIC_REQUESTED_BYTES},
	{"reserved_bytes", NEAP_METRIC_RESERVED_BYTES},
	{"segment", NEAP_METRIC_SEGMENT},
};

static void visit_stat(const char *prefix, const struct neap_stat *stat,
		       void (*visit)(void *context, const char *key, int64_t value), void *context)
{
	const struct {
		const char *name;
		int64_t value;
	} values[] = {{"allocated", stat->allocated},
		      {"current", stat->current},
		      {"freed", stat->freed},
		      {"peak", stat->peak}};
	char key[80];
	for (size_t i = 0; i < 4; i++) {
		snprintf(key, sizeof key, "%s.%s", prefix, values[i].name);
		visit(context, key, values[i].value);
	}
}

void neap_stats_each(const struct neap_stats *stats, void (*visit)(void *context, const char *key, int64_t value),
		     void *context)
{
	static const char *const classes[NEAP_CLASS_COUNT] = {"all", "large_pool", "small_pool"};
	char prefix[64];
	for (size_t i = 0; i < sizeof key_rows / sizeof key_rows[0]; i++) {
		const struct key_row *row = &key_rows[i];
		const void *field = (const char *)stats + row->offset;
		if (row->counter) {
			visit(context, row->name, *(const int64_t *)field);
		} else if (row->metric < 0) {
			visit_stat(row->name, field, visit, context);
		} else {
			for (int pool = 0; pool < NEAP_CLASS_COUNT; pool++) {
				snprintf(prefix, sizeof prefix, "%s.%s", row->name, classes[pool]);
				visit_stat(prefix, &stats->metric[row->metric][pool], visit, context);
			}
		}
	}
}

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

/* Writes a count in the unit of `like`. Sizes and counts both take ten columns. */
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
