/* estimate/json.c: numbers as numbers, in bytes; null where nothing is known. */
#include "estimate/json.h"

#include "store/json.h"

#include <string.h>

#define SCHEMA 1

static json_t *interval_json(uint64_t low, uint64_t high)
{
	json_t *object = json_object();
	neap_json_set(object, "low", neap_json_number(low));
	neap_json_set(object, "high", neap_json_number(high));
	return object;
}

/* Which figures are known, and which are assumed. */
static json_t *source_json(const struct sim_profile *profile)
{
	json_t *object = json_object();
	char low[160];
	snprintf(low, sizeof low, "profile %s: a process that has loaded little code", profile->name);
	neap_json_set(object, "low", json_string(low));
	neap_json_set(
		object, "high",
		json_string("assumed: code, with the driver's lazy loading; the libraries' own pools, at most"));
	return object;
}

static json_t *context_json(const struct neap_estimate_context *context, const struct sim_profile *profile)
{
	json_t *object = interval_json(context->low_bytes, context->high_bytes);
	neap_json_set(object, "bare", neap_json_number(context->bare_bytes));
	neap_json_set(object, "code_assumed", neap_json_number(context->code_bytes));
	neap_json_set(object, "library_pools", neap_json_number(context->pools_bytes));
	neap_json_set(object, "source", source_json(profile));
	return object;
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

/* Of a GPU on which it does not fit; null: it does. */
static json_t *predicted_json(const struct neap_estimate_verdict *verdict)
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
		json_t *item = interval_json(low, saving->bytes + saving->uncertainty_bytes);
		neap_json_set(item, "change", json_string(names[saving->rung]));
		neap_json_add(savings, item);
	}
	neap_json_set(object, "savings", savings);
	neap_json_set(object, "samples_share", json_real(verdict->samples_share));
	return object;
}

/* null: not asked for. 0: not even 1 fits. */
static json_t *fit_value_json(const struct neap_estimate_report *report, size_t gpu)
{
	bool open = false;
	return report->fit ? neap_json_number(neap_estimate_fit_value(report->fit, report->plan, gpu, &open))
			   : json_null();
}

static json_t *fit_json(const struct neap_estimate_report *report)
{
	json_t *object = json_object(), *points = json_array();
	if (!report->fit) {
		json_decref(object);
		json_decref(points);
		return json_null();
	}
	neap_json_set(object, "parameter", neap_json_text(report->fit->name));
	for (size_t i = 0; i < report->fit->count; i++) {
		const struct neap_estimate_point *point = &report->fit->points[i];
		const struct sim_profile *profile = report->plan->gpus[report->plan->run_gpus[point->run]].profile;
		char architecture[16];
		json_t *item = json_object();
		neap_estimate_architecture(profile, architecture);
		neap_json_set(item, "architecture", json_string(architecture));
		neap_json_set(item, "multiprocessors", neap_json_number((uint64_t)profile->multiprocessors));
		neap_json_set(item, "value", neap_json_number(point->value));
		neap_json_set(item, "failed", json_boolean(point->failed));
		neap_json_set(item, "requested_peak",
			      point->failed ? json_null() : neap_json_number(point->requested_peak));
		neap_json_set(item, "allocated_peak",
			      point->failed ? json_null() : neap_json_number(point->allocated_peak));
		neap_json_set(item, "reserved_peak",
			      point->failed ? json_null() : neap_json_number(point->reserved_peak));
		neap_json_add(points, item);
	}
	neap_json_set(object, "points", points);
	return object;
}

/* One of `fits`: null: perhaps. */
static json_t *fits_json(enum neap_estimate_fits fits)
{
	return fits == NEAP_ESTIMATE_UNSURE ? json_null() : json_boolean(fits == NEAP_ESTIMATE_YES);
}

