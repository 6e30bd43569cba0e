/* alloc/alloc.c: the public calls, and the way of a request.
 *
 *   neap_malloc: lane ........ a bin of this very size (front.c), without the lock and all of what follows
 *                hit ......... best fit in the arena of (class, pool, stream), no driver call
 *                miss ........ pages from the driver, from other cached blocks, or ends of pages together (obtain.c);
 *                              else give the whole cache back and ask again
 *                others ...... outside the lock, other processes are asked for what they cache; then all of the above
 *                callback .... outside the lock, at most eight times, each followed by all of the above but `others`
 *                report ...... events, message, NEAP_EOOM
 *
 * Nothing is changed before everything that can fail has been done: block storage is ensured and the address is in
 * the map of live blocks before a block is taken out of the cache.
 */
#include "alloc/forking.h"
#include "alloc/internal.h"
#include "alloc/plan.h"
#include "alloc/view.h"
#include "base/error.h"

#include <stdlib.h>

#define OOM_ATTEMPTS 8
#define FIT_SAMPLE   8 /* of so many requests one is counted */

/* The one global besides the agent's instance: whom to tell of allocators. */
static const struct neap_alloc_hook *alloc_hook;

/* This thread is in an OOM callback, whose own requests ask no other process. */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool in_oom_callback;

void neap_set_alloc_hook(const struct neap_alloc_hook *hook)
{
	__atomic_store_n(&alloc_hook, hook, __ATOMIC_RELEASE);
}

void neap_alloc_lock(struct neap_alloc *alloc)
{
	pthread_mutex_lock(&alloc->lock);
	neap_front_freeze(alloc, NULL);
}

void neap_alloc_unlock(struct neap_alloc *alloc)
{
	neap_front_thaw(alloc);
	pthread_mutex_unlock(&alloc->lock);
}

bool neap_alloc_fork_begin(struct neap_alloc *alloc, const struct timespec *until)
{
	if (pthread_mutex_timedlock(&alloc->lock, until) != 0)
		return false;
	bool frozen = neap_front_freeze(alloc, until);
	if (frozen)
		neap_front_part(alloc);
	else
		pthread_mutex_unlock(&alloc->lock);
	return frozen;
}

void neap_alloc_fork_end(struct neap_alloc *alloc) { neap_alloc_unlock(alloc); }

enum neap_status neap_alloc_create(struct neap_device *device, const struct neap_alloc_options *options,
				   struct neap_alloc **ret_alloc, struct neap_error *err)
{
	static const struct neap_alloc_options defaults;
	const struct neap_device_info *info = neap_device_info(device);
	if (!options)
		options = &defaults;
	if (!(options->fraction >= 0 && options->fraction <= 1))
		return neap_fail(err, NEAP_EINVAL, "the fraction must be above 0 and at most 1, not %g",
				 options->fraction);
	struct neap_alloc *alloc = calloc(1, sizeof *alloc);
	struct neap_plan *plan = alloc && !options->no_plan ? neap_plan_create(SMALL_LIMIT_BYTES + 1) : NULL;
	if (!alloc || (!options->no_plan && !plan) || pthread_mutex_init(&alloc->lock, NULL)) {
		neap_plan_destroy(plan);
		free(alloc);
		return neap_fail(err, NEAP_ENOMEM, "no host memory for an allocator");
	}
	alloc->device = device;
	alloc->plan = plan;
	alloc->cuda = neap_driver_cuda(neap_device_driver(device));
	alloc->plain = !info->page_bytes;
	alloc->page_bytes = alloc->plain ? PLAIN_PAGE_BYTES : info->page_bytes;
	alloc->shareable = options->shareable;
	alloc->fraction = options->fraction > 0 ? options->fraction : 1;
	alloc->limit_bytes =
		alloc->fraction < 1 ? (uint64_t)(alloc->fraction * (double)info->total_bytes) : UINT64_MAX;
	alloc->stats.max_split_size = -1;
	alloc->observer = options->observer;
	alloc->published = &alloc->own_published;
	neap_published_all(alloc);
	neap_published_close(alloc);
	if (options->published)
		neap_publish(alloc, options->published);
	const char other[] = "other";
	for (size_t i = 0; i < sizeof other; i++)
		alloc->tags[TAG_OTHER].text[i] = other[i];
	*ret_alloc = alloc;
	const struct neap_alloc_hook *hook = __atomic_load_n(&alloc_hook, __ATOMIC_ACQUIRE);
	if (hook && hook->created)
		hook->created(alloc);
	return NEAP_OK;
}

