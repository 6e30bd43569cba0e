/* estimate/text.c: see text.h. The peaks and their uses come from the first GPU's run; the table has a row for each
 * GPU with the figures of its own run. */
#include "estimate/text.h"

#include "base/printable.h"
#include "base/units.h"
#include "report/analysis.h"
#include "report/cells.h"
#include "report/wrap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIZE(bytes) neap_size_format((bytes), (char[NEAP_UNITS_CAPACITY]){0})
#define SHOWN       4 /* of a list of notes */

static const char *plural(uint64_t count) { return count == 1 ? "" : "s"; }

static double percent(uint64_t part, uint64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* "2 optimizer updates", "1 forward pass". */
static void format_done(const struct neap_estimate_process *process, char text[64])
{
	if (process->forwards)
		snprintf(text, 64, "%" PRIu64 " forward pass%s", process->forwards,
			 process->forwards == 1 ? "" : "es");
	else
		snprintf(text, 64, "%" PRIu64 " optimizer update%s", process->steps, plural(process->steps));
}

void neap_estimate_end_text(const struct neap_estimate_run *run, char *ret_text, size_t capacity)
{
	const struct neap_estimate_process *process = &run->processes[run->worst];
	enum neap_outcome outcome = run->result.outcome;
	char done[64];
	format_done(process, done);
	if (outcome == NEAP_OUTCOME_TIMEOUT)
		snprintf(ret_text, capacity, "ended by the time limit after %s", done);
	else if (process->forwards)
		snprintf(ret_text, capacity, "%s, no optimizer", done);
	else if (outcome == NEAP_OUTCOME_STOPPED && process->grew_at &&
		 process->steps >= process->grew_at + NEAP_ESTIMATE_STEADY && !neap_estimate_growing(run))
		snprintf(ret_text, capacity, "%s, the last %" PRIu64 " without a new peak", done,
			 process->steps - process->grew_at);
	else if (outcome == NEAP_OUTCOME_STOPPED)
		snprintf(ret_text, capacity, "%s", done);
	else if (outcome == NEAP_OUTCOME_OK && (process->steps || process->optimizer))
		snprintf(ret_text, capacity, "the whole program, %s", done);
	else if (outcome == NEAP_OUTCOME_OK)
		snprintf(ret_text, capacity, "the whole program, no optimizer");
	else
		snprintf(ret_text, capacity, "%s after %s", neap_outcome_name(outcome), done);
}

static void put_head(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	char end[128], text[1024], command[600], files[1024];
	neap_printable(command, sizeof command, report->command);
	neap_estimate_end_text(run, end, sizeof end);
	snprintf(text, sizeof text,
		 "%s, with PyTorch %s on neap's simulator: every allocation is PyTorch's own, no kernel ran", end,
		 run->torch);
	neap_report_wrap(out, "", command);
	neap_report_wrap(out, "  ", text);
	neap_view_facts_text(&run->view, text, sizeof text);
	neap_printable(files, sizeof files, text);
	neap_report_wrap(out, "  ", files);
}

/* "520 MiB" or "520 MiB to 1.02 GiB". */
static const char *interval(uint64_t low, uint64_t high, char text[80])
{
	snprintf(text, 80, low == high ? "%s" : "%s to %s", SIZE(low), SIZE(high));
	return text;
}

static const char *process_interval(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
				    char text[80])
{
	uint64_t low, high;
	neap_estimate_process_bytes(run, context, &low, &high);
	return interval(low, high, text);
}

/* Writes "update 1" or "updates 1, 3 and 4"; "" for none. */
static void format_compiled(const struct neap_estimate_process *process, char text[200])
{
	size_t count = 0, used = 0;
	while (count < NEAP_ESTIMATE_COMPILED && process->compiled[count])
		count++;
	text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, 200 - used, "%s%" PRIu64,
					 i == 0 ? count > 1 ? "updates " : "update "
					 : i + 1 < count || process->compiled_more ? ", "
										   : " and ",
					 process->compiled[i]);
	if (process->compiled_more)
		snprintf(text + used, 200 - used, " and %" PRIu64 " later ones", process->compiled_more);
}

