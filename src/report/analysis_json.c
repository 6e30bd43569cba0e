/* report/analysis_json.c: numbers as numbers, in bytes; null where nothing is known. */
#include "report/analysis_json.h"

#include "analyze/run.h"
#include "report/analysis.h"
#include "report/oom_json.h"
#include "store/json.h"

#define SCHEMA 1

static json_t *levels_json(const struct neap_analysis *analysis, const struct neap_trace_levels *levels)
{
	json_t *object = json_object();
	neap_json_set(object, "event", neap_json_number_or_null(levels->event, NEAP_LIFE_BEFORE));
	neap_json_set(object, "time_us", neap_json_number_or_null(levels->time_us, 0));
	neap_json_set(object, "step",
		      analysis->steps.count > 0 && levels->event != NEAP_LIFE_BEFORE
			      ? neap_json_number(neap_steps_before(&analysis->steps, levels->event) + 1)
			      : json_null());
	neap_json_set(object, "requested", neap_json_number(levels->requested));
	neap_json_set(object, "rounded", neap_json_number(levels->rounded));
	neap_json_set(object, "reserved",
		      analysis->timeline.reserved_known ? neap_json_number(levels->reserved) : json_null());
	return object;
}

static json_t *holder_json(const struct neap_analysis *analysis, const struct neap_holder *holder)
{
	static const char *const kinds[] = {"", "site", "freed_at", "size"};
	const struct neap_trace *trace = analysis->trace;
	json_t *object = json_object();
	char text[320];

	neap_holder_text(trace, holder, text, sizeof text);
	neap_json_set(object, "kind",
		      json_string(trace->source == NEAP_TRACE_RECORDING && holder->kind == NEAP_HOLDER_SITE
					  ? "tag"
					  : kinds[holder->kind]));
	neap_json_set(object, "text", neap_json_text(text));
	if (holder->kind != NEAP_HOLDER_SIZE) {
		const struct neap_trace_frame *frame = &trace->frames[holder->frame];
		neap_json_set(object, "file", neap_json_text(neap_trace_text(trace, frame->file)));
		neap_json_set(object, "line", neap_json_number_or_null(frame->line, 0));
		neap_json_set(object, "name", neap_json_text(neap_trace_text(trace, frame->name)));
	}
	neap_json_set(object, "bytes", neap_json_number(holder->bytes));
	neap_json_set(object, "blocks", neap_json_number(holder->blocks));
	neap_json_set(object, "largest_block", neap_json_number(holder->largest));
	return object;
}

static json_t *categories_json(const struct neap_analysis *analysis)
{
	json_t *list = json_array();
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++) {
			if (!analysis->categories.blocks[category][how])
				continue;
			json_t *object = json_object();
			neap_json_set(object, "category",
				      json_string(neap_category_name((enum neap_category)category)));
			neap_json_set(object, "inferred_from",
				      how == NEAP_HOW_NOTHING
					      ? json_null()
					      : json_string(neap_category_how_name((enum neap_category_how)how)));
			neap_json_set(object, "bytes", neap_json_number(analysis->categories.bytes[category][how]));
			neap_json_set(object, "blocks", neap_json_number(analysis->categories.blocks[category][how]));
			neap_json_add(list, object);
		}
	return list;
}

static json_t *counts_json(const struct neap_profile *profile)
{
	json_t *object = json_object();
	for (int kind = NEAP_TRACE_ALLOC; kind <= NEAP_TRACE_EMPTY_CACHE; kind++)
		neap_json_set(object, neap_trace_kind_name((enum neap_trace_kind)kind),
			      neap_json_number(profile->kinds[kind]));
	return object;
}

