/* analyze/trace_oom.c: figures of the failure, then replays on the device it failed on. */
#include "analyze/trace_oom.h"

#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "analyze/step_room.h"
#include "base/error.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_MAX (1ull << 45) /* of a device; a file that says more lies, and pages are real work */

struct failure {
	struct neap_trace_event event;
	struct neap_trace_levels levels; /* just before it */
	uint64_t number, count;          /* from 1 */
};

/* False when there are not so many. */
static bool find_failure(const struct neap_timeline *timeline, size_t index, struct failure *failure)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	while (neap_timeline_next(&cursor)) {
		if (cursor.event.kind != NEAP_TRACE_OOM)
			continue;
		if (failure->count == index || index == SIZE_MAX) {
			failure->event = cursor.event;
			failure->levels = cursor.now;
			failure->number = failure->count + 1;
		}
		failure->count++;
	}
	return failure->number > 0;
}

/* Just before the event at which a replay failed. */
static bool predict_failure(const struct neap_timeline *timeline, const struct neap_trace_oom_options *options,
			    struct failure *failure)
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
	return true;
}

/* The segment that PyTorch would have made for the request. */
static uint64_t segment_of(uint64_t bytes, const struct neap_torch_settings *settings)
{
	uint64_t large = settings->large_segment_bytes;
	if (bytes <= NEAP_MIB)
		return 2 * NEAP_MIB;
	if (settings->expandable_segments || bytes < 10 * NEAP_MIB)
		return (bytes + large - 1) / large * large;
	return (bytes + 2 * NEAP_MIB - 1) / (2 * NEAP_MIB) * (2 * NEAP_MIB);
}

/* On a device whose size the user gave: what is neither free nor this process's was others'. */
static void take_device(struct neap_oom_card *card, uint64_t memory_bytes)
{
	uint64_t room = card->reserved_bytes + card->device_free_bytes;

	if (card->predicted || memory_bytes <= room)
		return;
	card->device_total_bytes = memory_bytes;
	card->others_bytes = memory_bytes - room;
	if (card->fraction > 0 && card->fraction < 1)
		card->limit_bytes = (uint64_t)(card->fraction * (double)memory_bytes);
}

/* Fills what the cause is found from. A limit that would have let the segment through is not the one that refused. */
static void take_limits(struct neap_oom_card *card, const struct neap_torch_settings *settings, uint64_t memory_bytes,
			struct neap_oom_inputs *inputs)
{
	uint64_t segment = segment_of(card->block_bytes, settings);

	take_device(card, memory_bytes);
	inputs->live_bytes = card->live_requested_bytes;
	inputs->segment_bytes = segment;
	inputs->memory_bytes = memory_bytes;
	if (card->predicted || card->device_free_bytes < segment)
		return;
	inputs->hidden_limit = neap_less(card->limit_bytes, card->reserved_bytes) >= segment;
	if (inputs->hidden_limit)
		card->limit_bytes = UINT64_MAX;
}

static enum neap_status find_holders(const struct neap_trace_parts *parts, struct neap_oom_card *card,
				     struct neap_error *err)
{
	struct neap_holder *holders = NULL;
	size_t count = 0;
	enum neap_status status = neap_holders_at(parts->lives, parts->sites, card->event, &holders, &count, err);
	for (size_t i = 0; status == NEAP_OK && i < count && i < NEAP_OOM_TAGS; i++) {
		struct neap_oom_tag *tag = &card->tags[card->tag_count++];
		neap_holder_text(parts->timeline->trace, &holders[i], tag->tag, sizeof(tag->tag));
		tag->live_bytes = holders[i].bytes;
		tag->peak_bytes = NEAP_OOM_UNKNOWN;
		tag->live_blocks = holders[i].blocks;
	}
	free(holders);
	return status;
}

static struct neap_demand find_demand(const struct neap_trace_parts *parts, uint64_t event)
{
	struct neap_categories found;
	uint64_t sums[NEAP_CATEGORIES] = {0};