static void put_peaks(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	size_t gpu = report->plan->run_gpus[0];
	const struct neap_estimate_context *context = &report->verdicts[gpu].context;
	uint64_t workspace = neap_estimate_workspace(run);
	char architecture[16], text[400], clean[400], range[80];
	neap_estimate_architecture(report->plan->gpus[gpu].profile, architecture);
	neap_buffer_format(out, "\nPeak on %s (%s)", report->plan->gpus[gpu].profile->gpu_name, architecture);
	if (run->process_count > 1)
		neap_buffer_format(out, ", of the process that reserved most (%zu use the GPU%s)", run->process_count,
				   plural(report->plan->devices));
	neap_buffer_format(out, "\n  requested   %10s  what the program asked for\n", SIZE(run->requested_peak));
	neap_buffer_format(out, "  allocated   %10s  as PyTorch's blocks\n", SIZE(run->allocated_peak));
	neap_buffer_format(out, "  reserved    %10s  what PyTorch takes from the driver\n", SIZE(run->reserved_high));
	neap_estimate_orders_text(run, text, sizeof text);
	if (text[0])
		neap_report_wrap(out, "                          ", text);
	format_compiled(&run->processes[run->worst], text);
	neap_report_compiled(out, "                          ", &run->analysis.compiled, text);
	if (workspace) {
		snprintf(text, sizeof text,
			 "up to %s more, for workspaces whose size only NVIDIA's library knows (0 B here)",
			 SIZE(workspace));
		neap_report_wrap(out, "                          ", text);
	}
	if (neap_estimate_is_unbounded(run))
		neap_report_wrap(out, "                          ",
				 "with the workspaces that cuDNN usually takes for convolutions; no bound is known");
	neap_buffer_format(out, "  context     %s beside PyTorch's allocator:\n",
			   interval(context->low_bytes, context->high_bytes, range));
	for (size_t i = 0; i < context->part_count; i++) {
		const struct neap_estimate_part *part = &context->parts[i];
		char first[120];
		snprintf(first, sizeof first, "    %-24s  ", interval(part->low_bytes, part->high_bytes, range));
		neap_estimate_part_text(report->plan, gpu, run, part, text, sizeof text);
		neap_printable(clean, sizeof clean, text);
		neap_report_wrap(out, first, clean);
	}
	neap_buffer_format(out, "  nvidia-smi  %s: what it shows for the process\n",
			   process_interval(run, context, range));
}

static void put_categories(struct neap_buffer *out, const struct neap_analysis *analysis)
{
	uint64_t total = analysis->profile.requested_peak.requested;
	neap_buffer_text(out, "\nWhat it was for, at the peak of requested memory\n");
	for (int category = 0; category < NEAP_CATEGORIES; category++) {
		uint64_t bytes = neap_estimate_category_bytes(&analysis->categories, category);
		if (bytes)
			neap_buffer_format(out, "  %10s %5.1f %%  %s\n", SIZE(bytes), percent(bytes, total),
					   neap_category_name((enum neap_category)category));
	}
}

static void put_holders(struct neap_buffer *out, const struct neap_analysis *analysis, size_t top)
{
	uint64_t total = analysis->profile.requested_peak.requested;
	neap_buffer_text(out, "\nBy line of the program\n");
	for (size_t i = 0; i < analysis->holder_count && i < top; i++) {
		const struct neap_holder *holder = &analysis->holders[i];
		char text[320], clean[320], first[64];
		neap_holder_text(analysis->trace, holder, text, sizeof text);
		neap_printable(clean, sizeof clean, text);
		snprintf(first, sizeof first, "  %10s %5.1f %%  ", SIZE(holder->bytes),
			 percent(holder->bytes, total));
		neap_report_wrap(out, first, clean);
	}
}

static const char *fits_text(const struct neap_estimate_verdict *verdict)
{
	if (verdict->unsupported)
		return "no";
	return verdict->fits == NEAP_ESTIMATE_YES ? "yes" : verdict->fits == NEAP_ESTIMATE_NO ? "no" : "probably";
}

