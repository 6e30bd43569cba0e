/* replay/replay_release.c: finds why segments were released, which a recording does not show: for memory inside a
 * request, or because the program emptied the cache. The next events show which. */
#include "base/units.h"
#include "replay/replay_internal.h"

/* Returns how often the driver must have refused the request that released segments and then grew; 0: never, so the
 * program emptied the cache. With max_split_size a refused request first frees oversize blocks of its stream, the
 * largest first, until they are enough; emptying the cache begins with the smallest. */
static unsigned refusals(const struct replay *replay, uint64_t bytes, uint16_t stream, uint64_t *ret_first_bytes)
{
	const struct neap_torch_settings *settings = &replay->result.settings;
	struct neap_trace_event event = replay->event;
	struct neap_trace_cursor cursor = replay->cursor;
	uint64_t limit = settings->max_split_bytes, size = neap_torch_round(settings, bytes), last = UINT64_MAX;
	uint64_t released = 0;
	bool more = true;
	if (limit == NEAP_TORCH_UNLIMITED || size <= NEAP_MIB) /* small blocks are never oversize */
		return 1;
	for (; more && is_release(&event) && event.size >= limit && event.size <= last && event.stream == stream;
	     more = neap_trace_next(&cursor, &event)) {
		last = event.size;
		released += event.size;
	}
	*ret_first_bytes = released;
	if (!is_release(&event))
		return 1;
	if (released)
		return released >= (size > limit ? size : limit) ? 2 : 1;
	for (; more && !is_growth(&event); more = neap_trace_next(&cursor, &event))
		if (is_release(&event) && event.size >= limit && event.stream == stream)
			return 0;
	return 1;
}

/* Finds the next request after releases and growth. False: there is none. */
static bool next_request(const struct replay *replay, struct neap_trace_event *ret_event)
{
	struct neap_trace_cursor cursor = replay->cursor;
	return neap_trace_find(&cursor, 1u << NEAP_TRACE_ALLOC | 1u << NEAP_TRACE_OOM, ret_event);
}

bool replay_waited_for(struct replay *replay)
{
	const struct neap_torch_settings *settings = &replay->result.settings;
	struct neap_trace_event next, request;
	if (!replay->same || !replay->options->memory_bytes || settings->max_split_bytes != NEAP_TORCH_UNLIMITED ||
	    !replay_look_ahead(replay, false, &next) || !is_release(&next) ||
	    !replay_look_ahead(replay, true, &next) || !is_growth(&next) || !next_request(replay, &request))
		return false;
	return request.stream == replay->event.stream &&
	       !neap_torch_has_headroom(replay->policy, request.size, next.size, 0) &&
	       neap_torch_round(settings, request.size) <= neap_torch_round(settings, replay->event.size);
}

/* Garbage collection frees whole segments of the large pool, and neither waits nor empties anything else. */
bool replay_was_polled(const struct replay *replay)
{
	struct neap_trace_cursor cursor = replay->cursor;
	struct neap_trace_event event;
	if (!replay->same || !neap_torch_collecting(replay->policy))
		return false;
	while (neap_trace_next(&cursor, &event)) {
		if (event.kind == NEAP_TRACE_FREE_COMPLETED)
			continue;
		if (!is_release(&event))
			return is_growth(&event);
		if (event.kind != NEAP_TRACE_SEGMENT_FREE || event.size == NEAP_REPLAY_PAGE_BYTES ||
		    replay->pool_of[event.stream])
			return false;
	}
	return false;
}

/* Whether one refused request of `pool` can have made these releases: first of oversize blocks of its pool, then of
 * the default pool. Such a request frees all that it may. `cursor`: after the oversize blocks. */
static bool continues_in_request(const struct replay *replay, struct neap_trace_cursor cursor, uint32_t pool)
{
	struct neap_trace_event event;
	do
		if (!neap_trace_next(&cursor, &event))
			return false;
	while (is_release(&event) || event.kind == NEAP_TRACE_FREE_COMPLETED);
	while (is_growth(&event))
		if (!neap_trace_next(&cursor, &event))
			return false;
	return (event.kind == NEAP_TRACE_ALLOC || event.kind == NEAP_TRACE_OOM) &&
	       replay->pool_of[event.stream] == pool;
}