	neap_categories_at(parts->lives, parts->sites, parts->steps, parts->timeline->count, event, &found);
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++)
			sums[category] += found.bytes[category][how];
	return (struct neap_demand){.activations = sums[NEAP_CATEGORY_ACTIVATIONS],
				    .temporaries = sums[NEAP_CATEGORY_TEMPORARIES],
				    .inputs = sums[NEAP_CATEGORY_INPUTS],
				    .parameters = sums[NEAP_CATEGORY_PARAMETERS],
				    .model = sums[NEAP_CATEGORY_GRADIENTS] + sums[NEAP_CATEGORY_OPTIMIZER] +
					     sums[NEAP_CATEGORY_WORKSPACES],
				    .unknown = sums[NEAP_CATEGORY_UNKNOWN]};
}

/* The whole steps before the failure: their lowest requested and highest allocated bytes. */
static enum neap_status find_steps(const struct neap_trace_parts *parts, uint64_t event,
				   struct neap_oom_inputs *inputs, struct neap_error *err)
{
	const struct neap_steps *steps = parts->steps;
	struct neap_timeline_cursor cursor = neap_timeline_begin(parts->timeline);
	uint64_t lowest = UINT64_MAX, highest = 0;
	size_t count = 0;

	inputs->steps = calloc(steps->count + 1, sizeof(*inputs->steps));
	if (!inputs->steps)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the steps of a trace");
	while (count < steps->count && neap_timeline_next(&cursor) && cursor.now.event < event) {
		for (; count < steps->count && steps->ends[count] <= cursor.now.event; count++) {
			inputs->steps[count].low_bytes = lowest == UINT64_MAX ? cursor.now.requested : lowest;
			inputs->steps[count].peak_bytes = highest;
			lowest = UINT64_MAX;
			highest = 0;
		}
		lowest = cursor.now.requested < lowest ? cursor.now.requested : lowest;
		highest = cursor.now.rounded > highest ? cursor.now.rounded : highest;
	}
	inputs->step_count = count;
	return NEAP_OK;
}

/* Of a trace without a journal. */
static enum neap_status fill(const struct neap_trace_parts *parts, const struct failure *failure,
			     uint64_t given_bytes, struct neap_oom_card *card, struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	uint32_t frame = parts->sites->frames[failure->event.stack];
	struct neap_oom_inputs inputs = {0};
	struct neap_torch_settings settings;

	neap_replay_settings(trace, &settings);
	card->requested_bytes = card->block_bytes = failure->event.size;
	card->device_free_bytes = failure->event.address;
	card->allocated_bytes = failure->levels.rounded;
	card->reserved_bytes = failure->levels.reserved;
	card->cached_bytes = neap_less(card->reserved_bytes, card->allocated_bytes);
	card->limit_bytes = UINT64_MAX;
	card->others_bytes = NEAP_OOM_UNKNOWN;
	card->fraction = settings.fraction;
	card->step = parts->steps->count ? neap_steps_before(parts->steps, card->event) + 1 : 0;
	if (card->fragments.known) {
		card->largest_free_bytes = card->fragments.usable_free;
		card->elsewhere_free_bytes = card->fragments.elsewhere_free;
		bool small = card->block_bytes <= NEAP_MIB;
		card->asked_pool = small ? NEAP_OOM_POOL_SMALL : NEAP_OOM_POOL_LARGE;
		if (card->fragments.elsewhere_other_size)
			card->elsewhere_pool = small ? NEAP_OOM_POOL_LARGE : NEAP_OOM_POOL_SMALL;
		card->pools_free_bytes = card->fragments.pools_free;
	}
	if (frame)
		neap_site_text(trace, frame, card->tag, sizeof(card->tag));
	take_limits(card, &settings, given_bytes, &inputs);
	enum neap_status status = find_holders(parts, card, err);
	if (status == NEAP_OK)
		status = find_steps(parts, card->event, &inputs, err);
	if (status != NEAP_OK)
		return status;
	inputs.demand = find_demand(parts, card->event);
	card->unknown_bytes = inputs.demand.unknown;
	/* Where most is unknown the intervals would span nearly everything. */
	inputs.training =
		inputs.demand.activations > 0 && inputs.demand.unknown <= neap_demand_total(&inputs.demand) / 2;
	status = neap_oom_conclude(card, &inputs, err);
	card->replays.memory_bytes = card->room_bytes;
	free(inputs.steps);
	return status;
}

