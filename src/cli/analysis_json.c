/* cli/analysis_json.c: numbers as numbers, in bytes; null where nothing is known. */
#include "cli/analysis_json.h"

#include "cli/command.h"
#include "cli/json_parts.h"
#include "cli/look.h"
#include "cli/oom_json.h"
#include "report/analysis.h"

#define SCHEMA 1

static json_t *levels_json(const struct neap_analysis *analysis, const struct neap_trace_levels *levels,
			   bool *ret_failed)
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

	neap_holder_text(trace, holder, text, sizeof text);
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

static json_t *leak_json(const struct neap_leak *leak, bool *ret_failed)
{
	static const char *const verdicts[] = {"too short", "clean", "leak"};
	json_t *object = json_object();
	set(object, "verdict", json_string(verdicts[leak->verdict]), ret_failed);
	set(object, "bytes_per_step", json_real(leak->bytes_per_step), ret_failed);
	set(object, "low_bytes_per_step", json_real(leak->low_bytes_per_step), ret_failed);
	set(object, "high_bytes_per_step", json_real(leak->high_bytes_per_step), ret_failed);
	set(object, "confidence", json_real(leak->confidence), ret_failed);
	set(object, "steps", number(leak->steps), ret_failed);
	set(object, "warm_up_steps", number(leak->warm_up_steps), ret_failed);
	return object;
}

static json_t *trends_json(const struct neap_analysis *analysis, bool *ret_failed)
{
	static const char *const causes[] = {[NEAP_SWING_UNKNOWN] = "unknown",
					     [NEAP_SWING_NONE] = "none",
					     [NEAP_SWING_STEP] = "step",
					     [NEAP_SWING_ACCUMULATION] = "accumulation",
					     [NEAP_SWING_EVALUATION] = "evaluation",
					     [NEAP_SWING_CLEANUP] = "cleanup",
					     [NEAP_SWING_PERIODIC] = "periodic",
					     [NEAP_SWING_VARIABLE] = "variable"};
	const struct neap_trends *trends = &analysis->trends;
	json_t *object = json_object(), *growing = json_array();
	if (trends->steps == 0) {
		json_decref(growing);
		json_decref(object);
		return json_null();
	}
	for (size_t i = 0; i < trends->growing_count; i++) {
		json_t *holder = holder_json(analysis, &trends->growing[i].holder, ret_failed);
		set(holder, "leak", leak_json(&trends->growing[i].leak, ret_failed), ret_failed);
		add(growing, holder, ret_failed);
	}
	set(object, "leak", leak_json(&trends->leak, ret_failed), ret_failed);
	set(object, "growing", growing, ret_failed);
	set(object, "cause", json_string(causes[trends->swing]), ret_failed);
	set(object, "amplitude", number(trends->amplitude_bytes), ret_failed);
	set(object, "teeth_per_step", json_real(trends->teeth_per_step), ret_failed);
	set(object, "spread", json_real(trends->spread), ret_failed);
	set(object, "period_steps", number_or_null(trends->period, 0), ret_failed);
	set(object, "peak_event", number(trends->peak_event), ret_failed);
	set(object, "trough_event", number(trends->trough_event), ret_failed);
	set(object, "cache_emptied", number(trends->emptied), ret_failed);
	set(object, "cache_emptied_every_steps", number_or_null(trends->emptied_period, 0), ret_failed);
	return object;
}