static json_t *warnings_json(const struct neap_trace *trace)
{
	json_t *list = json_array();
	for (size_t i = 0; i < trace->warning_count; i++) {
		json_t *object = json_object();
		neap_json_set(object, "text", neap_json_text(trace->warnings[i].text));
		neap_json_set(object, "position", neap_json_number(trace->warnings[i].position));
		neap_json_set(object, "count", neap_json_number(trace->warnings[i].count));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *replay_json(const struct neap_analysis *analysis)
{
	const struct neap_replay_match *match = &analysis->replay.match;
	const struct neap_stats *stats = &analysis->replay.usage.stats;
	json_t *object = json_object();
	neap_json_set(object, "allocated_peak",
		      json_integer(stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak));
	neap_json_set(object, "reserved_peak",
		      json_integer(stats->metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak));
	neap_json_set(object, "compared", json_boolean(match->compared));
	neap_json_set(object, "exact", json_boolean(neap_analysis_exact(analysis)));
	neap_json_set(object, "first_difference", neap_json_known(match->first_difference));
	return object;
}

static json_t *leak_json(const struct neap_leak *leak)
{
	static const char *const verdicts[] = {"too short", "clean", "leak"};
	json_t *object = json_object();
	neap_json_set(object, "verdict", json_string(verdicts[leak->verdict]));
	neap_json_set(object, "bytes_per_step", json_real(leak->bytes_per_step));
	neap_json_set(object, "low_bytes_per_step", json_real(leak->low_bytes_per_step));
	neap_json_set(object, "high_bytes_per_step", json_real(leak->high_bytes_per_step));
	neap_json_set(object, "confidence", json_real(leak->confidence));
	neap_json_set(object, "steps", neap_json_number(leak->steps));
	neap_json_set(object, "warm_up_steps", neap_json_number(leak->warm_up_steps));
	return object;
}

static json_t *trends_json(const struct neap_analysis *analysis)
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
		json_t *holder = holder_json(analysis, &trends->growing[i].holder);
		neap_json_set(holder, "leak", leak_json(&trends->growing[i].leak));
		neap_json_add(growing, holder);
	}
	neap_json_set(object, "leak", leak_json(&trends->leak));
	neap_json_set(object, "growing", growing);
	neap_json_set(object, "cause", json_string(causes[trends->swing]));
	neap_json_set(object, "amplitude", neap_json_number(trends->amplitude_bytes));
	neap_json_set(object, "teeth_per_step", json_real(trends->teeth_per_step));
	neap_json_set(object, "spread", json_real(trends->spread));
	neap_json_set(object, "period_steps", neap_json_number_or_null(trends->period, 0));
	neap_json_set(object, "peak_event", neap_json_number(trends->peak_event));
	neap_json_set(object, "trough_event", neap_json_number(trends->trough_event));
	neap_json_set(object, "cache_emptied", neap_json_number(trends->emptied));
	neap_json_set(object, "cache_emptied_every_steps", neap_json_number_or_null(trends->emptied_period, 0));
	return object;
}

static json_t *fragments_json(const struct neap_analysis *analysis, const struct neap_fragments *found, size_t top)
{
	if (!found->known)
		return json_null();
	json_t *object = json_object(), *worst = json_array();
	for (size_t i = 0; i < found->worst_count && i < top; i++) {
		const struct neap_pinned_segment *segment = &found->worst[i];
		json_t *item = json_object(), *pins = json_array();
		for (size_t n = 0; n < segment->pin_count; n++)
			neap_json_add(pins, holder_json(analysis, &segment->pins[n]));
		neap_json_set(item, "address", neap_json_number(segment->address));
		neap_json_set(item, "size", neap_json_number(segment->size));
		neap_json_set(item, "pinned", neap_json_number(segment->pinned));
		neap_json_set(item, "largest_free", neap_json_number(segment->largest_free));
		neap_json_set(item, "live_bytes", neap_json_number(segment->live_bytes));
		neap_json_set(item, "live_blocks", neap_json_number(segment->live_blocks));
		neap_json_set(item, "pins", pins);
		neap_json_add(worst, item);
	}
	neap_json_set(object, "segments", neap_json_number(found->segments));
	neap_json_set(object, "reserved", neap_json_number(found->reserved));
	neap_json_set(object, "live", neap_json_number(found->live));
	neap_json_set(object, "releasable", neap_json_number(found->releasable));
	neap_json_set(object, "pinned", neap_json_number(found->pinned));
	neap_json_set(object, "pinned_segments", neap_json_number(found->pinned_segments));
	neap_json_set(object, "largest_free", neap_json_number(found->largest_free));
	neap_json_set(object, "most_pinned", worst);
	return object;
}

static void put_file(json_t *root, const struct neap_analysis *analysis, const char *path)
{
	const struct neap_trace *trace = analysis->trace;
	const struct neap_profile *profile = &analysis->profile;
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "file", neap_json_text(path));
	neap_json_set(root, "source", json_string(neap_report_source_name(trace->source)));
	neap_json_set(root, "devices", neap_json_number(trace->device_count));
	neap_json_set(root, "device", neap_json_number(analysis->device));
	neap_json_set(root, "streams", neap_json_number(analysis->streams));
	neap_json_set(root, "events", neap_json_number(analysis->timeline.count));
	neap_json_set(root, "from_event", neap_json_number(profile->from));
	neap_json_set(root, "to_event", neap_json_number(profile->to));
	neap_json_set(root, "duration_us",
		      neap_json_number(profile->last_time_us > profile->first_time_us
					       ? profile->last_time_us - profile->first_time_us
					       : 0));
	neap_json_set(root, "counts", counts_json(profile));
	neap_json_set(root, "blocks_before", neap_json_number(analysis->lives.before));
	neap_json_set(root, "steps", neap_json_number(analysis->steps.count));
	neap_json_set(root, "steps_from", analysis->steps.count ? neap_json_text(analysis->steps.how) : json_null());
}

