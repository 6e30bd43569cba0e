/* See the header. */
#include "run/compiled.h"

#include "analyze/analysis.h"
#include "report/analysis.h"
#include "run/folder.h"
#include "trace/build.h"
#include "trace/stacks.h"

#include <string.h>
#include <sys/stat.h>

#define LARGEST_BYTES (64 << 20) /* of a recording: larger ones take more than a second or two */

/* Decides by the stacks beside the recording alone: few programs compile. */
static bool may_compile(const char *recording)
{
	struct neap_stacks stacks = {0};
	struct neap_build build;
	bool found = false;

	if (neap_build_init(&build, NEAP_TRACE_RECORDING, NULL) != NEAP_OK)
		return false;
	if (neap_stacks_read(recording, &build, &stacks)) {
		for (size_t i = 1; !build.failed && i < build.trace->frame_count && !found; i++)
			found = strstr(neap_trace_text(build.trace, build.trace->frames[i].file), "torch/_dynamo/") !=
				NULL;
		neap_stacks_fini(&stacks);
	}
	neap_build_fini(&build);
	return found;
}

void neap_run_compiled(struct neap_buffer *out, const char *first, const char *folder)
{
	const struct neap_analysis_options options = {.device = SIZE_MAX};
	struct neap_analysis analysis = {0};
	struct neap_trace *trace = NULL;
	struct neap_run_trace recording;
	struct stat info;

	if (neap_run_folder_trace(folder, &recording, NULL) || stat(recording.path, &info) ||
	    info.st_size > LARGEST_BYTES || !may_compile(recording.path) ||
	    neap_trace_read(recording.path, &trace, NULL))
		return;
	if (!neap_analyze(trace, &options, &analysis, NULL))
		neap_report_compiled(out, first, &analysis.compiled, "");
	neap_analysis_fini(&analysis);
	neap_trace_free(trace);
}
