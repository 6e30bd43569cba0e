/* estimate/orders.c: how much PyTorch reserves if the driver places its segments in another order.
 *
 * Up to 2.11 PyTorch takes the lowest of equal free blocks, so the order of the segments' addresses may decide
 * which of them are split, and how many there are. The run shows one order, and a GPU's driver may have another.
 * Later releases choose by age, which does not depend on the driver.
 */
#include "estimate/estimate.h"

#include "base/units.h"

#include <stdio.h>

enum neap_status neap_estimate_find_orders(struct neap_estimate_run *run, struct neap_error *err)
{
	struct neap_replay_options options = {.policy = NEAP_REPLAY_TORCH, .device = run->analysis.device};
	struct neap_replay_result result;
	enum neap_status status = NEAP_OK;
	unsigned from, to;
	run->reserved_low = run->reserved_high = run->reserved_peak;
	if (neap_torch_version_parse(run->torch, &options.torch, NULL) ||
	    neap_torch_rules(options.torch, &from, &to).order != NEAP_TORCH_BY_ADDRESS)
		return NEAP_OK;
	run->by_address = options.torch;
	for (options.addresses = 1; !status && options.addresses < NEAP_REPLAY_ADDRESSES; options.addresses++) {
		status = neap_replay(run->trace, &options, &result, err);
		if (status)
			break;
		uint64_t peak = (uint64_t)result.usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
		run->reserved_low = peak < run->reserved_low ? peak : run->reserved_low;
		run->reserved_high = peak > run->reserved_high ? peak : run->reserved_high;
	}
	return status;
}

void neap_estimate_orders_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity)
{
	ret_text[0] = '\0';
	if (run->reserved_low < run->reserved_high)
		snprintf(ret_text, capacity,
			 "from %s on: PyTorch 2.%u takes the lowest of equal free blocks, so it depends on where the "
			 "driver puts segments",
			 NEAP_SIZE(run->reserved_low), run->by_address);
}