/* The process's own figures, for a recording without allocations; null for all others. */
static json_t *counted_json(const struct neap_analysis *analysis)
{
	struct neap_run_facts facts;
	json_t *object;

	if (!neap_analysis_empty(analysis) || !analysis->trace->record)
		return json_null();
	neap_run_facts(analysis->trace->record, 0, &facts);
	object = json_object();
	neap_json_set(object, "steps", neap_json_number(facts.steps));
	neap_json_set(object, "allocated_peak", neap_json_number(facts.peak_allocated_bytes));
	neap_json_set(object, "reserved_peak", neap_json_number(facts.peak_reserved_bytes));
	return object;
}

static void put_peaks(json_t *root, const struct neap_analysis *analysis)
{
	const struct neap_profile *profile = &analysis->profile;
	bool empty = neap_analysis_empty(analysis);
	neap_json_set(root, "requested_peak",
		      empty ? json_null() : neap_json_number(profile->requested_peak.requested));
	neap_json_set(root, "rounded_peak", empty ? json_null() : neap_json_number(profile->rounded_peak.rounded));
	neap_json_set(root, "counted_without_allocations", counted_json(analysis));
	neap_json_set(root, "reserved_peak",
		      analysis->timeline.reserved_known ? neap_json_number(profile->reserved_peak.reserved)
							: json_null());
	neap_json_set(root, "at_start", levels_json(analysis, &profile->start));
	neap_json_set(root, "at_end", levels_json(analysis, &profile->end));
	neap_json_set(root, "at_requested_peak", levels_json(analysis, &profile->requested_peak));
	neap_json_set(root, "at_reserved_peak", levels_json(analysis, &profile->reserved_peak));
	neap_json_set(root, "utilization", profile->utilization > 0 ? json_real(profile->utilization) : json_null());
}

static json_t *notes_json(const struct neap_trace *trace)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->note_count; i++) {
		const struct neap_trace_note *note = &trace->notes[i];
		json_t *object = json_object();
		neap_json_set(object, "device", neap_json_number(note->device));
		neap_json_set(object, "event", neap_json_number(note->event));
		neap_json_set(object, "user_metadata", neap_json_text(neap_trace_text(trace, note->user)));
		neap_json_set(object, "internal_metadata", neap_json_text(neap_trace_text(trace, note->internal)));
		neap_json_set(object, "compile_context", neap_json_text(neap_trace_text(trace, note->compile)));
		neap_json_add(list, object);
	}
	return list;
}

static json_t *annotations_json(const struct neap_trace *trace)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->annotation_count; i++) {
		const struct neap_trace_annotation *annotation = &trace->annotations[i];
		json_t *object = json_object();
		neap_json_set(object, "device", neap_json_number(annotation->device));
		neap_json_set(object, "event", neap_json_number(annotation->event));
		neap_json_set(object, "address", neap_json_number(annotation->address));
		neap_json_set(object, "size", neap_json_number(annotation->size));
		neap_json_set(object, "text", neap_json_text(neap_trace_text(trace, annotation->text)));
		neap_json_add(list, object);
	}
	return list;
}

/* Pinned memory of the host; null if the trace has none. */
static json_t *host_json(const struct neap_trace *trace)
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
	neap_json_set(object, "segments", neap_json_number(host->segment_count));
	neap_json_set(object, "bytes", neap_json_number(bytes));
	neap_json_set(object, "allocated", neap_json_number(allocated));
	neap_json_set(object, "events", neap_json_number(host->event_count));
	return object;
}

json_t *neap_analysis_json(const struct neap_analysis *analysis, const char *path, size_t top)
{
	json_t *root = json_object(), *holders = json_array();

	put_file(root, analysis, path);
	put_peaks(root, analysis);
	for (size_t i = 0; i < analysis->holder_count && i < top; i++)
		neap_json_add(holders, holder_json(analysis, &analysis->holders[i]));
	neap_json_set(root, "holders", holders);
	neap_json_set(root, "holder_count", neap_json_number(analysis->holder_count));
	neap_json_set(root, "categories", categories_json(analysis));
	neap_json_set(root, "steps_trends", trends_json(analysis));
	neap_json_set(root, "fragmentation", fragments_json(analysis, &analysis->fragments, top));
	neap_json_set(root, "fragmentation_at_reserved_peak",
		      fragments_json(analysis, &analysis->fragments_at_peak, top));
	neap_json_set(root, "oom", analysis->has_oom ? neap_oom_card_json(&analysis->oom) : json_null());
	neap_json_set(root, "other_settings",
		      analysis->whatifs.count ? neap_oom_whatifs_json(&analysis->whatifs) : json_null());
	neap_json_set(root, "replay", replay_json(analysis));
	neap_json_set(root, "metadata", notes_json(analysis->trace));
	neap_json_set(root, "annotations", annotations_json(analysis->trace));
	neap_json_set(root, "pinned_host_memory", host_json(analysis->trace));
	neap_json_set(root, "warnings", warnings_json(analysis->trace));
	return root;
}
