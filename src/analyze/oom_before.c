/* analyze/oom_before.c: compares the step that failed with the whole steps before it, by the stacks of its blocks.
 *
 *   larger      the line that asked never asked for as much: longer sequences, a larger batch. So this step may
 *               need more than any step before. Lines are compared, not stacks: until the first update neap's hooks
 *               put other lines of PyTorch into them
 *   evaluates   the process told so (a model in evaluation mode, whose inputs need no gradient), or an earlier step
 *               held what the same stack made, and freed it before any backward. Not if backward came before the
 *               free: some train in evaluation mode
 *
 * Backward is seen by its blocks of 1 MiB and more: autograd's threads have no frames, and smaller blocks may be
 * without a stack anyway. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/units.h"

#define LARGE_REQUEST (10 * NEAP_MIB) /* from here on PyTorch asks the driver for what was asked, but for rounding */
#define LARGER        1.05

static bool of_backward(const struct neap_trace_parts *parts, const struct neap_life *life)
{
	return parts->sites->phases[life->stack] == NEAP_PHASE_BACKWARD || (!life->stack && life->size >= NEAP_MIB);
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

/* How many times larger the request is than its line's largest earlier one. */
static double larger(const struct neap_trace_parts *parts, uint32_t frame, uint64_t begin, uint64_t bytes)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;
	uint64_t most = 0;

	while (neap_lives_next(&cursor, &life) && life.begin < begin)
		if (parts->sites->frames[life.stack] == frame && life.size > most)
			most = life.size;
	uint64_t asked = (most + 2 * NEAP_MIB - 1) / (2 * NEAP_MIB) * (2 * NEAP_MIB);
	double times = most ? (double)bytes / (double)asked : 0;
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

/* Measures the bytes that forward has made in this step, and their largest block. */
static void measure_graph(const struct neap_trace_parts *parts, uint64_t begin, struct neap_oom_card *card,
			  struct neap_oom_inputs *inputs)
{
	struct neap_life_cursor cursor = lives_of(parts);
	struct neap_life life;

	while (neap_lives_next(&cursor, &life) && life.begin < card->event) {
		if (life.begin < begin || !neap_life_at(&life, card->event) ||
		    parts->sites->phases[life.stack] != NEAP_PHASE_FORWARD)
			continue;
		card->graph_bytes = neap_plus(card->graph_bytes, life.size);
		if (life.size > inputs->largest_bytes)
			inputs->largest_bytes = life.size;
	}
}

void neap_oom_compare(const struct neap_trace_parts *parts, const struct neap_oom_failure *failure,
		      struct neap_oom_card *card, struct neap_oom_inputs *inputs)
{
	uint64_t begin = step_begin(parts, card->event);
	struct former former = {0};
	struct neap_life first;

	if (!begin) /* no whole step came before */
		return;
	uint32_t frame = parts->sites->frames[failure->event.stack];
	if (frame)
		card->larger = larger(parts, frame, begin, card->block_bytes);
	if (card->model.phase != NEAP_OOM_PHASE_FORWARD)
		return;
	bool held = find_first(parts, begin, card->event, &first);
	if (held)
		former = find_former(parts, first.stack, begin);
	card->evaluates = evaluates(parts, card, &former);
	if (held && card->evaluates && card->model.graph)
		measure_graph(parts, first.begin, card, inputs);
}
