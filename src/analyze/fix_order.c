/* analyze/fix_order.c: which fix comes first: a leak; then those that suffice, the cheapest first; those that perhaps
 * suffice; those that do not, by saving; last, those already in force. */
#include "analyze/oom_internal.h"

#include <stdlib.h>

/* How much a fix costs its user; 0: nothing. */
static int cost(enum neap_fix_kind kind)
{
	switch (kind) {
	case NEAP_FIX_LEAK:
		return 0;
	case NEAP_FIX_RAISE_LIMIT:
		return 1;
	case NEAP_FIX_WAIT:
		return 2;
	case NEAP_FIX_EXPANDABLE_SEGMENTS:
		return 3;
	case NEAP_FIX_NO_GRAD:
		return 3;
	case NEAP_FIX_SETTING: /* settings stay in the order of the replays */
		return 3;
	case NEAP_FIX_UPDATE:
		return 3;
	case NEAP_FIX_FREE_NEIGHBOURS:
		return 4;
	case NEAP_FIX_SMALLER_MICRO_BATCH:
		return 5;
	case NEAP_FIX_EFFICIENT_ATTENTION:
		return 6;
	case NEAP_FIX_CHECKPOINTING:
		return 7;
	case NEAP_FIX_MIXED_PRECISION:
		return 8;
	case NEAP_FIX_OPTIMIZER:
		return 9;
	case NEAP_FIX_SMALLER_MODEL:
		return 10;
	case NEAP_FIX_SHARDING:
		return 11;
	}
	return 12;
}

static int group(const struct neap_fix *fix)
{
	if (fix->active_already)
		return 5;
	if (fix->kind == NEAP_FIX_LEAK)
		return 0;
	if (fix->kind == NEAP_FIX_SMALLER_MODEL && fix->amount == 0)
		return 4;
	if (fix->kind == NEAP_FIX_NO_GRAD && fix->sufficient) /* it costs nothing, even if the user has to try it */
		return 1;
	return !fix->sufficient ? 3 : fix->perhaps && fix->step == NEAP_FIX_STEP_UNKNOWN ? 2 : 1;
}

static int by_use(const void *left, const void *right)
{
	const struct neap_fix *a = left, *b = right;

	if (group(a) != group(b))
		return group(a) - group(b);
	if (group(a) == 3 && a->saving_bytes != b->saving_bytes)
		return a->saving_bytes > b->saving_bytes ? -1 : 1;
	if (cost(a->kind) != cost(b->kind))
		return cost(a->kind) - cost(b->kind);
	return a->order - b->order;
}

void neap_fix_sort(struct neap_oom_card *card) { qsort(card->fixes, card->fix_count, sizeof *card->fixes, by_use); }
