/* replay/replay.c: turns events of a trace into calls of a policy.
 *
 * A recording of PyTorch's allocator interleaves what the program did with what the allocator did about it:
 *
 *   free_requested free_completed                     a free
 *   free_requested ... free_completed                 a free that waited for another stream: held, then completed
 *   [free_completed] [segment_free] segment_alloc alloc     a request that found the device full
 *   [free_completed] segment_free, then anything else       the program emptied the cache
 *
 * Only the program's actions are replayed; the allocator's show when and why. Completions right before a release or a
 * failure came from waiting for all streams inside the request, not from a poll before it.
 */
#include "base/clock.h"
#include "base/error.h"
#include "replay/neap_policy.h"
#include "replay/replay_internal.h"

#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVENTS 1024

static bool is_passed(const struct neap_trace_event *event, bool past_releases)
{
	return event->kind == NEAP_TRACE_FREE_COMPLETED || (past_releases && is_release(event));
}

bool replay_look_ahead(const struct replay *replay, bool past_releases, struct neap_trace_event *ret_event)
{
	struct neap_trace_cursor cursor;
	*ret_event = replay->next;
	if (!replay->more)
		return false;
	if (!is_passed(ret_event, past_releases))
		return true;
	cursor = replay->ahead;
	while (neap_trace_next(&cursor, ret_event))
		if (!is_passed(ret_event, past_releases))
			return true;
	return false;
}

uint64_t replay_reserved(struct replay *replay)
{
	replay->policy->usage(replay->policy, &replay->result.usage);
	return (uint64_t)replay->result.usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].current;
}

enum neap_status replay_starved(struct neap_error *err)
{
	return neap_fail(err, NEAP_ENOMEM, "replaying a trace: this machine is out of memory");
}

/* Notes that memory ran out. NEAP_EOOM: the replay ends with it. */
static enum neap_status note_oom(struct replay *replay, struct neap_error *err)
{
	struct neap_replay_result *result = &replay->result;
	if (result->first_oom_event == UINT64_MAX)
		result->first_oom_event = result->events_applied;
	if (result->oom_count < NEAP_REPLAY_OOMS) {
		struct neap_replay_oom *oom = &result->ooms[result->oom_count++];
		oom->reserved = replay_reserved(replay);
		const struct neap_stats *stats = &result->usage.stats;
		oom->allocated = (uint64_t)stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].current;
		oom->event = result->events_applied;
		oom->requested = replay->event.size;
		oom->pieces_known = replay->options->policy != NEAP_REPLAY_NEAP;
		if (oom->pieces_known)
			neap_torch_pieces(replay->policy, oom->requested,
					  replay->trace->streams[replay->event.stream].handle,
					  replay->pool_of[replay->event.stream], &oom->pieces);
	}
	if (replay->options->go_on)
		return NEAP_OK;
	return neap_fail(err, NEAP_EOOM, "out of memory at event %llu", (unsigned long long)result->events_applied);
}

static void complete_deferred(struct replay *replay)
{
	while (replay->deferred_count)
		replay->policy->complete(replay->policy, replay->deferred[--replay->deferred_count]);
}

static enum neap_status forget(struct replay *replay, uint64_t address, void **ret_block)
{
	uint64_t value = 0;
	if (!neap_map_remove(&replay->live, address, &value))
		return NEAP_ENOENT;
	*ret_block = (void *)(uintptr_t)value;
	return NEAP_OK;
}

