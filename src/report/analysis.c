/* report/analysis.c: one screen: the kind of file, the peaks, the holders of memory at the peak, and its purpose. */
#include "report/analysis.h"

#include "analyze/run.h"
#include "base/printable.h"
#include "base/units.h"
#include "report/cells.h"
#include "report/report.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define TIME(us)    neap_duration_format((us)*1000, (char[NEAP_UNITS_CAPACITY]){0})

const char *neap_report_source_name(enum neap_trace_source source)
{
	return source == NEAP_TRACE_TEXT       ? "text trace"
	       : source == NEAP_TRACE_SNAPSHOT ? "PyTorch snapshot"
					       : "recording";
}

const char *neap_report_origin(const struct neap_trace *trace, char text[NEAP_REPORT_ORIGIN])
{
	const struct neap_trace_origin *origin = &trace->origin;

	if (origin->gpu[0])
		snprintf(text, NEAP_REPORT_ORIGIN, "%s%s", origin->gpu,
			 origin->simulated && strncmp(origin->gpu, "Simulated", 9) != 0 ? " (simulated)" : "");
	else
		snprintf(text, NEAP_REPORT_ORIGIN, "%s", origin->simulated ? "a simulated GPU" : "");
	return text;
}

static const char *plural(uint64_t count) { return count == 1 ? "" : "s"; }

