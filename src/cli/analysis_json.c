/* cli/analysis_json.c: numbers as numbers, in bytes; null where nothing is known. */
#include "cli/analysis_json.h"

#include "cli/command.h"
#include "cli/look.h"
#include "report/analysis.h"

#include <jansson.h>

#define SCHEMA 1

static void set(json_t *object, const char *key, json_t *value, bool *ret_failed)
{
	if (json_object_set_new(object, key, value) != 0)
		*ret_failed = true;
}

static void add(json_t *array, json_t *value, bool *ret_failed)
{
	if (json_array_append_new(array, value) != 0)
		*ret_failed = true;
}

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *number_or_null(uint64_t value, uint64_t none) { return value == none ? json_null() : number(value); }

static json_t *levels_json(const struct neap_analysis *analysis, const struct neap_levels *levels, bool *ret_failed)
{
	json_t *object = json_object();
	set(object, "event", number_or_null(levels->event, NEAP_LIFE_BEFORE), ret_failed);
	set(object, "time_us", number_or_null(levels->time_us, 0), ret_failed);
	set(object, "step",
	    analysis->steps.count > 0 && levels->event != NEAP_LIFE_BEFORE
		    ? number(neap_steps_before(&analysis->steps, levels->event) + 1)
		    : json_null(),
	    ret_failed);
	set(object, "requested", number(levels->requested), ret_failed);
	set(object, "rounded", number(levels->rounded), ret_failed);
	set(object, "reserved", analysis->timeline.reserved_known ? number(levels->reserved) : json_null(),
	    ret_failed);
	return object;
}

static json_t *holder_json(const struct neap_analysis *analysis, const struct neap_holder *holder, bool *ret_failed)
{
	static const char *const kinds[] = {"", "site", "freed_at", "size"};
	const struct neap_trace *trace = analysis->trace;
	json_t *object = json_object();
	char text[320];

	neap_holder_text(trace, holder, text, sizeof(text));
	set(object, "kind",
	    json_string(trace->source == NEAP_TRACE_RECORDING && holder->kind == NEAP_HOLDER_SITE
				? "tag"
				: kinds[holder->kind]),
	    ret_failed);
	set(object, "text", look_json_text(text), ret_failed);
	if (holder->kind != NEAP_HOLDER_SIZE) {
		const struct neap_trace_frame *frame = &trace->frames[holder->frame];
		set(object, "file", look_json_text(neap_trace_text(trace, frame->file)), ret_failed);
		set(object, "line", number_or_null(frame->line, 0), ret_failed);
		set(object, "name", look_json_text(neap_trace_text(trace, frame->name)), ret_failed);
	}
	set(object, "bytes", number(holder->bytes), ret_failed);
	set(object, "blocks", number(holder->blocks), ret_failed);
	set(object, "largest_block", number(holder->largest), ret_failed);
	return object;
}

static json_t *categories_json(const struct neap_analysis *analysis, bool *ret_failed)
{
	json_t *list = json_array();
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++) {
			if (!analysis->categories.blocks[category][how])
				continue;
			json_t *object = json_object();
			set(object, "category", json_string(neap_category_name((enum neap_category)category)),
			    ret_failed);
			set(object, "inferred_from",
			    how == NEAP_HOW_NOTHING
				    ? json_null()
				    : json_string(neap_category_how_name((enum neap_category_how)how)),
			    ret_failed);
			set(object, "bytes", number(analysis->categories.bytes[category][how]), ret_failed);
			set(object, "blocks", number(analysis->categories.blocks[category][how]), ret_failed);
			add(list, object, ret_failed);
		}
	return list;
}

static json_t *counts_json(const struct neap_profile *profile, bool *ret_failed)
{
	json_t *object = json_object();
	for (int kind = NEAP_TRACE_ALLOC; kind <= NEAP_TRACE_EMPTY_CACHE; kind++)
		set(object, neap_trace_kind_name((enum neap_trace_kind)kind), number(profile->kinds[kind]),
		    ret_failed);
	return object;
}

