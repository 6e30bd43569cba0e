/* analyze/fix_need.c: fixes by what a whole step needs (oom_need.c): those of the model itself, if no micro-batch is
 * small enough, and whether any fix leaves enough for the whole step. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/units.h"

#include <stdio.h>

#define LATER_TENTHS_MAX 100

bool neap_oom_step_fits(const struct neap_oom_need *need, double divisor, uint64_t room_bytes)
{
	return neap_oom_with_pieces(neap_oom_needed(need, divisor)) <= room_bytes;
}

/* The need of a whole step if the optimizer keeps so many bytes of state for each byte of a parameter. */
static struct neap_oom_need with_state(const struct neap_oom_card *card, double copies)
{
	struct neap_oom_need need = card->need;
	uint64_t other = neap_less(need.fixed_bytes, need.model_bytes);

	need.model_bytes = neap_plus(neap_plus(card->model.parameter_bytes, card->model.gradient_bytes),
				     neap_to_bytes(copies * (double)card->model.gradient_bytes));
	need.fixed_bytes = neap_plus(need.model_bytes, other);
	need.update_bytes = 0;
	return need;
}

/* Adds an optimizer with less state, if no smaller micro-batch is enough: of those that fit, the one with the most
 * state. */
static void fix_optimizer(struct neap_oom_card *card)
{
	static const struct {
		double copies;
		const char *which;
	} kinds[] = {{1, "SGD with momentum, Lion"}, {0.5, "Adam in 8 bits"}, {0, "SGD without momentum, Adafactor"}};
	const struct neap_event_oom_model *model = &card->model;
	uint64_t state = model->optimizer_bytes;

	if (state == UINT64_MAX || neap_oom_step_fits(&card->need, NEAP_OOM_DIVISOR_MAX, card->room_bytes))
		return;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct neap_oom_need need = with_state(card, kinds[i].copies);
		uint64_t left = neap_to_bytes(kinds[i].copies * (double)model->gradient_bytes);
		if (left >= state || !neap_oom_step_fits(&need, NEAP_OOM_DIVISOR_MAX, card->room_bytes))
			continue;
		struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_OPTIMIZER, state - left, 0);
		fix->amount = kinds[i].copies;
		snprintf(fix->text, sizeof fix->text, "an optimizer with less state: %s", kinds[i].which);
		snprintf(fix->how, sizeof fix->how,
			 "its state is %s; with %s the model takes %s of the %s that this process could have",
			 NEAP_SIZE(state), NEAP_SIZE(left), NEAP_SIZE(need.model_bytes), NEAP_SIZE(card->room_bytes));
		return;
	}
}

/* Adds the fix for temporaries: in an update PyTorch's default makes temporaries of all parameters at once. */
static void fix_update(struct neap_oom_card *card)
{
	struct neap_oom_need need = card->need;

	need.update_bytes = 0;
	if (card->need.update_bytes == 0 || neap_oom_step_fits(&card->need, NEAP_OOM_DIVISOR_MAX, card->room_bytes) ||
	    !neap_oom_step_fits(&need, NEAP_OOM_DIVISOR_MAX, card->room_bytes))
		return;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_UPDATE, card->need.update_bytes, 0);
	snprintf(fix->text, sizeof fix->text,
		 "foreach=False in the optimizer: it updates one parameter after another");
	snprintf(fix->how, sizeof fix->how,
		 "an update of all at once takes %s beside the model's %s; fused=True takes none either",
		 NEAP_SIZE(card->need.update_bytes), NEAP_SIZE(card->need.model_bytes));
}

static void fix_sharding(struct neap_oom_card *card)
{
	unsigned devices = 2;

	while (devices < NEAP_OOM_DIVISOR_MAX && card->need.model_bytes / devices > card->room_bytes / 4 * 3)
		devices *= 2;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_SHARDING,
					    neap_less(card->need.model_bytes, card->need.model_bytes / devices), 0);
	fix->amount = devices;
	snprintf(fix->text, sizeof fix->text,
		 "sharded over %u such devices (FSDP, ZeRO), or offloaded to the host's memory", devices);
	snprintf(fix->how, sizeof fix->how,
		 "the %s of parameters, gradients and optimizer state are split among them",
		 NEAP_SIZE(card->need.model_bytes));
}