/* Why it is perhaps; null: it is not. */
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
		json_t *object = json_object();
		neap_json_set(object, "change", neap_json_text(item->change));
		neap_json_set(object, "failed", json_boolean(point->failed));
		neap_json_set(object, "fits", point->failed ? json_false() : fits_json(point->fits[gpu]));
		neap_json_set(object, "doubt", doubt_json(point->doubt[gpu]));
		neap_json_set(object, "headroom", point->failed ? json_null() : json_integer(point->headroom[gpu]));
		neap_json_set(object, "requested_peak",
			      point->failed ? json_null() : neap_json_number(point->requested_peak));
		neap_json_set(object, "allocated_peak",
			      point->failed ? json_null() : neap_json_number(point->allocated_peak));
		neap_json_set(object, "reserved_peak",
			      point->failed ? json_null() : neap_json_number(point->reserved_peak));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *gpu_json(const struct neap_estimate_report *report, size_t index)
{
	const struct neap_estimate_gpu *gpu = &report->plan->gpus[index];
	const struct neap_estimate_verdict *verdict = &report->verdicts[index];
	const struct neap_estimate_run *run = &report->runs[gpu->run];
	char architecture[16];
	uint64_t low, high;
	json_t *object = json_object();
	neap_estimate_architecture(gpu->profile, architecture);
	neap_json_set(object, "name", neap_json_text(gpu->name));
	neap_json_set(object, "total", neap_json_number(gpu->total_bytes));
	neap_json_set(object, "architecture", json_string(architecture));
	neap_json_set(object, "multiprocessors", neap_json_number((uint64_t)gpu->profile->multiprocessors));
	neap_json_set(object, "supported", json_boolean(!verdict->unsupported));
	neap_json_set(object, "fits", verdict->unsupported ? json_false() : fits_json(verdict->fits));
	neap_json_set(object, "doubt", doubt_json(verdict->unsupported ? NEAP_ESTIMATE_SURE : verdict->doubt));
	neap_json_set(object, "headroom", json_integer((json_int_t)verdict->headroom_bytes));
	neap_json_set(object, "fit_value", fit_value_json(report, index));
	neap_json_set(object, "requested_peak", neap_json_number(run->requested_peak));
	neap_json_set(object, "allocated_peak", neap_json_number(run->allocated_peak));
	neap_json_set(object, "reserved_peak", neap_json_number(run->reserved_peak));
	neap_json_set(object, "smallest_memory", neap_json_number(verdict->needed_bytes));
	neap_json_set(object, "cache_flushes", neap_json_number(verdict->retries));
	neap_json_set(object, "context", context_json(&verdict->context, gpu->profile));
	neap_json_set(object, "process",
		      interval_json(verdict->context.low_bytes + run->reserved_peak,
				    verdict->context.high_bytes + run->reserved_peak + neap_estimate_workspace(run)));
	neap_estimate_device(run, &verdict->context, &low, &high);
	neap_json_set(object, "device", interval_json(low, high));
	neap_json_set(object, "predicted", predicted_json(verdict));
	neap_json_set(object, "tries", tries_json(report, index));
	neap_json_set(object, "fits_with", settings_json(verdict));
	return object;
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
		json_t *object = json_object();
		char text[320];
		neap_holder_text(analysis->trace, holder, text, sizeof text);
		neap_json_set(object, "text", neap_json_text(text));
		neap_json_set(object, "bytes", neap_json_number(holder->bytes));
		neap_json_set(object, "blocks", neap_json_number(holder->blocks));
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
		json_t *object = json_object();
		neap_json_set(object, "kind", json_string(kinds[gap->kind]));
		neap_json_set(object, "library", neap_json_text(gap->library));
		neap_json_set(object, "function", neap_json_text(gap->function));
		neap_json_set(object, "calls", neap_json_number(gap->calls));
		neap_json_set(object, "low", neap_json_number(gap->low_bytes));
		neap_json_set(object, "high", neap_json_number(gap->high_bytes));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *reads_json(const struct neap_estimate_run *run)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->read_count; i++) {
		const struct neap_estimate_read *read = &run->reads[i];
		json_t *object = json_object();
		neap_json_set(object, "file", neap_json_text(read->file));
		neap_json_set(object, "line", neap_json_number(read->line));
		neap_json_set(object, "function", neap_json_text(read->function));
		neap_json_set(object, "reader", neap_json_text(read->reader));
		neap_json_set(object, "use", neap_json_text(read->use));
		neap_json_set(object, "count", neap_json_number(read->count));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *files_json(const struct neap_view_facts *facts)
{
	static const char *const kinds[] = {[NEAP_VIEW_UNKNOWN] = "unknown",
					    [NEAP_VIEW_IN_PLACE] = "in place",
					    [NEAP_VIEW_LANDLOCK] = "landlock",
					    [NEAP_VIEW_MOUNTS] = "view"};
	json_t *object = json_object(), *list = json_array();
	bool measured = facts->kind == NEAP_VIEW_MOUNTS;
	neap_json_set(object, "isolated_by", json_string(kinds[facts->kind]));
	neap_json_set(object, "network", json_boolean(!facts->no_network));
	neap_json_set(object, "written", measured ? neap_json_number(facts->files) : json_null());
	neap_json_set(object, "bytes", measured ? neap_json_number(facts->bytes) : json_null());
	neap_json_set(object, "deleted", measured ? neap_json_number(facts->deleted) : json_null());
	neap_json_set(object, "limit", measured ? neap_json_number(facts->limit_bytes) : json_null());
	neap_json_set(object, "limit_reached", json_boolean(facts->full));
	for (size_t i = 0; i < NEAP_VIEW_NAMED && *facts->read_only[i]; i++)
		neap_json_add(list, neap_json_text(facts->read_only[i]));
	neap_json_set(object, "read_only", list);
	neap_json_set(object, "refused", *facts->refused ? neap_json_text(facts->refused) : json_null());
	neap_json_set(object, "kept", json_boolean(facts->kept && !*facts->trouble));
	return object;
}

static json_t *processes_json(const struct neap_estimate_run *run)
{
	json_t *list = json_array();
	for (size_t i = 0; i < run->process_count; i++) {
		const struct neap_estimate_process *process = &run->processes[i];
		json_t *object = json_object();
		neap_json_set(object, "rank", neap_json_known(process->rank));
		neap_json_set(object, "steps", neap_json_number(process->steps));
		neap_json_set(object, "requested_peak", neap_json_number(process->requested_peak));
		neap_json_set(object, "allocated_peak", neap_json_number(process->allocated_peak));
		neap_json_set(object, "reserved_peak", neap_json_number(process->reserved_peak));
		neap_json_add(list, object);
	}
	return list;
}

/* Where the program was when the time limit ended it; null: it did not, or that is not known. */
static json_t *waited_json(const struct neap_estimate_read *waited)
{
	if (!waited->line)
		return json_null();
	json_t *object = json_object();
	neap_json_set(object, "file", neap_json_text(waited->file));
	neap_json_set(object, "line", neap_json_number(waited->line));
	neap_json_set(object, "function", neap_json_text(waited->function));
	return object;
}

json_t *neap_estimate_json(const struct neap_estimate_report *report)
{
	const struct neap_estimate_run *run = &report->runs[0];
	json_t *root = json_object(), *gpus = json_array();
	size_t first = report->plan->run_gpus[0];
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "backend", neap_json_text(run->result.backend));
	neap_json_set(root, "torch", neap_json_text(run->torch));
	neap_json_set(root, "command", neap_json_text(report->command));
	neap_json_set(root, "outcome", json_string(neap_outcome_name(run->result.outcome)));
	neap_json_set(root, "steps", neap_json_number(run->processes[run->worst].steps));
	neap_json_set(root, "forwards", neap_json_number(run->processes[run->worst].forwards));
	neap_json_set(root, "cut_short", json_boolean(neap_estimate_is_cut_short(run)));
	neap_json_set(root, "waited_at", waited_json(&run->processes[run->worst].waited));
	neap_json_set(root, "requested_peak", neap_json_number(run->requested_peak));
	neap_json_set(root, "allocated_peak", neap_json_number(run->allocated_peak));
	neap_json_set(root, "reserved_peak", neap_json_number(run->reserved_peak));
	neap_json_set(root, "workspace_not_modelled", neap_json_number(neap_estimate_workspace(run)));
	neap_json_set(root, "context",
		      context_json(&report->verdicts[first].context, report->plan->gpus[first].profile));
	for (size_t i = 0; i < report->plan->count; i++)
		neap_json_add(gpus, gpu_json(report, i));
	neap_json_set(root, "gpus", gpus);
	neap_json_set(root, "fit", fit_json(report));
	neap_json_set(root, "categories", categories_json(&run->analysis));
	neap_json_set(root, "lines", lines_json(&run->analysis, report->top));
	neap_json_set(root, "files", files_json(&run->view));
	neap_json_set(root, "processes", processes_json(run));
	neap_json_set(root, "compiled", json_boolean(run->compiled));
	neap_json_set(root, "reads", reads_json(run));
	neap_json_set(root, "reads_hidden", json_boolean(run->reads_hidden));
	neap_json_set(root, "exact", json_boolean(neap_analysis_exact(&run->analysis)));
	neap_json_set(root, "unmodelled", unmodelled_json(run));
	return root;
}