/* Replays an allocation, or (kind OOM) one that failed when it was recorded, after which the program continued. */
static enum neap_status replay_alloc(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace_event *event = &replay->event;
	const struct neap_trace_stream *stream = &replay->trace->streams[event->stream];
	bool failed = event->kind == NEAP_TRACE_OOM;
	void *block = NULL;
	if (!event->size)
		return NEAP_OK;
	if (replay->options->left_out && replay->options->left_out[event->stack]) {
		replay->result.ignored++;
		return NEAP_OK;
	}
	if (!failed && forget(replay, event->address, &block) == NEAP_OK) {
		replay->result.ignored++; /* the free of the earlier block is missing */
		enum neap_status status = replay->policy->free(replay->policy, block, err);
		if (status)
			return status;
	}
	if (replay->same && !replay->options->memory_bytes && (failed || replay->refuse))
		neap_torch_refuse(replay->policy, failed ? 3 : replay->refuse);
	replay->refuse = 0;
	/* On a larger device the replay may go another way; then the recording no longer shows what a request
	 * found. */
	if (replay->same && failed &&
	    (!replay->options->memory_bytes || replay->result.match.first_difference == UINT64_MAX) &&
	    replay_found_anyway(replay)) {
		neap_torch_fail(replay->policy, event->size, stream->handle);
		complete_deferred(replay);
		return note_oom(replay, err);
	}
	if (replay->same && replay_in_capture(replay))
		neap_torch_capture(replay->policy);
	if (replay->same && !failed && replay->start.segment_count &&
	    replay->result.match.first_difference == UINT64_MAX)
		neap_torch_learn(replay->policy, event->size, stream->handle, replay->pool_of[event->stream],
				 event->address);
	if (replay->same && replay->start.segment_count && replay->result.match.first_difference == UINT64_MAX)
		replay->found_bytes = neap_torch_cached(replay->policy, event->size, stream->handle,
							replay->pool_of[event->stream]);
	enum neap_status status = replay->policy->alloc(replay->policy, event->size, stream->handle,
							replay->pool_of[event->stream], &block, err);
	complete_deferred(replay);
	if ((status == NEAP_EOOM) != failed)
		replay_differs(replay);
	if (status == NEAP_EOOM)
		return note_oom(replay, err);
	if (status)
		return status;
	if (failed)
		return replay->policy->free(replay->policy, block, err);
	return neap_map_put(&replay->live, event->address, (uint64_t)(uintptr_t)block) ? NEAP_OK
										       : replay_starved(err);
}

/* Whether the recorded free completed at once. */
static bool completes_at_once(const struct replay *replay)
{
	return replay->more && replay->next.kind == NEAP_TRACE_FREE_COMPLETED &&
	       replay->next.address == replay->event.address;
}

static enum neap_status replay_free(struct replay *replay, struct neap_error *err)
{
	uint64_t address = replay->event.address;
	void *block = NULL;
	if (forget(replay, address, &block) != NEAP_OK) {
		replay->result.ignored++;
		return NEAP_OK;
	}
	if (!replay->recorded || (completes_at_once(replay) && !replay_waited_for(replay)))
		return replay->policy->free(replay->policy, block, err);
	return replay->policy->free_held(replay->policy, block, address, err);
}

static enum neap_status defer(struct replay *replay, uint64_t token, struct neap_error *err)
{
	if (replay->deferred_count == replay->deferred_capacity) {
		size_t capacity = replay->deferred_capacity ? 2 * replay->deferred_capacity : 64;
		uint64_t *deferred = realloc(replay->deferred, capacity * sizeof *deferred);
		if (!deferred)
			return replay_starved(err);
		replay->deferred = deferred;
		replay->deferred_capacity = capacity;
	}
	replay->deferred[replay->deferred_count++] = token;
	return NEAP_OK;
}

static enum neap_status replay_completion(struct replay *replay, struct neap_error *err)
{
	struct neap_trace_event next;
	void *block = NULL;
	/* Older recordings do not show when a free was requested. */
	if (forget(replay, replay->event.address, &block) == NEAP_OK)
		return replay->policy->free(replay->policy, block, err);
	if (replay_look_ahead(replay, false, &next) && (is_release(&next) || next.kind == NEAP_TRACE_OOM) &&
	    !replay_was_polled(replay))
		return defer(replay, replay->event.address, err);
	replay->policy->complete(replay->policy, replay->event.address);
	return NEAP_OK;
}

