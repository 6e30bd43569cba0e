/* Upward advice for several devices or ranks: the tightest of them bounds the micro-batch of all. */
#include "analyze/advice.h"

#include <stdio.h>

bool neap_advice_tighter(const struct neap_advice *one, const struct neap_advice *than)
{
	if (one->unaffected || than->unaffected)
		return !one->unaffected;
	if (!one->given || !than->given)
		return than->given;
	if (one->micro_batch != than->micro_batch)
		return one->micro_batch < than->micro_batch;
	return one->headroom_bytes < than->headroom_bytes;
}

void neap_advice_place(struct neap_advice *advice, const char *place, size_t count)
{
	char before[sizeof advice->why];

	if (advice->given) {
		snprintf(before, sizeof before, "%s", advice->where);
		snprintf(advice->where, sizeof advice->where, " on %s, the tightest of %zu%s%.40s", place, count,
			 before[0] ? ", there" : "", before);
	} else {
		snprintf(before, sizeof before, "%s", advice->why);
		snprintf(advice->why, sizeof advice->why, "%s: %s", place, before);
	}
}
