/* alloc/core/stats.c: the statistics, in private memory and, word by word, in the published page. */
#include "alloc/core/core.h"

/* Inline in stat_add: a dozen words change with every block. The caller has opened a write. */
static inline void word_set(struct neap_alloc *alloc, int64_t *word, int64_t value)
{
	*word = value;
	size_t index = (size_t)(word - (int64_t *)&alloc->stats);
	__atomic_store_n((int64_t *)&alloc->published->stats + index, value, __ATOMIC_RELEASE);
}

static inline void stat_add(struct neap_alloc *alloc, struct neap_stat *stat, int64_t delta)
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
	neap_published_open(alloc);
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
	neap_published_open(alloc);
	word_set(alloc, counter, *counter + delta);
}

void neap_count_live(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign)
{
	bool small = block_small(block);
	neap_metric_add(alloc, NEAP_METRIC_ALLOCATION, small, sign);
	neap_metric_add(alloc, NEAP_METRIC_ALLOCATED_BYTES, small, sign * (int64_t)block->bytes);
	neap_metric_add(alloc, NEAP_METRIC_REQUESTED_BYTES, small, sign * (int64_t)block->requested);
	neap_tag_add(alloc, block->tag, sign * (int64_t)block->bytes);
}

void neap_count_active(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign)
{
	bool small = block_small(block);
	neap_metric_add(alloc, NEAP_METRIC_ACTIVE, small, sign);
	neap_metric_add(alloc, NEAP_METRIC_ACTIVE_BYTES, small, sign * (int64_t)block->bytes);
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
