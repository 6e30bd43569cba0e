/* train/thresholds.c: decides whether to warn, degrade or stop. See the header. The first condition that holds
 * decides. */
#include "neap/train.h"

/* Counts how often in a row memory was low. */
static void count(uint64_t *in_a_row, bool low) { *in_a_row = low ? *in_a_row + 1 : 0; }

static enum neap_threshold_act warn(struct neap_threshold *threshold, uint64_t below_bytes, uint64_t left_bytes)
{
	if (left_bytes < below_bytes && !threshold->warned) {
		threshold->warned = true;
		return NEAP_THRESHOLD_WARN;
	}
	if (left_bytes >= below_bytes && left_bytes - below_bytes >= below_bytes / 4)
		threshold->warned = false;
	return NEAP_THRESHOLD_NOTHING;
}

uint64_t neap_threshold_warns_below(const struct neap_levels *levels, bool rung_left)
{
	bool degrades = !rung_left && levels->degrade_bytes > levels->warn_bytes;

	return degrades ? levels->degrade_bytes : levels->warn_bytes;
}

enum neap_threshold_act neap_threshold_decide(struct neap_threshold *threshold, const struct neap_levels *levels,
					      uint64_t left_bytes, bool rung_left, uint64_t step)
{
	if (left_bytes == NEAP_LEFT_UNKNOWN) {
		threshold->below_degrade = threshold->below_stop = 0;
		return NEAP_THRESHOLD_NOTHING;
	}
	bool settled = step >= threshold->settled_at;
	count(&threshold->below_degrade, settled && left_bytes < levels->degrade_bytes);
	count(&threshold->below_stop, settled && left_bytes < levels->stop_bytes);
	if (rung_left && threshold->below_degrade >= NEAP_THRESHOLD_STEPS) {
		threshold->below_degrade = threshold->below_stop = 0;
		threshold->settled_at = step + NEAP_THRESHOLD_SETTLE;
		return NEAP_THRESHOLD_DEGRADE;
	}
	bool may_degrade = rung_left && left_bytes < levels->degrade_bytes;
	if (!may_degrade && threshold->below_stop >= NEAP_THRESHOLD_STEPS)
		return NEAP_THRESHOLD_STOP;
	return warn(threshold, neap_threshold_warns_below(levels, rung_left), left_bytes);
}
