/* cli/estimate_json.c: numbers as numbers, in bytes; null where nothing is known. */
#include "cli/estimate_json.h"

#include "cli/command.h"
#include "cli/json_parts.h"
#include "cli/look.h"

#include <string.h>

#define SCHEMA 1

static json_t *interval_json(uint64_t low, uint64_t high, bool *ret_failed)
{
	json_t *object = json_object();
	set(object, "low", number(low), ret_failed);
	set(object, "high", number(high), ret_failed);
	return object;
}

/* Which figures are known, and which are assumed. */
static json_t *source_json(const struct sim_profile *profile, bool *ret_failed)
{
	json_t *object = json_object();
	char low[160];
	snprintf(low, sizeof low, "profile %s: a process that has loaded little code", profile->name);
	set(object, "low", json_string(low), ret_failed);
	set(object, "high",
	    json_string("assumed: code, with the driver's lazy loading; the libraries' own pools, at most"),
	    ret_failed);
	return object;
}

static json_t *context_json(const struct neap_estimate_context *context, const struct sim_profile *profile,
			    bool *ret_failed)
{
	json_t *object = interval_json(context->low_bytes, context->high_bytes, ret_failed);
	set(object, "bare", number(context->bare_bytes), ret_failed);
	set(object, "code_assumed", number(context->code_bytes), ret_failed);
	set(object, "library_pools", number(context->pools_bytes), ret_failed);
	set(object, "source", source_json(profile, ret_failed), ret_failed);
	return object;
}

static json_t *settings_json(const struct neap_estimate_verdict *verdict, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < verdict->settings.count; i++) {
		const struct neap_whatif *item = &verdict->settings.items[i];
		if (item->tried && item->fits && !item->own && item->policy != NEAP_REPLAY_NEAP)
			add(list, look_json_text(item->settings), ret_failed);
	}
	return list;
}

/* Of a GPU on which it does not fit; null: it does. */
static json_t *predicted_json(const struct neap_estimate_verdict *verdict, bool *ret_failed)
{
	static const char *const names[] = {[NEAP_RUNG_EFFICIENT_ATTENTION] = "memory-efficient attention",
					    [NEAP_RUNG_MIXED_PRECISION] = "mixed precision",
					    [NEAP_RUNG_CHECKPOINTING] = "gradient checkpointing"};
	json_t *object, *savings;
	if (verdict->fits == NEAP_ESTIMATE_YES)
		return json_null();
	object = json_object();
	savings = json_array();
	for (size_t i = 0; i < verdict->saving_count; i++) {
		const struct neap_saving *saving = &verdict->savings[i];
		uint64_t low =
			saving->bytes > saving->uncertainty_bytes ? saving->bytes - saving->uncertainty_bytes : 0;
		json_t *item = interval_json(low, saving->bytes + saving->uncertainty_bytes, ret_failed);
		set(item, "change", json_string(names[saving->rung]), ret_failed);
		add(savings, item, ret_failed);
	}
	set(object, "savings", savings, ret_failed);
	set(object, "samples_share", json_real(verdict->samples_share), ret_failed);
	return object;
}

/* null: not asked for. 0: not even 1 fits. */
static json_t *fit_value_json(const struct neap_estimate_report *report, size_t gpu, bool *ret_failed)
{
	bool open = false;
	(void)ret_failed;
	return report->fit ? number(neap_estimate_fit_value(report->fit, report->plan, gpu, &open)) : json_null();
}

static json_t *fit_json(const struct neap_estimate_report *report, bool *ret_failed)
{
	json_t *object = json_object(), *points = json_array();
	if (!report->fit) {
		json_decref(object);
		json_decref(points);
		return json_null();
	}
	set(object, "parameter", look_json_text(report->fit->name), ret_failed);
	for (size_t i = 0; i < report->fit->count; i++) {
		const struct neap_estimate_point *point = &report->fit->points[i];
		const struct sim_profile *profile = report->plan->gpus[report->plan->run_gpus[point->run]].profile;
		char architecture[16];
		json_t *item = json_object();
		neap_estimate_architecture(profile, architecture);
		set(item, "architecture", json_string(architecture), ret_failed);
		set(item, "multiprocessors", number((uint64_t)profile->multiprocessors), ret_failed);
		set(item, "value", number(point->value), ret_failed);
		set(item, "failed", json_boolean(point->failed), ret_failed);
		set(item, "requested_peak", point->failed ? json_null() : number(point->requested_peak), ret_failed);
		set(item, "allocated_peak", point->failed ? json_null() : number(point->allocated_peak), ret_failed);
		set(item, "reserved_peak", point->failed ? json_null() : number(point->reserved_peak), ret_failed);
		add(points, item, ret_failed);
	}
	set(object, "points", points, ret_failed);
	return object;
}