/* By how much the model has to be smaller. */
static void fix_smaller_model(struct neap_oom_card *card)
{
	const struct neap_oom_need *need = &card->need;
	uint64_t other = neap_less(need->fixed_bytes, need->model_bytes), headroom = card->room_bytes;
	double grows = (double)need->model_bytes +
		       (double)(need->scaled_bytes > need->update_bytes ? need->scaled_bytes : need->update_bytes);
	/* The memory that is left for the model, less a tenth, since a model cannot shrink to every size. */
	double left = (double)neap_less(headroom - headroom / 16, neap_plus(other, 2 * 20 * NEAP_MIB)) * 0.9;
	unsigned percent = grows > 0 && left < grows ? (unsigned)(100 * left / grows) : 100;

	if (percent < 1 || percent >= 100 || need->model_bytes < headroom / 4) /* the batch decides */
		return;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_SMALLER_MODEL,
					    neap_to_bytes((double)need->model_bytes * (100 - percent) / 100), 0);
	fix->amount = percent / 100.0;
	snprintf(fix->text, sizeof fix->text, "a model with %u %% of the parameters: %s of %s", percent,
		 NEAP_SIZE(card->model.parameter_bytes / 100 * percent), NEAP_SIZE(card->model.parameter_bytes));
	snprintf(fix->how, sizeof fix->how, "%s of parameters, gradients and optimizer state become %s",
		 NEAP_SIZE(need->model_bytes), NEAP_SIZE(need->model_bytes / 100 * percent));
}

void neap_fix_model_by_need(struct neap_oom_card *card)
{
	fix_update(card);
	fix_optimizer(card);
	if (card->model_alone)
		fix_sharding(card);
	fix_smaller_model(card);
}

/* A forward without a graph holds what a layer reads and makes: here its largest block and the request, and up to
 * two blocks more. */
void neap_fix_no_grad(struct neap_oom_card *card, const struct neap_oom_inputs *inputs)
{
	uint64_t largest = inputs->largest_bytes, saving = neap_less(card->graph_bytes, largest);

	if (!saving)
		return;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_NO_GRAD, saving,
					    saving < largest || saving - largest < largest ? saving : 2 * largest);
	snprintf(fix->text, sizeof fix->text,
		 "torch.no_grad() around the evaluation's forward: no backward uses its graph");
	snprintf(fix->how, sizeof fix->how,
		 "it has made %s and keeps them for a backward; without, it needs its largest block, %s, or three",
		 NEAP_SIZE(card->graph_bytes), NEAP_SIZE(largest));
}

/* Judges the evaluation without a graph. The other parts of its step have ended before. */
static void judge_no_grad(const struct neap_oom_card *card, struct neap_fix *fix)
{
	uint64_t left = neap_less(neap_plus(card->allocated_bytes, card->block_bytes), fix->saving_bytes);

	fix->sufficient = neap_oom_with_pieces(left) <= card->room_bytes;
	fix->perhaps = neap_oom_with_pieces(neap_plus(left, fix->uncertainty_bytes)) > card->room_bytes;
	fix->step = !fix->sufficient ? NEAP_FIX_STEP_NOT_ENOUGH
		    : fix->perhaps   ? NEAP_FIX_STEP_UNKNOWN
				     : NEAP_FIX_STEP_ENOUGH;
}

