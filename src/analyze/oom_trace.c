/* analyze/oom_trace.c: reads a failure from the events of a trace: levels, holders, categories, steps and pieces. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/error.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	uint64_t headroom = card->reserved_bytes + card->device_free_bytes;

	if (card->predicted || memory_bytes <= headroom)
		return;
	card->device_total_bytes = memory_bytes;
	card->others_bytes = memory_bytes - headroom;
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

static struct neap_demand demand_of(const struct neap_categories *found)
{
	uint64_t sums[NEAP_CATEGORIES] = {0};

	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++)
			sums[category] += found->bytes[category][how];
	return (struct neap_demand){.activations = sums[NEAP_CATEGORY_ACTIVATIONS],
				    .temporaries = sums[NEAP_CATEGORY_TEMPORARIES],
				    .inputs = sums[NEAP_CATEGORY_INPUTS],
				    .parameters = sums[NEAP_CATEGORY_PARAMETERS],
				    .model = sums[NEAP_CATEGORY_GRADIENTS] + sums[NEAP_CATEGORY_OPTIMIZER] +
					     sums[NEAP_CATEGORY_WORKSPACES],
				    .leaked = sums[NEAP_CATEGORY_KEPT],
				    .unknown = sums[NEAP_CATEGORY_UNKNOWN]};
}

static struct neap_demand find_demand(const struct neap_trace_parts *parts, uint64_t event)
{
	struct neap_categories found;

	neap_categories_at(parts->lives, parts->sites, parts->steps, parts->timeline->count, event, &found);
	return demand_of(&found);
}

/* The live bytes at a failure, by purpose, and those that the failed step made. */
struct last_step {
	struct neap_categories live;
	uint64_t nameless; /* bytes of the failed step without a stack, whose lifetime tells nothing */
	uint64_t highest;  /* of the bytes that a smaller micro-batch would have reduced */
};

/* A block as it was at a failure: a free after it, on the program's way out, means nothing. */
static struct neap_life as_at(const struct neap_life *life, uint64_t event)
{
	struct neap_life then = *life;

	if (then.freed != NEAP_LIFE_AFTER && then.freed > event) {
		then.freed = then.end = NEAP_LIFE_AFTER;
		then.freed_stack = 0;
	}
	return then;
}

/* Lifetimes tell nothing about the failed step's blocks: nobody knows whether they would have outlived the step.
 * Blocks that forward made count as activations; blocks without a stack, from autograd's threads, as temporaries;
 * blocks that the program's own lines made since the last step as its batch. */
static enum neap_category guess(const struct neap_trace_parts *parts, const struct neap_life *life, uint64_t event)
{
	if (!neap_has_line(parts->sites, life->stack))
		return NEAP_CATEGORY_TEMPORARIES;
	if (parts->sites->phases[life->stack] == NEAP_PHASE_FORWARD)
		return NEAP_CATEGORY_ACTIVATIONS;
	/* In the first step the program may have loaded all its data. */
	return neap_steps_before(parts->steps, event) > 0 ? NEAP_CATEGORY_INPUTS : NEAP_CATEGORY_UNKNOWN;
}

/* Counts a live block. Returns whether it is one of the failed step's that a smaller micro-batch makes smaller. */
static bool count_live(const struct neap_trace_parts *parts, const struct neap_life *life, bool of_step,
		       uint64_t event, struct last_step *found)
{
	enum neap_category_how how = NEAP_HOW_NOTHING;
	struct neap_life then = as_at(life, event);
	enum neap_category category = neap_category_of(parts->sites, parts->steps, event + 1, &then, &how);
	bool nameless = of_step && category == NEAP_CATEGORY_UNKNOWN && !neap_has_line(parts->sites, life->stack);

	if (of_step && category == NEAP_CATEGORY_UNKNOWN)
		category = guess(parts, life, event);
	found->live.bytes[category][how] += life->size;
	found->live.blocks[category][how]++;
	found->nameless += nameless ? life->size : 0;
	return of_step && !nameless &&
	       (category == NEAP_CATEGORY_ACTIVATIONS || category == NEAP_CATEGORY_TEMPORARIES ||
		category == NEAP_CATEGORY_INPUTS);
}

static enum neap_status examine_last_step(const struct neap_trace_parts *parts, uint64_t event,
					  struct last_step *ret_step, struct neap_error *err)
{
	const size_t ended = neap_steps_before(parts->steps, event);
	const uint64_t begin = ended ? parts->steps->ends[ended - 1] : 0;
	int64_t *changes = calloc(event - begin + 2, sizeof *changes), level = 0;
	struct last_step found = {0};

