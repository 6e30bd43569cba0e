/* alloc/release.c: giving cached memory back to the driver, on request or because a request found none.
 *
 * Unmapping does not wait for work on the memory, so everything queued before the frees must be finished first. One
 * synchronisation of the context does that for all streams, also for those that were destroyed since (their handles
 * are never touched), and it completes every pending free. It is left out when nothing was freed since the last one.
 */
#include "alloc/emptied.h"
#include "alloc/view.h"
#include "base/clock.h"
#include "base/error.h"

uint64_t neap_largest_free(struct neap_alloc *alloc)
{
	uint64_t largest = 0;
	for (const struct neap_arena *arena = alloc->arenas; arena; arena = arena->next) {
		uint64_t own = neap_cache_largest(&arena->idle);
		largest = own > largest ? own : largest;
		for (const struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena) {
			own = neap_cache_largest(cache);
			largest = own > largest ? own : largest;
		}
	}
	return largest;
}

enum neap_status neap_alloc_synchronize(struct neap_alloc *alloc, struct neap_error *err)
{
	if (!alloc->dirty && !alloc->waiting_uses)
		return NEAP_OK;
	neap_published_close(alloc);
	CUresult result = alloc->cuda->cuCtxSynchronize();
	if (neap_capture_forbids(result))
		return neap_fail(err, NEAP_ESTATE, "cached memory cannot be given back during a graph capture");
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err,
				      "cuCtxSynchronize, before cached memory is given back");
	alloc->dirty = false;
	neap_streams_done(alloc);
	neap_counter_add(alloc, &alloc->stats.num_sync_all_streams, 1);
	neap_pending_complete_all(alloc);
	return NEAP_OK;
}

/* Makes every cached page spare that may be. Of `only`, or of everything. */
static enum neap_status unmap(struct neap_alloc *alloc, const struct neap_pool *only, struct neap_error *err)
{
	bool capturing = alloc->captures_open > 0;
	enum neap_status status = NEAP_OK;
	neap_front_flush(alloc);
	neap_published_close(alloc);
	if (!capturing)
		status = neap_capture_under_way(alloc, NULL, &capturing, err);
	if (!status && capturing)
		status = neap_fail(err, NEAP_ESTATE, "cached memory cannot be given back during a graph capture");
	if (!status)
		status = neap_alloc_synchronize(alloc, err);
	if (!status)
		neap_views_drop(alloc);
	if (!status) /* so that a page shared by two streams is one block's */
		neap_share_idle(alloc);
	for (struct neap_segment *segment = alloc->segments, *next; !status && segment; segment = next) {
		const struct neap_pool *pool = segment->arena->pool;
		next = segment->next;
		if ((!pool || !pool->owners) && (!only || pool == only))
			status = neap_segment_release(alloc, segment, err);
	}
	return status;
}

enum neap_status neap_cache_unmap(struct neap_alloc *alloc, struct neap_error *err)
{
	return unmap(alloc, NULL, err);
}

/* Of `only`, or of everything. */
static enum neap_status release(struct neap_alloc *alloc, const struct neap_pool *only, uint64_t *ret_freed_bytes,
				struct neap_error *err)
{
	uint64_t before = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES), spare = only ? alloc->spare_count : 0;
	enum neap_status status = unmap(alloc, only, err);
	enum neap_status released = neap_spare_release(alloc, spare, status ? NULL : err);
	if (!status)
		status = released;
	if (!status)
		*ret_freed_bytes = before - metric_now(alloc, NEAP_METRIC_RESERVED_BYTES);
	return status;
}

enum neap_status neap_cache_release(struct neap_alloc *alloc, uint64_t *ret_freed_bytes, struct neap_error *err)
{
	return release(alloc, NULL, ret_freed_bytes, err);
}

/* With the device's context current; emits the event of an emptied cache. Of `only`, or of everything. */
static enum neap_status cache_empty(struct neap_alloc *alloc, const struct neap_pool *only, uint64_t *ret_freed_bytes,
				    struct neap_error *err)
{
	struct neap_device_guard guard = {0};
	uint64_t freed = 0, start = neap_clock_now(neap_clock_system());
	neap_published_close(alloc);
	if (!only)
		neap_planned_stop(alloc);
	enum neap_status status = neap_device_enter(alloc->device, &guard, err);
	if (status)
		return status;
	status = release(alloc, only, &freed, err);
	if (!status) {
		neap_segments_trim(alloc);
		neap_arenas_trim(alloc);
	}
	neap_device_leave(&guard);
	if (status)
		return status;
	neap_event_empty_cache(alloc, freed, neap_clock_now(neap_clock_system()) - start);
	*ret_freed_bytes = freed;
	return NEAP_OK;
}