/* Returns the first setting of PyTorch's own allocator with which the program fits. NULL: none. */
static const struct neap_whatif *helpful(const struct neap_estimate_verdict *verdict)
{
	for (size_t i = 0; i < verdict->settings.count; i++) {
		const struct neap_whatif *item = &verdict->settings.items[i];
		if (item->tried && item->fits && !item->own && item->policy != NEAP_REPLAY_NEAP)
			return item;
	}
	return NULL;
}

/* Writes how much each change of the training would save, and whether the program would then fit. */
static void put_predictions(struct neap_buffer *out, const struct neap_estimate_plan *plan,
			    const struct neap_estimate_verdict *verdict)
{
	static const char *const names[] = {[NEAP_RUNG_EFFICIENT_ATTENTION] = "memory-efficient attention",
					    [NEAP_RUNG_MIXED_PRECISION] = "mixed precision",
					    [NEAP_RUNG_CHECKPOINTING] = "gradient checkpointing"};
	char text[400];
	for (size_t i = 0; i < verdict->saving_count; i++) {
		const struct neap_saving *saving = &verdict->savings[i];
		int64_t least = (int64_t)saving->bytes - (int64_t)saving->uncertainty_bytes;
		int64_t most = (int64_t)saving->bytes + (int64_t)saving->uncertainty_bytes;
		const char *verb = least + verdict->headroom_bytes >= 0  ? "lets it fit"
				   : most + verdict->headroom_bytes >= 0 ? "may let it fit"
									 : "is not enough alone";
		snprintf(text, sizeof text, "predicted: %s %s (saves %s to %s)%s", names[saving->rung], verb,
			 SIZE(least > 0 ? (uint64_t)least : 0), SIZE(most > 0 ? (uint64_t)most : 0),
			 plan->rungs_known ? "" : ", unless the program has it already");
		neap_report_wrap(out, "      ", text);
	}
	if (verdict->samples_share > 0 && verdict->samples_share < 1) {
		snprintf(text, sizeof text,
			 "predicted: %.0f %% of the samples at once fit, if activations and temporaries follow them "
			 "(--fit runs it)",
			 100 * verdict->samples_share);
		neap_report_wrap(out, "      ", text);
	}
}

/* Writes the changes that were run. */
static void put_tries(struct neap_buffer *out, const struct neap_estimate_report *report, size_t gpu)
{
	static const char *const verdicts[] = {[NEAP_ESTIMATE_NO] = "does not fit", [NEAP_ESTIMATE_YES] = "fits"};
	static const char *const doubts[NEAP_ESTIMATE_DOUBTS] = {
		[NEAP_ESTIMATE_CONTEXT] = "fits beside the smallest context alone",
		[NEAP_ESTIMATE_WORKSPACE] = "fits without a library's workspace alone",
		[NEAP_ESTIMATE_ADDRESSES] = "fits in some orders of addresses",
		[NEAP_ESTIMATE_CUT_SHORT] = "fits as far as the time limit let it run",
		[NEAP_ESTIMATE_GROWING] = "fits so far; its memory still grows",
		[NEAP_ESTIMATE_UNBOUNDED] = "probably fits"};
	for (size_t i = 0; i < report->tries->count; i++) {
		const struct neap_estimate_try *item = &report->tries->items[i];
		const struct neap_estimate_point *point = &item->points[report->plan->gpus[gpu].run];
		enum neap_estimate_doubt doubt = point->doubt[gpu];
		int64_t headroom = point->headroom[gpu];
		uint64_t given = report->runs[report->plan->gpus[gpu].run].reserved_high, now = point->reserved_peak;
		char text[400], clean[400];
		if (point->failed)
			snprintf(text, sizeof text, "measured: with %.160s the program fails", item->change);
		else
			snprintf(text, sizeof text, "measured: with %.160s it %s: %s reserved (%s %s), %s %s",
				 item->change, doubt ? doubts[doubt] : verdicts[point->fits[gpu]], SIZE(now),
				 SIZE(now > given ? now - given : given - now), now > given ? "more" : "less",
				 SIZE((uint64_t)(headroom < 0 ? -headroom : headroom)),
				 headroom < 0 ? "missing" : "left");
		neap_printable(clean, sizeof clean, text);
		neap_report_wrap(out, "      ", clean);
	}
}

