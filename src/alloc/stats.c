/* alloc/stats.c: counting, and the names PyTorch gives the counters. */
#include "alloc/internal.h"

#include <stdio.h>

static void word_set(struct neap_alloc *alloc, int64_t *word, int64_t value)
{
	*word = value;
	size_t index = (size_t)(word - (int64_t *)&alloc->stats);
	neap_published_word(alloc, (uint64_t *)&alloc->published->stats + index, (uint64_t)value);
}

static void stat_add(struct neap_alloc *alloc, struct neap_stat *stat, int64_t delta)
{
	word_set(alloc, &stat->current, stat->current + delta);
	if (stat->current > stat->peak)
		word_set(alloc, &stat->peak, stat->current);
	if (delta > 0)
		word_set(alloc, &stat->allocated, stat->allocated + delta);
	else
		word_set(alloc, &stat->freed, stat->freed - delta);
}

void neap_metric_add(struct neap_alloc *alloc, enum neap_metric metric, bool small, int64_t delta)
{
	stat_add(alloc, &alloc->stats.metric[metric][NEAP_CLASS_ALL], delta);
	stat_add(alloc, &alloc->stats.metric[metric][small ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE], delta);
	if (metric == NEAP_METRIC_ALLOCATED_BYTES) {
		uint64_t now = metric_now(alloc, metric);
		alloc->lowest_allocated = now < alloc->lowest_allocated ? now : alloc->lowest_allocated;
		alloc->highest_allocated = now > alloc->highest_allocated ? now : alloc->highest_allocated;
	}
}

void neap_counter_add(struct neap_alloc *alloc, int64_t *counter, int64_t delta)
{
	word_set(alloc, counter, *counter + delta);
}

static void each_stat(struct neap_alloc *alloc, void (*change)(struct neap_stat *stat))
{
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++)
		for (int pool = 0; pool < NEAP_CLASS_COUNT; pool++)
			change(&alloc->stats.metric[metric][pool]);
	change(&alloc->stats.oversize_allocations);
	change(&alloc->stats.oversize_segments);
	neap_published_all(alloc);
}

static void peak_reset(struct neap_stat *stat) { stat->peak = stat->current; }

static void sums_reset(struct neap_stat *stat) { stat->allocated = stat->freed = 0; }

void neap_stats_peaks_reset(struct neap_alloc *alloc)
{
	for (size_t i = 0; i < sizeof alloc->tags / sizeof alloc->tags[0]; i++)
		alloc->tags[i].peak_bytes = alloc->tags[i].live_bytes;
	each_stat(alloc, peak_reset);
}

void neap_stats_sums_reset(struct neap_alloc *alloc)
{
	alloc->stats.num_alloc_retries = 0;
	alloc->stats.num_ooms = 0;
	alloc->stats.num_sync_all_streams = 0;
	alloc->stats.num_device_alloc = 0;
	alloc->stats.num_device_free = 0;
	each_stat(alloc, sums_reset);
}

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