static double percent(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* Points to failures on other devices: an analysis shows one device. */
static void put_other_failures(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	for (size_t i = 0; i < analysis->trace->device_count; i++) {
		uint64_t count = i == analysis->device ? 0 : neap_analysis_failures(analysis->trace, i);
		if (count > 0)
			neap_buffer_format(out, "  device %zu ran out of memory: --device %zu\n", i, i);
	}
}

/* Writes which PyTorch wrote the trace, and which data it has beside the device's events. */
static void put_beside(struct neap_buffer *out, const struct neap_trace *trace)
{
	const struct neap_trace_host *host = &trace->host;
	uint64_t bytes = 0, allocated = 0;

	if (trace->torch_from && trace->torch_from == trace->torch_to)
		neap_buffer_format(out, "  written by PyTorch 2.%u\n", trace->torch_from);
	else if (trace->torch_from && trace->torch_to)
		neap_buffer_format(out, "  written by PyTorch 2.%u to 2.%u\n", trace->torch_from, trace->torch_to);
	else if (trace->torch_from)
		neap_buffer_format(out, "  written by PyTorch 2.%u or newer\n", trace->torch_from);
	if (trace->note_count || trace->annotation_count)
		neap_buffer_format(out, "  metadata beside events changes %zu time%s; %zu block%s annotated\n",
				   trace->note_count, plural(trace->note_count), trace->annotation_count,
				   trace->annotation_count == 1 ? " is" : "s are");
	for (size_t i = 0; i < host->segment_count; i++) {
		bytes += host->segments[i].size;
		allocated += host->segments[i].allocated;
	}
	if (host->segment_count || host->event_count)
		neap_buffer_format(
			out, "  pinned host memory: %s in %zu segment%s, %s of it allocated; %" PRIu64 " events\n",
			SIZE(bytes), host->segment_count, plural(host->segment_count), SIZE(allocated),
			host->event_count);
}

static void put_file(struct neap_buffer *out, const struct neap_analysis *analysis, const char *path)
{
	const struct neap_trace *trace = analysis->trace;
	const struct neap_profile *profile = &analysis->profile;
	uint64_t allocs = profile->kinds[NEAP_TRACE_ALLOC], frees = profile->kinds[NEAP_TRACE_FREE_REQUESTED];
	char text[512], name[512], gpu[NEAP_REPORT_ORIGIN];

	if (!frees) /* older layouts have none */
		frees = profile->kinds[NEAP_TRACE_FREE_COMPLETED];
	neap_printable(name, sizeof name, path);
	snprintf(text, sizeof text, "%s, device %zu of %zu, %u stream%s", neap_report_source_name(trace->source),
		 analysis->device, trace->device_count, analysis->streams, plural(analysis->streams));
	neap_buffer_format(out, "%s: %s\n", name, text);
	neap_buffer_format(out, "  %" PRIu64 " event%s", profile->to - profile->from,
			   plural(profile->to - profile->from));
	if (profile->from > 0 || profile->to < analysis->timeline.count)
		neap_buffer_format(out, " (from %" PRIu64 " to %" PRIu64 " of %" PRIu64 ")", profile->from,
				   profile->to, analysis->timeline.count);
	if (profile->last_time_us > profile->first_time_us)
		neap_buffer_format(out, " in %s", TIME(profile->last_time_us - profile->first_time_us));
	neap_buffer_format(out, ": %" PRIu64 " allocation%s, %" PRIu64 " free%s", allocs, plural(allocs), frees,
			   plural(frees));
	if (profile->kinds[NEAP_TRACE_OOM])
		neap_buffer_format(out, ", %" PRIu64 " out of memory", profile->kinds[NEAP_TRACE_OOM]);
	neap_buffer_text(out, "\n");
	neap_printable(text, sizeof text, neap_report_origin(trace, gpu));
	if (text[0])
		neap_buffer_format(out, "  on %s%s\n", text,
				   trace->origin.simulated ? ": times are the simulator's, not a GPU's" : "");
	put_other_failures(out, analysis);
	if (analysis->lives.before > 0)
		neap_buffer_format(out, "  %zu blocks (%s) were there before the first event\n",
				   analysis->lives.before, SIZE(analysis->timeline.start.requested));
	if (analysis->steps.count > 0)
		neap_buffer_format(out, "  ends of steps: %zu, from %s\n", analysis->steps.count,
				   analysis->steps.how);
	else if (!neap_analysis_empty(analysis))
		neap_buffer_text(out, "  steps are not marked in it: no figures per step\n");
	if (trace->settings.known)
		neap_buffer_format(out, "  settings: %s\n",
				   trace->settings.conf ? neap_trace_text(trace, trace->settings.conf)
							: "PyTorch's defaults");
	put_beside(out, trace);
}

static void put_level(struct neap_buffer *out, const struct neap_analysis *analysis, const char *name, uint64_t bytes,
		      const struct neap_trace_levels *at)
{
	char nth[NEAP_UNITS_CAPACITY];

	neap_buffer_format(out, "  %-12s %10s", name, SIZE(bytes));
	if (at->event == NEAP_LIFE_BEFORE) {
		neap_buffer_text(out, "  before the first event\n");
		return;
	}
	neap_buffer_format(out, "  at event %" PRIu64, at->event);
	if (at->time_us && at->time_us >= analysis->profile.first_time_us)
		neap_buffer_format(out, ", after %s", TIME(at->time_us - analysis->profile.first_time_us));
	if (analysis->steps.count > 0)
		neap_buffer_format(out, ", in the %s step",
				   neap_nth(neap_steps_before(&analysis->steps, at->event) + 1, nth));
	neap_buffer_text(out, "\n");
}

static uint64_t replayed(const struct neap_analysis *analysis, enum neap_metric metric)
{
	return (uint64_t)analysis->replay.usage.stats.metric[metric][NEAP_CLASS_ALL].peak;
}

/* For a recording without allocations: writes the journal's figures of steps and failures. */
static void put_counted(struct neap_buffer *out, const struct neap_trace *trace)
{
	struct neap_run_facts facts = {0};

	if (trace->record)
		neap_run_facts(trace->record, 0, &facts);
	if (!facts.peak_allocated_bytes && !facts.peak_reserved_bytes) {
		neap_buffer_text(out, "\nPeaks: none, no allocation is in it\n");
		return;
	}
	neap_buffer_text(out, "\nPeaks, as the process counted them: no allocation is in it\n");
	if (facts.peak_allocated_bytes)
		neap_buffer_format(out, "  %-12s %10s\n", "allocated", SIZE(facts.peak_allocated_bytes));
	if (facts.peak_reserved_bytes)
		neap_buffer_format(out, "  %-12s %10s\n", "reserved", SIZE(facts.peak_reserved_bytes));
	if (facts.steps)
		neap_buffer_format(out, "  %-12s %10" PRIu64 "\n", "steps", facts.steps);
}

void neap_report_compiled(struct neap_buffer *out, const char *first, const struct neap_compiled *compiled,
			  const char *when)
{
	char text[400];
	if (!compiled->known)
		return;
	snprintf(text, sizeof text,
		 "without what torch.compile took to compile and to choose kernels%s%s: %s requested, %s allocated, "
		 "%s reserved",
		 *when ? ", in " : "", when, SIZE(compiled->requested_peak), SIZE(compiled->allocated_peak),
		 SIZE(compiled->reserved_peak));
	neap_report_wrap(out, first, text);
}

static void put_peaks(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_profile *profile = &analysis->profile;
	const struct neap_trace_levels *peak = &profile->reserved_peak;
	bool whole = profile->from == 0 && profile->to == analysis->timeline.count;

	if (neap_analysis_empty(analysis)) {
		put_counted(out, analysis->trace);
		return;
	}
	neap_buffer_text(out, "\nPeaks\n");
	put_level(out, analysis, "requested", profile->requested_peak.requested, &profile->requested_peak);
	if (whole && neap_analysis_exact(analysis))
		neap_buffer_format(out, "  %-12s %10s  by replay, which chose every recorded block and segment\n",
				   "allocated", SIZE(replayed(analysis, NEAP_METRIC_ALLOCATED_BYTES)));
	else
		put_level(out, analysis, "rounded", profile->rounded_peak.rounded, &profile->rounded_peak);
	if (analysis->timeline.reserved_known) {
		put_level(out, analysis, "reserved", peak->reserved, peak);
		neap_buffer_format(out,
				   "  utilization: %.1f %% of reserved was requested at the peak of reserved, %.1f "
				   "%% on average\n",
				   percent(peak->requested, peak->reserved), 100 * profile->utilization);
	} else if (whole) {
		neap_buffer_format(out,
				   "  %-12s %10s  predicted: by replay under PyTorch's policy with its defaults\n",
				   "reserved", SIZE(replayed(analysis, NEAP_METRIC_RESERVED_BYTES)));
	}
	neap_report_compiled(out, "  ", &analysis->compiled, "");
}

static const char *holders_by(const struct neap_analysis *analysis)
{
	size_t sizes = 0;

	for (size_t i = 0; i < analysis->holder_count; i++)
		sizes += analysis->holders[i].kind == NEAP_HOLDER_SIZE;
	if (neap_trace_of_neap(analysis->trace))
		return "tag";
	if (sizes == 0)
		return "line";
	return sizes < analysis->holder_count ? "line, and by size where the file does not say where"
					      : "size (the file does not say where)";
}

static void put_holders(struct neap_buffer *out, const struct neap_analysis *analysis, size_t top)
{
	uint64_t total = analysis->profile.requested_peak.requested, rest = 0, rest_blocks = 0;
	char text[320], clean[320], first[64];

	if (analysis->holder_count == 0)
		return;
	neap_buffer_format(out, "\nHeld at the peak of requested memory, by %s\n", holders_by(analysis));
	for (size_t i = 0; i < analysis->holder_count; i++) {
		const struct neap_holder *holder = &analysis->holders[i];
		if (i >= top) {
			rest += holder->bytes;
			rest_blocks += holder->blocks;
			continue;
		}
		neap_holder_text(analysis->trace, holder, text, sizeof text);
		neap_printable(clean, sizeof clean, text);
		snprintf(first, sizeof first, "  %10s %5.1f %% %6" PRIu64 " block%-2s ", SIZE(holder->bytes),
			 percent(holder->bytes, total), holder->blocks, plural(holder->blocks));
		neap_report_wrap(out, first, clean);
	}
	if (rest_blocks > 0)
		neap_buffer_format(out, "  %10s %5.1f %% %6" PRIu64 " block%-2s %zu more\n", SIZE(rest),
				   percent(rest, total), rest_blocks, plural(rest_blocks),
				   analysis->holder_count - top);
}

static void put_categories(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	uint64_t total = analysis->profile.requested_peak.requested;
	if (!total)
		return;
	neap_buffer_text(out, "\nWhat it was for, and how neap knows\n");
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++) {
			uint64_t bytes = analysis->categories.bytes[category][how];
			if (bytes > 0)
				neap_buffer_format(out, "  %10s %5.1f %%  %-16s %s\n", SIZE(bytes),
						   percent(bytes, total),
						   neap_category_name((enum neap_category)category),
						   neap_category_how_name((enum neap_category_how)how));
		}
}

