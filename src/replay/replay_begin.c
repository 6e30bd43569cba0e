/* replay/replay_begin.c: gives the policy the state before the first event.
 */
#include "replay/replay_internal.h"

#include <stdlib.h>

/* Allocates a block that existed before the first event, at a place that the policy chooses. */
static enum neap_status place_anew(struct replay *replay, const struct neap_torch_segment *segment, uint64_t address,
				   const struct neap_torch_piece *piece, struct neap_error *err)
{
	void *block = NULL;
	uint64_t bytes = piece->requested ? piece->requested : piece->size;
	enum neap_status status =
		replay->policy->alloc(replay->policy, bytes, segment->stream, segment->pool, &block, err);
	if (status)
		return status;
	if (piece->state == NEAP_TORCH_PENDING)
		return replay->policy->free_held(replay->policy, block, address, err);
	return neap_map_put(&replay->live, address, (uint64_t)(uintptr_t)block) ? NEAP_OK : replay_starved(err);
}

static enum neap_status begin_segment(struct replay *replay, struct neap_torch_segment *segment,
				      struct neap_error *err)
{
	bool restored = false;
	enum neap_status status = NEAP_OK;
	if (replay->same) {
		status = neap_torch_restore(replay->policy, segment, err);
		restored = status == NEAP_OK;
		if (status == NEAP_EINVAL) { /* the file is odd, so only allocate its blocks */
			replay->result.ignored++;
			status = NEAP_OK;
		}
	}
	uint64_t address = segment->address;
	for (size_t i = 0; !status && i < segment->piece_count; i++) {
		struct neap_torch_piece *piece = &segment->pieces[i];
		if (!restored && (piece->state == NEAP_TORCH_LIVE || piece->state == NEAP_TORCH_PENDING))
			status = place_anew(replay, segment, address, piece, err);
		else if (piece->block && !neap_map_put(&replay->live, address, (uint64_t)(uintptr_t)piece->block))
			status = replay_starved(err);
		address += piece->size;
	}
	return status;
}

/* Allocates the blocks from before a recording's first event that are still known. They have no place. */
static enum neap_status begin_recording(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace *trace = replay->trace;
	struct neap_trace_block *blocks = NULL;
	size_t count = 0;
	enum neap_status status = neap_trace_live_before(trace, replay->options->device, &blocks, &count, err);
	for (size_t i = 0; !status && i < count; i++) {
		const struct neap_trace_block *from = &blocks[i];
		void *block = NULL;
		if (!from->requested)
			continue;
		status = replay->policy->alloc(replay->policy, from->requested, 0, 0, &block, err);
		if (!status && !neap_map_put(&replay->live, from->address, (uint64_t)(uintptr_t)block))
			status = replay_starved(err);
	}
	free(blocks);
	return status;
}

enum neap_status replay_begin(struct replay *replay, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	if (replay->trace->devices[replay->options->device].before_bytes)
		return begin_recording(replay, err);
	for (size_t i = 0; !status && i < replay->start.segment_count; i++)
		status = begin_segment(replay, &replay->start.segments[i], err);
	return status;
}
