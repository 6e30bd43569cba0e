/* estimate/convolution.c: finds the convolution with the largest workspace, by the stacks of allocations:
 *
 *   model.py:12 forward ... cudnn_convolution ... the allocator                 a workspace
 *   model.py:12 forward ... cudnn_convolution ... empty_cuda ... the allocator  the output
 *
 * The stack of a backward pass names no line of the program, so a forward pass ranks before it. */
#include "estimate/estimate.h"

#include "analyze/sites.h"
#include "base/error.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rank { NONE, OUTPUT, WORKSPACE };

static enum rank rank_of(const char *name, enum rank outer)
{
	if (outer == NONE)
		return strstr(name, "cudnn_convolution") ? WORKSPACE : NONE;
	return strstr(name, "empty") ? OUTPUT : outer;
}

static bool is_python(const struct neap_trace *trace, uint32_t frame)
{
	const char *file = neap_trace_text(trace, trace->frames[frame].file);
	size_t length = strlen(file);
	return length > 3 && !strcmp(file + length - 3, ".py");
}

/* Outer calls stand before inner ones. */
static void rank_stacks(const struct neap_trace *trace, uint8_t *ranks)
{
	for (size_t i = 1; i < trace->call_count; i++) {
		const struct neap_trace_call *call = &trace->calls[i];
		const char *name = neap_trace_text(trace, trace->frames[call->frame].name);
		ranks[i] = (uint8_t)rank_of(name, call->parent < i ? ranks[call->parent] : NONE);
	}
}

enum neap_status neap_estimate_find_convolution(struct neap_estimate_run *run, struct neap_error *err)
{
	const struct neap_trace *trace = run->trace;
	struct neap_sites sites = {0};
	struct neap_trace_event event;
	uint8_t *ranks = calloc(trace->call_count + 1, 1);
	enum rank best = NONE;
	bool has_line = false;
	uint64_t most = 0;
	enum neap_status status = ranks ? neap_sites_make(trace, &sites, err)
					: neap_fail(err, NEAP_ENOMEM, "no memory for the stacks of a trace");
	if (status)
		goto out;
	rank_stacks(trace, ranks);
	struct neap_trace_cursor cursor = neap_trace_events(trace, run->analysis.device, 0);
	while (neap_trace_next(&cursor, &event)) {
		enum rank rank = ranks[event.stack < trace->call_count ? event.stack : 0];
		uint32_t frame = sites.frames[event.stack < trace->call_count ? event.stack : 0];
		bool line = is_python(trace, frame);
		if (event.kind != NEAP_TRACE_ALLOC || !rank || rank < best || (rank == best && has_line > line) ||
		    (rank == best && has_line == line && event.size <= most))
			continue;
		best = rank;
		has_line = line;
		most = event.size;
		run->convolution.workspace_bytes = rank == WORKSPACE ? most : 0;
		neap_site_text(trace, frame, run->convolution.place, sizeof run->convolution.place);
	}
out:
	neap_sites_fini(&sites);
	free(ranks);
	return status;
}

void neap_estimate_convolution_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity)
{
	char place[320] = "";
	if (run->convolution.place[0])
		snprintf(place, sizeof place, ", the largest at %s, where %s is usual", run->convolution.place,
			 NEAP_SIZE(run->convolution.workspace_bytes));
	snprintf(ret_text, capacity,
		 "probably: no bound is known for cuDNN's workspaces of this program's convolutions%s. Bounded by: "
		 "torch.backends.cudnn.benchmark=False with channels_last; no workspace: "
		 "torch.backends.cudnn.enabled=False",
		 place);
}
