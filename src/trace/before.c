/* trace/before.c: finds the blocks that were live before a history began, from its later events and its end. */
#include "base/error.h"
#include "base/map.h"
#include "trace/trace.h"

#include <stdlib.h>

struct before {
	struct neap_map seen; /* the addresses that events have named so far */
	struct neap_trace_block *blocks;
	size_t count, capacity;
};

static bool add(struct before *before, const struct neap_trace_block *block)
{
	if (before->count == before->capacity) {
		size_t capacity = before->capacity ? before->capacity * 2 : 64;
		struct neap_trace_block *blocks = realloc(before->blocks, capacity * sizeof *blocks);
		if (!blocks)
			return false;
		before->blocks = blocks;
		before->capacity = capacity;
	}
	before->blocks[before->count++] = *block;
	return true;
}

static bool take_event(struct before *before, const struct neap_trace_event *event)
{
	struct neap_trace_block block = {.address = event->address, .requested = event->size};

	switch ((enum neap_trace_kind)event->kind) {
	case NEAP_TRACE_ALLOC:
		return neap_map_put(&before->seen, event->address, 1);
	case NEAP_TRACE_FREE_REQUESTED:
	case NEAP_TRACE_FREE_COMPLETED:
		/* No event named this address before. If its free is requested first, it was live; if completed
		 * first, pending. */
		if (!neap_map_get(&before->seen, event->address, NULL)) {
			block.state = event->kind == NEAP_TRACE_FREE_REQUESTED ? NEAP_TRACE_BLOCK_LIVE
									       : NEAP_TRACE_BLOCK_PENDING;
			if (!add(before, &block))
				return false;
		}
		return neap_map_put(&before->seen, event->address, 1);
	default:
		return true;
	}
}

/* Adds one block that stands for rounded bytes whose events the recording's ring has lost, if no later event names
 * them. */
static bool add_rest(struct before *before, uint64_t all)
{
	struct neap_trace_block rest = {.address = NEAP_TRACE_REST, .state = NEAP_TRACE_BLOCK_LIVE};
	uint64_t known = 0;

	for (size_t i = 0; i < before->count; i++) {
		uint64_t bytes = before->blocks[i].requested;
		if (before->blocks[i].state == NEAP_TRACE_BLOCK_LIVE && bytes < UINT64_MAX / 2 - known)
			known += (bytes + 511) / 512 * 512;
	}
	if (all <= known)
		return true;
	rest.requested = rest.size = all - known;
	return add(before, &rest);
}

enum neap_status neap_trace_live_before(const struct neap_trace *trace, size_t device,
					struct neap_trace_block **ret_blocks, size_t *ret_count,
					struct neap_error *err)
{
	struct before before = {0};
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	bool ok = true;

	while (ok && neap_trace_next(&cursor, &event))
		ok = take_event(&before, &event);
	for (size_t i = 0; ok && device < trace->device_count && i < trace->devices[device].segment_count; i++) {
		const struct neap_trace_segment *segment = &trace->segments[trace->devices[device].first_segment + i];
		for (size_t b = 0; ok && b < segment->block_count; b++) {
			const struct neap_trace_block *block = &trace->blocks[segment->first_block + b];
			if (block->state != NEAP_TRACE_BLOCK_FREE &&
			    !neap_map_get(&before.seen, block->address, NULL))
				ok = add(&before, block);
		}
	}
	if (ok && device < trace->device_count)
		ok = add_rest(&before, trace->devices[device].before_bytes);
	neap_map_fini(&before.seen);
	if (!ok) {
		free(before.blocks);
		return neap_fail(err, NEAP_ENOMEM, "out of host memory");
	}
	*ret_blocks = before.blocks;
	*ret_count = before.count;
	return NEAP_OK;
}