/* Returns the run that begins with this event. */
static struct replay_run find_run(const struct replay *replay)
{
	struct replay_run run = {.last = true};
	struct neap_trace_event event = replay->event;
	struct neap_trace_cursor cursor = replay->cursor;
	uint64_t limit = replay->result.settings.max_split_bytes;
	bool oversize = limit != NEAP_TORCH_UNLIMITED; /* whether all releases so far are of oversize blocks */
	do {
		uint32_t pool = replay->pool_of[event.stream];
		size_t i = 0;
		if (event.kind == NEAP_TRACE_FREE_COMPLETED)
			continue;
		if (!is_release(&event))
			break;
		if (!pool && run.pool_count) {
			bool first = oversize && run.pool_count == 1 && !run.defaults;
			if (!first || !continues_in_request(replay, cursor, run.pools[0])) {
				run.last = false; /* the default pool comes first, so another flush begins here */
				break;
			}
			run.pool_count = 0; /* the program still uses the pool */
		}
		oversize = oversize && event.size >= limit;
		run.count++;
		run.defaults = run.defaults || !pool;
		while (i < run.pool_count && run.pools[i] != pool)
			i++;
		if (pool && i == run.pool_count && i < REPLAY_RUN_POOLS)
			run.pools[run.pool_count++] = pool;
	} while (neap_trace_next(&cursor, &event));
	run.left = run.count;
	return run;
}

/* Learns which of two equal segments is older, from the order in which they were freed. */
static void learn_ages(const struct replay *replay)
{
	struct neap_trace_event event = replay->event, next;
	struct neap_trace_cursor cursor = replay->cursor;
	if (!replay->start.segment_count || replay->result.match.first_difference != UINT64_MAX)
		return;
	for (uint64_t left = replay->run.left; left > 1 && neap_trace_next(&cursor, &next);) {
		if (next.kind == NEAP_TRACE_FREE_COMPLETED)
			continue;
		if (event.kind == NEAP_TRACE_SEGMENT_FREE && next.kind == NEAP_TRACE_SEGMENT_FREE &&
		    event.size == next.size)
			neap_torch_learn_freed(replay->policy, event.address, next.address);
		event = next;
		left--;
	}
}

/* Replays that the program emptied the cache, or the cache of one pool. */
static enum neap_status empty(struct replay *replay, struct neap_error *err)
{
	const struct replay_run *run = &replay->run;
	enum neap_status status = NEAP_OK;
	bool alone = replay->same && !run->defaults && neap_torch_flushable(replay->policy, 0);
	for (size_t i = 0; !status && alone && i < run->pool_count; i++)
		status = neap_torch_pool_empty(replay->policy, run->pools[i], err);
	if (alone)
		return status;
	return replay_empty(replay, err);
}

/* Whether all blocks of the run are oversize and in the request's own pool. With max_split_size, a request may
 * release such blocks. */
static bool is_oversize_run(const struct replay *replay, uint32_t pool)
{
	return !replay->run.defaults && replay->run.pool_count == 1 && replay->run.pools[0] == pool &&
	       replay->result.settings.max_split_bytes != NEAP_TORCH_UNLIMITED &&
	       replay->event.size >= replay->result.settings.max_split_bytes;
}

/* Notes that the program has released a pool, since a part of it was given back. */
static enum neap_status note_released_pools(struct replay *replay, struct neap_error *err)
{
	struct neap_trace_event request;
	enum neap_status status = NEAP_OK;
	bool found = replay->run.last && next_request(replay, &request);
	if (!replay->same || (found && is_oversize_run(replay, replay->pool_of[request.stream])))
		return NEAP_OK;
	for (size_t i = 0; !status && i < replay->run.pool_count; i++)
		status = neap_torch_pool_release(replay->policy, replay->run.pools[i], err);
	return status;
}

bool replay_in_capture(struct replay *replay)
{
	const uint64_t *pool = replay->trace->streams[replay->event.stream].pool;
	bool private = pool[0] || pool[1];
	if (replay->run.flushed)
		return false;
	if (private && (pool[0] || !replay->rules.pools_flush))
		return true;
	/* PyTorch did not flush here, although a flush would have freed memory. */
	return (private || replay->event.kind == NEAP_TRACE_OOM) && neap_torch_flushable(replay->policy, UINT32_MAX);
}

bool replay_found_anyway(struct replay *replay)
{
	return !replay->run.flushed && neap_torch_cached(replay->policy, replay->event.size,
							 replay->trace->streams[replay->event.stream].handle,
							 replay->pool_of[replay->event.stream]);
}

enum cause { UNTOLD, INSIDE, EMPTIED };

/* Whether frees have stacks of their own: some differ from the stacks of their allocations. */
static bool frees_have_stacks(const struct replay *replay)
{
	struct neap_trace_cursor cursor = neap_trace_events(replay->trace, replay->options->device, 0);
	struct neap_map stacks = {0};
	struct neap_trace_event event;
	bool own = false, ok = true;
	while (ok && !own && neap_trace_next(&cursor, &event)) {
		uint64_t stack = event.stack;
		if (event.kind == NEAP_TRACE_ALLOC)
			ok = neap_map_put(&stacks, event.address, stack);
		else if (event.kind == NEAP_TRACE_FREE_REQUESTED && neap_map_get(&stacks, event.address, &stack))
			own = stack != event.stack;
	}
	neap_map_fini(&stacks);
	return own;
}

