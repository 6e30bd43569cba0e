/* train/ladder.c: the degradation ladder. Decides what to try next when memory was not enough; a pure function.
 *
 * The order goes from the cheapest rung to the most expensive one. A split costs only launches. Efficient attention
 * computes scores again. Mixed precision changes numerics, so it needs the caller's consent. Checkpointing computes
 * every layer again, which takes a third more time. */
#include "neap/train.h"

/* Half the micro-batch, rounded up. */
static bool split_further(struct neap_split *split)
{
	uint64_t batch = neap_split_batch(split);

	if (split->micro_batch <= 1 || batch == UINT64_MAX)
		return false;
	split->batch = batch;
	split->micro_batch -= split->micro_batch / 2;
	neap_split_settle(split);
	return true;
}

enum neap_rung neap_ladder_next(const struct neap_train_settings *now, uint32_t offered,
				struct neap_train_settings *ret_next)
{
	static const enum neap_rung switched[] = {NEAP_RUNG_EFFICIENT_ATTENTION, NEAP_RUNG_MIXED_PRECISION,
						  NEAP_RUNG_CHECKPOINTING};
	struct neap_train_settings next = *now;
	enum neap_rung rung = NEAP_RUNG_STOP;

	if (offered & (1u << NEAP_RUNG_SPLIT) && split_further(&next.split))
		rung = NEAP_RUNG_SPLIT;
	for (size_t i = 0; i < sizeof switched / sizeof *switched && rung == NEAP_RUNG_STOP; i++) {
		uint32_t bit = 1u << switched[i];
		if (offered & bit && !(next.rungs & bit)) {
			next.rungs |= bit;
			rung = switched[i];
		}
	}
	*ret_next = next;
	return rung;
}

const char *neap_rung_name(enum neap_rung rung)
{
	switch (rung) {
	case NEAP_RUNG_SPLIT:
		return "smaller micro-batch";
	case NEAP_RUNG_EFFICIENT_ATTENTION:
		return "memory-efficient attention";
	case NEAP_RUNG_MIXED_PRECISION:
		return "mixed precision";
	case NEAP_RUNG_CHECKPOINTING:
		return "gradient checkpointing";
	case NEAP_RUNG_STOP:
		return "stop";
	case NEAP_RUNG_NONE:
		break;
	}
	return "";
}
