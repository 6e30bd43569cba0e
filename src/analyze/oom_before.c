/* analyze/oom_before.c: compares the step that failed with the whole steps before it, by the stacks of its blocks.
 *
 *   larger      the line that asked never asked for as much: longer sequences, a larger batch. So this step may
 *               need more than any step before. Lines are compared, not stacks: until the first update neap's hooks
 *               put other lines of PyTorch into them
 *   repeats     its first large block and the request have the sizes that the same lines made in the step before. So
 *               it needs what that one took of what the micro-batch decides; the model may hold more by now
 *   evaluates   the process told so (a model in evaluation mode, whose inputs need no gradient), or an earlier step
 *               held what the same stack made, and freed it before any backward. Not if backward came before the
 *               free: some train in evaluation mode
 *
 * Backward is seen by its blocks of 1 MiB and more: autograd's threads have no frames, and smaller blocks may be
 * without a stack anyway. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/error.h"
#include "base/units.h"

#include <stdlib.h>

#define LARGE_REQUEST (10 * NEAP_MIB) /* from here on PyTorch asks the driver for what was asked, but for rounding */
#define LARGER        1.05

static bool of_backward(const struct neap_trace_parts *parts, const struct neap_life *life)
{
	uint8_t phase = parts->sites->phases[life->stack];

	return phase == NEAP_PHASE_BACKWARD ||
	       ((!life->stack || phase == NEAP_PHASE_THREAD) && life->size >= NEAP_MIB);
}

static uint64_t step_begin(const struct neap_trace_parts *parts, uint64_t event)
{
	size_t ended = neap_steps_before(parts->steps, event);

	return ended ? parts->steps->ends[ended - 1] : 0;
}

static struct neap_life_cursor lives_of(const struct neap_trace_parts *parts)
{
	return neap_lives_begin(parts->lives, parts->lives->before);
}

static uint64_t to_segment(uint64_t bytes) { return (bytes + 2 * NEAP_MIB - 1) / (2 * NEAP_MIB) * (2 * NEAP_MIB); }

/* How many times larger the request is than its line's largest earlier one. */
static double larger(const struct neap_trace_parts *parts, uint32_t frame, uint64_t begin, uint64_t bytes)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;
	uint64_t most = 0;

	while (neap_lives_next(&cursor, &life) && life.begin < begin)
		if (parts->sites->frames[life.stack] == frame && life.size > most)
			most = life.size;
	double times = most ? (double)bytes / (double)to_segment(most) : 0;
	return bytes >= LARGE_REQUEST && times >= LARGER ? times : 0;
}

/* Finds the first large block that forward made in the step that failed and that is still live. */
static bool find_first(const struct neap_trace_parts *parts, uint64_t begin, uint64_t event,
		       struct neap_life *ret_life)
{
	struct neap_life_cursor cursor = lives_of(parts);

	while (neap_lives_next(&cursor, ret_life) && ret_life->begin < event)
		if (ret_life->begin >= begin && neap_life_at(ret_life, event) && ret_life->size >= NEAP_MIB &&
		    parts->sites->phases[ret_life->stack] == NEAP_PHASE_FORWARD)
			return true;
	return false;
}

/* How earlier steps treated the blocks of a stack. */
struct former {
	bool any, held_until_backward; /* one of them */
	struct neap_life newest;
};

static struct former find_former(const struct neap_trace_parts *parts, uint32_t stack, uint64_t begin)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct former former = {0};
	struct neap_life life;
	uint64_t end = 0;

	while (neap_lives_next(&cursor, &life) && life.begin < begin) {
		former.held_until_backward |= of_backward(parts, &life) && life.begin < end;
		if (life.stack != stack)
			continue;
		former.any = true;
		former.newest = life;
		end = life.end > end ? life.end : end;
	}
	return former;
}

static bool evaluates(const struct neap_trace_parts *parts, const struct neap_oom_card *card,
		      const struct former *former)
{
	enum neap_category_how how;

	if (former->held_until_backward)
		return false;
	return card->model.evaluates ||
	       (former->any && neap_category_of(parts->sites, parts->steps, parts->timeline->count, &former->newest,
						&how) == NEAP_CATEGORY_ACTIVATIONS);
}

/* Measures the bytes that forward has made in this step, and its largest block: of those, or by the steps before the
 * one that is still to come, as many times larger as the request is. */
static void measure_graph(const struct neap_trace_parts *parts, uint64_t begin, struct neap_oom_card *card,
			  struct neap_oom_inputs *inputs)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;
	double times = card->larger > 0 ? card->larger : 1;

	while (neap_lives_next(&cursor, &life) && life.begin < card->event) {
		bool before = life.begin < begin;
		if (parts->sites->phases[life.stack] != NEAP_PHASE_FORWARD ||
		    !(before || neap_life_at(&life, card->event)))
			continue;
		uint64_t size = before ? neap_to_bytes(times * (double)life.size) : life.size;
		card->graph_bytes = neap_plus(card->graph_bytes, before ? 0 : size);
		if (size > inputs->largest_bytes)
			inputs->largest_bytes = size;
	}
}

