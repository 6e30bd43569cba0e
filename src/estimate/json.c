/* estimate/json.c: writes the estimate as JSON: sizes are numbers, in bytes; null means unknown. */
#include "estimate/text.h"

#include "base/printable.h"
#include "base/units.h"
#include "store/json_rows.h"

#include <string.h>

#define SCHEMA 1

static json_t *interval_json(uint64_t low, uint64_t high) { return JSON(NUMBER("low", low), NUMBER("high", high)); }

static json_t *parts_json(const struct neap_estimate_report *report, size_t gpu, const struct neap_estimate_run *run)
{
	const struct neap_estimate_context *context = &report->verdicts[gpu].context;
	json_t *list = json_array();
	for (size_t i = 0; i < context->part_count; i++) {
		const struct neap_estimate_part *part = &context->parts[i];
		char text[400], clean[400];
		neap_estimate_part_text(report->plan, gpu, run, part, text, sizeof text);
		neap_printable(clean, sizeof clean, text);
		neap_json_add(list,
			      JSON_PUT(interval_json(part->low_bytes, part->high_bytes), TEXT("name", part->name),
				       TEXT("source", neap_estimate_source_name(part->source)), TEXT("text", clean)));
	}
	return list;
}

/* Returns the upper bound of the sum of the parts that come from this source. */
static uint64_t bytes_from(const struct neap_estimate_context *context, enum neap_estimate_source source)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < context->part_count; i++)
		if (context->parts[i].source == source)
			bytes += context->parts[i].high_bytes;
	return bytes;
}

/* Returns one line for each part: how its figure was found. */
static json_t *source_json(const struct sim_profile *profile)
{
	char low[160];
	snprintf(low, sizeof low, "profile %s: a process that has loaded little code; the kernels that it used",
		 profile->name);
	return JSON(TEXT("low", low), TEXT("high", "computed, documented, published and assumed: see parts"));
}

static json_t *context_json(const struct neap_estimate_report *report, size_t gpu,
			    const struct neap_estimate_run *run)
{
	const struct neap_estimate_context *context = &report->verdicts[gpu].context;
	return JSON_PUT(interval_json(context->low_bytes, context->high_bytes),
			NUMBER("bare", report->plan->gpus[gpu].profile->context_mib * NEAP_MIB),
			NUMBER("code_assumed", bytes_from(context, NEAP_ESTIMATE_ASSUMED)),
			NUMBER("library_pools", bytes_from(context, NEAP_ESTIMATE_DOCUMENTED)),
			VALUE("parts", parts_json(report, gpu, run)),
			VALUE("source", source_json(report->plan->gpus[gpu].profile)));
}

static json_t *settings_json(const struct neap_estimate_verdict *verdict)
{
	json_t *list = json_array();
	for (size_t i = 0; i < verdict->settings.count; i++) {
		const struct neap_whatif *item = &verdict->settings.items[i];
		if (item->tried && item->fits && !item->own && item->policy != NEAP_REPLAY_NEAP)
			neap_json_add(list, neap_json_text(item->settings));
	}
	return list;
}

/* The predicted fixes for a GPU on which the program does not fit. JSON's null: the program fits. */
static json_t *predicted_json(const struct neap_estimate_verdict *verdict)
{
	static const char *const names[] = {[NEAP_RUNG_EFFICIENT_ATTENTION] = "memory-efficient attention",
					    [NEAP_RUNG_MIXED_PRECISION] = "mixed precision",
					    [NEAP_RUNG_CHECKPOINTING] = "gradient checkpointing"};
	if (verdict->fits == NEAP_ESTIMATE_YES)
		return json_null();
	json_t *savings = json_array();
	for (size_t i = 0; i < verdict->saving_count; i++) {
		const struct neap_saving *saving = &verdict->savings[i];
		uint64_t low =
			saving->bytes > saving->uncertainty_bytes ? saving->bytes - saving->uncertainty_bytes : 0;
		neap_json_add(savings, JSON_PUT(interval_json(low, saving->bytes + saving->uncertainty_bytes),
						TEXT("change", names[saving->rung])));
	}
	return JSON(VALUE("savings", savings), REAL("samples_share", verdict->samples_share));
}

