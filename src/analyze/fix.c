/* analyze/fix.c: what would have helped, each fix with its predicted saving at the moment of the failure.
 *
 * Predictions come from predict.h, by what the live bytes and the request are for; each fix's `how` states what it
 * assumes. */
#include "analyze/oom_internal.h"
#include "analyze/saturate.h"
#include "base/units.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct neap_fix *neap_fix_add(struct neap_oom_card *card, enum neap_fix_kind kind, uint64_t saving_bytes,
			      uint64_t uncertainty_bytes)
{
	assert(card->fix_count < NEAP_OOM_FIXES); /* room for each kind, and for each setting that is tried */
	struct neap_fix *fix = &card->fixes[card->fix_count++];
	*fix = (struct neap_fix){.kind = kind,
				 .saving_bytes = saving_bytes,
				 .uncertainty_bytes = uncertainty_bytes,
				 .order = (int)card->fix_count,
				 .sufficient = saving_bytes >= card->shortfall_bytes};
	return fix;
}

/* The saving of one micro-batch instead of another. */
static struct neap_saving split_saving(const struct neap_demand *demand, uint64_t before, uint64_t after)
{
	const struct neap_train_settings from = {{.micro_batch = before}, 0}, to = {{.micro_batch = after}, 0};
	struct neap_prediction prediction = {0};

	if (!neap_predict(demand, &from, &to, 0, &prediction))
		return (struct neap_saving){.rung = NEAP_RUNG_SPLIT};
	return (struct neap_saving){NEAP_RUNG_SPLIT, neap_less(neap_demand_total(demand), prediction.bytes),
				    prediction.uncertainty_bytes};
}

static bool split_suffices(const struct neap_oom_card *card, const struct neap_demand *demand, uint64_t before,
			   uint64_t after, bool surely)
{
	struct neap_oom_need later = neap_oom_later(&card->need);
	if (card->need.known)
		return neap_oom_step_fits(surely ? &later : &card->need, (double)before / (double)after,
					  card->room_bytes);
	struct neap_saving saving = split_saving(demand, before, after);

	return (surely ? neap_less(saving.bytes, saving.uncertainty_bytes) : saving.bytes) >= card->shortfall_bytes;
}

/* The first split down the ladder that suffices even less its uncertainty; else the first that suffices; else the
 * last. False when there is none below the one in force. */
static bool choose_split(const struct neap_oom_card *card, const struct neap_demand *demand,
			 struct neap_split *ret_split)
{
	bool found = false;

	for (int surely = 1; surely >= 0; surely--) {
		struct neap_train_settings now = {card->split, 0};
		while (neap_ladder_next(&now, 1u << NEAP_RUNG_SPLIT, &now) == NEAP_RUNG_SPLIT) {
			*ret_split = now.split;
			found = true;
			if (split_suffices(card, demand, card->split.micro_batch, now.split.micro_batch, surely))
				return true;
		}
	}
	return found;
}

/* By how much to divide the micro-batch, if no split is known. */
static unsigned guess_divisor(const struct neap_oom_card *card, const struct neap_demand *demand)
{
	for (int surely = 1; surely >= 0; surely--)
		for (unsigned divisor = 2; divisor <= NEAP_OOM_DIVISOR_MAX; divisor *= 2)
			if (split_suffices(card, demand, divisor, 1, surely))
				return divisor;
	return NEAP_OOM_DIVISOR_MAX;
}

/* Reports the predicted need of a whole step with a smaller micro-batch. */
static void report_need(const struct neap_oom_card *card, double divisor, struct neap_fix *fix)
{
	snprintf(fix->how, sizeof fix->how, "a whole step then takes about %s%s",
		 NEAP_SIZE(neap_oom_needed(&card->need, divisor)), card->need.sure ? "" : ", by a guess");
}

static uint64_t all_activations(const struct neap_demand *demand)
{
	return neap_plus(neap_plus(demand->activations, demand->attention), demand->temporaries);
}

