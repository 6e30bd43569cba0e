/* alloc/request.c: serves the requests and frees that the front could not.
 *
 *   hit ......... best fit in the arena of (class, pool, stream), no driver call
 *   miss ........ pages from the driver or from other cached blocks, or ends of pages together; if they are not
 *                 enough, the whole cache goes back to the driver, and all of them are tried again (obtain.c)
 *   others ...... without the lock, other processes are asked to give back their caches; then all of the above
 *   callback .... without the lock, at most eight times, each followed by all of the above but `others`
 *   report ...... events, message, NEAP_EOOM (oom.c)
 *
 * Everything that can fail is done before anything changes: block storage is ensured, and the address is in the index
 * of live blocks, before a block is taken out of the cache.
 */
#include "alloc/request.h"
#include "alloc/front/front.h"
#include "alloc/plan/plan.h"
#include "base/error.h"

#define OOM_ATTEMPTS 8
#define FIT_SAMPLE   8 /* one of this many requests is counted */

/* Set while this thread is in an OOM callback, whose own requests ask no other process. */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool in_oom_callback;

/* Gives the block to the program: fills its request, counts it and sends its event. */
static void hand_out(struct neap_alloc *alloc, struct neap_block *block, const struct neap_request *request)
{
	block->requested = request->bytes;
	block->tag = request->tag;
	block->serial = ++alloc->serial;
	block_stream(block)->live_blocks++;
	neap_front_mark(alloc, block);
	neap_count_live(alloc, block, 1);
	neap_count_active(alloc, block, 1);
	neap_event_block(alloc, NEAP_EVENT_ALLOC, block, NULL);
	if (alloc->plan)
		neap_planned_note(alloc, block_stream(block), request);
}

/* Finds a block in the plan's region, in a cache, or by a miss. Returns it LIVE and in the index. */
static enum neap_status find(struct neap_alloc *alloc, struct neap_request *request, struct neap_block **ret_block,
			     struct neap_error *err)
{
	bool watched = alloc->plan && neap_plan_watches(alloc->plan);
	struct neap_stream *stream = neap_stream_find(alloc, request->stream);
	if (!stream)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a stream");
	if (watched) {
		if (alloc->region && alloc->waiting_uses)
			neap_pending_ask(alloc, request->stream);
		neap_plan_follow(alloc);
		*ret_block = neap_planned_take(alloc, stream, request);
		if (*ret_block)
			return NEAP_OK;
	}
	struct neap_pool *pool = neap_pool_match(alloc, request->stream);
	bool small = request->rounded <= SMALL_LIMIT_BYTES;
	struct neap_cache *cache = neap_cache_find(alloc, stream, pool, small);
	if (alloc->waiting_uses)
		neap_pending_ask(alloc, request->stream);
	struct neap_block *block = cache ? neap_fit_find(cache, request->rounded) : NULL;
	if (cache && !block) {
		neap_share_decide(alloc, request->rounded);
		cache = neap_cache_find(alloc, stream, pool, small);
		block = cache ? neap_fit_find(cache, request->rounded) : NULL;
	}
	if (!cache)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a stream's arena");
	if (!block) /* before pages are moved or stitched for the request */
		block = neap_fit_borrow(alloc, stream, &cache, request->rounded,
					!small && neap_fit_tight(alloc, request->rounded));
	if (!block && !pool) {
		*ret_block = neap_planned_lend(alloc, stream, request, false);
		if (*ret_block)
			return NEAP_OK;
	}
	if (!block) {
		struct neap_block *stitched = NULL;
		enum neap_status status = neap_miss(alloc, cache, request, &stitched, err);
		if (status == NEAP_EOOM && alloc->region) {
			*ret_block = pool ? NULL : neap_planned_lend(alloc, stream, request, true);
			if (*ret_block)
				return NEAP_OK;
			neap_planned_stop(alloc);
			status = neap_miss(alloc, cache, request, &stitched, err);
		}
		if (stitched) {
			*ret_block = stitched;
			return NEAP_OK;
		}
		block = status == NEAP_EOOM ? neap_fit_borrow(alloc, stream, &cache, request->rounded, true) : NULL;
		if (status && !block)
			return status;
		block = block ? block : neap_fit_find(cache, request->rounded);
	}
	if (!neap_blocks_ensure(alloc, 1) || !neap_index_put(&alloc->live, block->address, block))
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block");
	bool own_class = cache->arena->small == small;
	if (own_class && alloc->serial % FIT_SAMPLE == 0)
		neap_fit_count(cache, request->rounded);
	neap_block_take(alloc, block, request->rounded, cache);
	if (own_class)
		neap_front_adopt(alloc, stream, block);
	else /* a lane would count the block in the class of its size, the core in that of its arena */
		block->lane = NULL;
	*ret_block = block;
	return NEAP_OK;
}

/* Takes the lock and keeps it. Tries everything once to serve the request. */
static enum neap_status serve(struct neap_alloc *alloc, struct neap_request *request, uint64_t *ret_address,
			      struct neap_error *err)
{
	neap_alloc_lock(alloc);
	struct neap_block *block = neap_front_pop(alloc, request);
	if (request->tag == TAG_UNKNOWN)
		request->tag = neap_tag_find(alloc);
	enum neap_status status = block ? NEAP_OK : find(alloc, request, &block, err);
	if (status)
		return status;
	hand_out(alloc, block, request);
	*ret_address = block->address;
	return NEAP_OK;
}