/* Returns the answer of --fit. null: not asked for. 0: not even 1 fits. */
static json_t *fit_value_json(const struct neap_estimate_report *report, size_t gpu)
{
	bool open = false;
	return report->fit ? neap_json_number(neap_estimate_fit_value(report->fit, report->plan, gpu, &open))
			   : json_null();
}

/* Adds the peaks. null: the program failed with this value. */
static json_t *put_peaks(json_t *object, const struct neap_estimate_point *point)
{
	return JSON_PUT(object, ONLY(!point->failed, NUMBER("requested_peak", point->requested_peak)),
			ONLY(!point->failed, NUMBER("allocated_peak", point->allocated_peak)),
			ONLY(!point->failed, NUMBER("reserved_peak", point->reserved_peak)));
}

static json_t *fit_json(const struct neap_estimate_report *report)
{
	if (!report->fit)
		return json_null();
	json_t *points = json_array();
	for (size_t i = 0; i < report->fit->count; i++) {
		const struct neap_estimate_point *point = &report->fit->points[i];
		const struct sim_profile *profile = report->plan->gpus[report->plan->run_gpus[point->run]].profile;
		char architecture[16];
		neap_estimate_architecture(profile, architecture);
		json_t *item =
			JSON(TEXT("architecture", architecture), NUMBER("multiprocessors", profile->multiprocessors),
			     NUMBER("value", point->value), BOOL("failed", point->failed));
		neap_json_add(points, put_peaks(item, point));
	}
	return JSON(TEXT("parameter", report->fit->name), VALUE("points", points));
}

/* Returns one value of `fits`. null: probably. */
static json_t *fits_json(enum neap_estimate_fits fits)
{
	return fits == NEAP_ESTIMATE_UNSURE ? json_null() : json_boolean(fits == NEAP_ESTIMATE_YES);
}

/* Returns why the answer is "probably"; null: the answer is not "probably". */
static json_t *doubt_json(enum neap_estimate_doubt doubt)
{
	return doubt ? json_string(neap_estimate_doubt_name(doubt)) : json_null();
}

static json_t *tries_json(const struct neap_estimate_report *report, size_t gpu)
{
	json_t *list = json_array();
	for (size_t i = 0; i < report->tries->count; i++) {
		const struct neap_estimate_try *item = &report->tries->items[i];
		const struct neap_estimate_point *point = &item->points[report->plan->gpus[gpu].run];
		json_t *object = JSON(TEXT("change", item->change), BOOL("failed", point->failed),
				      VALUE("fits", point->failed ? json_false() : fits_json(point->fits[gpu])),
				      VALUE("doubt", doubt_json(point->doubt[gpu])),
				      ONLY(!point->failed, INTEGER("headroom", point->headroom[gpu])));
		neap_json_add(list, put_peaks(object, point));
	}
	return list;
}

static json_t *gpu_json(const struct neap_estimate_report *report, size_t index)
{
	const struct neap_estimate_gpu *gpu = &report->plan->gpus[index];
	const struct neap_estimate_verdict *verdict = &report->verdicts[index];
	const struct neap_estimate_run *run = &report->runs[gpu->run];
	char architecture[16];
	uint64_t low, high, process_low, process_high;
	neap_estimate_architecture(gpu->profile, architecture);
	neap_estimate_process_bytes(run, &verdict->context, &process_low, &process_high);
	neap_estimate_device(run, &verdict->context, &low, &high);
	return JSON(TEXT("name", gpu->name), NUMBER("total", gpu->total_bytes), TEXT("architecture", architecture),
		    NUMBER("multiprocessors", gpu->profile->multiprocessors),
		    BOOL("supported", !verdict->unsupported),
		    VALUE("fits", verdict->unsupported ? json_false() : fits_json(verdict->fits)),
		    VALUE("doubt", doubt_json(verdict->unsupported ? NEAP_ESTIMATE_SURE : verdict->doubt)),
		    INTEGER("headroom", verdict->headroom_bytes), VALUE("fit_value", fit_value_json(report, index)),
		    NUMBER("requested_peak", run->requested_peak), NUMBER("allocated_peak", run->allocated_peak),
		    NUMBER("reserved_peak", run->reserved_peak), NUMBER("smallest_memory", verdict->needed_bytes),
		    NUMBER("cache_flushes", verdict->retries), VALUE("context", context_json(report, index, run)),
		    VALUE("reserved", interval_json(run->reserved_low, run->reserved_high)),
		    VALUE("process", interval_json(process_low, process_high)),
		    VALUE("device", interval_json(low, high)), VALUE("predicted", predicted_json(verdict)),
		    VALUE("tries", tries_json(report, index)), VALUE("fits_with", settings_json(verdict)));
}