/* An evaluation has a batch of its own, and nothing to accumulate. */
static void report_divisor(const struct neap_oom_card *card, unsigned divisor, struct neap_fix *fix)
{
	fix->amount = divisor;
	if (card->evaluates)
		snprintf(fix->text, sizeof fix->text, "the evaluation's batch divided by %u", divisor);
	else
		snprintf(fix->text, sizeof fix->text,
			 "micro-batch divided by %u, accumulation times %u (effective batch stays the same)", divisor,
			 divisor);
}

static void fix_micro_batch(struct neap_oom_card *card, const struct neap_demand *demand)
{
	struct neap_split split = {0};
	struct neap_saving saving;
	char scaling[NEAP_UNITS_CAPACITY], unequal[NEAP_SPLIT_ROOM];
	struct neap_fix *fix;

	if (card->split.micro_batch && !card->evaluates) {
		if (!choose_split(card, demand, &split))
			return;
		saving = split_saving(demand, card->split.micro_batch, split.micro_batch);
		fix = neap_fix_add(card, NEAP_FIX_SMALLER_MICRO_BATCH, saving.bytes, saving.uncertainty_bytes);
		snprintf(fix->text, sizeof fix->text,
			 "micro-batch %llu -> %llu, accumulation %llu -> %llu (effective batch stays %llu%s)",
			 (unsigned long long)card->split.micro_batch, (unsigned long long)split.micro_batch,
			 (unsigned long long)card->split.accumulate, (unsigned long long)split.accumulate,
			 (unsigned long long)(neap_split_batch(&split) * split.ranks),
			 neap_split_unequal(&split, ": ", "", unequal));
		fix->amount = (double)card->split.micro_batch / (double)split.micro_batch;
	} else {
		unsigned divisor = guess_divisor(card, demand);
		saving = split_saving(demand, divisor, 1);
		if (saving.bytes == 0) /* none of the bytes depend on the micro-batch */
			return;
		fix = neap_fix_add(card, NEAP_FIX_SMALLER_MICRO_BATCH, saving.bytes, saving.uncertainty_bytes);
		report_divisor(card, divisor, fix);
	}
	neap_size_format(neap_plus(all_activations(demand), demand->inputs), scaling);
	if (card->need.known)
		report_need(card, fix->amount, fix);
	else if (demand->unknown)
		snprintf(fix->how, sizeof fix->how,
			 "%s at the failure scale with the micro-batch, of %s it is not known; what the rest of "
			 "the step would take is not in it",
			 scaling, NEAP_SIZE(demand->unknown));
	else
		snprintf(fix->how, sizeof fix->how,
			 "%s at the failure scale with the micro-batch; what the rest of the step would take is not "
			 "in it",
			 scaling);
}

static void fix_rung(struct neap_oom_card *card, const struct neap_demand *demand, const struct neap_saving *saving)
{
	uint64_t kept = neap_plus(demand->activations, demand->attention);
	struct neap_fix *fix;

	switch (saving->rung) {
	case NEAP_RUNG_EFFICIENT_ATTENTION:
		fix = neap_fix_add(card, NEAP_FIX_EFFICIENT_ATTENTION, saving->bytes, saving->uncertainty_bytes);
		snprintf(fix->text, sizeof fix->text, "memory-efficient attention: scores are not kept");
		snprintf(fix->how, sizeof fix->how, "the %s tagged \"attention\", but for up to an eighth",
			 NEAP_SIZE(demand->attention));
		break;
	case NEAP_RUNG_CHECKPOINTING:
		fix = neap_fix_add(card, NEAP_FIX_CHECKPOINTING, saving->bytes, saving->uncertainty_bytes);
		snprintf(fix->text, sizeof fix->text,
			 "gradient checkpointing: activations are computed again, not kept");
		if (card->layers)
			snprintf(fix->how, sizeof fix->how,
				 "of the %s of %u layers, one layer's and the others' inputs are kept",
				 NEAP_SIZE(kept), card->layers);
		else
			snprintf(fix->how, sizeof fix->how,
				 "keeps the square root of the layers' %s: 1/2 for 4 layers, 1/10 for 100",
				 NEAP_SIZE(kept));
		break;
	case NEAP_RUNG_MIXED_PRECISION:
		fix = neap_fix_add(card, NEAP_FIX_MIXED_PRECISION, saving->bytes, saving->uncertainty_bytes);
		snprintf(fix->text, sizeof fix->text, "mixed precision: activations in 16 bits (changes numerics)");
		snprintf(fix->how, sizeof fix->how,
			 "half to all of the activations, %s, go from 32 bits to 16; a copy of the parameters may be "
			 "added",
			 NEAP_SIZE(all_activations(demand)));
		break;
	default:
		break;
	}
}