/* The whole step before the one that failed, as events of the device. */
struct step_before {
	uint64_t begin, end;
};

static struct step_before find_before(const struct neap_trace_parts *parts, uint64_t event)
{
	size_t ended = neap_steps_before(parts->steps, event);

	return (struct step_before){.begin = ended > 1 ? parts->steps->ends[ended - 2] : 0,
				    .end = parts->steps->ends[ended - 1]};
}

static bool within(const struct step_before *before, const struct neap_life *life)
{
	return life->begin != NEAP_LIFE_BEFORE && life->begin >= before->begin && life->begin < before->end;
}

/* Whether the line made a block of this size in the step before. `segment`: of what it asked the driver for. */
static bool made_before(const struct neap_trace_parts *parts, const struct step_before *before, uint32_t frame,
			uint64_t bytes, bool segment)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;

	while (neap_lives_next(&cursor, &life) && life.begin < before->end)
		if (within(before, &life) && parts->sites->frames[life.stack] == frame &&
		    (life.size == bytes || (segment && to_segment(life.size) == bytes)))
			return true;
	return false;
}

/* Whether the step has the sizes of the step before, as far as it came: of its first large block, and of the request
 * if that has a line. */
static bool repeats(const struct neap_trace_parts *parts, const struct neap_oom_card *card, uint32_t frame,
		    const struct step_before *before, const struct neap_life *first)
{
	uint32_t first_frame = parts->sites->frames[first->stack];

	if (card->evaluates || !first_frame || !made_before(parts, before, first_frame, first->size, false))
		return false;
	if (!frame)
		return card->model.phase == NEAP_OOM_PHASE_BACKWARD;
	return made_before(parts, before, frame, card->block_bytes, card->block_bytes >= LARGE_REQUEST);
}

/* Whether a smaller micro-batch would have made this block of the step before smaller. Where its lifetime does not
 * tell its use, these count: what was freed within that step, and the program's own that are freed by now, as a batch
 * is. Gradients outlive the step. */
static bool scales(const struct neap_trace_parts *parts, const struct step_before *before, uint64_t event,
		   const struct neap_life *life)
{
	enum neap_category_how how;
	enum neap_category category = neap_category_of(parts->sites, parts->steps, event, life, &how);

	if (parts->sites->phases[life->stack] == NEAP_PHASE_OPTIMIZER)
		return false;
	if (category == NEAP_CATEGORY_UNKNOWN)
		return life->end < before->end || (neap_has_line(parts->sites, life->stack) && life->end < event);
	return category == NEAP_CATEGORY_ACTIVATIONS || category == NEAP_CATEGORY_TEMPORARIES ||
	       category == NEAP_CATEGORY_INPUTS;
}

/* Measures the most that the step before held of what its micro-batch decided. */
static enum neap_status measure_before(const struct neap_trace_parts *parts, const struct step_before *before,
				       uint64_t event, uint64_t *ret_bytes, struct neap_error *err)
{
	int64_t *changes = calloc(before->end - before->begin + 1, sizeof *changes), level = 0, highest = 0;
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;

	if (!changes)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the step before a failure");
	while (neap_lives_next(&cursor, &life) && life.begin < before->end) {
		if (!within(before, &life) || !scales(parts, before, event, &life))
			continue;
		changes[life.begin - before->begin] += (int64_t)life.size;
		if (life.end < before->end)
			changes[life.end - before->begin] -= (int64_t)life.size;
	}
	for (uint64_t i = 0; i < before->end - before->begin; i++) {
		level += changes[i];
		highest = level > highest ? level : highest;
	}
	free(changes);
	*ret_bytes = (uint64_t)highest;
	return NEAP_OK;
}

enum neap_status neap_oom_compare(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
				  struct neap_oom_card *card, struct neap_oom_inputs *inputs, struct neap_error *err)
{
	uint64_t begin = step_begin(parts, card->event);
	struct former former = {0};
	struct neap_life first;

	if (!begin) /* no whole step came before */
		return NEAP_OK;
	uint32_t stack = failure->event.stack,
		 frame = neap_has_line(parts->sites, stack) ? parts->sites->frames[stack] : 0;
	if (frame)
		card->larger = larger(parts, frame, begin, card->block_bytes);
	bool held = find_first(parts, begin, card->event, &first);
	if (card->model.phase == NEAP_OOM_PHASE_FORWARD) {
		if (held)
			former = find_former(parts, first.stack, begin);
		card->evaluates = evaluates(parts, card, &former);
		if (held && card->evaluates && card->model.graph)
			measure_graph(parts, first.begin, card, inputs);
	}
	struct step_before before = find_before(parts, card->event);
	if (!held || !repeats(parts, card, frame, &before, &first))
		return NEAP_OK;
	return measure_before(parts, &before, card->event, &inputs->repeated_bytes, err);
}
