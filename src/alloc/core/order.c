/* alloc/core/order.c: waits for the work on freed blocks before another stream uses their bytes, or their pages are
 * unmapped.
 *
 * A stream has one event, recorded again and again. A freed block is stamped with the number of the next record. That
 * record comes after all work on the block, whenever it is made:
 *
 *   ... work on b | free b: stamp = recorded + 1 | more work | record: ++recorded | ...
 *   b is idle <=> stamp <= done
 *
 * So a free costs nothing, and one query of the driver answers for all blocks freed before the record. The price: a
 * stream that waits for a block also waits for the work that was queued between its free and the record.
 *
 * A stream's handle may be used only while blocks allocated on it are live. So when the last of them is freed, the
 * event is recorded at once, if there are other streams. If it could not be recorded (a capture, a refusal, no other
 * stream yet), the blocks are known to be idle only after a synchronisation of the context.
 */
#include "alloc/core/core.h"
#include "base/error.h"

/* The driver's answer to a query of the default stream while another stream is captured: to use that stream would
 * break the capture. */
#define CAPTURE_IMPLICIT 906

bool neap_capture_forbids(CUresult result)
{
	return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CAPTURE_IMPLICIT;
}

enum neap_status neap_stream_capturing(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
				       struct neap_error *err)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = 0;
	if (neap_driver_capabilities(neap_device_driver(alloc->device))->capture_status)
		result = alloc->cuda->cuStreamIsCapturing(stream, &capture);
	bool implicit = neap_capture_forbids(result);
	if (result && !implicit)
		return neap_cuda_fail(alloc->cuda, result, err, "cuStreamIsCapturing");
	*ret_capturing = implicit || capture != CU_STREAM_CAPTURE_STATUS_NONE;
	return NEAP_OK;
}

enum neap_status neap_capture_under_way(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
					struct neap_error *err)
{
	/* The driver cannot be asked. */
	if (!neap_driver_capabilities(neap_device_driver(alloc->device))->capture_status) {
		*ret_capturing = false;
		return NEAP_OK;
	}
	/* Asking the default stream finds a capture on any stream that is not non-blocking. */
	bool capturing = false;
	enum neap_status status = neap_stream_capturing(alloc, NULL, &capturing, err);
	if (!status && !capturing && stream)
		status = neap_stream_capturing(alloc, stream, &capturing, err);
	for (struct neap_stream *other = alloc->streams; !status && !capturing && other; other = other->next)
		if (other->live_blocks && other->handle && other->handle != stream)
			status = neap_stream_capturing(alloc, other->handle, &capturing, err);
	if (!status)
		*ret_capturing = capturing;
	return status;
}

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

/* Whether a record of the event covers the stamp. Makes a record if one is needed and the handle is valid. */
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

void neap_stream_poll(struct neap_alloc *alloc, struct neap_stream *stream)
{
	ask(alloc, stream);
	/* While a record is not done, make no later one, since it would come after work that was queued meanwhile.
	 * The default stream's handle is always valid. */
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
	/* If there is no host memory for this entry, the stream waits again another time. */
	if (result == CUDA_SUCCESS)
		neap_map_put(&stream->waited, owner->number, owner->recorded);
	return neap_cuda_fail(alloc->cuda, result, err, "making a stream wait for another");
}

void neap_stream_close(struct neap_alloc *alloc, struct neap_stream *stream)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	if (!alloc->streams->next) /* waiting would be no better than a synchronisation */
		return;
	neap_published_close(alloc);
	if (neap_device_enter(alloc->device, &guard, NULL))
		return;
	if (!neap_capture_under_way(alloc, stream->handle, &capturing, NULL) && !capturing)
		record(alloc, stream, NULL);
	neap_device_leave(&guard);
}