/* Returns the last two names in a path. */
static const char *tail(const char *path)
{
	const char *at = path + strlen(path);
	for (int slashes = 0; at > path && (at[-1] != '/' || ++slashes < 2); at--)
		;
	return at;
}

/* Writes why the program may need more than this run shows. */
static void put_cut_short(struct neap_buffer *out, const struct neap_estimate_run *run, enum neap_estimate_fits fits)
{
	const struct neap_estimate_process *process = &run->processes[run->worst];
	const struct neap_estimate_read *waited = &process->waited;
	bool counted = process->optimizer || process->steps || process->forwards;
	char text[700], clean[700], done[64], place[400] = "";
	if (!neap_estimate_is_cut_short(run))
		return;
	format_done(process, done);
	if (waited->line)
		snprintf(place, sizeof place, ", at %s:%" PRIu64 " %s", tail(waited->file), waited->line,
			 waited->function);
	snprintf(text, sizeof text,
		 "%sthe time limit ended the program after %s%s; what it takes later is not in these figures. "
		 "--time-limit gives it longer%s",
		 fits == NEAP_ESTIMATE_UNSURE ? "probably at most: " : "", done, place,
		 counted ? "" : ", --forwards N ends one without an optimizer");
	neap_printable(clean, sizeof clean, text);
	neap_report_wrap(out, "      ", clean);
}

static void put_growing(struct neap_buffer *out, const struct neap_estimate_run *run)
{
	const struct neap_estimate_process *process = neap_estimate_growing(run);
	char text[300], rank[40] = "";
	if (!process)
		return;
	if (run->process_count > 1 && process->rank != UINT64_MAX)
		snprintf(rank, sizeof rank, " of rank %" PRIu64, process->rank);
	snprintf(text, sizeof text,
		 "still growing: update %" PRIu64
		 "%s requested %s and reserved %s more than any before; --steps takes more",
		 process->grew_at, rank, SIZE(process->grew_requested), SIZE(process->grew_reserved));
	neap_report_wrap(out, "      ", text);
}

static void put_doubt(struct neap_buffer *out, const struct neap_estimate_run *run, enum neap_estimate_doubt doubt)
{
	char text[160];
	const char *const texts[NEAP_ESTIMATE_DOUBTS] = {
		[NEAP_ESTIMATE_CONTEXT] = "fits beside the smallest context, not beside the largest",
		[NEAP_ESTIMATE_WORKSPACE] = text,
		[NEAP_ESTIMATE_ADDRESSES] = "fits in some orders of the segments' addresses, not in others"};
	snprintf(text, sizeof text,
		 "fits beside the largest context; what may be missing is a workspace whose size only NVIDIA's "
		 "library knows: up to %s",
		 SIZE(neap_estimate_workspace(run)));
	if (texts[doubt])
		neap_report_wrap(out, "      ", texts[doubt]);
}

static void put_why(struct neap_buffer *out, const struct neap_estimate_report *report, size_t index)
{
	const struct neap_estimate_run *run = &report->runs[report->plan->gpus[index].run];
	const struct neap_estimate_verdict *verdict = &report->verdicts[index];
	const struct neap_whatif *setting = helpful(verdict);
	char text[300], architecture[16];
	if (verdict->unsupported) {
		neap_estimate_architecture(report->plan->gpus[index].profile, architecture);
		snprintf(text, sizeof text, "this PyTorch has no kernels for %s (it has: %s)", architecture,
			 run->architectures);
		neap_report_wrap(out, "      ", text);
	} else if (verdict->fits == NEAP_ESTIMATE_YES && verdict->retries) {
		snprintf(text, sizeof text, "PyTorch empties its cache %" PRIu64 " time%s to continue, which is slow",
			 verdict->retries, plural(verdict->retries));
		neap_report_wrap(out, "      ", text);
	} else {
		put_doubt(out, run, verdict->doubt);
		put_cut_short(out, run, verdict->fits);
		put_growing(out, run);
	}
	if (setting && !verdict->unsupported) {
		snprintf(text, sizeof text, "fits with PYTORCH_CUDA_ALLOC_CONF=%s (by exact replay)",
			 setting->settings);
		neap_report_wrap(out, "      ", text);
	} else if (verdict->fits == NEAP_ESTIMATE_NO && !verdict->unsupported && !neap_estimate_is_cut_short(run)) {
		neap_report_wrap(out, "      ", "no setting of PyTorch's allocator lets it fit (by exact replay)");
	}
	if (!verdict->unsupported)
		put_tries(out, report, index);
	if (verdict->fits == NEAP_ESTIMATE_NO && !verdict->unsupported)
		put_predictions(out, report->plan, verdict);
}