void neap_alloc_destroy(struct neap_alloc *alloc)
{
	if (!alloc)
		return;
	const struct neap_alloc_hook *hook = __atomic_load_n(&alloc_hook, __ATOMIC_ACQUIRE);
	if (hook && hook->destroying)
		hook->destroying(alloc);
	struct neap_device_guard guard = {0};
	bool entered = neap_device_enter(alloc->device, &guard, NULL) == NEAP_OK;
	/* Live blocks may have work queued on them too, so this never depends on `dirty`. */
	if (entered && alloc->segments)
		alloc->cuda->cuCtxSynchronize();
	neap_pending_fini(alloc, entered);
	neap_segments_fini(alloc, entered);
	neap_arenas_fini(alloc, entered);
	if (entered)
		neap_device_leave(&guard);
	neap_blocks_fini(alloc);
	neap_index_fini(&alloc->live);
	neap_front_fini(alloc);
	neap_plan_destroy(alloc->plan);
	pthread_mutex_destroy(&alloc->lock);
	free(alloc);
}

struct neap_device *neap_alloc_device(struct neap_alloc *alloc) { return alloc->device; }

/* All that the driver, other streams and pending frees can give; but for a plan's region, which is asked next. */
static enum neap_status obtain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes, bool capturing,
			       struct neap_block **ret_block, struct neap_error *err)
{
	uint64_t freed = 0;
	enum neap_status status = neap_cache_obtain(alloc, cache, bytes, capturing, ret_block, err);
	if (status != NEAP_EOOM || capturing || alloc->region ||
	    metric_now(alloc, NEAP_METRIC_RESERVED_BYTES) <= metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES))
		return status;
	neap_counter_add(alloc, &alloc->stats.num_alloc_retries, 1);
	status = neap_cache_release(alloc, &freed, err);
	if (!status && !neap_fit_find(cache, bytes))
		status = neap_cache_obtain(alloc, cache, bytes, false, ret_block, err);
	return status;
}

/* No block fits. Then one does, or *ret_block is one of a view, or the status says why. */
static enum neap_status miss(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_request *request,
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
	/* Mapping new pages is not work on a stream and waits for nothing, so a capture allows it, unlike cuMemAlloc.
	 */
	if (!status && capturing && alloc->plain)
		status = neap_fail(
			err, NEAP_ESTATE,
			"no cached block of %llu bytes, and the driver cannot be asked during a graph capture",
			(unsigned long long)request->rounded);
	if (!status)
		status = obtain(alloc, cache, request->rounded, capturing, ret_block, err);
	neap_device_leave(&guard);
	return status;
}

/* Completes the frees whose work is done, unless a capture forbids to ask. */
static void pending_ask(struct neap_alloc *alloc, void *stream)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	if (alloc->captures_open || neap_device_enter(alloc->device, &guard, NULL))
		return;
	if (!neap_capture_under_way(alloc, stream, &capturing, NULL) && !capturing)
		neap_pending_poll(alloc);
	neap_device_leave(&guard);
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

/* The block is the program's from now on. */
static void hand_out(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *block,
		     const struct neap_request *request)
{
	block->requested = request->bytes;
	block->tag = request->tag;
	block->serial = ++alloc->serial;
	stream->live_blocks++;
	neap_front_mark(alloc, block);
	neap_count_live(alloc, block, 1);
	neap_count_active(alloc, block, 1);
	neap_event_block(alloc, NEAP_EVENT_ALLOC, block, NULL);
}

/* For a request that its own class has no block for: an end of a page in the other class. Small requests get one as
 * soon as memory is short, large ones as the last resort. A private pool keeps its classes apart. */
static struct neap_block *borrow(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_cache **cache,
				 uint64_t bytes, bool last)
{
	bool small = (*cache)->arena->small;
	if ((*cache)->arena->pool || (!last && (!small || !neap_fit_short(alloc))))
		return NULL;
	struct neap_cache *other = neap_cache_find(alloc, stream, NULL, !small);
	struct neap_block *block = other ? neap_fit_page_end(alloc, other, bytes) : NULL;
	if (block)
		*cache = other;
	return block;
}