enum neap_status replay_empty(struct replay *replay, struct neap_error *err)
{
	enum neap_status status = replay->policy->empty_cache(replay->policy, err);
	complete_deferred(replay);
	return status;
}

static enum neap_status replay_event(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace_event *event = &replay->event;
	uint64_t block = 0;
	if (replay->run.count > 0 && !is_release(event) && event->kind != NEAP_TRACE_FREE_COMPLETED)
		replay->run = (struct replay_run){.flushed = true};
	switch (event->kind) {
	case NEAP_TRACE_ALLOC:
		replay->result.match.allocs++;
		return replay_alloc(replay, err);
	case NEAP_TRACE_OOM:
		return replay_alloc(replay, err);
	case NEAP_TRACE_FREE_REQUESTED:
		return replay_free(replay, err);
	case NEAP_TRACE_FREE_COMPLETED:
		return replay_completion(replay, err);
	case NEAP_TRACE_RECORD_STREAM:
		if (replay->recorded) /* the recording shows when the frees completed */
			return NEAP_OK;
		if (neap_map_get(&replay->live, event->address, &block))
			return replay->policy->record_stream(replay->policy, (void *)(uintptr_t)block,
							     replay->trace->streams[event->stream].handle, err);
		replay->result.ignored++;
		return NEAP_OK;
	case NEAP_TRACE_EMPTY_CACHE:
		return replay_empty(replay, err);
	case NEAP_TRACE_SEGMENT_FREE:
	case NEAP_TRACE_SEGMENT_UNMAP:
		replay->result.match.segments++;
		if (event->size > replay->result.largest_bytes)
			replay->result.largest_bytes = event->size;
		return replay_release(replay, err);
	case NEAP_TRACE_SEGMENT_ALLOC:
	case NEAP_TRACE_SEGMENT_MAP:
		replay->result.match.segments++;
		return NEAP_OK;
	default:
		return NEAP_OK;
	}
}

static void note_work(struct replay *replay)
{
	struct neap_policy_totals *totals = &replay->totals;
	struct neap_replay_result *result = &replay->result;
	struct neap_replay_work *work =
		result->events_applied < result->events / 4 ? &result->warm_up : &result->warm;
	struct neap_policy_totals now;
	replay->policy->totals(replay->policy, &now);
	work->events++;
	if (now.calls == totals->calls && now.synchronizations == totals->synchronizations &&
	    now.peak_bytes == totals->peak_bytes) /* true after nearly all events; then nothing was taken either */
		return;
	uint64_t growth = now.peak_bytes > totals->peak_bytes ? now.taking - totals->taking : 0;
	work->growth_calls += growth;
	work->other_calls += now.calls - totals->calls - growth;
	work->synchronizations += now.synchronizations - totals->synchronizations;
	*totals = now;
}

/* Reports the steps that end before the current event to the policy. */
static void replay_steps(struct replay *replay)
{
	const struct neap_trace_device *device = &replay->trace->devices[replay->options->device];
	for (; replay->mark < device->mark_count; replay->mark++) {
		const struct neap_trace_mark *next = &replay->trace->marks[device->first_mark + replay->mark];
		if (next->event > replay->result.events_applied)
			return;
		if (next->kind == NEAP_TRACE_STEP && replay->policy->step)
			replay->policy->step(replay->policy);
	}
}

static bool next_event(struct replay *replay)
{
	if (!replay->more)
		return false;
	replay->event = replay->next;
	replay->cursor = replay->ahead;
	replay->more = neap_trace_next(&replay->ahead, &replay->next);
	return true;
}