/* "largest batch": 448. */
static void put_fit_value(struct neap_buffer *out, const struct neap_estimate_report *report, size_t gpu)
{
	bool open = false;
	uint64_t value = report->fit ? neap_estimate_fit_value(report->fit, report->plan, gpu, &open) : 0;
	if (!report->fit)
		return;
	if (value)
		neap_buffer_format(out, "  %s%" PRIu64, open ? "over " : "", value);
	else
		neap_buffer_text(out, "  none");
}

/* Writes the curve: each value that was run on the first run's architecture. */
static void put_curve(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	static const char bar[] = "########################################";
	uint64_t last = 0, most = 0;
	for (size_t i = 0; report->fit && i < report->fit->count; i++)
		if (report->fit->points[i].run == 0 && report->fit->points[i].reserved_peak > most)
			most = report->fit->points[i].reserved_peak;
	if (!most)
		return;
	neap_buffer_format(out, "\n%-12.12s %10s %10s  on %s\n", report->fit->name, "allocated", "reserved",
			   report->plan->gpus[report->plan->run_gpus[0]].profile->gpu_name);
	while (true) {
		const struct neap_estimate_point *next = NULL;
		for (size_t i = 0; i < report->fit->count; i++) {
			const struct neap_estimate_point *point = &report->fit->points[i];
			if (point->run == 0 && point->value > last && (!next || point->value < next->value))
				next = point;
		}
		if (!next)
			break;
		last = next->value;
		if (next->failed)
			neap_buffer_format(out, "%-12" PRIu64 " the program failed with it\n", next->value);
		else
			neap_buffer_format(out, "%-12" PRIu64 " %10s %10s  %.*s\n", next->value,
					   SIZE(next->allocated_peak), SIZE(next->reserved_peak),
					   (int)((sizeof bar - 1) * next->reserved_peak / most), bar);
	}
}

/* Writes, once for all GPUs, why the answer is "probably" if only convolutions are in doubt. */
static void put_convolution(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = NULL;
	char text[700], clean[700];
	for (size_t i = 0; i < report->plan->count && !run; i++)
		if (report->verdicts[i].doubt == NEAP_ESTIMATE_UNBOUNDED && !report->verdicts[i].unsupported)
			run = &report->runs[report->plan->gpus[i].run];
	if (!run)
		return;
	neap_estimate_convolution_text(run, text, sizeof text);
	neap_printable(clean, sizeof clean, text);
	neap_report_wrap(out, "  ", clean);
}

void neap_estimate_gpus_text(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	neap_buffer_format(out, "\n%-14s %10s %10s  %-22s %-8s %10s", "GPU", "memory", "reserved", "nvidia-smi",
			   "fits", "headroom");
	if (report->fit)
		neap_buffer_format(out, "  largest %.20s", report->fit->name);
	neap_buffer_text(out, "\n");
	for (size_t i = 0; i < report->plan->count; i++) {
		const struct neap_estimate_gpu *gpu = &report->plan->gpus[i];
		const struct neap_estimate_run *run = &report->runs[gpu->run];
		const struct neap_estimate_verdict *verdict = &report->verdicts[i];
		char range[80], left[NEAP_UNITS_CAPACITY];
		process_interval(run, &verdict->context, range);
		neap_size_format_delta(verdict->headroom_bytes, left);
		neap_buffer_format(out, "%-14s %10s %10s  %-22s %-8s %10s", gpu->name, SIZE(gpu->total_bytes),
				   SIZE(run->reserved_high), range, fits_text(verdict),
				   left[0] == '+' ? left + 1 : left);
		put_fit_value(out, report, i);
		neap_buffer_text(out, "\n");
		put_why(out, report, i);
	}
	put_convolution(out, report);
}