/* A block of the cache or of what others may give, LIVE and in the index. */
static enum neap_status find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_request *request,
			     struct neap_block **ret_block, struct neap_error *err)
{
	struct neap_pool *pool = neap_pool_match(alloc, request->stream);
	bool small = request->rounded <= SMALL_LIMIT_BYTES;
	struct neap_cache *cache = neap_cache_find(alloc, stream, pool, small);
	if (alloc->waiting_uses)
		pending_ask(alloc, request->stream);
	struct neap_block *block = cache ? neap_fit_find(cache, request->rounded) : NULL;
	if (cache && !block) {
		neap_share_decide(alloc, request->rounded);
		cache = neap_cache_find(alloc, stream, pool, small);
		block = cache ? neap_fit_find(cache, request->rounded) : NULL;
	}
	if (!cache)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a stream's arena");
	if (!block) /* before pages move or ends of them are put together for it */
		block = borrow(alloc, stream, &cache, request->rounded,
			       !small && neap_fit_tight(alloc, request->rounded));
	if (!block && !pool) {
		*ret_block = neap_planned_lend(alloc, stream, request, false);
		if (*ret_block)
			return NEAP_OK;
	}
	if (!block) {
		struct neap_block *stitched = NULL;
		enum neap_status status = miss(alloc, cache, request, &stitched, err);
		if (status == NEAP_EOOM && alloc->region) {
			*ret_block = pool ? NULL : neap_planned_lend(alloc, stream, request, true);
			if (*ret_block)
				return NEAP_OK;
			neap_planned_stop(alloc);
			status = miss(alloc, cache, request, &stitched, err);
		}
		if (stitched) {
			*ret_block = stitched;
			return NEAP_OK;
		}
		block = status == NEAP_EOOM ? borrow(alloc, stream, &cache, request->rounded, true) : NULL;
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
	else /* lanes count by the size, the core by the arena */
		block->lane = NULL;
	*ret_block = block;
	return NEAP_OK;
}

/* One round of looking everywhere. */
static enum neap_status serve(struct neap_alloc *alloc, struct neap_request *request, uint64_t *ret_address,
			      struct neap_error *err)
{
	struct neap_stream *stream = neap_stream_find(alloc, request->stream);
	struct neap_block *block = neap_front_pop(alloc, request);
	enum neap_status status = NEAP_OK;
	if (!stream)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a stream");
	if (!block && alloc->plan && neap_plan_watches(alloc->plan)) {
		if (alloc->region && alloc->waiting_uses)
			pending_ask(alloc, request->stream);
		block = neap_planned_take(alloc, stream, request);
	}
	if (!block)
		status = find(alloc, stream, request, &block, err);
	if (status)
		return status;
	hand_out(alloc, stream, block, request);
	if (alloc->plan)
		neap_planned_note(alloc, stream, request);
	*ret_address = block->address;
	return NEAP_OK;
}

/* Whether memory of other processes could serve a request that found none, and may be asked for. */
static bool others_could_help(const struct neap_alloc *alloc, const struct neap_request *request)
{
	uint64_t device = neap_device_info(alloc->device)->total_bytes;
	uint64_t most = alloc->limit_bytes < device ? alloc->limit_bytes : device;
	uint64_t active = metric_now(alloc, NEAP_METRIC_ACTIVE_BYTES);
	return active <= most && request->rounded <= most - active && !request->capturing && !alloc->captures_open &&
	       !in_oom_callback;
}

/* This device has no more. Locked; the lock is given up while other processes are asked. */
static enum neap_status ask_others(struct neap_alloc *alloc, struct neap_request *request,
				   struct neap_asked *ret_asked, uint64_t *ret_address, struct neap_error *err)
{
	const struct neap_alloc_hook *hook = __atomic_load_n(&alloc_hook, __ATOMIC_ACQUIRE);
	if (hook && hook->lacking && others_could_help(alloc, request)) {
		neap_alloc_unlock(alloc);
		hook->lacking(alloc, ret_asked);
		neap_alloc_lock(alloc);
	}
	alloc->asked = *ret_asked;
	return ret_asked->answered ? serve(alloc, request, ret_address, err) : NEAP_EOOM;
}

/* The way of a request that its stream's lane could not serve. */
static enum neap_status malloc_by_core(struct neap_alloc *alloc, struct neap_request *request, uint64_t *ret_address,
				       struct neap_error *err)
{
	neap_alloc_lock(alloc);
	request->tag = neap_tag_find(alloc);
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
		neap_alloc_lock(alloc);
		if (!again)
			break;
		status = serve(alloc, request, ret_address, &failure);
	}
	if (status == NEAP_EOOM)
		neap_oom_report(alloc, request, &asked, &failure);
	neap_alloc_unlock(alloc);
	if (status && err)
		*err = failure;
	return status;
}

enum neap_status neap_malloc(struct neap_alloc *alloc, size_t bytes, void *stream, uint64_t *ret_address,
			     struct neap_error *err)
{
	if (!bytes) {
		*ret_address = 0;
		return NEAP_OK;
	}
	struct neap_request request = {.bytes = bytes, .stream = stream};
	/* More than half of the address space is not a size; keeping it below keeps every sum below in range. */
	request.rounded = bytes > SIZE_MAX / 4 ? SIZE_MAX / 4 + 1 : round_up(bytes, BLOCK_ALIGNMENT);
	if (neap_front_take(alloc, &request, ret_address))
		return NEAP_OK;
	return malloc_by_core(alloc, &request, ret_address, err);
}