/* One of `fits`: null: perhaps. */
static json_t *fits_json(enum neap_estimate_fits fits)
{
	return fits == NEAP_ESTIMATE_UNSURE ? json_null() : json_boolean(fits == NEAP_ESTIMATE_YES);
}

static json_t *tries_json(const struct neap_estimate_report *report, size_t gpu, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < report->tries->count; i++) {
		const struct neap_estimate_try *item = &report->tries->items[i];
		const struct neap_estimate_point *point = &item->points[report->plan->gpus[gpu].run];
		json_t *object = json_object();
		set(object, "change", look_json_text(item->change), ret_failed);
		set(object, "failed", json_boolean(point->failed), ret_failed);
		set(object, "fits", point->failed ? json_false() : fits_json(point->fits[gpu]), ret_failed);
		set(object, "headroom", point->failed ? json_null() : json_integer(point->headroom[gpu]), ret_failed);
		set(object, "requested_peak", point->failed ? json_null() : number(point->requested_peak),
		    ret_failed);
		set(object, "allocated_peak", point->failed ? json_null() : number(point->allocated_peak),
		    ret_failed);
		set(object, "reserved_peak", point->failed ? json_null() : number(point->reserved_peak), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *gpu_json(const struct neap_estimate_report *report, size_t index, bool *ret_failed)
{
	const struct neap_estimate_gpu *gpu = &report->plan->gpus[index];
	const struct neap_estimate_verdict *verdict = &report->verdicts[index];
	const struct neap_estimate_run *run = &report->runs[gpu->run];
	char architecture[16];
	uint64_t low, high;
	json_t *object = json_object();
	neap_estimate_architecture(gpu->profile, architecture);
	set(object, "name", look_json_text(gpu->name), ret_failed);
	set(object, "total", number(gpu->total_bytes), ret_failed);
	set(object, "architecture", json_string(architecture), ret_failed);
	set(object, "multiprocessors", number((uint64_t)gpu->profile->multiprocessors), ret_failed);
	set(object, "supported", json_boolean(!verdict->unsupported), ret_failed);
	set(object, "fits", verdict->unsupported ? json_false() : fits_json(verdict->fits), ret_failed);
	set(object, "headroom", json_integer((json_int_t)verdict->headroom_bytes), ret_failed);
	set(object, "fit_value", fit_value_json(report, index, ret_failed), ret_failed);
	set(object, "requested_peak", number(run->requested_peak), ret_failed);
	set(object, "allocated_peak", number(run->allocated_peak), ret_failed);
	set(object, "reserved_peak", number(run->reserved_peak), ret_failed);
	set(object, "smallest_memory", number(verdict->needed_bytes), ret_failed);
	set(object, "cache_flushes", number(verdict->retries), ret_failed);
	set(object, "context", context_json(&verdict->context, gpu->profile, ret_failed), ret_failed);
	set(object, "process",
	    interval_json(verdict->context.low_bytes + run->reserved_peak,
			  verdict->context.high_bytes + run->reserved_peak + neap_estimate_workspace(run),
			  ret_failed),
	    ret_failed);
	neap_estimate_device(run, &verdict->context, &low, &high);
	set(object, "device", interval_json(low, high, ret_failed), ret_failed);
	set(object, "predicted", predicted_json(verdict, ret_failed), ret_failed);
	set(object, "tries", tries_json(report, index, ret_failed), ret_failed);
	set(object, "fits_with", settings_json(verdict, ret_failed), ret_failed);
	return object;
}

static json_t *categories_json(const struct neap_analysis *analysis, bool *ret_failed)
{
	json_t *object = json_object();
	for (int category = 0; category < NEAP_CATEGORIES; category++) {
		uint64_t bytes = 0;
		for (int how = 0; how < NEAP_HOWS; how++)
			bytes += analysis->categories.bytes[category][how];
		if (bytes)
			set(object, neap_category_name((enum neap_category)category), number(bytes), ret_failed);
	}
	return object;
}

static json_t *lines_json(const struct neap_analysis *analysis, size_t top, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < analysis->holder_count && i < top; i++) {
		const struct neap_holder *holder = &analysis->holders[i];
		json_t *object = json_object();
		char text[320];
		neap_holder_text(analysis->trace, holder, text, sizeof text);
		set(object, "text", look_json_text(text), ret_failed);
		set(object, "bytes", number(holder->bytes), ret_failed);
		set(object, "blocks", number(holder->blocks), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *unmodelled_json(const struct neap_estimate_run *run, bool *ret_failed)
{
	static const char *const kinds[NEAP_GAPS] = {[NEAP_GAP_WORKSPACE] = "workspace",
						     [NEAP_GAP_REFUSED] = "refused",
						     [NEAP_GAP_TRANSFER] = "transfer",
						     [NEAP_GAP_VALUES] = "values"};
	json_t *list = json_array();
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		json_t *object = json_object();
		set(object, "kind", json_string(kinds[gap->kind]), ret_failed);
		set(object, "library", look_json_text(gap->library), ret_failed);
		set(object, "function", look_json_text(gap->function), ret_failed);
		set(object, "calls", number(gap->calls), ret_failed);
		set(object, "low", number(gap->low_bytes), ret_failed);
		set(object, "high", number(gap->high_bytes), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *reads_json(const struct neap_estimate_run *run, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->read_count; i++) {
		const struct neap_estimate_read *read = &run->reads[i];
		json_t *object = json_object();
		set(object, "file", look_json_text(read->file), ret_failed);
		set(object, "line", number(read->line), ret_failed);
		set(object, "function", look_json_text(read->function), ret_failed);
		set(object, "reader", look_json_text(read->reader), ret_failed);
		set(object, "use", look_json_text(read->use), ret_failed);
		set(object, "count", number(read->count), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *processes_json(const struct neap_estimate_run *run, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->process_count; i++) {
		const struct neap_estimate_process *process = &run->processes[i];
		json_t *object = json_object();
		set(object, "rank", number_or_null(process->rank, UINT64_MAX), ret_failed);
		set(object, "steps", number(process->steps), ret_failed);
		set(object, "requested_peak", number(process->requested_peak), ret_failed);
		set(object, "allocated_peak", number(process->allocated_peak), ret_failed);
		set(object, "reserved_peak", number(process->reserved_peak), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

int estimate_print_json(const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	json_t *root = json_object(), *gpus = json_array();
	size_t first = report->plan->run_gpus[0];
	bool failed = false;
	set(root, "schema", json_integer(SCHEMA), &failed);
	set(root, "backend", look_json_text(run->result.backend), &failed);
	set(root, "torch", look_json_text(run->torch), &failed);
	set(root, "command", look_json_text(report->command), &failed);
	set(root, "outcome", json_string(neap_outcome_name(run->result.outcome)), &failed);
	set(root, "steps", number(run->processes[run->worst].steps), &failed);
	set(root, "forwards", number(run->processes[run->worst].forwards), &failed);
	set(root, "requested_peak", number(run->requested_peak), &failed);
	set(root, "allocated_peak", number(run->allocated_peak), &failed);
	set(root, "reserved_peak", number(run->reserved_peak), &failed);
	set(root, "workspace_not_modelled", number(neap_estimate_workspace(run)), &failed);
	set(root, "context",
	    context_json(&report->verdicts[first].context, report->plan->gpus[first].profile, &failed), &failed);
	for (size_t i = 0; i < report->plan->count; i++)
		add(gpus, gpu_json(report, i, &failed), &failed);
	set(root, "gpus", gpus, &failed);
	set(root, "fit", fit_json(report, &failed), &failed);
	set(root, "categories", categories_json(&run->analysis, &failed), &failed);
	set(root, "lines", lines_json(&run->analysis, report->top, &failed), &failed);
	set(root, "processes", processes_json(run, &failed), &failed);
	set(root, "reads", reads_json(run, &failed), &failed);
	set(root, "exact", json_boolean(neap_analysis_exact(&run->analysis)), &failed);
	set(root, "unmodelled", unmodelled_json(run, &failed), &failed);
	return look_json_print("estimate", root, failed);
}