static void put_ranks(struct neap_buffer *out, const struct neap_estimate_run *run)
{
	if (run->process_count < 2)
		return;
	neap_buffer_format(out, "\n%-8s %10s %10s %10s\n", "process", "requested", "allocated", "reserved");
	for (size_t i = 0; i < run->process_count; i++) {
		const struct neap_estimate_process *process = &run->processes[i];
		char name[32];
		if (process->rank == UINT64_MAX)
			snprintf(name, sizeof name, "%" PRIu64, process->pid);
		else
			snprintf(name, sizeof name, "rank %" PRIu64, process->rank);
		neap_buffer_format(out, "%-8s %10s %10s %10s\n", name, SIZE(process->requested_peak),
				   SIZE(process->allocated_peak), SIZE(process->reserved_peak));
	}
}

static void put_reads(struct neap_buffer *out, const struct neap_estimate_run *run)
{
	static const char *const uses[] = {
		"size", "decides how much is allocated", "branch", "the program branches on it", "value", NULL};
	if (!run->read_count)
		return;
	neap_report_wrap(out, "  ",
			 run->computed
				 ? "values read back that were not computed here, only likely ones (--values full "
				   "computes all):"
				 : "values read back from the GPU, which are zeros here:");
	for (size_t i = 0; i < run->read_count && i < SHOWN; i++) {
		const struct neap_estimate_read *read = &run->reads[i];
		char text[500], clean[500];
		const char *use = "";
		for (size_t n = 0; uses[n]; n += 2)
			if (!strcmp(uses[n], read->use) && uses[n + 1])
				use = uses[n + 1];
		snprintf(text, sizeof text, "%s:%" PRIu64 " %s: %s, %" PRIu64 " time%s%s%s", tail(read->file),
			 read->line, read->function, read->reader, read->count, plural(read->count), *use ? "; " : "",
			 use);
		neap_printable(clean, sizeof clean, text);
		neap_report_wrap(out, "    ", clean);
	}
	if (run->read_count > SHOWN || run->reads_lost)
		neap_buffer_format(out, "    and %zu other lines\n",
				   run->read_count - SHOWN + (size_t)run->reads_lost);
}

static void put_gaps(struct neap_buffer *out, const struct neap_estimate_run *run)
{
	size_t shown = 0;
	for (size_t i = 0; i < run->gaps.gap_count && shown < SHOWN; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		char text[300];
		if (gap->kind == NEAP_GAP_VALUES)
			continue;
		shown++;
		if (gap->high_bytes == NEAP_SIMULATED_UNBOUNDED)
			snprintf(text, sizeof text,
				 "not modelled: memory of %s %s, %" PRIu64
				 " call%s, usually %s or more each, no bound is "
				 "known",
				 gap->library, gap->function, gap->calls, plural(gap->calls), SIZE(gap->low_bytes));
		else if (gap->kind == NEAP_GAP_WORKSPACE)
			snprintf(text, sizeof text, "not modelled: memory of %s %s, %" PRIu64 " call%s, %s each",
				 gap->library, gap->function, gap->calls, plural(gap->calls),
				 interval(gap->low_bytes, gap->high_bytes, (char[80]){0}));
		else
			snprintf(text, sizeof text, "%s: %s %s, %" PRIu64 " call%s",
				 gap->kind == NEAP_GAP_REFUSED  ? "refused as not supported"
				 : gap->kind == NEAP_GAP_KERNEL ? "kernel of an extension, which did nothing"
								: "not moved between ranks",
				 gap->library, gap->function, gap->calls, plural(gap->calls));
		neap_report_wrap(out, "  ", text);
	}
}