/* Whether memory of other processes could serve a failed request, and this thread may ask for it now. */
static bool others_could_help(const struct neap_alloc *alloc, const struct neap_request *request)
{
	uint64_t device = neap_device_info(alloc->device)->total_bytes;
	uint64_t most = alloc->limit_bytes < device ? alloc->limit_bytes : device;
	uint64_t active = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES);
	return active <= most && request->rounded <= most - active && !request->capturing && !alloc->captures_open &&
	       !in_oom_callback;
}

/* Called when the device has no memory left. The lock is held, but released while other processes are asked. */
static enum neap_status ask_others(struct neap_alloc *alloc, struct neap_request *request,
				   struct neap_asked *ret_asked, uint64_t *ret_address, struct neap_error *err)
{
	const struct neap_alloc_hook *hook = __atomic_load_n(&neap_alloc_hook, __ATOMIC_ACQUIRE);
	enum neap_status status = NEAP_EOOM;
	if (hook && hook->lacking && others_could_help(alloc, request)) {
		neap_alloc_unlock(alloc);
		hook->lacking(alloc, ret_asked);
		if (ret_asked->answered)
			status = serve(alloc, request, ret_address, err);
		else
			neap_alloc_lock(alloc);
	}
	alloc->asked = *ret_asked;
	return status;
}

enum neap_status neap_malloc_by_core(struct neap_alloc *alloc, struct neap_request *request, uint64_t *ret_address,
				     struct neap_error *err)
{
	request->tag = TAG_UNKNOWN;
	/* Drop the first attempt's error if a retry succeeds. */
	struct neap_error failure;
	struct neap_asked asked = {0};
	enum neap_status status = serve(alloc, request, ret_address, &failure);
	if (status == NEAP_EOOM)
		status = ask_others(alloc, request, &asked, ret_address, &failure);
	for (unsigned attempt = 0; status == NEAP_EOOM && attempt < OOM_ATTEMPTS; attempt++) {
		neap_oom_callback callback = alloc->oom_callback;
		void *context = alloc->oom_context;
		if (!callback)
			break;
		bool nested = in_oom_callback;
		neap_alloc_unlock(alloc);
		in_oom_callback = true;
		bool again = callback(context, alloc, request->bytes, attempt);
		in_oom_callback = nested;
		if (!again) {
			neap_alloc_lock(alloc);
			break;
		}
		status = serve(alloc, request, ret_address, &failure);
	}
	if (status == NEAP_EOOM) {
		neap_front_flush(alloc);
		neap_oom_report(alloc, request, &asked, &failure);
	}
	neap_alloc_unlock(alloc);
	if (status && err)
		*err = failure;
	return status;
}

/* Stamps a freed block. Unless its stream has other live blocks, the program may destroy the stream afterwards. */
static void leave_stream(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_stream *stream = block_stream(block);
	alloc->dirty = true;
	block->stamp = stream->recorded + 1;
	if (stream->live_blocks == 1)
		neap_stream_close(alloc, stream);
	stream->live_blocks--;
}

/* The block that the program holds at this address; NULL: none. */
static struct neap_block *live_block(const struct neap_alloc *alloc, uint64_t address)
{
	struct neap_block *block = neap_index_find(&alloc->live, address);
	return block && !block->binned ? block : NULL;
}

enum neap_status neap_free_by_core(struct neap_alloc *alloc, uint64_t address)
{
	neap_alloc_lock(alloc);
	struct neap_block *block = live_block(alloc, address);
	if (block) {
		/* the core reads it when it joins the blocks, after its counters */
		__builtin_prefetch(block->previous);
		__builtin_prefetch(block->next);
		leave_stream(alloc, block);
		if (alloc->plan)
			neap_plan_note_free(alloc->plan, block->bytes, block->serial);
		neap_count_live(alloc, block, -1);
		neap_event_block(alloc, NEAP_EVENT_FREE_REQUESTED, block, NULL);
		if (neap_front_push(alloc, block)) {
			neap_count_active(alloc, block, -1);
			neap_event_block(alloc, NEAP_EVENT_FREE_COMPLETED, block, NULL);
		} else {
			neap_index_remove(&alloc->live, address);
			if (block->uses)
				neap_pending_start(alloc, block);
			else
				neap_block_complete(alloc, block);
		}
	}
	neap_alloc_unlock(alloc);
	return block ? NEAP_OK : NEAP_EINVAL;
}

enum neap_status neap_record_stream(struct neap_alloc *alloc, uint64_t address, void *stream)
{
	enum neap_status status = NEAP_EINVAL;
	neap_alloc_lock(alloc);
	struct neap_block *block = live_block(alloc, address);
	if (!block)
		goto out;
	struct neap_stream *other = neap_stream_find(alloc, stream);
	if (!other) {
		status = NEAP_ENOMEM;
		goto out;
	}
	status = other == block_stream(block) ? NEAP_OK : neap_use_add(alloc, block, other);
	neap_front_mark(alloc, block);
	if (!status)
		neap_event_block(alloc, NEAP_EVENT_RECORD_STREAM, block, other);
out:
	neap_alloc_unlock(alloc);
	return status;
}