static void put_warnings(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	const struct neap_trace *trace = analysis->trace;
	const struct neap_replay_match *match = &analysis->replay.match;
	char text[400];

	if (trace->warning_count == 0 && analysis->lives.odd == 0 && analysis->replay.ignored == 0 &&
	    (!match->compared || match->first_difference == UINT64_MAX))
		return;
	neap_buffer_text(out, "\nTo be known of this file\n");
	for (size_t i = 0; i < trace->warning_count; i++) {
		const struct neap_trace_warning *warning = &trace->warnings[i];
		snprintf(text, sizeof text, "%s (%" PRIu64 " time%s, first at %s %" PRIu64 ")", warning->text,
			 warning->count, plural(warning->count), trace->source == NEAP_TRACE_TEXT ? "line" : "byte",
			 warning->position);
		neap_report_wrap(out, "  ", text);
	}
	if (analysis->lives.odd > 0)
		neap_buffer_format(out, "  %" PRIu64 " events do not fit the others: freed twice, or never\n",
				   analysis->lives.odd);
	if (match->compared && match->first_difference != UINT64_MAX) {
		snprintf(text, sizeof text,
			 "PyTorch's policy as replayed parts from the recording at event %" PRIu64 ": %" PRIu64
			 " of %" PRIu64 " blocks and %" PRIu64 " of %" PRIu64
			 " segment events are the recorded ones; what is predicted "
			 "from replays is approximate",
			 match->first_difference, match->same_allocs, match->allocs, match->same_segments,
			 match->segments);
		neap_report_wrap(out, "  ", text);
	}
}