static void put_compiled(struct neap_buffer *out, const struct neap_estimate_run *run)
{
	char text[500], updates[200];
	format_compiled(&run->processes[run->worst], updates);
	if (run->compiled && run->has_triton) {
		snprintf(text, sizeof text, "torch.compile: its kernels were compiled%s%s, and launched as nothing",
			 *updates ? " in " : "", updates);
		neap_report_wrap(out, "  ", text);
	} else if (run->compiled)
		neap_report_wrap(out, "  ",
				 "torch.compile: Triton is not installed, so what it compiles ran eagerly; compiled "
				 "code allocates less for what it fuses");
	if (run->not_computed[0]) {
		snprintf(text, sizeof text, "no values of: %s", run->not_computed);
		neap_report_wrap(out, "  ", text);
	}
	if (run->reads_hidden)
		neap_report_wrap(out, "  ",
				 "values read back after torch.compile first compiled are not listed: it could not "
				 "fuse across "
				 "the functions that count them");
}

static void put_notes(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	char text[300];
	neap_buffer_text(out, "\nTo be known\n");
	snprintf(text, sizeof text, "it holds for PyTorch %s: other versions allocate differently", run->torch);
	size_t kinds = report->plan->run_count, own = neap_estimate_count_own(report->plan, report->runs);
	if (kinds > 1)
		snprintf(text + strlen(text), sizeof text - strlen(text),
			 own == kinds
				 ? ". Run %zu times, once for each architecture and number of multiprocessors"
				 : ". Whole runs: %zu, for %zu architectures and numbers of multiprocessors: where "
				   "two updates allocated alike and used the same kernels, one run stands for both",
			 own, kinds);
	neap_report_wrap(out, "  ", text);
	if (report->ranks) {
		snprintf(text, sizeof text,
			 "rank 0 of %s, by torch's fake backend: the others were not run, and what NCCL takes is not "
			 "in it",
			 report->ranks);
		neap_report_wrap(out, "  ", text);
	}
	if (!neap_analysis_exact(&run->analysis))
		neap_report_wrap(
			out, "  ",
			"the replay of PyTorch's allocator parts from the recording: whether it fits is approximate");
	put_compiled(out, run);
	if (run->processes[run->worst].optimizer && !run->processes[run->worst].steps &&
	    run->result.outcome == NEAP_OUTCOME_OK)
		neap_report_wrap(out, "  ",
				 "the program made an optimizer, which made no update: its state and the gradients "
				 "may be missing from these figures");
	if (!run->analysis.steps.count && run->processes[run->worst].steps > 1)
		neap_report_wrap(
			out, "  ",
			"snapshots of this PyTorch do not tell where steps end: what memory was for is a guess");
	uint64_t shared_bytes;
	size_t sharing = neap_estimate_sharing(run, &shared_bytes);
	if (sharing) {
		snprintf(text, sizeof text,
			 "%zu other process%s the same GPU, reserving %s, each with a context: the table counts them "
			 "in",
			 sharing, sharing == 1 ? " uses" : "es use", SIZE(shared_bytes));
		neap_report_wrap(out, "  ", text);
	}
	if (report->plan->devices > 1 && run->process_count < 2)
		neap_report_wrap(out, "  ", "one process used the GPUs: the figures are those of the fullest");
	put_reads(out, run);
	put_gaps(out, run);
}

void neap_estimate_text(struct neap_buffer *out, const struct neap_estimate_report *report)
{
	const struct neap_analysis *analysis = &report->runs[0].analysis;
	put_head(out, report);
	put_peaks(out, report);
	put_categories(out, analysis);
	put_holders(out, analysis, report->top);
	put_ranks(out, &report->runs[0]);
	neap_estimate_gpus_text(out, report);
	/* The text explains the table's words here; a page explains them at a touch. */
	neap_report_wrap(out, "  ",
			 "headroom: the GPU's memory, less what the driver, the context and libraries may take, and "
			 "the smallest memory in which this run's replay completes");
	neap_report_wrap(out, "  ",
			 "fits: yes, even if everything takes the most that it may; probably, unless what the report "
			 "names takes more; no, not even if everything takes the least");
	if (report->search)
		neap_estimate_search_text(out, report);
	put_curve(out, report);
	put_notes(out, report);
}