/* Adds the rungs, also those in force: strike_active marks these. */
static void fix_rungs(struct neap_oom_card *card, const struct neap_demand *demand)
{
	struct neap_saving savings[NEAP_SAVINGS];
	size_t count = neap_predict_savings(demand, 0, card->layers, savings);

	for (size_t i = 0; i < count; i++)
		if (!card->evaluates ||
		    savings[i].rung != NEAP_RUNG_CHECKPOINTING) /* no backward would compute again */
			fix_rung(card, demand, &savings[i]);
}

/* Rounded up to hundredths. */
static double fraction_of(const struct neap_oom_card *card, uint64_t bytes)
{
	double fraction = card->device_total_bytes ? (double)bytes / (double)card->device_total_bytes : 1;

	return fraction < 1 ? (double)(uint64_t)(fraction * 100 + 0.999999) / 100 : 1;
}

uint64_t neap_oom_step_need(const struct neap_oom_card *card)
{
	uint64_t now = neap_plus(card->allocated_bytes, card->block_bytes);
	uint64_t before = neap_plus(card->step_peak_bytes, card->growth_bytes);

	if (!card->step_peak_bytes || now > neap_plus(before, card->growth_bytes) || card->larger > 0)
		return 0;
	return before > now ? before : now;
}

/* `whole`: it covers the rest of the step too; else it is a lower bound. */
static void report_limit(const struct neap_oom_card *card, uint64_t wanted, bool whole, struct neap_fix *fix)
{
	uint64_t most = neap_plus(card->reserved_bytes, card->device_free_bytes);

	fix->amount = fraction_of(card, wanted);
	snprintf(fix->text, sizeof fix->text,
		 "%slimit raised by %s%s to %s (fraction %.2f); the device had room for %s",
		 whole ? "" : "a lower bound: ", whole ? "" : "at least ",
		 NEAP_SIZE(neap_less(wanted, card->limit_bytes)), NEAP_SIZE(wanted), fraction_of(card, wanted),
		 NEAP_SIZE(most));
}

static void fix_limit(struct neap_oom_card *card)
{
	uint64_t headroom = neap_less(card->limit_bytes, card->reserved_bytes);

	if (card->limit_bytes == UINT64_MAX || headroom >= card->device_free_bytes)
		return;
	uint64_t saving = card->device_free_bytes - headroom;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_RAISE_LIMIT, saving, 0);
	uint64_t need = neap_oom_step_need(card), now = neap_plus(card->allocated_bytes, card->block_bytes);
	uint64_t missing =
		neap_plus(card->shortfall_bytes, neap_less(need, now)); /* this request, and the rest of the step */
	uint64_t wanted = neap_plus(card->limit_bytes, missing < saving ? missing : saving);
	if (need && card->step_reserved_bytes > wanted &&
	    card->step_reserved_bytes <= neap_plus(card->limit_bytes, saving))
		wanted = card->step_reserved_bytes;
	if (card->need.known) {
		struct neap_oom_need later = neap_oom_later(&card->need);
		uint64_t whole = neap_oom_with_pieces(neap_oom_needed(&later, 1));
		wanted = whole > wanted ? whole : wanted;
		wanted =
			wanted < neap_plus(card->limit_bytes, saving) ? wanted : neap_plus(card->limit_bytes, saving);
	}
	report_limit(card, wanted, card->need.known ? card->need.sure : need > 0, fix);
	if (card->need.known)
		report_need(card, 1, fix);
	else
		snprintf(fix->how, sizeof fix->how, "measured: the device had %s free, the limit left %s of it",
			 NEAP_SIZE(card->device_free_bytes), NEAP_SIZE(headroom));
}