/* Replays the remaining events; with `pause`, at most up to the first difference. */
static enum neap_status replay_events(struct replay *replay, bool pause, struct neap_error *err)
{
	const struct neap_replay_options *options = replay->options;
	struct neap_replay_result *result = &replay->result;
	enum neap_status status = NEAP_OK;
	while (!(pause && result->match.first_difference != UINT64_MAX) && !status && next_event(replay)) {
		if (options->progress && result->events_applied % PROGRESS_EVENTS == 0 &&
		    !options->progress(options->context, result->events_applied, result->events))
			return neap_fail(err, NEAP_ECANCELED, "the replay was stopped");
		replay->policy->at(replay->policy, result->events_applied);
		replay_steps(replay);
		status = replay_event(replay, err);
		if (!is_growth(&replay->event))
			replay->run.flushed = false;
		note_work(replay);
		result->events_applied++;
	}
	replay->ended = status || !replay->more;
	return status == NEAP_EOOM ? NEAP_OK : status;
}

void neap_replay_settings(const struct neap_trace *trace, struct neap_torch_settings *ret_settings)
{
	const struct neap_trace_settings *found = &trace->settings;
	neap_torch_settings_default(ret_settings);
	if (!found->known)
		return;
	neap_torch_settings_take(neap_trace_text(trace, found->conf), ret_settings);
	if (trace->source != NEAP_TRACE_SNAPSHOT) /* other traces have the settings only as text */
		return;
	ret_settings->expandable_segments = found->expandable_segments;
	ret_settings->max_split_bytes =
		found->max_split_size > 0 ? (uint64_t)found->max_split_size : NEAP_TORCH_UNLIMITED;
	ret_settings->garbage_collection_threshold = found->garbage_collection_threshold;
	memcpy(ret_settings->divisions, found->roundup_power2_divisions, sizeof ret_settings->divisions);
}

/* Whether a recording lacks events in between, so that its blocks may lie elsewhere in the replay. */
static bool is_partial(const struct neap_trace *trace, size_t device)
{
	return trace->partial || (trace->source == NEAP_TRACE_RECORDING && trace->devices[device].lost > 0);
}

/* Applies the trace's settings, then those of the options. */
static enum neap_status choose_settings(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace *trace = replay->trace;
	const struct neap_replay_options *options = replay->options;
	struct neap_torch_settings own, wanted;
	neap_replay_settings(trace, &own);
	wanted = own;
	if (options->alone) {
		neap_torch_settings_default(&wanted);
		wanted.fraction = own.fraction;
	}
	enum neap_status status = neap_torch_settings_parse(options->settings, &wanted, err);
	if (status)
		return status;
	if (options->policy == NEAP_REPLAY_TORCH_EXPANDABLE)
		wanted.expandable_segments = true;
	replay->same = trace->torch && !options->left_out && !is_partial(trace, options->device) &&
		       options->policy != NEAP_REPLAY_NEAP && memcmp(&own, &wanted, sizeof own) == 0;
	if (options->fraction > 0)
		wanted.fraction = options->fraction;
	replay->result.settings = wanted;
	replay->rules =
		neap_torch_rules(replay->guesses->torch, &replay->result.version.from, &replay->result.version.to);
	replay->result.version.order = replay->rules.order;
	return NEAP_OK;
}

static enum neap_status make_policy(struct replay *replay, struct neap_error *err)
{
	const struct neap_replay_options *options = replay->options;
	if (options->policy == NEAP_REPLAY_NEAP)
		return neap_policy_create(&(struct neap_policy_options){options->memory_bytes, options->fraction,
									options->event_delay, options->no_plan},
					  &replay->policy, err);
	struct neap_torch_options torch = {.settings = replay->result.settings,
					   .rules = replay->rules,
					   .device_bytes = options->memory_bytes,
					   .event_delay = options->event_delay,
					   .addresses = options->addresses,
					   .context = replay};
	if (replay->same && !options->addresses) {
		torch.first_address = replay->start.end;
		torch.observe = replay_observe;
		torch.place = replay_place;
	}
	return neap_torch_create(&torch, &replay->policy, err);
}

