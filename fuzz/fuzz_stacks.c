/* Fuzz target for the stacks beside a recording: any bytes must give stacks whose numbers are within their tables,
 * and texts without control characters, or nothing; never a fault.
 *
 * The test stacks drives the same function over changed files. */
#include "trace/stacks.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_text(const struct neap_trace *trace, uint32_t text)
{
	for (const unsigned char *c = (const unsigned char *)neap_trace_text(trace, text); *c; c++)
		check(*c >= 0x20 && *c != 0x7f);
}

static void check_stacks(const struct neap_trace *trace, const struct neap_stacks *stacks)
{
	check(stacks->count <= NEAP_STACKS_MAX && trace->torch && trace->torch_from < 1000);
	check_text(trace, trace->settings.conf);
	for (size_t i = 0; i < stacks->count; i++) {
		unsigned frames = 0;
		for (uint32_t call = stacks->calls[i]; call; call = trace->calls[call].parent, frames++) {
			check(call < trace->call_count && trace->calls[call].frame < trace->frame_count);
			check_text(trace, trace->frames[trace->calls[call].frame].file);
			check_text(trace, trace->frames[trace->calls[call].frame].name);
		}
		check(frames <= NEAP_STACKS_FRAMES);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_build build = {0};
	struct neap_stacks stacks = {0};

	if (neap_build_init(&build, NEAP_TRACE_RECORDING, NULL))
		return 0;
	if (neap_stacks_parse((const char *)data, size, &build, &stacks) && !build.failed)
		check_stacks(build.trace, &stacks);
	neap_stacks_fini(&stacks);
	neap_build_fini(&build);
	return 0;
}
