/* replay/replay_release.c: a recording says that segments were released, not why: to make room inside a request, or
 * because the program emptied the cache. What came next tells. */
#include "replay/replay_internal.h"

/* How often the driver must have refused the request that released segments and then grew; 0: never, the cache was
 * emptied. With max_split_size a refused request first frees oversize blocks of its stream, the largest first, until
 * they are enough; emptying the cache begins with the smallest. */
static unsigned refusals(const struct replay *replay, uint64_t bytes, uint16_t stream, uint64_t *ret_first_bytes)
{
	const struct neap_torch_settings *settings = &replay->result.settings;
	struct neap_trace_event event = replay->event;
	struct neap_trace_cursor cursor = replay->cursor;
	uint64_t limit = settings->max_split_bytes, size = neap_torch_round(settings, bytes), last = UINT64_MAX;
	uint64_t released = 0;
	bool more = true;
	if (limit == NEAP_TORCH_UNLIMITED)
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

/* The next request after releases and growth; false: none. */
static bool next_request(const struct replay *replay, struct neap_trace_event *ret_event)
{
	struct neap_trace_cursor cursor = replay->cursor;
	while (neap_trace_next(&cursor, ret_event))
		if (ret_event->kind == NEAP_TRACE_ALLOC || ret_event->kind == NEAP_TRACE_OOM)
			return true;
	return false;
}

bool replay_waited_for(struct replay *replay)
{
	const struct neap_torch_settings *settings = &replay->result.settings;
	uint64_t memory = replay->options->memory_bytes, held;
	struct neap_trace_event next, request;
	if (!replay->same || !memory || settings->max_split_bytes != NEAP_TORCH_UNLIMITED ||
	    !replay_look_ahead(replay, false, &next) || !is_release(&next) ||
	    !replay_look_ahead(replay, true, &next) || !is_growth(&next) || !next_request(replay, &request))
		return false;
	held = replay_reserved(replay);
	return request.stream == replay->event.stream && (held > memory || next.size > memory - held) &&
	       neap_torch_round(settings, request.size) <= neap_torch_round(settings, replay->event.size);
}

enum neap_status replay_release(struct replay *replay, struct neap_error *err)
{
	uint64_t memory = replay->options->memory_bytes, oversize = 0;
	struct neap_trace_event next, request;
	if (replay->emptied || replay->trace->source == NEAP_TRACE_RECORDING)
		return NEAP_OK;
	replay->emptied = true;
	bool more = replay_look_ahead(replay, true, &next);
	if (!more || (!is_growth(&next) && next.kind != NEAP_TRACE_OOM))
		return replay_empty(replay, err);
	if (!replay->same || !is_growth(&next) || !next_request(replay, &request))
		return NEAP_OK;
	if (neap_torch_cached(replay->policy, request.size, replay->trace->streams[request.stream].handle,
			      replay->pool_of[request.stream]))
		return replay_empty(replay, err); /* there was no need of more */
	if (replay->result.settings.fraction > 0)
		return NEAP_OK;
	unsigned refused = refusals(replay, request.size, request.stream, &oversize);
	if (!memory) {
		replay->refuse = refused;
		return refused ? NEAP_OK : replay_empty(replay, err);
	}
	/* Was the device full, and did it stay so without those first blocks? */
	uint64_t held = replay_reserved(replay), left = refused == 2 && oversize <= held ? held - oversize : held;
	if (!refused || (left <= memory && next.size <= memory - left))
		return replay_empty(replay, err);
	return NEAP_OK;
}
