/* analyze/oom_steps.c: reads the steps before a failure: the most that a whole one took, and the lowest bytes, in
 * which a leak would show. */
#include "analyze/oom_internal.h"
#include "base/error.h"

#include <stdlib.h>

#define VARIES_SHARE 20 /* of a step's peak: steps that differ by less count as alike */

static void raise_to(uint64_t *value, uint64_t candidate)
{
	if (candidate > *value)
		*value = candidate;
}

/* The peaks of the steps with the settings in force. The test whether they vary leaves out the first step, which
 * makes many blocks that stay. */
static void find_peaks(struct neap_oom_card *card, const struct neap_oom_inputs *inputs)
{
	uint64_t least = UINT64_MAX, most = 0;
	bool first = true;

	card->step_peak_bytes = card->step_reserved_bytes = 0;
	for (size_t i = 0; i < inputs->step_count; i++) {
		const struct neap_oom_step *step = &inputs->steps[i];
		if (step->settings != inputs->settings)
			continue;
		raise_to(&card->step_peak_bytes, step->peak_bytes);
		raise_to(&card->step_reserved_bytes, step->reserved_bytes);
		if (!first && step->peak_bytes < least)
			least = step->peak_bytes;
		if (!first)
			raise_to(&most, step->peak_bytes);
		first = false;
	}
	card->steps_vary = most > least && most - least > most / VARIES_SHARE;
}

/* The steps with the settings in force. If those are too few to show a leak: of the last settings before that had
 * enough, since a rung frees memory but ends no leak. `capacity`: for two numbers of each step. */
static struct neap_oom_floor find_floor(const struct neap_oom_inputs *inputs, uint64_t *scratch)
{
	size_t end = inputs->step_count, settings = inputs->settings;
	struct neap_oom_floor floor = {0};

	for (;;) {
		size_t first = end;
		while (first > 0 && inputs->steps[first - 1].settings == settings)
			first--;
		floor.steps = inputs->steps + first;
		floor.count = end - first;
		for (size_t i = 0; i < floor.count; i++) {
			scratch[i] = floor.steps[i].low_bytes;
			scratch[floor.count + i] = floor.steps[i].number;
		}
		neap_leak_test_numbered(scratch, scratch + floor.count, floor.count, 0, &floor.leak);
		if (floor.leak.verdict != NEAP_LEAK_TOO_SHORT || first == 0)
			return floor;
		end = first;
		settings = inputs->steps[end - 1].settings;
	}
}

void neap_oom_inputs_fini(struct neap_oom_inputs *inputs)
{
	free(inputs->steps);
	*inputs = (struct neap_oom_inputs){0};
}

enum neap_status neap_oom_conclude(struct neap_oom_card *card, const struct neap_oom_inputs *inputs,
				   struct neap_error *err)
{
	uint64_t *scratch = calloc(2 * (inputs->step_count + 1), sizeof *scratch);

	if (!scratch)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the steps before an out-of-memory");
	neap_oom_find_cause(card, inputs);
	find_peaks(card, inputs);
	struct neap_oom_floor floor = find_floor(inputs, scratch);
	neap_oom_fixes(card, inputs, &floor);
	free(scratch);
	return NEAP_OK;
}
