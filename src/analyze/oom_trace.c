/* analyze/oom_trace.c: reads a failure from the events of a trace: levels, holders, categories, steps and pieces. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/error.h"
#include "base/units.h"

#include <stdlib.h>

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

/* If the user gave the device's size: bytes that are neither free nor this process's were others'. */
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

/* Fills the inputs of the cause. A limit that had room for the segment cannot be the one that refused it. */
static void take_limits(struct neap_oom_card *card, const struct neap_torch_settings *settings, uint64_t memory_bytes,
			struct neap_oom_inputs *inputs)
{
	bool own = card->source == NEAP_TRACE_RECORDING && !card->other_allocator; /* of neap's allocator */
	uint64_t segment = own ? card->block_bytes : segment_of(card->block_bytes, settings);

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
	for (size_t i = 0; !status && i < count && i < NEAP_OOM_TAGS; i++) {
		struct neap_oom_tag *tag = &card->tags[card->tag_count++];
		neap_holder_text(parts->timeline->trace, &holders[i], tag->tag, sizeof tag->tag);
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

	inputs->steps = calloc(steps->count + 1, sizeof *inputs->steps);
	if (!inputs->steps)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the steps of a trace");
	while (count < steps->count && neap_timeline_next(&cursor) && cursor.now.event < event) {
		for (; count < steps->count && steps->ends[count] <= cursor.now.event; count++) {
			inputs->steps[count].low_bytes = lowest == UINT64_MAX ? cursor.now.requested : lowest;
			inputs->steps[count].peak_bytes = highest;
			inputs->steps[count].number = steps->numbers[count];
			lowest = UINT64_MAX;
			highest = 0;
		}
		lowest = cursor.now.requested < lowest ? cursor.now.requested : lowest;
		highest = cursor.now.rounded > highest ? cursor.now.rounded : highest;
	}
	inputs->step_count = count;
	return NEAP_OK;
}

/* Takes the free pieces, if the trace's addresses are known. */
static void take_pieces(struct neap_oom_card *card, const struct neap_trace *trace)
{
	bool small = card->block_bytes <= neap_fragments_small_request(trace);

	card->largest_free_bytes = NEAP_OOM_UNKNOWN;
	if (!card->fragments.known)
		return;
	card->largest_free_bytes = card->fragments.usable_free;
	card->elsewhere_free_bytes = card->fragments.elsewhere_free;
	card->asked_pool = small ? NEAP_OOM_POOL_SMALL : NEAP_OOM_POOL_LARGE;
	if (card->fragments.elsewhere_other_size)
		card->elsewhere_pool = small ? NEAP_OOM_POOL_LARGE : NEAP_OOM_POOL_SMALL;
	card->pools_free_bytes = card->fragments.pools_free;
}

/* Fills the purposes of what is live, with `unnamed_bytes` that no event tells of. */
static void take_demand(const struct neap_trace_parts *parts, uint64_t unnamed_bytes, struct neap_oom_card *card,
			struct neap_oom_inputs *inputs)
{
	inputs->demand = find_demand(parts, card->event);
	inputs->demand.unknown = neap_plus(inputs->demand.unknown, unnamed_bytes);
	card->unknown_bytes = inputs->demand.unknown;
	/* If most bytes are unknown, the intervals would span nearly everything. */
	inputs->training =
		inputs->demand.activations > 0 && inputs->demand.unknown <= neap_demand_total(&inputs->demand) / 2;
}

/* Makes the tags purposes. Returns the bytes of those that tell what memory is for. */
static uint64_t keep_purposes(struct neap_oom_card *card)
{
	struct neap_demand named = {0};

	for (size_t i = 0; i < card->tag_count && i < NEAP_OOM_PURPOSES; i++) {
		card->purposes[card->purpose_count++] = card->tags[i];
		neap_demand_add(&named, card->tags[i].tag, card->tags[i].live_bytes);
	}
	card->tag_count = 0;
	return neap_less(neap_demand_total(&named), named.unknown);
}

enum neap_status neap_oom_add_events(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     struct neap_oom_card *card, struct neap_oom_inputs *inputs,
				     struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	uint32_t frame = parts->sites->frames[failure->event.stack];
	struct neap_torch_settings settings;

	neap_replay_settings(trace, &settings);
	card->live_requested_bytes = failure->levels.requested;
	card->fraction = settings.fraction;
	take_pieces(card, trace);
	if (frame)
		neap_site_text(trace, frame, card->tag, sizeof card->tag);
	uint64_t counted = keep_purposes(card);
	inputs->pages_mapped = settings.expandable_segments;
	inputs->pool_bytes = card->fragments.known ? card->fragments.usable_bytes : UINT64_MAX;
	take_demand(parts, neap_less(card->allocated_bytes, failure->levels.rounded), card, inputs);
	if (card->unknown_bytes > neap_less(card->allocated_bytes, counted))
		card->unknown_bytes = neap_less(card->allocated_bytes, counted);
	return find_holders(parts, card, err);
}

enum neap_status neap_oom_read_trace(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     uint64_t memory_bytes, struct neap_oom_card *card,
				     struct neap_oom_inputs *ret_inputs, struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	uint32_t frame = parts->sites->frames[failure->event.stack];
	struct neap_oom_inputs inputs = {.pool_bytes = UINT64_MAX};
	struct neap_torch_settings settings;

	neap_replay_settings(trace, &settings);
	card->source = trace->source;
	card->other_allocator = trace->source == NEAP_TRACE_RECORDING && trace->torch;
	card->predicted = failure->predicted;
	card->device = (uint32_t)parts->timeline->device;
	card->number = failure->number;
	card->count = failure->count;
	card->live_requested_bytes = failure->levels.requested;
	card->requested_bytes = card->block_bytes = failure->event.size;
	card->device_free_bytes = failure->event.address;
	card->allocated_bytes = failure->levels.rounded;
	card->reserved_bytes = failure->levels.reserved;
	card->cached_bytes = neap_less(card->reserved_bytes, card->allocated_bytes);
	card->limit_bytes = UINT64_MAX;
	card->others_bytes = NEAP_OOM_UNKNOWN;
	card->fraction = settings.fraction;
	card->step = parts->steps->count ? neap_steps_before(parts->steps, card->event) + 1 : 0;
	take_pieces(card, trace);
	if (frame)
		neap_site_text(trace, frame, card->tag, sizeof card->tag);
	take_limits(card, &settings, memory_bytes, &inputs);
	take_demand(parts, 0, card, &inputs);
	enum neap_status status = find_holders(parts, card, err);
	if (!status)
		status = find_steps(parts, card->event, &inputs, err);
	if (!status)
		*ret_inputs = inputs;
	return status;
}