static void fix_neighbours(struct neap_oom_card *card)
{
	uint64_t neighbours = neap_oom_neighbours(card);

	if (!neighbours || card->cause == NEAP_OOM_LIMIT)
		return;
	if (neap_plus(card->allocated_bytes, card->block_bytes) >
	    card->limit_bytes) /* the limit would still refuse */
		return;
	struct neap_fix *fix =
		neap_fix_add(card, NEAP_FIX_FREE_NEIGHBOURS, neighbours, neap_oom_neighbours_unsure(card));
	snprintf(fix->text, sizeof fix->text, "other processes on this device end or move: they hold about %s",
		 NEAP_SIZE(neighbours));
	snprintf(fix->how, sizeof fix->how, "measured: %s are not free and not ours; less %s for the driver%s",
		 NEAP_SIZE(card->others_bytes), NEAP_SIZE(neap_oom_driver_share(card)),
		 card->context_bytes ? " and our context" : "; our context, whose size is not known, is in it");
}

/* Cached or pending bytes that could not serve the request. */
static void fix_cached(struct neap_oom_card *card, bool pages_mapped)
{
	uint64_t reusable = neap_less(card->cached_bytes, card->pending_bytes);
	struct neap_fix *fix;

	/* For PyTorch's traces, replays with the setting decide. */
	if (card->cause == NEAP_OOM_FRAGMENTATION && card->source == NEAP_TRACE_RECORDING &&
	    !neap_oom_has_events(card)) {
		fix = neap_fix_add(card, NEAP_FIX_EXPANDABLE_SEGMENTS, reusable, 0);
		fix->active_already = pages_mapped;
		snprintf(fix->text, sizeof fix->text,
			 "expandable segments: cached pages are joined to serve one request");
		if (card->largest_free_bytes == NEAP_OOM_UNKNOWN)
			snprintf(fix->how, sizeof fix->how, "measured: %s were cached, and no block was large enough",
				 NEAP_SIZE(reusable));
		else
			snprintf(fix->how, sizeof fix->how, "measured: %s were cached, the largest free block had %s",
				 NEAP_SIZE(reusable), NEAP_SIZE(card->largest_free_bytes));
	}
	if (card->pending_bytes && card->cause == NEAP_OOM_PENDING) {
		fix = neap_fix_add(card, NEAP_FIX_WAIT, card->pending_bytes, 0);
		snprintf(fix->text, sizeof fix->text,
			 "synchronise the streams before this request: %s were freed but still in use",
			 NEAP_SIZE(card->pending_bytes));
		snprintf(fix->how, sizeof fix->how, "measured: bytes waiting for queued work at the failure");
	}
}

/* Adds the leak as a fix: growth with the steps before the failure, since the split last changed. */
static void fix_leak(struct neap_oom_card *card, const struct neap_oom_floor *floor)
{
	const struct neap_leak *leak = &floor->leak;
	const struct neap_oom_step *first = floor->steps, *last = floor->steps + floor->count - 1;

	if (leak->verdict != NEAP_LEAK_FOUND)
		return;
	while (first < last && first->number - floor->steps->number < leak->warm_up_steps)
		first++;
	card->growth_bytes = neap_to_bytes(leak->bytes_per_step);
	double predicted = leak->bytes_per_step * (double)leak->steps;
	double measured = (double)last->low_bytes - (double)first->low_bytes;
	double apart = predicted > measured ? predicted - measured : measured - predicted;
	uint64_t tooth = neap_less(last->peak_bytes, last->low_bytes);
	uint64_t left = neap_less(card->room_bytes, neap_plus(last->low_bytes, tooth));
	card->leak = (struct neap_oom_leak){
		.since_step = first->number,
		.bytes = neap_to_bytes(predicted),
		.ends_step = neap_plus(last->number, left / (card->growth_bytes ? card->growth_bytes : 1)),
	};
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_LEAK, neap_to_bytes(predicted), neap_to_bytes(apart));
	snprintf(fix->text, sizeof fix->text,
		 "a leak: memory grew by %s per step, %s in all; find what keeps it first",
		 NEAP_SIZE(card->growth_bytes), NEAP_SIZE(card->leak.bytes));
	snprintf(fix->how, sizeof fix->how,
		 "measured: slope of the low-water marks of %zu steps, confidence %.3f; against last minus first",
		 leak->steps, (double)(uint64_t)(leak->confidence * 1000) / 1000);
}

