/* alloc/obtain.c: obtains memory when no block of the stream's cache and no idle block of the arena fits.
 *
 *   idle      while streams share: other streams' blocks whose work is done
 *   new       pages from the driver
 *   ordered   while streams share: another stream's block, once this stream waits for its event
 *   moved     pages from under cached blocks, of any stream, that are unmapped there and mapped here
 *   stitched  ends of pages and whole pages, mapped a second time side by side (views): before pages move if hardly
 *             any memory is free, otherwise afterwards; first of all if no new pages are left and such a view is
 *             still mapped
 *   emptied   if all that is not enough, the whole cache goes back to the driver, and everything is tried again
 */
#include "alloc/core/cache.h"
#include "alloc/front/front.h"
#include "alloc/plan/plan.h"
#include "alloc/request.h"
#include "alloc/views/views.h"
#include "base/error.h"

/* Returns the smallest block that fits among the caches of the arena's streams; NULL: none. */
static struct neap_block *elsewhere(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *best = NULL;
	for (struct neap_cache *other = cache->arena->caches; other; other = other->next_of_arena) {
		struct neap_block *block = neap_cache_best(other, bytes);
		if (block && (!best || block->bytes < best->bytes))
			best = block;
	}
	return best;
}

/* Obtains memory without new pages from the driver. */
static enum neap_status reuse(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
			      struct neap_block **ret_block, struct neap_error *err)
{
	struct neap_block *block = elsewhere(cache, bytes);
	if (block)
		return neap_place_fill(alloc, cache, (struct neap_place){block, 0}, bytes, err);
	if (alloc->plain)
		return NEAP_EOOM;
	*ret_block = neap_stitch_kept(alloc, cache, bytes);
	if (*ret_block)
		return NEAP_OK;
	bool tight = neap_fit_tight(alloc, bytes);
	enum neap_status status = NEAP_EOOM;
	if (tight)
		status = neap_stitch_new(alloc, cache, bytes, ret_block, err);
	if (status == NEAP_EOOM)
		status = neap_pages_move(alloc, cache, bytes, false, err);
	if (status == NEAP_EOOM)
		status = neap_pages_move(alloc, cache, bytes, true, err);
	if (status == NEAP_EOOM && !tight)
		status = neap_stitch_new(alloc, cache, bytes, ret_block, err);
	return status;
}

/* Obtains memory. Either it puts a block of `bytes` into the cache or its arena's idle one, or it sets *ret_block
 * (NULL before) to a block of a view, LIVE and in the index. While `capturing`, it only takes pages from the driver.
 * NEAP_EOOM: there is not enough memory, and no more pages are held than before. The context is current. */
static enum neap_status obtain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool capturing,
			       struct neap_block **ret_block, struct neap_error *err)
{
	uint64_t held = alloc->held_pages;
	if (bytes > neap_device_info(alloc->device)->total_bytes)
		return neap_fail(err, NEAP_EOOM, "more than the device has");
	uint64_t active = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES);
	if (active > alloc->limit_bytes || bytes > alloc->limit_bytes - active)
		return neap_fail(err, NEAP_EOOM, "more than the limit allows beside what is in use");
	/* While a pool is open, a capture may be under way that the driver does not report. */
	bool reusing = !capturing && !alloc->pools_open, full = neap_fit_full(alloc, bytes);
	if (reusing) {
		neap_share_idle(alloc);
		if (neap_cache_best(&cache->arena->idle, bytes))
			return NEAP_OK;
	}
	/* Before new pages: a block from a bin, joined with its neighbours, may be large enough. */
	if (neap_front_flush(alloc) && neap_cache_best(cache, bytes))
		return NEAP_OK;
	neap_published_close(alloc);
	/* Only if no new pages are left: a kept view may make this stream wait for another's work. */
	if (reusing && full)
		*ret_block = neap_stitch_kept(alloc, cache, bytes);
	if (*ret_block)
		return NEAP_OK;
	enum neap_status status = neap_pages_grow(alloc, cache, bytes, err);
	if (status == NEAP_EOOM && reusing)
		status = reuse(alloc, cache, bytes, ret_block, err);
	/* Give back pages that were created in vain: others may need them. */
	if (status == NEAP_EOOM && !alloc->plain && alloc->held_pages > held) {
		uint64_t more = alloc->held_pages - held;
		neap_spare_release(alloc, alloc->spare_count > more ? alloc->spare_count - more : 0, NULL);
	}
	neap_published_close(alloc);
	return status;
}