/* Of a recording: the journal has it all. */
static enum neap_status fill_recorded(const struct neap_trace *trace, size_t device, const struct failure *failure,
				      uint64_t given_bytes, struct neap_oom_card *card, struct neap_error *err)
{
	const struct neap_record *record = trace->record;
	size_t index = 0, number = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		if (record->journal[i].kind != NEAP_EVENT_OOM)
			continue;
		if (record->journal[i].device == device && ++number == failure->number)
			break;
		index++;
	}
	enum neap_status status = neap_oom_card(record, index, card, err);
	if (status != NEAP_OK)
		return status;
	card->replays.memory_bytes = given_bytes ? given_bytes : card->room_bytes;
	return NEAP_OK;
}

static enum neap_status run_replays(const struct neap_trace *trace, size_t device,
				    const struct neap_trace_oom_options *options, struct neap_oom_card *card,
				    struct neap_error *err)
{
	struct neap_oom_replays *replays = &card->replays;
	struct neap_replay_options asked = {.device = device,
					    .memory_bytes = replays->memory_bytes,
					    .fraction = card->fraction > 0, /* that memory is what it left */
					    .progress = options->progress,
					    .context = options->context};
	struct neap_patience patience = {.deadline_ns = options->deadline_ns, .asked = &asked};

	bool nothing = replays->memory_bytes == 0; /* that the process had: no setting would have mattered */
	if ((nothing && card->cause != NEAP_OOM_LIMIT) || replays->memory_bytes > MEMORY_MAX) /* a hostile file */
		return NEAP_OK;
	enum neap_status status =
		nothing ? NEAP_OK : neap_whatifs_find(trace, &asked, options->deadline_ns, &replays->whatifs, err);
	if (status != NEAP_OK)
		return status;
	struct neap_replay_options replay = neap_patience_options(&patience);
	replay.policy = trace->source == NEAP_TRACE_RECORDING ? NEAP_REPLAY_NEAP : NEAP_REPLAY_TORCH;
	status = neap_replay_smallest(trace, &replay, &replays->smallest_bytes, err);
	replays->smallest_tried = status == NEAP_OK || status == NEAP_EOOM;
	replays->done = !nothing;
	return replays->smallest_tried || neap_patience_ended(&patience, status) ? NEAP_OK : status;
}

/* The journal's index of the device's failure with that number. */
static size_t journal_index(const struct neap_record *record, size_t device, uint64_t number)
{
	size_t i = 0;

	for (; i < record->journal_count; i++)
		if (record->journal[i].kind == NEAP_EVENT_OOM && record->journal[i].device == device && --number == 0)
			break;
	return i;
}

/* The trace ends where it does, and may leave out the rest of the step that failed: that of a whole step counts. */
static enum neap_status add_step(const struct neap_trace *trace, size_t device, uint64_t number,
				 struct neap_oom_card *card, struct neap_error *err)
{
	struct neap_oom_replays *replays = &card->replays;
	struct neap_step_room room = {0};

	if (!replays->smallest_bytes || card->growth_bytes > 0)
		return NEAP_OK;
	/* Whole steps that are in the trace themselves and were higher than this one is. */
	replays->smallest_whole = card->predicted || neap_oom_step_need(card) > 0;
	if (!trace->record || card->predicted || card->other_allocator)
		return NEAP_OK;
	enum neap_status status =
		neap_step_room(trace->record, journal_index(trace->record, device, number), &room, err);
	if (status == NEAP_ENOMEM)
		return status;
	if (status != NEAP_OK)
		return NEAP_OK;
	replays->smallest_whole = true;
	replays->step_bytes = room.bytes;
	replays->step_micro_batch = room.micro_batch;
	if (room.bytes > replays->smallest_bytes)
		replays->smallest_bytes = room.bytes;
	return NEAP_OK;
}