static json_t *categories_json(const struct neap_analysis *analysis)
{
	json_t *object = json_object();
	for (int category = 0; category < NEAP_CATEGORIES; category++) {
		uint64_t bytes = 0;
		for (int how = 0; how < NEAP_HOWS; how++)
			bytes += analysis->categories.bytes[category][how];
		if (bytes)
			neap_json_set(object, neap_category_name((enum neap_category)category),
				      neap_json_number(bytes));
	}
	return object;
}

static json_t *lines_json(const struct neap_analysis *analysis, size_t top)
{
	json_t *list = json_array();
	for (size_t i = 0; i < analysis->holder_count && i < top; i++) {
		const struct neap_holder *holder = &analysis->holders[i];
		char text[320];
		neap_holder_text(analysis->trace, holder, text, sizeof text);
		json_t *object =
			JSON(TEXT("text", text), NUMBER("bytes", holder->bytes), NUMBER("blocks", holder->blocks));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *unmodelled_json(const struct neap_estimate_run *run)
{
	static const char *const kinds[NEAP_GAPS] = {[NEAP_GAP_WORKSPACE] = "workspace",
						     [NEAP_GAP_REFUSED] = "refused",
						     [NEAP_GAP_TRANSFER] = "transfer",
						     [NEAP_GAP_KERNEL] = "kernel",
						     [NEAP_GAP_VALUES] = "values"};
	json_t *list = json_array();
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		neap_json_add(list, JSON(TEXT("kind", kinds[gap->kind]), TEXT("library", gap->library),
					 TEXT("function", gap->function), NUMBER("calls", gap->calls),
					 NUMBER("low", gap->low_bytes), KNOWN("high", gap->high_bytes)));
	}
	return list;
}

static json_t *reads_json(const struct neap_estimate_run *run)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->read_count; i++) {
		const struct neap_estimate_read *read = &run->reads[i];
		neap_json_add(list, JSON(TEXT("file", read->file), NUMBER("line", read->line),
					 TEXT("function", read->function), TEXT("reader", read->reader),
					 TEXT("use", read->use), NUMBER("count", read->count)));
	}
	return list;
}

static json_t *files_json(const struct neap_view_facts *facts)
{
	static const char *const kinds[] = {[NEAP_VIEW_UNKNOWN] = "unknown",
					    [NEAP_VIEW_IN_PLACE] = "in place",
					    [NEAP_VIEW_LANDLOCK] = "landlock",
					    [NEAP_VIEW_MOUNTS] = "view"};
	json_t *list = json_array();
	bool measured = facts->kind == NEAP_VIEW_MOUNTS;
	for (size_t i = 0; i < NEAP_VIEW_NAMED && *facts->read_only[i]; i++)
		neap_json_add(list, neap_json_text(facts->read_only[i]));
	return JSON(TEXT("isolated_by", kinds[facts->kind]), BOOL("network", !facts->no_network),
		    ONLY(measured, NUMBER("written", facts->files)), ONLY(measured, NUMBER("bytes", facts->bytes)),
		    ONLY(measured, NUMBER("deleted", facts->deleted)),
		    ONLY(measured, NUMBER("limit", facts->limit_bytes)), BOOL("limit_reached", facts->full),
		    VALUE("read_only", list), GIVEN("refused", facts->refused),
		    BOOL("kept", facts->kept && !*facts->trouble));
}