/* As obtain(). If there is not enough memory, and no plan has a region to give up, empties the cache and tries
 * again. */
static enum neap_status obtain_or_empty(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
					bool capturing, struct neap_block **ret_block, struct neap_error *err)
{
	uint64_t freed = 0;
	enum neap_status status = obtain(alloc, cache, bytes, capturing, ret_block, err);
	if (status != NEAP_EOOM || capturing || alloc->region ||
	    metric_now(alloc, NEAP_METRIC_RESERVED_BYTES) <= metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES))
		return status;
	neap_counter_add(alloc, &alloc->stats.num_alloc_retries, 1);
	neap_front_flush(alloc);
	status = neap_cache_release(alloc, NULL, &freed, err);
	if (!status && !neap_fit_find(cache, bytes))
		status = obtain(alloc, cache, bytes, false, ret_block, err);
	return status;
}

enum neap_status neap_miss(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_request *request,
			   struct neap_block **ret_block, struct neap_error *err)
{
	struct neap_device_guard guard = {0};
	bool capturing = false;
	alloc->largest_free_bytes = neap_largest_free(alloc);
	neap_published_word(alloc, &alloc->published->largest_free_bytes, alloc->largest_free_bytes);
	neap_published_close(alloc);
	enum neap_status status = neap_device_enter(alloc->device, &guard, err);
	if (status)
		return status;
	status = neap_capture_under_way(alloc, request->stream, &capturing, err);
	request->capturing = request->capturing || capturing;
	/* A capture allows mapping new pages: unlike cuMemAlloc, that neither waits nor works on a stream. */
	if (!status && capturing && alloc->plain)
		status = neap_fail(
			err, NEAP_ESTATE,
			"no cached block of %llu bytes, and the driver cannot be asked during a graph capture",
			(unsigned long long)request->rounded);
	if (!status)
		status = obtain_or_empty(alloc, cache, request->rounded, capturing, ret_block, err);
	neap_device_leave(&guard);
	return status;
}

/* Makes an arena for the plan, with pages for all its bytes. The context is current. */
static enum neap_status region_obtain(struct neap_alloc *alloc, uint64_t bytes)
{
	struct neap_stream *home = alloc->streams;
	struct neap_arena *arena = home ? neap_arena_make(alloc, home, NULL, false) : NULL;
	if (!arena)
		return NEAP_ENOMEM;
	arena->planned = true;
	struct neap_block *none = NULL; /* a view cannot serve a region */
	struct neap_cache *cache = neap_cache_of(alloc, home, arena);
	enum neap_status status = cache ? obtain(alloc, cache, bytes, false, &none, NULL) : NEAP_ENOMEM;
	/* Also collect pages shared by blocks of two streams, and pages that wait for work of destroyed streams. */
	if (status == NEAP_EOOM) {
		neap_front_flush(alloc);
		status = neap_cache_unmap(alloc, NULL, NULL) ? NEAP_EOOM
							     : obtain(alloc, cache, bytes, false, &none, NULL);
	}
	const struct neap_block *block = status ? NULL : neap_cache_best(cache, bytes);
	if (block) {
		alloc->region = arena;
		alloc->region_address = alloc->region_last = block->address;
	}
	neap_segments_trim(alloc);
	neap_arenas_trim(alloc);
	return block ? NEAP_OK : status;
}

static void region_start(struct neap_alloc *alloc, uint64_t bytes)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	neap_published_close(alloc);
	if (!neap_device_enter(alloc->device, &guard, NULL)) {
		if (!alloc->pools_open && !neap_capture_under_way(alloc, NULL, &capturing, NULL) && !capturing)
			region_obtain(alloc, bytes);
		neap_device_leave(&guard);
	}
	if (alloc->region)
		neap_plan_start(alloc->plan);
	else
		neap_plan_stop(alloc->plan);
}

void neap_plan_follow(struct neap_alloc *alloc)
{
	uint64_t bytes = 0;
	enum neap_plan_advice advice = neap_plan_advise(alloc->plan, &bytes);
	if (advice == NEAP_PLAN_GO_ON)
		return;
	if (advice == NEAP_PLAN_START) {
		region_start(alloc, bytes);
	} else {
		neap_plan_stop(alloc->plan);
		alloc->region = NULL;
	}
}
