/* alloc/core/pending.c: freed blocks that wait for streams other than their own.
 *
 *   neap_record_stream   makes a use, so that neap_free needs no host memory
 *   neap_free            puts the use into its stream's queue and records an event after the work queued so far
 *   neap_malloc          polls the head of each queue; a block whose last use is done becomes CACHED
 *
 * Events of one stream complete in order, so only heads are queried. An event that cannot be recorded at the free
 * (the stream is being captured, the driver refused) is recorded when its use reaches the head: later than necessary,
 * never too early. Errors of the driver are not returned: the block stays pending until a poll or a synchronisation
 * completes it.
 */
#include "alloc/core/core.h"
#include "base/error.h"

#include <stdlib.h>

enum neap_status neap_use_add(struct neap_alloc *alloc, struct neap_block *block, struct neap_stream *stream)
{
	for (struct neap_use *use = block->uses; use; use = use->next_of_block)
		if (use->stream == stream)
			return NEAP_OK;
	struct neap_use *use = alloc->idle_uses;
	if (use)
		alloc->idle_uses = use->next_of_block;
	else
		use = calloc(1, sizeof *use);
	if (!use)
		return NEAP_ENOMEM;
	*use = (struct neap_use){.next_of_block = block->uses,
				 .stream = stream,
				 .block = block,
				 .event = use->event,
				 .created = use->created};
	block->uses = use;
	return NEAP_OK;
}

static void use_record(struct neap_alloc *alloc, struct neap_use *use)
{
	bool capturing = true;
	if (neap_stream_capturing(alloc, use->stream->handle, &capturing, NULL) || capturing)
		return;
	if (!use->created)
		use->created = alloc->cuda->cuEventCreate(&use->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
	if (use->created)
		use->recorded = alloc->cuda->cuEventRecord(use->event, use->stream->handle) == CUDA_SUCCESS;
}

void neap_pending_start(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_device_guard guard = {0};
	neap_published_close(alloc);
	bool entered = neap_device_enter(alloc->device, &guard, NULL) == NEAP_OK;
	block->state = NEAP_BLOCK_PENDING;
	for (struct neap_use *use = block->uses; use; use = use->next_of_block) {
		block->uses_left++;
		alloc->waiting_uses++;
		*use->stream->waiting_end = use;
		use->stream->waiting_end = &use->next_of_stream;
		if (entered)
			use_record(alloc, use);
	}
	if (entered)
		neap_device_leave(&guard);
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

/* Removes the head of the stream's queue, whose work is done. */
static void head_complete(struct neap_alloc *alloc, struct neap_stream *stream)
{
	struct neap_use *use = stream->waiting;
	stream->waiting = use->next_of_stream;
	if (!stream->waiting)
		stream->waiting_end = &stream->waiting;
	alloc->waiting_uses--;
	struct neap_block *block = use->block;
	if (--block->uses_left)
		return;
	while (block->uses) {
		struct neap_use *idle = block->uses;
		block->uses = idle->next_of_block;
		idle->next_of_block = alloc->idle_uses;
		alloc->idle_uses = idle;
	}
	neap_block_complete(alloc, block);
}

void neap_pending_poll(struct neap_alloc *alloc)
{
	for (struct neap_stream *stream = alloc->streams; alloc->waiting_uses && stream; stream = stream->next) {
		while (stream->waiting) {
			struct neap_use *use = stream->waiting;
			neap_published_close(alloc);
			if (!use->recorded)
				use_record(alloc, use);
			if (!use->recorded || alloc->cuda->cuEventQuery(use->event) != CUDA_SUCCESS)
				break;
			head_complete(alloc, stream);
		}
	}
}

void neap_pending_ask(struct neap_alloc *alloc, void *stream)
{
	struct neap_device_guard guard = {0};
	bool capturing = true;
	if (alloc->captures_open || neap_device_enter(alloc->device, &guard, NULL))
		return;
	if (!neap_capture_under_way(alloc, stream, &capturing, NULL) && !capturing)
		neap_pending_poll(alloc);
	neap_device_leave(&guard);
}

void neap_pending_complete_all(struct neap_alloc *alloc)
{
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		while (stream->waiting)
			head_complete(alloc, stream);
}

static void uses_destroy(struct neap_alloc *alloc, struct neap_use *use, bool talk)
{
	while (use) {
		struct neap_use *next = use->next_of_block;
		if (talk && use->created)
			alloc->cuda->cuEventDestroy(use->event);
		free(use);
		use = next;
	}
}

void neap_pending_fini(struct neap_alloc *alloc, bool talk)
{
	for (struct neap_segment *segment = alloc->segments; segment; segment = segment->next)
		for (struct neap_block *block = segment->first; block; block = block->next)
			uses_destroy(alloc, block->uses, talk);
	for (struct neap_view *view = alloc->views; view; view = view->next)
		if (view->block)
			uses_destroy(alloc, view->block->uses, talk);
	uses_destroy(alloc, alloc->idle_uses, talk);
	alloc->idle_uses = NULL;
}