static json_t *processes_json(const struct neap_estimate_run *run)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->process_count; i++) {
		const struct neap_estimate_process *process = &run->processes[i];
		neap_json_add(list, JSON(KNOWN("rank", process->rank), NUMBER("steps", process->steps),
					 NUMBER("requested_peak", process->requested_peak),
					 NUMBER("allocated_peak", process->allocated_peak),
					 NUMBER("reserved_peak", process->reserved_peak),
					 NUMBER("grew_at", process->grew_at),
					 NUMBER("grew_requested", process->grew_requested),
					 NUMBER("grew_reserved", process->grew_reserved)));
	}
	return list;
}

/* Returns where the program was when the time limit ended it. null: it ended otherwise, or the place is not known. */
static json_t *waited_json(const struct neap_estimate_read *waited)
{
	if (!waited->line)
		return json_null();
	return JSON(TEXT("file", waited->file), NUMBER("line", waited->line), TEXT("function", waited->function));
}

/* The updates in which torch.compile compiled. */
static json_t *compiled_json(const struct neap_estimate_process *process)
{
	json_t *list = json_array();
	for (size_t i = 0; i < NEAP_ESTIMATE_COMPILED && process->compiled[i]; i++)
		neap_json_add(list, neap_json_number(process->compiled[i]));
	return list;
}

/* The peaks without the memory that compiling took; null: compiling took none. */
static json_t *without_json(const struct neap_compiled *compiled)
{
	if (!compiled->known)
		return json_null();
	return JSON(NUMBER("requested_peak", compiled->requested_peak),
		    NUMBER("allocated_peak", compiled->allocated_peak),
		    NUMBER("reserved_peak", compiled->reserved_peak));
}

/* Returns the convolution with the largest workspace, of those without a known bound. null: all workspaces have a
 * bound. */
static json_t *convolution_json(const struct neap_estimate_run *run)
{
	if (!neap_estimate_is_unbounded(run))
		return json_null();
	return JSON(TEXT("line", run->convolution.place),
		    NUMBER("usual_workspace", run->convolution.workspace_bytes));
}

json_t *neap_estimate_json(const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	json_t *gpus = json_array();
	size_t first = report->plan->run_gpus[0];
	for (size_t i = 0; i < report->plan->count; i++)
		neap_json_add(gpus, gpu_json(report, i));
	return JSON(INTEGER("schema", SCHEMA), TEXT("backend", run->result.backend), TEXT("torch", run->torch),
		    TEXT("command", report->command), TEXT("outcome", neap_outcome_name(run->result.outcome)),
		    NUMBER("steps", run->processes[run->worst].steps),
		    NUMBER("forwards", run->processes[run->worst].forwards),
		    BOOL("cut_short", neap_estimate_is_cut_short(run)), BOOL("growing", neap_estimate_growing(run)),
		    VALUE("waited_at", waited_json(&run->processes[run->worst].waited)),
		    NUMBER("requested_peak", run->requested_peak), NUMBER("allocated_peak", run->allocated_peak),
		    NUMBER("reserved_peak", run->reserved_peak),
		    NUMBER("workspace_not_modelled", neap_estimate_workspace(run)),
		    VALUE("convolution", convolution_json(run)), VALUE("context", context_json(report, first, run)),
		    VALUE("gpus", gpus), VALUE("fit", fit_json(report)),
		    VALUE("plan", neap_estimate_search_json(report)),
		    VALUE("categories", categories_json(&run->analysis)),
		    VALUE("lines", lines_json(&run->analysis, report->top)), VALUE("files", files_json(&run->view)),
		    VALUE("processes", processes_json(run)), BOOL("compiled", run->compiled),
		    VALUE("compiled_updates", compiled_json(&run->processes[run->worst])),
		    NUMBER("compiled_updates_more", run->processes[run->worst].compiled_more),
		    VALUE("without_compiling", without_json(&run->analysis.compiled)),
		    BOOL("values_computed", run->computed), TEXT("values_not_computed", run->not_computed),
		    VALUE("reads", reads_json(run)), BOOL("reads_hidden", run->reads_hidden),
		    BOOL("exact", neap_analysis_exact(&run->analysis)), VALUE("unmodelled", unmodelled_json(run)));
}
