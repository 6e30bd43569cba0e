/* analyze/step_ops.c: the operations of a step at a micro-batch. */
#include "analyze/step_model.h"

#define PASSES 3

uint64_t neap_step_bytes(const struct neap_step_size *size, uint64_t micro_batch, bool as_recorded)
{
	uint64_t bytes, grown, samples = micro_batch - (as_recorded && size->smaller && micro_batch > 0);

	if (__builtin_mul_overflow(size->sample, samples, &bytes) ||
	    __builtin_add_overflow(bytes, size->fixed, &bytes))
		return UINT64_MAX;
	if (as_recorded || !size->scratch)
		return bytes;
	if (__builtin_mul_overflow(size->scratch, samples, &grown) || grown > NEAP_STEP_SCRATCH)
		grown = NEAP_STEP_SCRATCH;
	return grown > bytes ? grown : bytes;
}

void neap_step_ops(const struct neap_step_model *model, uint64_t micro_batch, bool as_recorded,
		   struct neap_rerun_op *ret_ops)
{
	for (size_t i = 0; i < model->step_count; i++) {
		ret_ops[i] = model->ops[model->base_count + i];
		if (ret_ops[i].bytes)
			ret_ops[i].bytes = neap_step_bytes(&model->sizes[i], micro_batch, as_recorded);
	}
}

struct neap_rerun neap_step_rerun(const struct neap_step_model *model, const struct neap_rerun_op *ops)
{
	bool again = model->closed && model->step_count <= NEAP_STEP_SHORT;

	return (struct neap_rerun){
		.base = model->ops,
		.base_count = model->base_count,
		.step = ops,
		.step_count = model->step_count,
		.slot_count = model->slot_count,
		.passes = again ? PASSES : 1,
	};
}