enum neap_status neap_empty_cache(struct neap_alloc *alloc, uint64_t *ret_freed_bytes, struct neap_error *err)
{
	uint64_t freed = 0;
	neap_alloc_lock(alloc);
	enum neap_status status = cache_empty(alloc, NULL, &freed, err);
	neap_alloc_unlock(alloc);
	if (!status && ret_freed_bytes)
		*ret_freed_bytes = freed;
	return status;
}

enum neap_status neap_pool_empty(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
				 uint64_t *ret_freed_bytes, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	uint64_t freed = 0;
	neap_alloc_lock(alloc);
	const struct neap_pool *pool = neap_pool_find(alloc, pool_high, pool_low);
	if (pool && !pool->owners)
		status = cache_empty(alloc, pool, &freed, err);
	neap_alloc_unlock(alloc);
	if (!status && ret_freed_bytes)
		*ret_freed_bytes = freed;
	return status;
}

enum neap_status neap_empty_cache_measured(struct neap_alloc *alloc, struct neap_emptied *ret_emptied,
					   struct neap_error *err)
{
	struct neap_emptied emptied = {0};
	uint64_t total;
	neap_alloc_lock(alloc);
	neap_published_close(alloc);
	emptied.before = alloc->stats;
	emptied.free_known = neap_device_memory(alloc->device, &emptied.free_before, &total, NULL) == NEAP_OK;
	uint64_t start = neap_clock_now(neap_clock_system());
	enum neap_status status = cache_empty(alloc, NULL, &emptied.freed_bytes, err);
	emptied.nanoseconds = neap_clock_now(neap_clock_system()) - start;
	emptied.after = alloc->stats;
	neap_published_close(alloc);
	if (neap_device_memory(alloc->device, &emptied.free_after, &total, NULL) != NEAP_OK)
		emptied.free_known = false;
	neap_alloc_unlock(alloc);
	if (!status)
		*ret_emptied = emptied;
	return status;
}

/* Locked; the fraction was checked. */
static enum neap_status limit_set(struct neap_alloc *alloc, double fraction, bool *ret_emptied,
				  uint64_t *ret_freed_bytes, struct neap_error *err)
{
	uint64_t total = neap_device_info(alloc->device)->total_bytes;
	alloc->fraction = fraction;
	alloc->limit_bytes = fraction < 1 ? (uint64_t)(fraction * (double)total) : UINT64_MAX;
	neap_published_word(alloc, &alloc->published->limit_bytes, alloc->limit_bytes);
	if (alloc->limit_bytes >= metric_now(alloc, NEAP_METRIC_RESERVED_BYTES))
		return NEAP_OK;
	*ret_emptied = true;
	return cache_empty(alloc, NULL, ret_freed_bytes, err);
}

static enum neap_status check_fraction(double fraction, struct neap_error *err)
{
	if (fraction > 0 && fraction <= 1)
		return NEAP_OK;
	return neap_fail(err, NEAP_EINVAL, "the fraction must be above 0 and at most 1, not %g", fraction);
}

enum neap_status neap_set_fraction(struct neap_alloc *alloc, double fraction, struct neap_error *err)
{
	enum neap_status status = check_fraction(fraction, err);
	uint64_t freed = 0;
	bool emptied = false;
	if (status)
		return status;
	neap_alloc_lock(alloc);
	status = limit_set(alloc, fraction, &emptied, &freed, err);
	neap_alloc_unlock(alloc);
	return status;
}

enum neap_status neap_set_fraction_measured(struct neap_alloc *alloc, double fraction,
					    struct neap_limited *ret_limited, struct neap_error *err)
{
	struct neap_limited limited = {0};
	struct neap_emptied *cache = &limited.cache;
	uint64_t total;
	enum neap_status status = check_fraction(fraction, err);
	if (status)
		return status;
	neap_alloc_lock(alloc);
	neap_published_close(alloc);
	limited.limit_before = alloc->limit_bytes;
	cache->before = alloc->stats;
	cache->free_known = neap_device_memory(alloc->device, &cache->free_before, &total, NULL) == NEAP_OK;
	uint64_t start = neap_clock_now(neap_clock_system());
	status = limit_set(alloc, fraction, &limited.emptied, &cache->freed_bytes, err);
	cache->nanoseconds = neap_clock_now(neap_clock_system()) - start;
	limited.limit_after = alloc->limit_bytes;
	cache->after = alloc->stats;
	neap_published_close(alloc);
	if (neap_device_memory(alloc->device, &cache->free_after, &total, NULL) != NEAP_OK)
		cache->free_known = false;
	neap_alloc_unlock(alloc);
	*ret_limited = limited;
	return status;
}

double neap_get_fraction(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	double fraction = alloc->fraction;
	neap_alloc_unlock(alloc);
	return fraction;
}
