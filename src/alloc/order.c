/* alloc/order.c: what must be over before the bytes of a freed block serve another stream, or their pages are
 * unmapped.
 *
 * A stream has one event, recorded again and again. A freed block is stamped with the number of the next record,
 * which stands behind all work on the block whenever it is made:
 *
 *   ... work on b | free b: stamp = recorded + 1 | more work | record: ++recorded | ...     b is idle <=> stamp <=
 * done
 *
 * So a free costs nothing, and one question to the driver settles all that was freed before the record. The price: a
 * stream that waits for a block also waits for the work that was queued between its free and the record.
 *
 * A stream's handle may be used only while blocks allocated on it are live: when the last of them is freed the event
 * is recorded at once, if there are other streams. Where that was not possible (a capture, a refusal, no other stream
 * yet) only a synchronisation of the context can tell.
 */
#include "alloc/internal.h"
#include "base/error.h"

/* Records the stream's event, so that it covers every stamp given so far. */
static enum neap_status record(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_error *err)
{
	CUresult result = CUDA_SUCCESS;
	neap_published_close(alloc);
	if (!stream->event_made) {
		result = alloc->cuda->cuEventCreate(&stream->event, CU_EVENT_DISABLE_TIMING);
		stream->event_made = result == CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS)
		result = alloc->cuda->cuEventRecord(stream->event, stream->handle);
	if (result == CUDA_SUCCESS)
		stream->recorded++;
	return neap_cuda_fail(alloc->cuda, result, err, "recording an event behind freed memory");
}

/* Whether the event stands behind the stamp's work, making it so where the handle is valid. */
static bool covered(struct neap_alloc *alloc, struct neap_stream *stream, uint64_t stamp)
{
	return stamp <= stream->recorded || (stream->live_blocks > 0 && record(alloc, stream, NULL) == NEAP_OK);
}

bool neap_stamp_idle(struct neap_alloc *alloc, struct neap_stream *stream, uint64_t stamp)
{
	if (!stream || stamp <= stream->done)
		return true;
	if (!covered(alloc, stream, stamp))
		return false;
	neap_published_close(alloc);
	if (alloc->cuda->cuEventQuery(stream->event) != CUDA_SUCCESS)
		return false;
	stream->done = stream->recorded;
	return true;
}

bool neap_block_idle(struct neap_alloc *alloc, const struct neap_block *block)
{
	return neap_stamp_idle(alloc, block_stream(block), block->stamp);
}

static void ask(struct neap_alloc *alloc, struct neap_stream *stream)
{
	neap_published_close(alloc);
	if (stream->event_made && alloc->cuda->cuEventQuery(stream->event) == CUDA_SUCCESS)
		stream->done = stream->recorded;
}

void neap_stream_look(struct neap_alloc *alloc, struct neap_stream *stream)
{
	ask(alloc, stream);
	/* A record that is under way is waited for: a later one would stand behind what was queued since. The default
	 * stream's handle is always valid. */
	if (stream->done == stream->recorded && (stream->live_blocks > 0 || !stream->handle) &&
	    record(alloc, stream, NULL) == NEAP_OK)
		ask(alloc, stream);
}

enum neap_status neap_block_finish(struct neap_alloc *alloc, const struct neap_block *block, struct neap_error *err)
{
	struct neap_stream *stream = block_stream(block);
	if (neap_block_idle(alloc, block))
		return NEAP_OK;
	if (!covered(alloc, stream, block->stamp))
		return neap_alloc_synchronize(alloc, err);
	CUresult result = alloc->cuda->cuEventSynchronize(stream->event);
	if (result == CUDA_SUCCESS)
		stream->done = stream->recorded;
	return neap_cuda_fail(alloc->cuda, result, err, "waiting for work on freed memory");
}

enum neap_status neap_block_order(struct neap_alloc *alloc, const struct neap_block *block,
				  struct neap_stream *stream, bool *ret_waited, struct neap_error *err)
{
	struct neap_stream *owner = block_stream(block);
	uint64_t waited = 0;
	if (owner == stream || neap_block_idle(alloc, block))
		return NEAP_OK;
	if (neap_map_get(&stream->waited, owner->number, &waited) && waited >= block->stamp)
		return NEAP_OK;
	if (!covered(alloc, owner, block->stamp)) {
		*ret_waited = true;
		return neap_alloc_synchronize(alloc, err);
	}
	CUresult result = alloc->cuda->cuStreamWaitEvent(stream->handle, owner->event, 0);
	/* Without host memory to remember it the stream waits once more another time. */
	if (result == CUDA_SUCCESS)
		neap_map_put(&stream->waited, owner->number, owner->recorded);
	return neap_cuda_fail(alloc->cuda, result, err, "making a stream wait for another");
}

void neap_stream_close(struct neap_alloc *alloc, struct neap_stream *stream)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	if (!alloc->streams->next) /* nothing is gained over a synchronisation */
		return;
	neap_published_close(alloc);
	if (neap_device_enter(alloc->device, &guard, NULL))
		return;
	if (!neap_capture_under_way(alloc, stream->handle, &capturing, NULL) && !capturing)
		record(alloc, stream, NULL);
	neap_device_leave(&guard);
}

void neap_streams_done(struct neap_alloc *alloc)
{
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		stream->done = ++stream->recorded;
}

void neap_stream_event_fini(struct neap_alloc *alloc, struct neap_stream *stream, bool talk)
{
	if (talk && stream->event_made)
		alloc->cuda->cuEventDestroy(stream->event);
	neap_map_fini(&stream->waited);
}