static json_t *fragments_json(const struct neap_analysis *analysis, const struct neap_fragments *found, size_t top,
			      bool *ret_failed)
{
	if (!found->known)
		return json_null();
	json_t *object = json_object(), *worst = json_array();
	for (size_t i = 0; i < found->worst_count && i < top; i++) {
		const struct neap_pinned_segment *segment = &found->worst[i];
		json_t *item = json_object(), *pins = json_array();
		for (size_t n = 0; n < segment->pin_count; n++)
			add(pins, holder_json(analysis, &segment->pins[n], ret_failed), ret_failed);
		set(item, "address", number(segment->address), ret_failed);
		set(item, "size", number(segment->size), ret_failed);
		set(item, "pinned", number(segment->pinned), ret_failed);
		set(item, "largest_free", number(segment->largest_free), ret_failed);
		set(item, "live_bytes", number(segment->live_bytes), ret_failed);
		set(item, "live_blocks", number(segment->live_blocks), ret_failed);
		set(item, "pins", pins, ret_failed);
		add(worst, item, ret_failed);
	}
	set(object, "segments", number(found->segments), ret_failed);
	set(object, "reserved", number(found->reserved), ret_failed);
	set(object, "live", number(found->live), ret_failed);
	set(object, "releasable", number(found->releasable), ret_failed);
	set(object, "pinned", number(found->pinned), ret_failed);
	set(object, "pinned_segments", number(found->pinned_segments), ret_failed);
	set(object, "largest_free", number(found->largest_free), ret_failed);
	set(object, "most_pinned", worst, ret_failed);
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

static json_t *notes_json(const struct neap_trace *trace, bool *ret_failed)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->note_count; i++) {
		const struct neap_trace_note *note = &trace->notes[i];
		json_t *object = json_object();
		set(object, "device", number(note->device), ret_failed);
		set(object, "event", number(note->event), ret_failed);
		set(object, "user_metadata", look_json_text(neap_trace_text(trace, note->user)), ret_failed);
		set(object, "internal_metadata", look_json_text(neap_trace_text(trace, note->internal)), ret_failed);
		set(object, "compile_context", look_json_text(neap_trace_text(trace, note->compile)), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

static json_t *annotations_json(const struct neap_trace *trace, bool *ret_failed)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->annotation_count; i++) {
		const struct neap_trace_annotation *annotation = &trace->annotations[i];
		json_t *object = json_object();
		set(object, "device", number(annotation->device), ret_failed);
		set(object, "event", number(annotation->event), ret_failed);
		set(object, "address", number(annotation->address), ret_failed);
		set(object, "size", number(annotation->size), ret_failed);
		set(object, "text", look_json_text(neap_trace_text(trace, annotation->text)), ret_failed);
		add(list, object, ret_failed);
	}
	return list;
}

/* Pinned memory of the host; null where nothing is known of any. */
static json_t *host_json(const struct neap_trace *trace, bool *ret_failed)
{
	const struct neap_trace_host *host = &trace->host;
	uint64_t bytes = 0, allocated = 0;
	json_t *object;

	if (!host->segment_count && !host->event_count)
		return json_null();
	for (size_t i = 0; i < host->segment_count; i++) {
		bytes += host->segments[i].size;
		allocated += host->segments[i].allocated;
	}
	object = json_object();
	set(object, "segments", number(host->segment_count), ret_failed);
	set(object, "bytes", number(bytes), ret_failed);
	set(object, "allocated", number(allocated), ret_failed);
	set(object, "events", number(host->event_count), ret_failed);
	return object;
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
	set(root, "steps_trends", trends_json(analysis, &failed), &failed);
	set(root, "fragmentation", fragments_json(analysis, &analysis->fragments, top, &failed), &failed);
	set(root, "fragmentation_at_reserved_peak",
	    fragments_json(analysis, &analysis->fragments_at_peak, top, &failed), &failed);
	set(root, "oom", analysis->has_oom ? oom_card_json(&analysis->oom, &failed) : json_null(), &failed);
	set(root, "other_settings",
	    analysis->whatifs.count ? oom_whatifs_json(&analysis->whatifs, &failed) : json_null(), &failed);
	set(root, "replay", replay_json(analysis, &failed), &failed);
	set(root, "metadata", notes_json(analysis->trace, &failed), &failed);
	set(root, "annotations", annotations_json(analysis->trace, &failed), &failed);
	set(root, "pinned_host_memory", host_json(analysis->trace, &failed), &failed);
	set(root, "warnings", warnings_json(analysis->trace, &failed), &failed);
	return look_json_print("analyze", root, failed);
}
