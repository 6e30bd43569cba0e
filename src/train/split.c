/* train/split.c: splits a batch into micro-batches of nearly equal size. Pure functions.
 *
 *   batch 514, micro-batch 129:   | 129 | 129 | 128 | 128 |
 *
 * Invariant: with n = ceil(batch / micro_batch) parts the largest has ceil(batch / n) samples, which is at most
 * micro_batch. ceil(batch / that) is n again, so splitting again changes nothing. */
#include "neap/train.h"

#include <stdio.h>

static uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

uint64_t neap_split_batch(const struct neap_split *split)
{
	uint64_t batch;

	if (split->batch)
		return split->batch;
	return __builtin_mul_overflow(split->micro_batch, split->accumulate, &batch) ? UINT64_MAX : batch;
}

void neap_split_settle(struct neap_split *split)
{
	split->ranks = split->ranks ? split->ranks : 1;
	split->accumulate = split->accumulate ? split->accumulate : 1;
	if (!split->micro_batch || neap_split_batch(split) == UINT64_MAX)
		return;
	split->batch = neap_split_batch(split);
	split->accumulate = divide_up(split->batch, split->micro_batch);
	split->micro_batch = divide_up(split->batch, split->accumulate);
}

uint64_t neap_split_parts(const struct neap_split *split, uint64_t samples)
{
	return split->micro_batch ? divide_up(samples, split->micro_batch) : 0;
}

struct neap_part neap_split_part(const struct neap_split *split, uint64_t samples, uint64_t index)
{
	uint64_t parts = neap_split_parts(split, samples);

	if (index >= parts)
		return (struct neap_part){.first = samples};
	uint64_t size = samples / parts, larger = samples % parts;
	struct neap_part part = {.first = index * size + (index < larger ? index : larger),
				 .samples = size + (index < larger)};
	part.weight = (double)part.samples / (double)samples;
	return part;
}

const char *neap_split_unequal(const struct neap_split *split, const char *before, const char *after,
			       char ret_text[NEAP_SPLIT_ROOM])
{
	uint64_t batch = neap_split_batch(split), parts = neap_split_parts(split, batch);
	uint64_t larger = parts ? batch % parts : 0;

	ret_text[0] = '\0';
	if (larger && batch != UINT64_MAX)
		snprintf(ret_text, NEAP_SPLIT_ROOM, "%s%llu x %llu + %llu x %llu%s%s", before,
			 (unsigned long long)larger, (unsigned long long)(batch / parts + 1),
			 (unsigned long long)(parts - larger), (unsigned long long)(batch / parts),
			 split->ranks > 1 ? " on each rank" : "", after);
	return ret_text;
}