/* Writes what an analysis would need, and how to record it. */
static void put_unrecorded(struct neap_buffer *out, const struct neap_trace *trace)
{
	static const char *const ways[] = {
		"neap run --allocator neap -- COMMAND: neap's allocator records each of its allocations; then neap "
		"analyze RUNFOLDER.",
		"A snapshot of PyTorch's own: torch.cuda.memory._record_memory_history() before the model is made, "
		"torch.cuda.memory._dump_snapshot(\"FILE\") at the end or after an error; then neap analyze FILE.",
		"Without a GPU: neap estimate --gpu GPU --folder DIR -- COMMAND runs a few steps on a simulated one, "
		"and names the snapshot that it leaves in DIR.",
	};
	char first[16];

	if (trace->source != NEAP_TRACE_RECORDING) {
		neap_buffer_text(out, "\nOther settings: nothing to replay\n");
		return;
	}
	neap_buffer_text(out, "\n");
	neap_report_wrap(out, "Not recorded: ",
			 "a recording of neap's has the allocations of neap's allocator. Of PyTorch's own it has "
			 "steps, peaks and failures alone: who holds the memory, and what other settings would "
			 "change, is not in it. To record each allocation:");
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		snprintf(first, sizeof first, "  %zu. ", i + 1);
		neap_report_wrap(out, first, ways[i]);
	}
}

void neap_report_analysis_first(struct neap_buffer *out, const struct neap_analysis *analysis, const char *path,
				size_t top)
{
	put_file(out, analysis, path);
	put_peaks(out, analysis);
	put_holders(out, analysis, top);
	put_categories(out, analysis);
	neap_report_trends(out, analysis);
	neap_report_fragments(out, analysis, top);
}

static void put_fit(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	struct neap_buffer leak = {0};

	if (!analysis->fit.memory_bytes)
		return;
	neap_buffer_text(out, "\n");
	neap_report_fit(out, analysis);
	neap_buffer_text(out, "\n");
	neap_report_fit_leak(&leak, analysis);
	if (leak.length)
		neap_report_wrap(out, "  ", neap_buffer_string(&leak));
	out->failed |= leak.failed;
	neap_buffer_fini(&leak);
}

void neap_report_analysis_rest(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	if (analysis->has_oom) {
		neap_buffer_text(out, "\n");
		neap_report_oom_card(out, &analysis->oom);
	} else if (neap_analysis_empty(analysis)) {
		put_unrecorded(out, analysis->trace);
	} else {
		put_fit(out, analysis);
		neap_report_whatifs(out, analysis);
	}
	put_warnings(out, analysis);
}

void neap_report_analysis(struct neap_buffer *out, const struct neap_analysis *analysis, const char *path, size_t top)
{
	neap_report_analysis_first(out, analysis, path, top);
	neap_report_analysis_rest(out, analysis);
}