static void fix_model(struct neap_oom_card *card, const struct neap_demand *demand)
{
	char more[64] = "";
	if (neap_plus(demand->parameters, demand->model) == 0) /* no bytes are known to be the model's */
		return;
	struct neap_fix *fix =
		neap_fix_add(card, NEAP_FIX_SMALLER_MODEL,
			     neap_plus(neap_plus(demand->parameters, demand->model) / 2, demand->unknown / 4),
			     demand->unknown / 4);

	snprintf(fix->text, sizeof fix->text, "a model with half the parameters");
	if (demand->unknown)
		snprintf(more, sizeof more, " and up to half of %s of unknown use", NEAP_SIZE(demand->unknown));
	snprintf(fix->how, sizeof fix->how,
		 "half of the %s of parameters, gradients and optimizer%s; activations taken as they are",
		 NEAP_SIZE(neap_plus(demand->parameters, demand->model)), more);
}

/* Marks the fixes that were in force at the failure: these cannot help again. */
static void strike_active(struct neap_oom_card *card)
{
	static const struct {
		enum neap_rung rung;
		enum neap_fix_kind fix;
	} pairs[] = {
		{NEAP_RUNG_EFFICIENT_ATTENTION, NEAP_FIX_EFFICIENT_ATTENTION},
		{NEAP_RUNG_MIXED_PRECISION, NEAP_FIX_MIXED_PRECISION},
		{NEAP_RUNG_CHECKPOINTING, NEAP_FIX_CHECKPOINTING},
	};

	for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
		for (size_t f = 0; f < card->fix_count; f++)
			if (card->rungs_active & (1u << pairs[p].rung) && card->fixes[f].kind == pairs[p].fix)
				card->fixes[f].active_already = true;
	for (size_t f = 0; f < card->fix_count; f++)
		if (card->fixes[f].active_already)
			card->fixes[f].sufficient = false;
}

static void judge_steps(struct neap_oom_card *card)
{
	uint64_t need = neap_oom_step_need(card), now = neap_plus(card->allocated_bytes, card->block_bytes);

	for (size_t i = 0; i < card->fix_count; i++) {
		struct neap_fix *fix = &card->fixes[i];
		uint64_t sure = neap_less(fix->saving_bytes, fix->uncertainty_bytes);
		if (fix->active_already || fix->replayed || fix->kind == NEAP_FIX_LEAK)
			continue;
		if (card->need.known)
			neap_fix_judge_by_need(card, fix);
		else if (need)
			fix->step = sure >= neap_plus(card->shortfall_bytes, need - now) ? NEAP_FIX_STEP_ENOUGH
											 : NEAP_FIX_STEP_NOT_ENOUGH;
	}
}

/* If mending the leak is enough, drops the fixes that only delay the end by less than a step. */
static void drop_delays(struct neap_oom_card *card)
{
	uint64_t step_bytes = neap_plus(card->shortfall_bytes, card->growth_bytes);
	size_t kept = 0;

	if (card->fix_count == 0 || card->fixes[0].kind != NEAP_FIX_LEAK || !card->fixes[0].sufficient)
		return;
	for (size_t i = 0; i < card->fix_count; i++)
		if (card->fixes[i].kind == NEAP_FIX_LEAK || card->fixes[i].active_already ||
		    card->fixes[i].saving_bytes >= step_bytes)
			card->fixes[kept++] = card->fixes[i];
	card->fix_count = kept;
}

