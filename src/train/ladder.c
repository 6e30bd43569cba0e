/* The degradation ladder: what to try next when memory was not enough. Deciding only; a pure function. */
#include "neap/train.h"

/* The smallest divisor above 1; `number` itself when it is prime. */
static uint64_t smallest_divisor(uint64_t number)
{
	if (number % 2 == 0)
		return 2;
	for (uint64_t divisor = 3; divisor <= number / divisor; divisor += 2)
		if (number % divisor == 0)
			return divisor;
	return number;
}

enum neap_rung neap_ladder_next(const struct neap_split *split, struct neap_split *ret_split)
{
	struct neap_split next = *split;

	if (split->micro_batch <= 1) {
		*ret_split = next;
		return NEAP_RUNG_STOP;
	}
	uint64_t divisor = smallest_divisor(split->micro_batch);
	next.micro_batch /= divisor;
	if (__builtin_mul_overflow(split->accumulate, divisor, &next.accumulate)) {
		*ret_split = *split;
		return NEAP_RUNG_STOP;
	}
	*ret_split = next;
	return NEAP_RUNG_SPLIT;
}