enum neap_status neap_trace_oom_card(const struct neap_trace_parts *parts,
				     const struct neap_trace_oom_options *options, struct neap_oom_card *ret_card,
				     struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	size_t device = parts->timeline->device;
	struct neap_oom_card card = {0};
	struct neap_fragments fragments;
	struct failure failure = {0};

	if (options->predicted ? !predict_failure(parts->timeline, options, &failure)
			       : !find_failure(parts->timeline, options->index, &failure))
		return neap_fail(err, NEAP_ENOENT, "no request of the trace ran out of memory");
	/* What was there just before a request that would fail. */
	uint64_t event = failure.levels.event - (options->predicted != NULL);
	enum neap_status status = neap_fragments_find(trace, device, parts->lives, parts->sites, event,
						      &failure.event, &fragments, err);
	if (status != NEAP_OK)
		return status;
	/* The allocations that led to it are lost: only the journal tells of it. */
	bool overwritten =
		trace->record && !options->predicted && failure.levels.event < neap_steps_first_kept(trace, device);
	card.source = trace->source;
	card.event = event;
	card.predicted = options->predicted != NULL;
	card.device = (uint32_t)device;
	card.fragments = fragments;
	card.live_requested_bytes = failure.levels.requested;
	status = trace->record && !options->predicted
			 ? fill_recorded(trace, device, &failure, options->memory_bytes, &card, err)
			 : fill(parts, &failure, options->memory_bytes, &card, err);
	if (status != NEAP_OK)
		return status;
	card.number = failure.number;
	card.count = failure.count;
	card.replays.lost_events = trace->devices[device].lost;
	if (overwritten) {
		card.replays.overwritten = true;
		*ret_card = card;
		return NEAP_OK;
	}
	card.event = failure.levels.event;
	card.fragments = fragments;
	card.live_requested_bytes = failure.levels.requested;
	for (size_t i = 0; i < fragments.worst_count && i < NEAP_OOM_PINS; i++)
		if (fragments.worst[i].pin_count > 0)
			neap_holder_text(trace, &fragments.worst[i].pins[0], card.pins[i], sizeof(card.pins[i]));
	for (size_t i = 0; i < parts->lives->before; i++) {
		if (parts->lives->items[i].address == NEAP_TRACE_REST)
			card.replays.before_bytes = parts->lives->items[i].size;
		else if (trace->source == NEAP_TRACE_SNAPSHOT)
			card.replays.began_bytes += parts->lives->items[i].size;
	}
	card.replays.unrecorded = card.other_allocator || (parts->lives->count == 0 && card.allocated_bytes > 0);
	if (!card.replays.unrecorded)
		status = run_replays(trace, device, options, &card, err);
	if (status == NEAP_OK)
		status = add_step(trace, device, failure.number, &card, err);
	if (status != NEAP_OK)
		return status;
	neap_oom_replay_fixes(&card);
	*ret_card = card;
	return NEAP_OK;
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
	if (status == NEAP_OK)
		status = neap_sites_make(trace, &sites, err);
	if (status == NEAP_OK)
		status = neap_steps_find(trace, device, &steps, err);
	if (status == NEAP_OK)
		status = neap_timeline_make(trace, device, &lives, &settings, &timeline, err);
	if (status == NEAP_OK)
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
	size_t seen = 0, at = 0;

	while (record && at < record->journal_count &&
	       (record->journal[at].kind != NEAP_EVENT_OOM || seen++ != index))
		at++;
	if (!record || at == record->journal_count)
		return neap_fail(err, NEAP_ENOENT, "the recording has no out-of-memory number %zu", index + 1);
	asked.index = 0;
	for (size_t i = 0; i < at; i++)
		asked.index += record->journal[i].kind == NEAP_EVENT_OOM &&
			       record->journal[i].device == record->journal[at].device;
	return neap_trace_oom_read(trace, record->journal[at].device, &asked, ret_card, err);
}