void neap_oom_fixes(struct neap_oom_card *card, const struct neap_oom_inputs *inputs,
		    const struct neap_oom_floor *floor)
{
	struct neap_demand demand = inputs->demand;

	fix_leak(card, floor);
	if (card->fix_count > 0) /* leaked bytes have some tag, but do not scale */
		neap_demand_leak(&demand, neap_plus(card->fixes[0].saving_bytes, card->fixes[0].uncertainty_bytes));
	neap_oom_find_need(card, inputs, &demand);
	fix_limit(card);
	fix_cached(card, inputs->pages_mapped);
	fix_neighbours(card);
	if (inputs->training && !card->model_alone) {
		neap_fix_no_grad(card, inputs);
		fix_micro_batch(card, &demand);
		fix_rungs(card, &demand);
	}
	if (card->need.known && card->model.parameter_bytes)
		neap_fix_model_by_need(card);
	else if (inputs->training)
		fix_model(card, &demand);
	strike_active(card);
	judge_steps(card);
	drop_delays(card);
	neap_fix_sort(card);
}

/* Adds the fix of a limit of unknown size: the replays tell how large it has to be. */
static void fix_unknown_limit(struct neap_oom_card *card)
{
	uint64_t smallest = card->replays.smallest_bytes, had = card->replays.memory_bytes;
	char size[NEAP_UNITS_CAPACITY], from[NEAP_UNITS_CAPACITY];

	if (card->cause != NEAP_OOM_LIMIT || card->limit_bytes != UINT64_MAX || smallest <= had)
		return;
	struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_RAISE_LIMIT, 0, 0);
	const char *bound = card->replays.smallest_whole ? "" : "a lower bound: ";
	double fraction = had && card->fraction > 0 ? card->fraction * (double)smallest / (double)had + 0.01 : 0;
	fix->replayed = true;
	fix->sufficient = smallest - had <= card->device_free_bytes;
	neap_size_format(smallest, size);
	neap_size_format(had, from);
	if (fraction > 0 && fraction <= 1)
		snprintf(fix->text, sizeof fix->text,
			 "%sper_process_memory_fraction:%.2f instead of %.2f: a limit of %s at least, instead of "
			 "about %s",
			 bound, fraction, card->fraction, size, from);
	else
		snprintf(fix->text, sizeof fix->text,
			 "%sa limit of %s at least%s%s: torch.cuda.set_per_process_memory_fraction, or whatever sets "
			 "it",
			 bound, size, had ? ", instead of about " : "", had ? from : "");
	snprintf(fix->how, sizeof fix->how, "replayed: with %s the trace ends as it was; the device had %s free",
		 size, neap_size_format(card->device_free_bytes, from));
}

static void report_replayed(const struct neap_oom_card *card, uint64_t wanted, struct neap_fix *fix)
{
	const struct neap_oom_replays *replays = &card->replays;
	char size[NEAP_UNITS_CAPACITY], device[NEAP_UNITS_CAPACITY];
	int length;

	neap_size_format(wanted, size);
	neap_size_format(card->device_free_bytes, device);
	if (!replays->smallest_whole)
		length = snprintf(fix->how, sizeof fix->how,
				  "replayed: the trace ends with %s; the rest of the failed step is not in it, and "
				  "may take more",
				  size);
	else if (replays->step_bytes && replays->step_micro_batch != card->split.micro_batch)
		length = snprintf(fix->how, sizeof fix->how,
				  "replayed: the trace and a whole step, scaled from micro-batch %llu, end with %s",
				  (unsigned long long)replays->step_micro_batch, size);
	else
		length =
			snprintf(fix->how, sizeof fix->how, "replayed: the trace and a whole step end with %s", size);
	snprintf(fix->how + length, sizeof fix->how - (size_t)length, "; the device had %s free", device);
}

/* The limit has to rise by the missing bytes at least; pages, pieces and the rest of the step may take more. The
 * replays measured how much. */
