/* alloc/plan/period.c: finds after how many requests a program repeats itself. See plan.h. */
#include "alloc/plan/plan.h"

#include <stdlib.h>

#define SLOT_BITS 14

/* Whether the last NEAP_RUN tokens equal the tokens `length` before them. */
static bool repeats(const uint64_t *tokens, uint32_t count, uint32_t length)
{
	if (length > count - NEAP_RUN)
		return false;
	for (uint32_t i = count - NEAP_RUN; i < count; i++)
		if (tokens[i] != tokens[i - length])
			return false;
	return true;
}

bool neap_period_add(struct neap_period *period, const uint64_t *tokens, uint32_t count)
{
	if (!period->slots)
		period->slots = calloc((size_t)1 << SLOT_BITS, sizeof *period->slots);
	if (!period->slots)
		return false;
	neap_run_add(&period->run, tokens[count - 1]);
	period->matched++;
	if (period->length && tokens[count - 1 - period->length] != tokens[count - 1])
		period->length = 0;
	if (!neap_run_full(&period->run))
		return true;
	struct neap_period_slot *slot = &period->slots[period->run.hash >> (64 - SLOT_BITS)];
	uint32_t check = (uint32_t)period->run.hash;
	if (!period->length && slot->end && slot->check == check) {
		uint32_t distance = count - slot->end;
		uint32_t length = (NEAP_PERIOD_LEAST + distance - 1) / distance * distance;
		length = length > distance ? length : distance;
		if (repeats(tokens, count, length)) {
			period->length = length;
			period->matched = NEAP_RUN;
			period->due = length > NEAP_PERIOD_SURE ? length : NEAP_PERIOD_SURE;
		}
	}
	*slot = (struct neap_period_slot){check, count};
	return true;
}

uint32_t neap_period_found(struct neap_period *period)
{
	if (!period->length || period->matched < period->due)
		return 0;
	period->due = 2 * period->matched;
	return period->length;
}

void neap_period_fini(struct neap_period *period)
{
	free(period->slots);
	*period = (struct neap_period){0};
}
