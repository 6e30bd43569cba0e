/* See the header. */
#include "analyze/advice_torch.h"

#include "replay/rerun_torch.h"
#include "trace/stacks.h"

#include <stdlib.h>
#include <string.h>

#define OPTIMIZERS "/torch/optim/" /* the folder of PyTorch's own optimizers */

static bool of_optimizer(const void *context, uint32_t tag)
{
	const struct neap_advice_torch *torch = context;
	uint32_t stack = tag - NEAP_EVENT_FIRST_STACK;

	return tag >= NEAP_EVENT_FIRST_STACK && stack < torch->stack_count && torch->of_optimizer[stack];
}

static bool passes_optimizer(const struct neap_trace *trace, uint32_t call)
{
	for (; call; call = trace->calls[call].parent)
		if (strstr(neap_trace_text(trace, trace->frames[trace->calls[call].frame].file), OPTIMIZERS))
			return true;
	return false;
}

bool neap_advice_torch_read(const char *recording, struct neap_advice_torch *ret_torch)
{
	struct neap_advice_torch *torch = ret_torch;
	struct neap_stacks stacks = {0};
	struct neap_build build;
	unsigned from, to;
	bool found = false;

	*torch = (struct neap_advice_torch){0};
	if (neap_build_init(&build, NEAP_TRACE_RECORDING, NULL) != NEAP_OK)
		return false;
	if (!neap_stacks_read(recording, &build, &stacks))
		goto out;
	torch->of_optimizer = calloc(stacks.count + 1, sizeof *torch->of_optimizer);
	found = torch->of_optimizer && !build.failed;
	for (size_t i = 0; found && i < stacks.count; i++)
		torch->of_optimizer[i] = passes_optimizer(build.trace, stacks.calls[i]);
	torch->stack_count = stacks.count;
	unsigned release = build.trace->torch_to ? build.trace->torch_to : NEAP_TORCH_NEWEST;
	neap_torch_settings_default(&torch->options.settings);
	neap_torch_settings_take(neap_trace_text(build.trace, build.trace->settings.conf), &torch->options.settings);
	torch->options.rules = neap_torch_rules(release, &from, &to);
	torch->tags = (struct neap_step_tags){of_optimizer, torch};
	torch->way = (struct neap_advice_way){&torch->tags, neap_rerun_torch, &torch->options};
	neap_stacks_fini(&stacks);
out:
	neap_build_fini(&build);
	return found;
}

void neap_advice_torch_fini(struct neap_advice_torch *torch) { free(torch->of_optimizer); }