/* Whether a step with this need would fit. */
static bool ends_step(const struct neap_oom_card *card, const struct neap_fix *fix, struct neap_oom_need need)
{
	uint64_t headroom = card->room_bytes, sure = neap_less(fix->saving_bytes, fix->uncertainty_bytes);
	double divisor = 1;

	switch (fix->kind) {
	case NEAP_FIX_SMALLER_MICRO_BATCH:
		divisor = fix->amount;
		break;
	case NEAP_FIX_RAISE_LIMIT:
	case NEAP_FIX_FREE_NEIGHBOURS:
		headroom = neap_plus(headroom, sure);
		break;
	case NEAP_FIX_EFFICIENT_ATTENTION:
	case NEAP_FIX_MIXED_PRECISION:
	case NEAP_FIX_CHECKPOINTING:
		need.scaled_bytes = neap_less(need.scaled_bytes, sure);
		break;
	case NEAP_FIX_OPTIMIZER: {
		uint64_t scaled = need.scaled_bytes;
		need = with_state(card, fix->amount);
		need.scaled_bytes = scaled;
		break;
	}
	case NEAP_FIX_UPDATE:
		need.update_bytes = 0;
		break;
	case NEAP_FIX_SMALLER_MODEL:
		need.fixed_bytes = neap_less(need.fixed_bytes, fix->saving_bytes);
		need.scaled_bytes = neap_to_bytes((double)need.scaled_bytes * fix->amount);
		need.update_bytes = neap_to_bytes((double)need.update_bytes * fix->amount);
		break;
	case NEAP_FIX_EXPANDABLE_SEGMENTS:
	case NEAP_FIX_SETTING: /* the replay has shown what becomes of the pieces */
		return neap_oom_needed(&need, 1) <= headroom - headroom / 32;
	default:
		break;
	}
	return neap_oom_step_fits(&need, divisor, headroom);
}

/* Whether the pieces of PyTorch's cache may take more than the raised limit leaves for them: of nine trainings, up to
 * 28 % of what was requested (oom_need.c). */
static bool is_tight(const struct neap_oom_card *card, const struct neap_fix *fix, const struct neap_oom_need *need)
{
	uint64_t needed = neap_oom_needed(need, 1);

	return fix->kind == NEAP_FIX_RAISE_LIMIT &&
	       neap_plus(card->room_bytes, fix->saving_bytes) < neap_plus(needed, needed / 100 * 28);
}

/* The most that a later step may take of the bytes that scale with the micro-batch, in tenths of this step's. */
static unsigned later_tenths(const struct neap_oom_card *card, const struct neap_fix *fix)
{
	for (unsigned tenths = 10; tenths < LATER_TENTHS_MAX; tenths++) {
		struct neap_oom_need later = card->need;
		later.scaled_bytes = neap_to_bytes((double)later.scaled_bytes * (tenths + 1) / 10);
		if (!ends_step(card, fix, later) || is_tight(card, fix, &later))
			return tenths;
	}
	return LATER_TENTHS_MAX;
}

/* Judges by the predicted need of a whole step. The saving of checkpointing and the like is a guess, from the uses of
 * memory. */
void neap_fix_judge_by_need(const struct neap_oom_card *card, struct neap_fix *fix)
{
	if (fix->kind == NEAP_FIX_NO_GRAD) {
		judge_no_grad(card, fix);
		return;
	}
	/* About the step it is only known that the replayed trace succeeded. */
	if (fix->replayed && !card->need.sure && card->model.parameter_bytes == 0) {
		fix->perhaps = true;
		return;
	}
	bool guessed = fix->uncertainty_bytes > 0 && fix->kind != NEAP_FIX_FREE_NEIGHBOURS &&
		       fix->kind != NEAP_FIX_SMALLER_MICRO_BATCH; /* the need includes unknown bytes */
	bool ends = fix->kind == NEAP_FIX_SHARDING || ends_step(card, fix, card->need);
	bool sure =
		card->need.sure && !guessed && fix->kind != NEAP_FIX_SHARDING && !is_tight(card, fix, &card->need);

	/* A leak makes later steps take more, too, and has its own line. */
	bool varies = card->steps_vary && !card->growth_bytes;

	fix->perhaps = !sure || !card->need.alike || varies;
	fix->sufficient = ends;
	fix->step = !ends ? NEAP_FIX_STEP_NOT_ENOUGH : sure ? NEAP_FIX_STEP_ENOUGH : NEAP_FIX_STEP_UNKNOWN;
	if (ends && sure && !card->need.alike && !fix->replayed)
		fix->later_tenths = later_tenths(card, fix);
}
