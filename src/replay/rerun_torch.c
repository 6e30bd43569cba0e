/* See the header. */
#include "replay/rerun_torch.h"

#include "base/error.h"

#include <stdlib.h>

/* NEAP_EOOM: out of device memory. */
static enum neap_status play(struct neap_policy *policy, const struct neap_rerun *rerun,
			     const struct neap_rerun_op *ops, size_t count, void **blocks, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;

	for (size_t i = 0; !status && i < count; i++) {
		if (ops[i].slot >= rerun->slot_count)
			return neap_fail(err, NEAP_EINVAL, "operation %zu: slot %u of %zu", i, ops[i].slot,
					 rerun->slot_count);
		void **block = &blocks[ops[i].slot];
		if (*block)
			status = policy->free(policy, *block, err);
		*block = NULL;
		if (!status && ops[i].bytes)
			status = policy->alloc(policy, ops[i].bytes, ops[i].stream, 0, block, err);
	}
	return status;
}

enum neap_status neap_rerun_torch(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
				  struct neap_error *err)
{
	const struct neap_torch_options *torch = rerun->other_context;
	struct neap_torch_options options = {.settings = torch->settings,
					     .rules = torch->rules,
					     .device_bytes = rerun->room_bytes ? rerun->room_bytes : 1};
	void **blocks = calloc(rerun->slot_count + 1, sizeof *blocks);
	struct neap_policy *policy = NULL;
	struct neap_policy_usage usage;

	if (!blocks)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for a replay");
	enum neap_status status = neap_torch_create(&options, &policy, err);
	if (!status)
		status = play(policy, rerun, rerun->base, rerun->base_count, blocks, err);
	for (unsigned pass = 0; !status && pass < rerun->passes; pass++)
		status = play(policy, rerun, rerun->step, rerun->step_count, blocks, err);
	if (policy && (!status || status == NEAP_EOOM)) {
		policy->usage(policy, &usage);
		const struct neap_stat *reserved = &usage.stats.metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL];
		const struct neap_stat *allocated = &usage.stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL];
		*ret_result = (struct neap_rerun_result){.fits = !status,
							 .peak_reserved_bytes = (uint64_t)reserved->peak,
							 .peak_allocated_bytes = (uint64_t)allocated->peak,
							 .flushes = (uint64_t)usage.stats.num_alloc_retries};
		status = NEAP_OK;
	}
	if (policy)
		policy->destroy(policy);
	free(blocks);
	return status;
}
