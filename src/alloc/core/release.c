/* alloc/core/release.c: returning all cached memory to the driver.
 *
 * Unmapping does not wait for work on the memory, so all work queued before the frees must finish first. One
 * synchronisation of the context ensures that for all streams, also for streams that were destroyed since (their
 * handles are never used). It also completes every pending free. It is skipped if nothing was freed since the last
 * one.
 */
#include "alloc/core/core.h"
#include "base/error.h"

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
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		stream->done = ++stream->recorded;
	neap_counter_add(alloc, &alloc->stats.num_sync_all_streams, 1);
	neap_pending_complete_all(alloc);
	return NEAP_OK;
}

enum neap_status neap_cache_unmap(struct neap_alloc *alloc, const struct neap_pool *only, struct neap_error *err)
{
	bool capturing = alloc->captures_open > 0;
	enum neap_status status = NEAP_OK;
	neap_published_close(alloc);
	if (!capturing)
		status = neap_capture_under_way(alloc, NULL, &capturing, err);
	if (!status && capturing)
		status = neap_fail(err, NEAP_ESTATE, "cached memory cannot be given back during a graph capture");
	if (!status)
		status = neap_alloc_synchronize(alloc, err);
	if (!status)
		neap_views_drop(alloc);
	if (!status) /* joins idle blocks of several streams, so that whole pages come free */
		neap_share_idle(alloc);
	for (struct neap_segment *segment = alloc->segments, *next; !status && segment; segment = next) {
		const struct neap_pool *pool = segment->arena->pool;
		next = segment->next;
		if ((!pool || !pool->owners) && (!only || pool == only))
			status = neap_segment_release(alloc, segment, err);
	}
	return status;
}

enum neap_status neap_cache_release(struct neap_alloc *alloc, const struct neap_pool *only, uint64_t *ret_freed_bytes,
				    struct neap_error *err)
{
	uint64_t before = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES), spare = only ? alloc->spare_count : 0;
	enum neap_status status = neap_cache_unmap(alloc, only, err);
	enum neap_status released = neap_spare_release(alloc, spare, status ? NULL : err);
	if (!status)
		status = released;
	if (!status)
		*ret_freed_bytes = before - metric_now(alloc, NEAP_METRIC_RESERVED_BYTES);
	return status;
}
