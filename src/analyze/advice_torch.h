/* analyze/advice_torch.h: advice for a program with PyTorch's own allocator: the model of that allocator repeats the
 * step, with the release and the settings in the file beside its recording (trace/stacks.h). */
#ifndef NEAP_ANALYZE_ADVICE_TORCH_H
#define NEAP_ANALYZE_ADVICE_TORCH_H

#include "analyze/advice.h"
#include "replay/torch_policy.h"

struct neap_advice_torch {
	struct neap_torch_options options;
	bool *of_optimizer; /* by the stack's number */
	size_t stack_count;
	struct neap_step_tags tags;
	struct neap_advice_way way; /* for neap_advice; borrows the rest */
};

/* False: there is no file of stacks beside the recording, so the allocator is not PyTorch's own; or host memory ran
 * out. The struct must stay where it is. Free with neap_advice_torch_fini. */
bool neap_advice_torch_read(const char *recording, struct neap_advice_torch *ret_torch);
void neap_advice_torch_fini(struct neap_advice_torch *torch);

#endif
