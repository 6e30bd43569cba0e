/* alloc/give_back.c: gives cached memory back to the driver: on the program's request, for a new limit, or for
 * another process.
 *
 * neap_empty_cache synchronises the context. That may take as long as a step, or forever if the device waits for
 * another process. neap_give_back queries each stream's event instead, and unmaps only pages whose work is done. If a
 * stream other than the default one has no live block, and no event was recorded after its last free (order.c), its
 * progress is unknown, so its cache stays.
 *
 * The program may be capturing a graph on a stream that this allocator has never seen. Querying an event would
 * invalidate that capture, unless the calling thread is in the relaxed mode.
 *
 * A plan in force keeps its region, which the next step needs, unless there is nothing else to give back.
 */
#include "alloc/agent.h"
#include "alloc/front/front.h"
#include "alloc/plan/plan.h"
#include "base/clock.h"
#include "base/error.h"

#define MOST_BYTES (1ull << 30) /* limits the time under the lock to some 10 ms */
/* A lane's lock is held only for one hit, unless the thread that has it does not run */
#define LANES_NS NEAP_NS_PER_MS

/* Empties the cache of the pool `only`, or (NULL) of all, and sends the event. The lock is held. Enters the
 * context. */
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
	neap_front_flush(alloc);
	status = neap_cache_release(alloc, only, &freed, err);
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
	const struct neap_pool *pool = *neap_pool_find(alloc, pool_high, pool_low);
	if (pool && !pool->owners)
		status = cache_empty(alloc, pool, &freed, err);
	neap_alloc_unlock(alloc);
	if (!status && ret_freed_bytes)
		*ret_freed_bytes = freed;
	return status;
}

/* Reads the figures before emptying. Until measure_end, `nanoseconds` is the start time. */
static void measure_begin(struct neap_alloc *alloc, struct neap_emptied *ret_emptied)
{
	uint64_t total;
	neap_published_close(alloc);
	ret_emptied->before = alloc->stats;
	ret_emptied->free_known =
		neap_device_memory(alloc->device, &ret_emptied->free_before, &total, NULL) == NEAP_OK;
	ret_emptied->nanoseconds = neap_clock_now(neap_clock_system());
}

static void measure_end(struct neap_alloc *alloc, struct neap_emptied *emptied)
{
	uint64_t total;
	emptied->nanoseconds = neap_clock_now(neap_clock_system()) - emptied->nanoseconds;
	emptied->after = alloc->stats;
	neap_published_close(alloc);
	if (neap_device_memory(alloc->device, &emptied->free_after, &total, NULL) != NEAP_OK)
		emptied->free_known = false;
}

enum neap_status neap_empty_cache_measured(struct neap_alloc *alloc, struct neap_emptied *ret_emptied,
					   struct neap_error *err)
{
	struct neap_emptied emptied = {0};
	neap_alloc_lock(alloc);
	measure_begin(alloc, &emptied);
	enum neap_status status = cache_empty(alloc, NULL, &emptied.freed_bytes, err);
	measure_end(alloc, &emptied);
	neap_alloc_unlock(alloc);
	if (!status)
		*ret_emptied = emptied;
	return status;
}

/* Sets the limit. The lock is held, and the fraction was checked. */
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
	enum neap_status status = check_fraction(fraction, err);
	if (status)
		return status;
	neap_alloc_lock(alloc);
	measure_begin(alloc, &limited.cache);
	limited.limit_before = alloc->limit_bytes;
	status = limit_set(alloc, fraction, &limited.emptied, &limited.cache.freed_bytes, err);
	limited.limit_after = alloc->limit_bytes;
	measure_end(alloc, &limited.cache);
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

/* NEAP_OK if memory may be given back now; otherwise the reason why not. The context is current. */
static enum neap_status check(struct neap_alloc *alloc, struct neap_error *err)
{
	bool capturing = alloc->pools_open > 0;
	if (alloc->plain)
		return neap_fail(err, NEAP_ESTATE, "without virtual memory nothing is given back at once");
	enum neap_status status = capturing ? NEAP_OK : neap_capture_under_way(alloc, NULL, &capturing, err);
	if (!status && capturing)
		status = neap_fail(err, NEAP_ESTATE, "a graph may be being captured");
	return status;
}

