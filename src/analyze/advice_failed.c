/* analyze/advice_failed.c: advice for a program whose memory ran out before its first whole step. oom_need.c predicts
 * a step's need from how far the program came. That is a guess, so every sentence says "perhaps". */
#include "analyze/advice.h"

#include "analyze/oom_internal.h"
#include "analyze/saturate.h"

#include <stdio.h>

#define MICRO_BATCH_MAX (1ull << 32)

/* Reads the device's last failure. False: there is none, or the step's need is not known. */
static bool read_failure(const struct neap_record *record, uint16_t device, struct neap_oom_card *ret_card)
{
	size_t last = SIZE_MAX, count = 0;

	for (size_t i = 0; i < record->journal_count; i++) {
		if (record->journal[i].kind != NEAP_EVENT_OOM)
			continue;
		if (record->journal[i].device == device)
			last = count;
		count++;
	}
	return last != SIZE_MAX && !neap_oom_card(record, last, ret_card, NULL) && ret_card->need.known &&
	       ret_card->need.scaled_bytes > 0 && ret_card->model.parameter_bytes > 0;
}

/* Returns the largest micro-batch below the one in force that leaves memory for a step twice as large; 0: none. */
static uint64_t find_largest(const struct neap_oom_card *card, uint64_t micro_batch)
{
	struct neap_oom_need later = neap_oom_later(&card->need);
	uint64_t fits = 0, fails = micro_batch;

	while (fails - fits > 1) {
		uint64_t middle = fits + (fails - fits) / 2;
		bool ends = neap_oom_step_fits(&later, (double)micro_batch / (double)middle, card->room_bytes);
		*(ends ? &fits : &fails) = middle;
	}
	return fits;
}

/* Returns by how much to divide a micro-batch that is not known; 0: none of the divisors that it tries is enough. */
static unsigned find_divisor(const struct neap_oom_card *card)
{
	struct neap_oom_need later = neap_oom_later(&card->need);

	for (unsigned divisor = 2; divisor <= NEAP_OOM_DIVISOR_MAX; divisor *= 2)
		if (neap_oom_step_fits(&later, divisor, card->room_bytes))
			return divisor;
	return 0;
}

static bool has_steps(const struct neap_record *record, uint16_t device)
{
	for (size_t i = 0; i < record->journal_count; i++)
		if (record->journal[i].device == device && record->journal[i].kind == NEAP_EVENT_STEP)
			return true;
	return false;
}

bool neap_advice_of_failure(const struct neap_record *record, const struct neap_last_settings *settings,
			    struct neap_advice *advice)
{
	uint64_t micro_batch = settings->split.micro_batch;
	struct neap_oom_card card;
	unsigned divisor = 0;

	if (!settings->found || settings->batch.other_source || micro_batch > MICRO_BATCH_MAX ||
	    has_steps(record, settings->device) || !read_failure(record, settings->device, &card))
		return false;
	advice->split = settings->split;
	advice->micro_batch = micro_batch && !card.model_alone ? find_largest(&card, micro_batch) : 0;
	if (!micro_batch && !card.model_alone)
		divisor = find_divisor(&card);
	if (card.model_alone)
		snprintf(advice->why, sizeof advice->why,
			 "parameters, gradients and optimizer state take %s, more than the %s that this process can "
			 "have: no micro-batch fits",
			 NEAP_SIZE(card.need.model_bytes), NEAP_SIZE(card.room_bytes));
	else if (divisor)
		snprintf(advice->why, sizeof advice->why,
			 "memory ran out before the first whole step; a micro-batch divided by %u perhaps fits. "
			 "NEAP_MICRO_BATCH=N neap run ... names it",
			 divisor);
	else if (!advice->micro_batch)
		snprintf(advice->why, sizeof advice->why,
			 "memory ran out before the first whole step, and perhaps no micro-batch fits");
	else
		snprintf(advice->why, sizeof advice->why,
			 "how far the first step was when memory ran out, and what parameters and optimizer need");
	advice->given = advice->guessed = advice->micro_batch > 0;
	if (!advice->given)
		return true;
	struct neap_oom_need later = neap_oom_later(&card.need);
	double part = (double)micro_batch / (double)advice->micro_batch;
	uint64_t needed = neap_oom_needed(&card.need, part);
	advice->room_bytes = card.room_bytes;
	advice->fixed_bytes = card.need.fixed_bytes;
	advice->sample_bytes = card.need.scaled_bytes / micro_batch;
	advice->headroom_bytes = neap_less(card.room_bytes, needed);
	advice->uncertainty_bytes = neap_less(neap_oom_needed(&later, part), needed);
	return true;
}