static void refine_limit(struct neap_oom_card *card)
{
	uint64_t smallest = card->replays.smallest_bytes;

	for (size_t i = 0; i < card->fix_count && !card->need.known; i++) {
		struct neap_fix *fix = &card->fixes[i];
		if (fix->kind != NEAP_FIX_RAISE_LIMIT || card->limit_bytes == UINT64_MAX ||
		    smallest <= card->limit_bytes)
			continue;
		fix->sufficient = smallest - card->limit_bytes <= fix->saving_bytes;
		report_limit(card, smallest, card->replays.smallest_whole, fix);
		fix->replayed = true;
		fix->step = !card->replays.smallest_whole ? NEAP_FIX_STEP_UNKNOWN
			    : fix->sufficient             ? NEAP_FIX_STEP_ENOUGH
							  : NEAP_FIX_STEP_NOT_ENOUGH;
		report_replayed(card, smallest, fix);
	}
}

/* Setting the variable replaces its former value: the text says so if it had one. */
static void report_setting(const struct neap_whatifs *whatifs, const struct neap_whatif *item, struct neap_fix *fix)
{
	if (item->policy == NEAP_REPLAY_NEAP)
		snprintf(fix->text, sizeof fix->text, "neap's allocator: neap run --allocator neap -- ...");
	else if (item->active)
		snprintf(fix->text, sizeof fix->text, "%s in PYTORCH_CUDA_ALLOC_CONF", item->settings);
	else if (!*item->settings)
		snprintf(fix->text, sizeof fix->text, "PYTORCH_CUDA_ALLOC_CONF not set: PyTorch with its defaults");
	else if (item->alone)
		snprintf(fix->text, sizeof fix->text, "PYTORCH_CUDA_ALLOC_CONF=%s, and nothing else in it",
			 item->settings);
	else if (whatifs->own_set)
		snprintf(fix->text, sizeof fix->text, "%s in PYTORCH_CUDA_ALLOC_CONF, beside what is set there",
			 item->settings);
	else
		snprintf(fix->text, sizeof fix->text, "PYTORCH_CUDA_ALLOC_CONF=%s", item->settings);
}

void neap_oom_replay_fixes(struct neap_oom_card *card)
{
	const struct neap_whatifs *whatifs = &card->replays.whatifs;

	refine_limit(card);
	fix_unknown_limit(card);
	/* If the trace does not fail in the replay with its own settings, completing with others proves nothing. */
	bool own_fits = whatifs->count > 0 && whatifs->items[0].tried && whatifs->items[0].fits;
	for (size_t i = 0; i < whatifs->count && (card->source != NEAP_TRACE_RECORDING || card->other_allocator);
	     i++) {
		const struct neap_whatif *item = &whatifs->items[i];
		bool changes = item->settings || item->policy == NEAP_REPLAY_NEAP;
		if (item->own || !changes || !item->tried || !(item->active || (item->fits && !own_fits)))
			continue;
		struct neap_fix *fix = neap_fix_add(card, NEAP_FIX_SETTING, 0, 0);
		fix->replayed = true;
		fix->sufficient = item->fits && !item->active;
		fix->active_already = item->active;
		fix->setting = item->settings;
		if (card->need.known && fix->sufficient)
			neap_fix_judge_by_need(card, fix);
		report_setting(whatifs, item, fix);
		snprintf(fix->how, sizeof fix->how,
			 "replayed: with it this trace does not fail, and reserves %s of the %s",
			 NEAP_SIZE(item->reserved_peak), NEAP_SIZE(whatifs->memory_bytes));
	}
	neap_fix_sort(card);
}

const char *neap_fix_name(enum neap_fix_kind kind)
{
	static const char *const names[] = {"smaller micro-batch",
					    "memory-efficient attention",
					    "mixed precision",
					    "gradient checkpointing",
					    "higher limit",
					    "end other processes",
					    "expandable segments",
					    "mend the leak",
					    "smaller model",
					    "wait for queued work",
					    "setting of the allocator",
					    "update without temporaries",
					    "optimizer with less state",
					    "sharding or offloading",
					    "no graph in evaluation"};
	return names[kind];
}
