/* alloc/give_back.c: see give_back.h.
 *
 * neap_empty_cache synchronises the context, which may take as long as a step, or forever where the device waits for
 * another process. Here each stream's event is asked instead, and only pages are unmapped whose work is done. Nothing
 * is known of a stream other than the default one while no block of it is live and no event was recorded behind its
 * last free (order.c): its cache stays.
 *
 * The program may be capturing a graph on a stream that this allocator has never seen. Asking for an event would
 * invalidate that capture, but for a thread in the relaxed mode.
 *
 * A plan in force keeps its region, which the next step needs, unless nothing else can be given.
 */
#include "alloc/give_back.h"

#include "alloc/internal.h"
#include "base/clock.h"
#include "base/error.h"

#define MOST_BYTES (1ull << 30)   /* so that the lock is held for some 10 ms */
#define LANES_NS   NEAP_NS_PER_MS /* a lane is held for a hit, unless its thread does not run */

/* Why nothing may be given back; NEAP_OK: it may. The context is current. */
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

/* Makes idle cached pages of the segment spare, until there are `most` of those. *ret_more: others will be idle. */
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

/* Locked, with the context current. */
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
		neap_stream_look(alloc, stream);
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

/* Exchanges this thread's capture mode; every driver with virtual memory can. */
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
	struct timespec until = neap_wall_after(LANES_NS);
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
