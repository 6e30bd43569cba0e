/* See the header. */
#include "analysis_test.h"

#include <string.h>

void analyze(const struct neap_trace *trace, struct neap_instant from, struct neap_instant to,
	     struct neap_analysis *analysis)
{
	struct neap_analysis_options options = {.device = SIZE_MAX, .from = from, .to = to};
	struct neap_error err;
	if (neap_analyze(trace, &options, analysis, &err) != NEAP_OK)
		fail_msg("%s", err.message);
}

uint32_t stack(struct maker *maker, const char *file, const char *name, uint32_t line)
{
	uint32_t frames[] = {frame(maker, "??", "torch::unwind::unwind()", 0),
			     frame(maker, "/venv/lib/python3.12/site-packages/torch/nn/functional.py", "linear", 9),
			     frame(maker, file, name, line), frame(maker, "/home/me/job/train.py", "<module>", 412)};
	return neap_build_stack(&maker->build, frames, 4);
}

void event(struct maker *maker, enum neap_trace_kind kind, uint64_t address, uint64_t size, uint32_t where)
{
	put_event(maker, (struct neap_trace_event){.address = address,
						   .size = size,
						   .stack = where,
						   .kind = (uint8_t)kind,
						   .time_us = 1000 + 10 * maker->events});
}

void release(struct maker *maker, uint64_t address, uint64_t size, uint32_t where)
{
	event(maker, NEAP_TRACE_FREE_REQUESTED, address, size, where);
	event(maker, NEAP_TRACE_FREE_COMPLETED, address, size, where);
}

void range(struct maker *maker, enum neap_trace_mark_kind kind, const char *name)
{
	struct neap_trace_mark mark = {.event = maker->events,
				       .kind = (uint8_t)kind,
				       .name = neap_build_text(&maker->build, name, strlen(name))};
	neap_build_mark(&maker->build, &mark);
}