/* Finds the cause by the stacks. Releases inside a request have the request's stack. If the program empties the
 * cache, they have the stack of that call, or, if frees have no stacks of their own, those of their segments'
 * allocations. */
static enum cause stacks_report(struct replay *replay, const struct neap_trace_event *request)
{
	struct neap_trace_event event = replay->event;
	struct neap_trace_cursor cursor = replay->cursor;
	uint64_t left = replay->run.left + 1;
	if (!request->stack)
		return UNTOLD;
	do {
		if (is_release(&event) && event.stack != request->stack)
			return EMPTIED;
		left -= is_release(&event);
	} while (left && neap_trace_next(&cursor, &event));
	if (replay->frees_have_stacks == 0) /* for most traces this is never asked */
		replay->frees_have_stacks = frees_have_stacks(replay) ? 1 : -1;
	return replay->frees_have_stacks > 0 ? INSIDE : UNTOLD;
}

#define COLLECTED_MAX 512

/* Whether the run begins with exactly the segments that garbage collection would free (a request collects garbage
 * first). *ret_count, *ret_bytes: the number of these segments, and their bytes. */
static bool begins_with_garbage(const struct replay *replay, const struct neap_trace_event *request,
				size_t *ret_count, uint64_t *ret_bytes)
{
	struct neap_torch_collected collected[COLLECTED_MAX];
	struct neap_trace_event event = replay->event;
	struct neap_trace_cursor cursor = replay->cursor;
	size_t count =
		neap_torch_collects(replay->policy, request->size, replay->trace->streams[request->stream].handle,
				    replay->pool_of[request->stream], collected, COLLECTED_MAX);
	*ret_count = count;
	*ret_bytes = 0;
	for (size_t i = 0; i < count && i < COLLECTED_MAX; i++) {
		if (event.kind != NEAP_TRACE_SEGMENT_FREE || event.address != collected[i].address)
			return false;
		*ret_bytes += event.size;
		if (!neap_trace_next(&cursor, &event))
			return i + 1 == count;
	}
	return true;
}

/* Decides whether the program emptied the cache or the request needed memory. The sizes of the device and of the
 * fraction show it, if they are known. */
static enum neap_status weigh(struct replay *replay, const struct neap_trace_event *growth,
			      const struct neap_trace_event *request, struct neap_error *err)
{
	uint64_t oversize = 0, garbage = 0;
	size_t collected = 0;
	unsigned refused = refusals(replay, request->size, request->stream, &oversize);
	if (!replay->options->memory_bytes) {
		replay->refuse = refused;
		return refused ? NEAP_OK : empty(replay, err);
	}
	if (!begins_with_garbage(replay, request, &collected, &garbage))
		return empty(replay, err);
	if (collected && collected == replay->run.left + 1)
		return NEAP_OK;
	/* Was there too little memory, and would there still have been too little without those first blocks? */
	if (!refused || neap_torch_has_headroom(replay->policy, request->size, growth->size,
						garbage + (refused == 2 ? oversize : 0)))
		return empty(replay, err);
	return NEAP_OK;
}

/* Replays the last run of releases before a request that grew or failed, or before any other event. */
static enum neap_status last_run(struct replay *replay, struct neap_error *err)
{
	struct neap_trace_event next, request;
	bool more = replay_look_ahead(replay, true, &next);
	if (!more || (!is_growth(&next) && next.kind != NEAP_TRACE_OOM))
		return empty(replay, err);
	if (!replay->same || !next_request(replay, &request))
		return NEAP_OK;
	enum cause found = stacks_report(replay, &request);
	if (found != EMPTIED && request.kind == NEAP_TRACE_OOM)
		return NEAP_OK;
	if (found == EMPTIED ||
	    neap_torch_cached(replay->policy, request.size, replay->trace->streams[request.stream].handle,
			      replay->pool_of[request.stream]))
		return empty(replay, err); /* a cached block would have served the request */
	if (found == INSIDE && !replay->options->memory_bytes) {
		uint64_t oversize = 0;
		replay->refuse = refusals(replay, request.size, request.stream, &oversize);
		replay->refuse += !replay->refuse;
	}
	return found == INSIDE ? NEAP_OK : weigh(replay, &next, &request, err);
}

enum neap_status replay_release(struct replay *replay, struct neap_error *err)
{
	if (!replay->trace->torch)
		return NEAP_OK;
	if (replay->run.left) {
		replay->run.left--;
		return NEAP_OK;
	}
	replay->run = find_run(replay);
	replay->run.left--;
	if (replay->same)
		learn_ages(replay);
	enum neap_status status = note_released_pools(replay, err);
	if (status)
		return status;
	return replay->run.last ? last_run(replay, err) : empty(replay, err);
}