	if (!changes)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the last step of a trace");
	struct neap_life_cursor cursor = neap_lives_begin(parts->lives, 0);
	struct neap_life next;
	while (neap_lives_next(&cursor, &next)) {
		const struct neap_life *life = &next;
		bool of_step = life->begin != NEAP_LIFE_BEFORE && life->begin >= begin && life->begin <= event;
		bool live = neap_life_at(life, event);
		bool updates = parts->sites->phases[life->stack] == NEAP_PHASE_OPTIMIZER;
		bool scales = live ? count_live(parts, life, of_step, event, &found) : of_step;
		if (!scales || updates)
			continue;
		changes[life->begin - begin] += (int64_t)life->size;
		if (!live)
			changes[life->end - begin] -= (int64_t)life->size;
	}
	for (uint64_t i = 0; i <= event - begin; i++) {
		level += changes[i];
		if (level > 0 && (uint64_t)level > found.highest)
			found.highest = (uint64_t)level;
	}
	free(changes);
	*ret_step = found;
	return NEAP_OK;
}

/* Blocks of the failed step without a stack count as gradients, as far as the process has counted some that no
 * lifetime shows. */
static void take_gradients(struct last_step *step, uint64_t gradient_bytes)
{
	uint64_t known = 0;

	for (int how = 0; how < NEAP_HOWS; how++)
		known += step->live.bytes[NEAP_CATEGORY_GRADIENTS][how];
	uint64_t gradients = neap_less(gradient_bytes, known);
	gradients = gradients < step->nameless ? gradients : step->nameless;
	step->live.bytes[NEAP_CATEGORY_TEMPORARIES][NEAP_HOW_NOTHING] -= gradients;
	step->live.bytes[NEAP_CATEGORY_GRADIENTS][NEAP_HOW_NOTHING] += gradients;
}

