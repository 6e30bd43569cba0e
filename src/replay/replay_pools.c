/* replay/replay_pools.c: numbers the private pools of graphs and of torch.cuda.MemPool, and derives from a recording
 * with which options they were made. */
#include "base/units.h"
#include "replay/replay_internal.h"

#include <stdlib.h>
#include <string.h>

struct named {
	const uint64_t *pool; /* both halves of its name */
	size_t stream;
};

static int by_name(const void *left, const void *right)
{
	const struct named *a = left, *b = right;
	for (int half = 0; half < 2; half++)
		if (a->pool[half] != b->pool[half])
			return a->pool[half] < b->pool[half] ? -1 : 1;
	return a->stream < b->stream ? -1 : a->stream > b->stream;
}

/* Numbers the private pools from 1, in the order in which the streams first name them. 0 is the common pool. */
enum neap_status replay_number_pools(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace *trace = replay->trace;
	uint32_t count = 0;
	size_t named_count = 0;
	struct named *named = calloc(trace->stream_count + 1, sizeof *named);
	/* For each stream: the first stream with its pool. */
	size_t *first = calloc(trace->stream_count + 1, sizeof *first);
	replay->pool_of = calloc(trace->stream_count + 1, sizeof *replay->pool_of);
	if (!named || !first || !replay->pool_of) {
		free(named);
		free(first);
		return replay_starved(err);
	}
	for (size_t i = 0; i < trace->stream_count; i++)
		if (trace->streams[i].pool[0] || trace->streams[i].pool[1])
			named[named_count++] = (struct named){trace->streams[i].pool, i};
	qsort(named, named_count, sizeof *named, by_name);
	for (size_t i = 0; i < named_count; i++) {
		bool same = i > 0 && memcmp(named[i].pool, named[i - 1].pool, 2 * sizeof *named[i].pool) == 0;
		first[named[i].stream] = same ? first[named[i - 1].stream] : named[i].stream;
	}
	for (size_t i = 0; i < trace->stream_count; i++)
		if (trace->streams[i].pool[0] || trace->streams[i].pool[1])
			replay->pool_of[i] = first[i] == i ? ++count : replay->pool_of[first[i]];
	free(named);
	free(first);
	replay->pool_count = count;
	return NEAP_OK;
}

/* Lists the pools. Their numbers rise in the order of the streams that first name them. */
void replay_list_pools(struct replay *replay)
{
	const struct neap_trace *trace = replay->trace;
	uint32_t last = 0;
	for (size_t i = 0; i < trace->stream_count; i++) {
		struct neap_replay_result *result = &replay->result;
		struct neap_replay_pool *pool = &result->pools[result->pool_count];
		if (replay->pool_of[i] <= last || result->pool_count == NEAP_REPLAY_POOLS)
			continue;
		last = replay->pool_of[i];
		memcpy(pool->id, trace->streams[i].pool, sizeof pool->id);
		result->pool_count += neap_torch_pool_reserved(replay->policy, last, pool->reserved);
	}
}

/* Finds the pools with an allocator of their own: they have plain segments although other pools have expandable
 * ones. */
static void find_plain(struct replay *replay, const struct neap_trace_device *device)
{
	struct neap_trace_cursor cursor = neap_trace_events(replay->trace, replay->options->device, 0);
	struct neap_trace_event event;
	while (neap_trace_find(&cursor, 1u << NEAP_TRACE_SEGMENT_ALLOC, &event))
		replay->traits[replay->pool_of[event.stream]].plain = true;
	for (size_t i = 0; i < device->segment_count; i++) {
		const struct neap_trace_segment *segment = &replay->trace->segments[device->first_segment + i];
		if (!segment->expandable)
			replay->traits[replay->pool_of[segment->stream]].plain = true;
	}
}

/* Whether a block in use is so much larger than its request that it would have been split if that were allowed. */
static bool is_unsplit(const struct neap_torch_settings *settings, const struct neap_trace_segment *segment,
		       const struct neap_trace_block *block, bool expandable)
{
	uint64_t size = neap_torch_round(settings, block->requested);
	if (block->state == NEAP_TRACE_BLOCK_FREE || block->size < size)
		return false;
	if (!segment->large || expandable)
		return block->size - size >= 512;
	return size < settings->max_split_bytes && block->size - size > NEAP_MIB;
}

static void find_whole(struct replay *replay, const struct neap_trace_device *device)
{
	const struct neap_torch_settings *settings = &replay->result.settings;
	for (size_t i = 0; i < device->segment_count; i++) {
		const struct neap_trace_segment *segment = &replay->trace->segments[device->first_segment + i];
		struct neap_torch_pool *traits = &replay->traits[replay->pool_of[segment->stream]];
		for (size_t j = 0; j < segment->block_count; j++)
			if (is_unsplit(settings, segment, &replay->trace->blocks[segment->first_block + j],
				       settings->expandable_segments &&
					       (!traits->plain || replay->rules.splits_alike)))
				traits->whole = true;
	}
}

enum neap_status replay_find_traits(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace_device *device = &replay->trace->devices[replay->options->device];
	uint64_t guessed;
	if (!replay->pool_count)
		return NEAP_OK;
	replay->traits = calloc(replay->pool_count + 1, sizeof *replay->traits);
	if (!replay->traits)
		return replay_starved(err);
	if (replay->result.settings.expandable_segments)
		find_plain(replay, device);
	find_whole(replay, device);
	for (uint32_t i = 1; i <= replay->pool_count; i++)
		replay->traits[i].whole |= neap_map_get(&replay->guesses->whole, i, &guessed);
	return NEAP_OK;
}

enum neap_status replay_shape_pools(struct replay *replay, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (uint32_t i = 1; !status && i <= replay->pool_count; i++)
		status = neap_torch_pool(replay->policy, i, &replay->traits[i], err);
	return status;
}