static json_t *warnings_json(const struct neap_trace *trace, bool *ret_failed)
{
	json_t *list = json_array();
	for (size_t i = 0; i < trace->warning_count; i++) {
		json_t *object = json_object();
		set(object, "text", look_json_text(trace->warnings[i].text), ret_failed);
		set(object, "position", number(trace->warnings[i].position), ret_failed);
		set(object, "count", number(trace->warnings[i].count), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *replay_json(const struct neap_analysis *analysis, bool *ret_failed)
{
	const struct neap_replay_match *match = &analysis->replay.match;
	const struct neap_stats *stats = &analysis->replay.usage.stats;
	json_t *object = json_object();
	set(object, "allocated_peak", json_integer(stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak),
	    ret_failed);
	set(object, "reserved_peak", json_integer(stats->metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak),
	    ret_failed);
	set(object, "compared", json_boolean(match->compared), ret_failed);
	set(object, "exact", json_boolean(neap_analysis_exact(analysis)), ret_failed);
	set(object, "first_difference", number_or_null(match->first_difference, UINT64_MAX), ret_failed);
	return object;
}

static void put_file(json_t *root, const struct neap_analysis *analysis, const char *path, bool *ret_failed)
{
	const struct neap_trace *trace = analysis->trace;
	const struct neap_profile *profile = &analysis->profile;
	set(root, "schema", json_integer(SCHEMA), ret_failed);
	set(root, "file", look_json_text(path), ret_failed);
	set(root, "source", json_string(neap_report_source_name(trace->source)), ret_failed);
	set(root, "devices", number(trace->device_count), ret_failed);
	set(root, "device", number(analysis->device), ret_failed);
	set(root, "streams", number(analysis->streams), ret_failed);
	set(root, "events", number(analysis->timeline.count), ret_failed);
	set(root, "from_event", number(profile->from), ret_failed);
	set(root, "to_event", number(profile->to), ret_failed);
	set(root, "duration_us",
	    number(profile->last_time_us > profile->first_time_us ? profile->last_time_us - profile->first_time_us
								  : 0),
	    ret_failed);
	set(root, "counts", counts_json(profile, ret_failed), ret_failed);
	set(root, "blocks_before", number(analysis->lives.before), ret_failed);
	set(root, "steps", number(analysis->steps.count), ret_failed);
	set(root, "steps_from", analysis->steps.count ? look_json_text(analysis->steps.how) : json_null(),
	    ret_failed);
}

static void put_peaks(json_t *root, const struct neap_analysis *analysis, bool *ret_failed)
{
	const struct neap_profile *profile = &analysis->profile;
	set(root, "requested_peak", number(profile->requested_peak.requested), ret_failed);
	set(root, "rounded_peak", number(profile->rounded_peak.rounded), ret_failed);
	set(root, "reserved_peak",
	    analysis->timeline.reserved_known ? number(profile->reserved_peak.reserved) : json_null(), ret_failed);
	set(root, "at_start", levels_json(analysis, &profile->start, ret_failed), ret_failed);
	set(root, "at_end", levels_json(analysis, &profile->end, ret_failed), ret_failed);
	set(root, "at_requested_peak", levels_json(analysis, &profile->requested_peak, ret_failed), ret_failed);
	set(root, "at_reserved_peak", levels_json(analysis, &profile->reserved_peak, ret_failed), ret_failed);
	set(root, "utilization", profile->utilization > 0 ? json_real(profile->utilization) : json_null(),
	    ret_failed);
}

int analysis_print_json(const struct neap_analysis *analysis, const char *path, size_t top)
{
	json_t *root = json_object(), *holders = json_array();
	bool failed = false;

	put_file(root, analysis, path, &failed);
	put_peaks(root, analysis, &failed);
	for (size_t i = 0; i < analysis->holder_count && i < top; i++)
		add(holders, holder_json(analysis, &analysis->holders[i], &failed), &failed);
	set(root, "holders", holders, &failed);
	set(root, "holder_count", number(analysis->holder_count), &failed);
	set(root, "categories", categories_json(analysis, &failed), &failed);
	set(root, "replay", replay_json(analysis, &failed), &failed);
	set(root, "warnings", warnings_json(analysis->trace, &failed), &failed);
	if (!failed && json_dumpf(root, stdout, JSON_INDENT(2)) == 0)
		putchar('\n');
	json_decref(root);
	if (failed)
		fputs("neap analyze: out of memory\n", stderr);
	return failed ? NEAP_EXIT_OS : NEAP_EXIT_OK;
}
