/* analyze/oom_need.c: predicts the need of a whole step in which a request of PyTorch's own allocator failed.
 *
 *   fixed    what the model needs: parameters, gradients, optimizer state, as the process recorded them at the
 *            failure, also of what was not there yet; and what lived longer than the step
 *   scaled   all else: activations, temporaries, the batch. At the failure, and by how far the step was:
 *              repeats the step before (oom_before.c)   the highest of that step
 *              whole steps before that took more    their highest
 *              update, backward                     the highest of this step; in backward an eighth more
 *              forward                              divided by the share of the model's modules that came before,
 *                                                   and a quarter more: modules differ, and backward begins with more
 *              else                                 not known: four times as much
 *
 *   highest = fixed + max(scaled / divisor of the micro-batch, temporaries of the update)
 *
 * If the request is larger than any of its line before (oom_before.c), the step is larger than those before: it takes
 * as many times as much, at least.
 *
 * If no whole step came before that took as much, later ones may be larger: longer sequences, an evaluation. A
 * micro-batch, and a limit, are chosen with room for twice as much.
 *
 * PyTorch's cache leaves pieces: a sixteenth and two segments are added. (On nine traces of trainings the smallest
 * device on which PyTorch's defaults ended had 1.6 to 28 % more than was requested at the highest, half of them at
 * most 8 %.) */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/units.h"

#define SEGMENT_BYTES (20 * NEAP_MIB)
#define FACTOR_MAX    16.0
#define FACTOR_GUESS  4.0
#define SURE_PERMILLE 200 /* of the modules have to be done to judge the rest by them */

/* By how much to multiply the bytes at the failure to get those of the whole step. */
static double rest_of_step(const struct neap_event_oom_model *model, bool *ret_sure)
{
	double factor;

	*ret_sure = true;
	switch (model->phase) {
	case NEAP_OOM_PHASE_UPDATE:
		return 1;
	case NEAP_OOM_PHASE_BACKWARD:
		return 1.125;
	case NEAP_OOM_PHASE_FORWARD:
		if (model->forward_permille == 0 || model->forward_permille > 1000)
			break;
		factor = 1250.0 / model->forward_permille;
		*ret_sure = model->forward_permille >= SURE_PERMILLE;
		return factor < FACTOR_MAX ? factor : FACTOR_MAX;
	default:
		break;
	}
	*ret_sure = false;
	return FACTOR_GUESS;
}

/* Parameters, gradients and state: as the process described them, but no less than the live bytes. An unknown state
 * counts as Adam's. */
static uint64_t model_bytes(const struct neap_event_oom_model *told, const struct neap_demand *demand)
{
	uint64_t state = told->optimizer_bytes == UINT64_MAX ? neap_plus(told->gradient_bytes, told->gradient_bytes)
							     : told->optimizer_bytes;
	uint64_t companions = neap_plus(told->gradient_bytes, state);
	uint64_t parameters = told->parameter_bytes > demand->parameters ? told->parameter_bytes : demand->parameters;

	return neap_plus(parameters, companions > demand->model ? companions : demand->model);
}

/* Adds the request, by what the program was doing. A request of the model or its optimizer is part of their need
 * already.
 */
static void add_request(const struct neap_oom_card *card, struct neap_demand *demand)
{
	uint32_t phase = card->model.phase;

	if (phase == NEAP_OOM_PHASE_FORWARD || phase == NEAP_OOM_PHASE_BACKWARD)
		demand->temporaries = neap_plus(demand->temporaries, card->block_bytes);
	else if (phase == NEAP_OOM_PHASE_UNKNOWN)
		demand->unknown = neap_plus(demand->unknown, card->block_bytes);
}

void neap_oom_find_need(struct neap_oom_card *card, const struct neap_oom_inputs *inputs, struct neap_demand *demand)
{
	const struct neap_event_oom_model *told = &card->model;
	bool events = neap_oom_has_events(card), sure = true;
	uint64_t before = neap_less(card->step_peak_bytes, neap_plus(demand->parameters, demand->model));

	if (events)
		add_request(card, demand);
	/* Without events: all bytes that are not the model's count as the step's. */
	uint64_t others = events ? neap_plus(demand->unknown, demand->leaked) : 0;
	uint64_t resident = neap_plus(neap_plus(demand->parameters, demand->model), others);
	uint64_t scaled = neap_less(neap_demand_total(demand), resident), need = neap_oom_step_need(card);
	struct neap_oom_need found = {.known = events || (card->other_allocator && told->parameter_bytes > 0),
				      .update_bytes = told->update_bytes};

	if (!found.known)
		return;
	scaled = inputs->scaled_bytes > scaled ? inputs->scaled_bytes : scaled;
	bool repeats = inputs->repeated_bytes > 0 && inputs->repeated_bytes >= scaled && card->larger == 0;
	if (repeats)
		scaled = inputs->repeated_bytes;
	else if (need > 0)
		scaled = neap_less(need, resident);
	else
		scaled = neap_to_bytes((double)scaled * rest_of_step(told, &sure));
	if (card->larger > 0 && scaled < neap_to_bytes(card->larger * (double)before))
		scaled = neap_to_bytes(card->larger * (double)before);
	found.model_bytes = model_bytes(told, demand);
	found.fixed_bytes = neap_plus(found.model_bytes, others);
	found.scaled_bytes = scaled;
	found.sure =
		events && sure && (need > 0 || (told->parameter_bytes > 0 && told->optimizer_bytes != UINT64_MAX));
	found.repeats = repeats;
	found.alike = repeats || need > 0;
	card->need = found;
	card->model_alone = told->parameter_bytes > 0 && found.model_bytes > card->room_bytes;
}

uint64_t neap_oom_with_pieces(uint64_t bytes) { return neap_plus(bytes, bytes / 16 + 2 * SEGMENT_BYTES); }

struct neap_oom_need neap_oom_later(const struct neap_oom_need *need)
{
	struct neap_oom_need later = *need;

	if (!need->alike)
		later.scaled_bytes = neap_plus(need->scaled_bytes, need->scaled_bytes);
	return later;
}

uint64_t neap_oom_needed(const struct neap_oom_need *need, double divisor)
{
	uint64_t scaled = neap_to_bytes((double)need->scaled_bytes / divisor);
	uint64_t beside = scaled > need->update_bytes ? scaled : need->update_bytes;

	return neap_plus(need->fixed_bytes, beside);
}