/* Blocks of the failed step that no event gives a purpose count as its batch, as far as the process counted one. */
static void take_batch(struct last_step *step, uint64_t batch_bytes)
{
	uint64_t known = 0;

	for (int how = 0; how < NEAP_HOWS; how++)
		known += step->live.bytes[NEAP_CATEGORY_INPUTS][how];
	uint64_t *unknown = &step->live.bytes[NEAP_CATEGORY_UNKNOWN][NEAP_HOW_NOTHING];
	uint64_t batch = neap_less(batch_bytes, known);
	batch = batch < *unknown ? batch : *unknown;
	*unknown -= batch;
	step->live.bytes[NEAP_CATEGORY_INPUTS][NEAP_HOW_NOTHING] += batch;
	step->highest = neap_plus(step->highest, batch);
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

/* Whether PyTorch serves the request from its pool of small ones. Its own recording has the size of the segment. */
static bool is_small(const struct neap_oom_card *card, const struct neap_trace *trace)
{
	return card->block_bytes <= neap_fragments_small_request(trace);
}

/* Takes the free pieces, if the trace's addresses are known, or those of the replay that failed. */
static void take_pieces(struct neap_oom_card *card, const struct neap_trace *trace,
			const struct neap_replay_oom *replayed)
{
	bool small = is_small(card, trace);
	struct neap_torch_pieces pieces = {.usable_bytes = card->fragments.usable_free,
					   .elsewhere_bytes = card->fragments.elsewhere_free,
					   .elsewhere_other_size = card->fragments.elsewhere_other_size};

	card->largest_free_bytes = NEAP_OOM_UNKNOWN;
	if (replayed ? !replayed->pieces_known : !card->fragments.known)
		return;
	if (replayed)
		pieces = replayed->pieces;
	card->largest_free_bytes = pieces.usable_bytes;
	card->elsewhere_free_bytes = pieces.elsewhere_bytes;
	card->asked_pool = small ? NEAP_OOM_POOL_SMALL : NEAP_OOM_POOL_LARGE;
	if (pieces.elsewhere_other_size)
		card->elsewhere_pool = small ? NEAP_OOM_POOL_LARGE : NEAP_OOM_POOL_SMALL;
	card->pools_free_bytes = card->fragments.pools_free;
}

/* The bytes that the process itself counted under a tag. */
static uint64_t counted_bytes(const struct neap_oom_card *card, const char *tag)
{
	for (size_t i = 0; i < card->tag_count; i++)
		if (strcmp(card->tags[i].tag, tag) == 0)
			return card->tags[i].live_bytes;
	return 0;
}

/* Fills the purposes of the live bytes; `unnamed_bytes` of them have no event. */
static void take_demand(struct neap_demand demand, uint64_t unnamed_bytes, struct neap_oom_card *card,
			struct neap_oom_inputs *inputs)
{
	inputs->demand = demand;
	inputs->demand.unknown = neap_plus(inputs->demand.unknown, unnamed_bytes);
	card->unknown_bytes = inputs->demand.unknown;
	/* If most bytes are unknown, the intervals would span nearly everything. */
	inputs->training =
		inputs->demand.activations > 0 && inputs->demand.unknown <= neap_demand_total(&inputs->demand) / 2;
}

/* Moves what the process counted of its model from the tags to the purposes. Its batch is among the events'. */
static void keep_counted(struct neap_oom_card *card)
{
	for (size_t i = 0; i < card->tag_count && card->purpose_count < NEAP_OOM_PURPOSES; i++) {
		struct neap_demand named = {0};
		neap_demand_add(&named, card->tags[i].tag, card->tags[i].live_bytes);
		if (named.unknown || named.inputs)
			continue;
		card->purposes[card->purpose_count] = card->tags[i];
		card->purposes[card->purpose_count++].peak_bytes = NEAP_OOM_UNKNOWN;
	}
	card->tag_count = 0;
}

/* Adds the purposes that the events tell, and that the process has not counted. The events may not tell the purpose
 * of blocks that the process has counted: unknown is only what neither names. */
static void add_purposes(struct neap_oom_card *card, const struct neap_categories *live)
{
	uint64_t named_bytes = 0;
	bool counted = card->purpose_count > 0;

	for (size_t i = 0; i < card->purpose_count; i++)
		named_bytes += card->purposes[i].live_bytes;
	for (int category = counted ? NEAP_CATEGORY_ACTIVATIONS : 0; category < NEAP_CATEGORIES; category++) {
		struct neap_oom_tag found = {.peak_bytes = NEAP_OOM_UNKNOWN};
		for (int how = 0; how < NEAP_HOWS; how++) {
			found.live_bytes += live->bytes[category][how];
			found.live_blocks += live->blocks[category][how];
		}
		if (category == NEAP_CATEGORY_UNKNOWN) {
			uint64_t nameless = neap_less(card->allocated_bytes, named_bytes);
			card->unknown_bytes = nameless < card->unknown_bytes ? nameless : card->unknown_bytes;
			found.live_bytes = card->unknown_bytes;
		}
		named_bytes += found.live_bytes;
		snprintf(found.tag, sizeof found.tag, "%s", neap_category_name((enum neap_category)category));
		if (found.live_bytes && card->purpose_count < NEAP_OOM_PURPOSES)
			card->purposes[card->purpose_count++] = found;
	}
	neap_oom_sort_tags(card->purposes, card->purpose_count);
}

enum neap_status neap_oom_add_events(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				     struct neap_oom_card *card, struct neap_oom_inputs *inputs,
				     struct neap_error *err)
{
	const struct neap_trace *trace = parts->timeline->trace;
	uint32_t frame = parts->sites->frames[failure->event.stack];
	struct neap_torch_settings settings;
	struct last_step step = {0};
	enum neap_status status = examine_last_step(parts, card->event, &step, err);

	if (status)
		return status;
	neap_replay_settings(trace, &settings);
	card->live_requested_bytes = failure->levels.requested;
	card->fraction = settings.fraction;
	take_pieces(card, trace, failure->replayed);
	if (frame)
		neap_site_text(trace, frame, card->tag, sizeof card->tag);
	take_gradients(&step, counted_bytes(card, "gradients"));
	take_batch(&step, counted_bytes(card, "batch"));
	keep_counted(card);
	inputs->segment_bytes = is_small(card, trace) ? 2 * NEAP_MIB : segment_of(card->block_bytes, &settings);
	inputs->pages_mapped = settings.expandable_segments;
	inputs->pool_bytes = card->fragments.known ? card->fragments.usable_bytes : UINT64_MAX;
	inputs->scaled_bytes = step.highest;
	take_demand(demand_of(&step.live), neap_less(card->allocated_bytes, failure->levels.rounded), card, inputs);
	inputs->training |= card->model.parameter_bytes > 0;
	add_purposes(card, &step.live);
	status = neap_oom_compare(parts, failure, card, inputs, err);
	return status ? status : find_holders(parts, card, err);
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
	take_pieces(card, trace, failure->replayed);
	if (frame)
		neap_site_text(trace, frame, card->tag, sizeof card->tag);
	take_limits(card, &settings, memory_bytes, &inputs);
	take_demand(find_demand(parts, card->event), 0, card, &inputs);
	enum neap_status status = find_holders(parts, card, err);
	if (!status)
		status = find_steps(parts, card->event, &inputs, err);
	if (!status)
		*ret_inputs = inputs;
	return status;
}