/* Unmaps idle cached pages of the segment until `most` pages are spare. *ret_more: other pages will be idle later. */
static enum neap_status unmap_idle(struct neap_alloc *alloc, struct neap_segment *segment, uint64_t most,
				   bool *ret_more, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_block *block = segment->first; !status && block && alloc->spare_count < most;) {
		struct neap_block *next = block->next;
		const struct neap_stream *stream = block->state == NEAP_BLOCK_CACHED ? block_stream(block) : NULL;
		bool idle = block->state == NEAP_BLOCK_CACHED && (!stream || block->stamp <= stream->done);
		bool whole =
			round_up(block->address, alloc->page_bytes) < round_down(block_end(block), alloc->page_bytes);
		if (idle)
			status = neap_block_unmap(alloc, block, most - alloc->spare_count, &next, err);
		else if (stream && whole && block->stamp <= stream->recorded)
			*ret_more = true;
		block = next;
	}
	return status;
}

static enum neap_status gather(struct neap_alloc *alloc, uint64_t most, bool *ret_more, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_segment *segment = alloc->segments; !status && segment; segment = segment->next)
		if (!segment->arena->pool && segment->arena != alloc->region)
			status = unmap_idle(alloc, segment, most, ret_more, err);
	return status;
}

/* The lock is held and the context current. */
static enum neap_status give_back(struct neap_alloc *alloc, struct neap_given_back *ret_given, struct neap_error *err)
{
	uint64_t before = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES), most = MOST_BYTES / alloc->page_bytes;
	enum neap_status status = check(alloc, err);
	bool more = false;
	if (status)
		return status;
	neap_front_flush(alloc);
	neap_pending_poll(alloc);
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		neap_stream_poll(alloc, stream);
	status = gather(alloc, most, &more, err);
	if (!status && !alloc->spare_count && !more && neap_planned_stop(alloc))
		status = gather(alloc, most, &more, err);
	bool full = alloc->spare_count >= most;
	enum neap_status released =
		neap_spare_release(alloc, full ? alloc->spare_count - most : 0, status ? NULL : err);
	ret_given->bytes = before - metric_now(alloc, NEAP_METRIC_RESERVED_BYTES);
	ret_given->more = full || more;
	return status ? status : released;
}

/* Exchanges this thread's capture mode. Every driver with virtual memory has the function. */
static void exchange_mode(const struct neap_alloc *alloc, CUstreamCaptureMode *mode)
{
	if (alloc->cuda->cuThreadExchangeStreamCaptureMode)
		alloc->cuda->cuThreadExchangeStreamCaptureMode(mode);
}

enum neap_status neap_give_back(struct neap_alloc *alloc, struct neap_given_back *ret_given, struct neap_error *err)
{
	struct neap_device_guard guard = {0};
	struct neap_given_back given = {0};
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool locked = pthread_mutex_trylock(&alloc->lock) == 0;
	struct timespec until = neap_clock_after(LANES_NS);
	bool frozen = locked && neap_front_freeze(alloc, &until);
	if (locked && !frozen)
		pthread_mutex_unlock(&alloc->lock);
	if (!frozen)
		return neap_fail(err, NEAP_EBUSY, "the allocator is at work");
	uint64_t start = neap_clock_now(neap_clock_system());
	enum neap_status status = neap_device_enter(alloc->device, &guard, err);
	if (!status) {
		exchange_mode(alloc, &mode);
		status = give_back(alloc, &given, err);
		exchange_mode(alloc, &mode);
		neap_device_leave(&guard);
	}
	if (given.bytes)
		neap_event_empty_cache(alloc, given.bytes, neap_clock_now(neap_clock_system()) - start);
	neap_alloc_unlock(alloc);
	if (!status || given.bytes)
		*ret_given = given;
	return given.bytes ? NEAP_OK : status;
}