void neap_block_complete(struct neap_alloc *alloc, struct neap_block *block)
{
	neap_count_active(alloc, block, -1);
	neap_event_block(alloc, NEAP_EVENT_FREE_COMPLETED, block, NULL);
	if (block->segment->view)
		neap_view_end(alloc, block);
	else
		neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
}

/* The block's stream may be destroyed from now on, unless it has other live blocks. */
static void leave_stream(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_stream *stream = block_stream(block);
	alloc->dirty = true;
	block->stamp = stream->recorded + 1;
	if (stream->live_blocks == 1)
		neap_stream_close(alloc, stream);
	stream->live_blocks--;
}

/* The block that the program has at this address; NULL: none. */
static struct neap_block *live_block(const struct neap_alloc *alloc, uint64_t address)
{
	struct neap_block *block = neap_index_find(&alloc->live, address);
	return block && !block->binned ? block : NULL;
}

/* The way of a free that the block's lane could not do. */
static enum neap_status free_by_core(struct neap_alloc *alloc, uint64_t address)
{
	neap_alloc_lock(alloc);
	struct neap_block *block = live_block(alloc, address);
	if (block) {
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

enum neap_status neap_free(struct neap_alloc *alloc, uint64_t address)
{
	if (!address || neap_front_give(alloc, address))
		return NEAP_OK;
	return free_by_core(alloc, address);
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

void neap_set_oom_callback(struct neap_alloc *alloc, neap_oom_callback callback, void *context)
{
	neap_alloc_lock(alloc);
	alloc->oom_callback = callback;
	alloc->oom_context = context;
	neap_alloc_unlock(alloc);
}

void neap_last_asked(struct neap_alloc *alloc, struct neap_asked *ret_asked)
{
	neap_alloc_lock(alloc);
	*ret_asked = alloc->asked;
	neap_alloc_unlock(alloc);
}

void neap_get_stats(struct neap_alloc *alloc, struct neap_stats *ret_stats)
{
	neap_alloc_lock(alloc);
	*ret_stats = alloc->stats;
	neap_alloc_unlock(alloc);
}

void neap_reset_peak_stats(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	neap_stats_peaks_reset(alloc);
	neap_alloc_unlock(alloc);
}

void neap_reset_accumulated_stats(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	neap_stats_sums_reset(alloc);
	neap_alloc_unlock(alloc);
}

void neap_publish(struct neap_alloc *alloc, struct neap_published *published)
{
	neap_alloc_lock(alloc);
	neap_published_close(alloc);
	alloc->published = published ? published : &alloc->own_published;
	alloc->published_sequence = __atomic_load_n(&alloc->published->sequence, __ATOMIC_RELAXED);
	neap_published_all(alloc);
	neap_alloc_unlock(alloc);
}

void neap_observe(struct neap_alloc *alloc, const struct neap_observer *observer)
{
	neap_alloc_lock(alloc);
	neap_front_part(alloc);
	alloc->observer = observer;
	neap_tags_renumber(alloc);
	neap_alloc_unlock(alloc);
}

bool neap_observe_if_none(struct neap_alloc *alloc, const struct neap_observer *observer)
{
	neap_alloc_lock(alloc);
	bool none = !alloc->observer;
	neap_front_part(alloc);
	if (none)
		alloc->observer = observer;
	/* The same observer may have restarted, as the agent's does when it attaches again. */
	if (alloc->observer == observer)
		neap_tags_renumber(alloc);
	neap_alloc_unlock(alloc);
	return none;
}

void neap_emit(struct neap_alloc *alloc, struct neap_event event)
{
	neap_alloc_lock(alloc);
	const struct neap_event_held *held = neap_event_as_held(&event);
	if (held && !held->allocated_bytes && !held->reserved_bytes)
		event.held = neap_event_held_now(alloc);
	neap_event_send(alloc, &event);
	if (event.kind == NEAP_EVENT_STEP)
		neap_planned_step(alloc);
	neap_alloc_unlock(alloc);
}

uint16_t neap_emit_name(struct neap_alloc *alloc, const char *text)
{
	neap_alloc_lock(alloc);
	const struct neap_observer *observer = alloc->observer;
	uint16_t number = observer && observer->name ? observer->name(observer->context, text) : 0;
	neap_alloc_unlock(alloc);
	return number;
}

uint64_t neap_alloc_serial(struct neap_alloc *alloc)
{
	neap_alloc_lock(alloc);
	uint64_t serial = alloc->serial;
	neap_alloc_unlock(alloc);
	return serial;
}

void neap_take_extremes(struct neap_alloc *alloc, uint64_t *ret_lowest, uint64_t *ret_highest)
{
	neap_alloc_lock(alloc);
	*ret_lowest = alloc->lowest_allocated;
	*ret_highest = alloc->highest_allocated;
	alloc->lowest_allocated = alloc->highest_allocated = metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES);
	neap_alloc_unlock(alloc);
}
