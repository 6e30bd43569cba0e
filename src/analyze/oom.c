/* analyze/oom.c: makes the card of a trace's failure: finds the failure, reads it from the journal or else from the
 * events, and adds what the whole trace shows. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "analyze/trends.h"
#include "base/error.h"

/* Finds failure number `index`, or the last one. False: there is none. */
static bool find_failure(const struct neap_timeline *timeline, size_t index, struct neap_oom_failure *failure)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	while (neap_timeline_next(&cursor)) {
		if (cursor.event.kind != NEAP_TRACE_OOM)
			continue;
		if (failure->count == index || index == SIZE_MAX) {
			failure->event = cursor.event;
			failure->levels = cursor.now;
			failure->number = failure->count + 1;
			failure->earlier_count =
				failure->count < NEAP_OOM_EARLIER ? failure->count : NEAP_OOM_EARLIER;
		}
		if (failure->count < NEAP_OOM_EARLIER)
			failure->earlier[failure->count] = cursor.now.event;
		failure->count++;
	}
	return failure->number > 0;
}

/* Fills in the failure of a replay, with the levels just before its event. */
static bool predict_failure(const struct neap_timeline *timeline, const struct neap_trace_oom_options *options,
			    struct neap_oom_failure *failure)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	const struct neap_replay_oom *oom = options->predicted;
	struct neap_trace_levels before = cursor.now;

	while (neap_timeline_next(&cursor) && cursor.now.event < oom->event)
		before = cursor.now;
	if (cursor.now.event != oom->event)
		return false;
	failure->event = cursor.event;
	failure->event.size = oom->requested;
	failure->event.address = neap_less(options->memory_bytes, oom->reserved);
	failure->levels = before;
	failure->levels.event = oom->event;
	failure->levels.rounded = oom->allocated;
	failure->levels.reserved = oom->reserved;
	failure->number = failure->count = 1;
	failure->predicted = true;
	failure->replayed = oom;
	return true;
}

/* Whether the events have the allocations that led to the failure. A recording may have lost them, or never had
 * them. */
static bool is_kept(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure)
{
	const struct neap_timeline *timeline = parts->timeline;
	return parts->lives->count > 0 &&
	       (!timeline->trace->record || failure->predicted ||
		failure->levels.event >= neap_steps_first_kept(timeline->trace, timeline->device));
}

/* Finds which line keeps more with each step, as far as the events tell. */
static enum neap_status name_leak(const struct neap_trace_parts *parts, struct neap_oom_card *card,
				  struct neap_error *err)
{
	struct neap_steps steps = neap_steps_last(parts->steps, card->event);
	struct neap_growing growing = {0};
	enum neap_status status = neap_trends_grower(parts->lives, parts->sites, &steps, &growing, err);
	if (status || !growing.holder.kind)
		return status;
	card->leak.holder_bytes = neap_to_bytes(growing.leak.bytes_per_step);
	card->leak.of_line = growing.holder.kind != NEAP_HOLDER_SIZE;
	neap_holder_text(parts->timeline->trace, &growing.holder, card->leak.holder, sizeof card->leak.holder);
	return NEAP_OK;
}

/* Whether a block was made in a step that a failure has ended. */
static bool of_failed_step(const struct neap_steps *steps, const struct neap_oom_failure *failure, uint64_t begin)
{
	for (size_t i = 0; i < failure->earlier_count; i++)
		if (begin <= failure->earlier[i])
			return neap_steps_before(steps, begin) == neap_steps_before(steps, failure->earlier[i]);
	return false;
}

/* The live bytes that forward made in steps that earlier failures ended. The current step does not count: the program
 * may have gone on after a failure, as PyTorch does without memory for a convolution's workspace. */
static uint64_t left_by(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure, uint64_t event)
{
	size_t ended = neap_steps_before(parts->steps, event);
	uint64_t bytes = 0, begin = ended ? parts->steps->ends[ended - 1] : 0;

	struct neap_life_cursor cursor = neap_lives_begin(parts->lives, parts->lives->before);
	struct neap_life next;
	while (neap_lives_next(&cursor, &next)) {
		const struct neap_life *life = &next;
		if (life->begin < begin && neap_life_at(life, event) &&
		    parts->sites->phases[life->stack] == NEAP_PHASE_FORWARD &&
		    of_failed_step(parts->steps, failure, life->begin))
			bytes = neap_plus(bytes, life->size);
	}
	return bytes;
}

/* Reads the failure: the journal of a recording knows more of it than the recording's events. */
static enum neap_status read_failure(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     uint64_t memory_bytes, struct neap_oom_card *card, struct neap_error *err)
{
	const struct neap_fragments fragments = card->fragments;
	const uint64_t event = card->event;
	const struct neap_record *record = failure->predicted ? NULL : parts->timeline->trace->record;
	size_t at = record ? neap_oom_find(record, parts->timeline->device, failure->number - 1) : 0;
	struct neap_oom_inputs inputs = {0};