static enum neap_status prepare(struct replay *replay, struct neap_error *err)
{
	const struct neap_trace *trace = replay->trace;
	const struct neap_replay_options *options = replay->options;
	if (options->device >= trace->device_count)
		return neap_fail(err, NEAP_EINVAL, "the trace has %zu device%s, no number %zu", trace->device_count,
				 trace->device_count == 1 ? "" : "s", options->device);
	enum neap_status status = choose_settings(replay, err);
	if (!status)
		status = replay_number_pools(replay, err);
	if (!status)
		status = replay_find_traits(replay, err);
	struct neap_start_facts facts = {replay->pool_of, replay->traits, &replay->guesses->extra};
	if (!status && trace->source == NEAP_TRACE_SNAPSHOT)
		status = neap_start_make(trace, options->device, &replay->result.settings, options->memory_bytes,
					 &facts, &replay->start, err);
	if (!status)
		status = make_policy(replay, err);
	if (!status && replay->same)
		status = replay_shape_pools(replay, err);
	replay->recorded = trace->source != NEAP_TRACE_TEXT;
	replay->result.events = trace->devices[options->device].event_count;
	replay->result.first_oom_event = UINT64_MAX;
	replay->result.match.first_difference = options->addresses ? 0 : UINT64_MAX;
	replay->cursor = replay->ahead = replay->segments = neap_trace_events(trace, options->device, 0);
	replay->more = neap_trace_next(&replay->ahead, &replay->next);
	return status;
}

void replay_close(struct replay *replay)
{
	if (!replay)
		return;
	if (replay->policy)
		replay->policy->destroy(replay->policy);
	neap_start_fini(&replay->start);
	neap_map_fini(&replay->live);
	free(replay->pool_of);
	free(replay->traits);
	free(replay->deferred);
	free(replay);
}

static void take_result(struct replay *replay)
{
	struct neap_replay_result *result = &replay->result;
	replay->policy->usage(replay->policy, &result->usage);
	if (result->usage.largest_bytes > result->largest_bytes)
		result->largest_bytes = result->usage.largest_bytes;
	if (replay->options->policy != NEAP_REPLAY_NEAP)
		replay_list_pools(replay);
	if (result->match.same_segments != result->match.segments && replay->same)
		replay_differs(replay);
}

/* Begins the replay, unless it has begun. Then replays the rest, or, with `pause`, up to the first difference. */
static enum neap_status go_on(struct replay *replay, bool begin, bool pause, struct neap_error *err)
{
	enum neap_status status = begin ? replay_begin(replay, err) : NEAP_OK;
	if (begin)
		replay->policy->totals(replay->policy, &replay->totals);
	if (!status)
		return replay_events(replay, pause && replay->same, err);
	replay->ended = true;
	if (status != NEAP_EOOM)
		return status;
	replay->result.first_oom_event = 0;
	return NEAP_OK;
}

static enum neap_status go_on_timed(struct replay *replay, bool begin, bool pause, struct neap_error *err)
{
	const struct neap_clock *clock = replay->options->clock;
	uint64_t started = clock ? neap_clock_now(clock) : 0;
	enum neap_status status = go_on(replay, begin, pause, err);
	replay->result.elapsed_ns += clock ? neap_clock_now(clock) - started : 0;
	if (!status && replay->ended)
		take_result(replay);
	return status;
}

enum neap_status replay_finish(struct replay *replay, struct neap_error *err)
{
	return replay->ended ? NEAP_OK : go_on_timed(replay, false, false, err);
}

enum neap_status replay_open(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct replay_guesses *guesses, struct replay **ret_replay, struct neap_error *err)
{
	struct replay *replay = calloc(1, sizeof *replay);
	if (!replay)
		return replay_starved(err);
	*replay = (struct replay){.trace = trace, .options = options, .guesses = guesses};
	enum neap_status status = prepare(replay, err);
	replay->result.match.compared = replay->same;
	if (!status)
		status = go_on_timed(replay, true, true, err);
	if (status)
		replay_close(replay);
	else
		*ret_replay = replay;
	return status;
}