	if (record && at == record->journal_count)
		return neap_fail(err, NEAP_ENOENT,
				 "the recording's journal lacks an out-of-memory that is in its trace");
	enum neap_status status = record ? neap_oom_read_journal(record, at, card, &inputs, err)
					 : neap_oom_read_trace(parts, failure, memory_bytes, card, &inputs, err);
	if (!status && record && card->other_allocator && is_kept(parts, failure)) {
		card->fragments = fragments;
		card->event = event;
		status = neap_oom_add_events(parts, failure, card, &inputs, err);
	}
	if (!status)
		status = neap_oom_conclude(card, &inputs, err);
	if (!status && card->growth_bytes && is_kept(parts, failure)) {
		card->event = event;
		status = name_leak(parts, card, err);
	}
	if (!status && failure->earlier_count && is_kept(parts, failure)) {
		uint64_t left = left_by(parts, failure, event);
		card->left_bytes = left >= card->allocated_bytes / 20 ? left : 0;
	}
	neap_oom_inputs_fini(&inputs);
	card->replays.memory_bytes = record && memory_bytes ? memory_bytes : card->room_bytes;
	return status;
}

/* Adds the holders that keep free memory from being returned, and the bytes live before the first event. */
static void examine_trace(const struct neap_trace_parts *parts, struct neap_oom_card *card)
{
	const struct neap_trace *trace = parts->timeline->trace;
	const struct neap_fragments *fragments = &card->fragments;

	for (size_t i = 0; i < fragments->worst_count && i < NEAP_OOM_PINS; i++)
		if (fragments->worst[i].pin_count > 0)
			neap_holder_text(trace, &fragments->worst[i].pins[0], card->pins[i], sizeof card->pins[i]);
	for (size_t i = 0; i < parts->lives->before; i++) {
		if (parts->lives->early[i].address == NEAP_TRACE_REST)
			card->replays.before_bytes = parts->lives->early[i].size;
		else if (trace->source == NEAP_TRACE_SNAPSHOT)
			card->replays.began_bytes += parts->lives->early[i].size;
	}
	card->replays.unrecorded = parts->lives->count == 0 && (card->other_allocator || card->allocated_bytes > 0);
}

enum neap_status neap_trace_oom_card(const struct neap_trace_parts *parts,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	size_t device = parts->timeline->device;
	struct neap_oom_failure failure = {0};
	struct neap_fragments fragments = {0};

	if (options->predicted ? !predict_failure(parts->timeline, options, &failure)
			       : !find_failure(parts->timeline, options->index, &failure))
		return neap_fail(err, NEAP_ENOENT, "no request of the trace ran out of memory");
	/* If the failure is predicted: just before the request, and the recording's segments are not the replay's. */
	uint64_t event = failure.levels.event - failure.predicted;
	enum neap_status status = failure.predicted ? NEAP_OK
						    : neap_fragments_find(trace, device, parts->lives, parts->sites,
									  event, &failure.event, &fragments, err);
	struct neap_oom_card card = {.event = event, .fragments = fragments};
	if (!status)
		status = read_failure(parts, &failure, options->memory_bytes, &card, err);
	if (status)
		return status;
	card.replays.lost_events = trace->devices[device].lost;
	/* If the allocations that led to it are lost, only the journal describes it. */
	card.replays.overwritten =
		trace->record && !failure.predicted && failure.levels.event < neap_steps_first_kept(trace, device);
	if (!card.replays.overwritten) {
		card.event = failure.levels.event;
		card.fragments = fragments;
		card.live_requested_bytes = failure.levels.requested;
		examine_trace(parts, &card);
		status = neap_oom_replay(trace, options, &card, err);
	}
	if (!status)
		*ret_card = card;
	return status;
}

enum neap_status neap_trace_oom_read(const struct neap_trace *trace, size_t device,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err)
{
	struct neap_torch_settings settings;
	struct neap_lives lives = {0};
	struct neap_sites sites = {0};
	struct neap_steps steps = {0};
	struct neap_timeline timeline = {0};

	if (device >= trace->device_count)
		return neap_fail(err, NEAP_ENOENT, "no request of device %zu ran out of memory", device);
	neap_torch_settings_default(&settings);
	enum neap_status status = neap_lives_find(trace, device, &lives, err);
	if (!status)
		status = neap_sites_make(trace, &sites, err);
	if (!status)
		status = neap_steps_find(trace, device, &steps, err);
	if (!status)
		status = neap_categories_pair(&lives, &sites, &steps, trace->devices[device].event_count, err);
	if (!status)
		status = neap_timeline_make(trace, device, &lives, &settings, &timeline, err);
	if (!status)
		status = neap_trace_oom_card(&(struct neap_trace_parts){&timeline, &lives, &sites, &steps}, options,
					     ret_card, err);
	neap_timeline_fini(&timeline);
	neap_steps_fini(&steps);
	neap_sites_fini(&sites);
	neap_lives_fini(&lives);
	return status;
}

enum neap_status neap_trace_oom_recorded(const struct neap_trace *trace, size_t index,
					 const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
					 struct neap_error *err)
{
	const struct neap_record *record = trace->record;
	struct neap_trace_oom_options asked = *options;
	size_t at = record ? neap_oom_find(record, NEAP_OOM_ANY_DEVICE, index) : 0;

	if (!record || at == record->journal_count)
		return neap_fail(err, NEAP_ENOENT, "the recording has no out-of-memory number %zu", index + 1);
	asked.index = neap_oom_count_before(record, record->journal[at].device, at);
	return neap_trace_oom_read(trace, record->journal[at].device, &asked, ret_card, err);
}
