/* report/analysis_json.c: an analysis as JSON: sizes are numbers, in bytes; null means unknown. */

#include "analyze/run.h"
#include "report/analysis.h"
#include "report/report.h"
#include "store/json_rows.h"

#define SCHEMA 1

static json_t *levels_json(const struct neap_analysis *analysis, const struct neap_trace_levels *levels)
{
	return JSON(KNOWN("event", levels->event), GIVEN("time_us", levels->time_us),
		    ONLY(analysis->steps.count > 0 && levels->event != NEAP_LIFE_BEFORE,
			 NUMBER("step", neap_steps_before(&analysis->steps, levels->event) + 1)),
		    NUMBER("requested", levels->requested), NUMBER("rounded", levels->rounded),
		    ONLY(analysis->timeline.reserved_known, NUMBER("reserved", levels->reserved)));
}

static json_t *holder_json(const struct neap_analysis *analysis, const struct neap_holder *holder)
{
	static const char *const kinds[] = {"", "site", "freed_at", "size"};
	const struct neap_trace *trace = analysis->trace;
	json_t *object = json_object();
	char text[320];

	neap_holder_text(trace, holder, text, sizeof text);
	JSON_PUT(object,
		 TEXT("kind",
		      neap_trace_of_neap(trace) && holder->kind == NEAP_HOLDER_SITE ? "tag" : kinds[holder->kind]),
		 TEXT("text", text));
	if (holder->kind != NEAP_HOLDER_SIZE) {
		const struct neap_trace_frame *frame = &trace->frames[holder->frame];
		JSON_PUT(object, TEXT("file", neap_trace_text(trace, frame->file)), GIVEN("line", frame->line),
			 TEXT("name", neap_trace_text(trace, frame->name)));
	}
	JSON_PUT(object, NUMBER("bytes", holder->bytes), NUMBER("blocks", holder->blocks),
		 NUMBER("largest_block", holder->largest));
	return object;
}

static json_t *categories_json(const struct neap_analysis *analysis)
{
	json_t *list = json_array();
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++) {
			if (!analysis->categories.blocks[category][how])
				continue;
			neap_json_add(list, JSON(TEXT("category", neap_category_name((enum neap_category)category)),
						 ONLY(how != NEAP_HOW_NOTHING,
						      TEXT("inferred_from",
							   neap_category_how_name((enum neap_category_how)how))),
						 NUMBER("bytes", analysis->categories.bytes[category][how]),
						 NUMBER("blocks", analysis->categories.blocks[category][how])));
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
	for (size_t i = 0; i < trace->warning_count; i++)
		neap_json_add(list, JSON(TEXT("text", trace->warnings[i].text),
					 NUMBER("position", trace->warnings[i].position),
					 NUMBER("count", trace->warnings[i].count)));
	return list;
}

static json_t *replay_json(const struct neap_analysis *analysis)
{
	const struct neap_replay_match *match = &analysis->replay.match;
	const struct neap_stats *stats = &analysis->replay.usage.stats;
	return JSON(INTEGER("allocated_peak", stats->metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].peak),
		    INTEGER("reserved_peak", stats->metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak),
		    BOOL("compared", match->compared), BOOL("exact", neap_analysis_exact(analysis)),
		    KNOWN("first_difference", match->first_difference));
}

static json_t *leak_json(const struct neap_leak *leak)
{
	static const char *const verdicts[] = {"too short", "clean", "leak"};
	return JSON(TEXT("verdict", verdicts[leak->verdict]), REAL("bytes_per_step", leak->bytes_per_step),
		    REAL("low_bytes_per_step", leak->low_bytes_per_step),
		    REAL("high_bytes_per_step", leak->high_bytes_per_step), REAL("confidence", leak->confidence),
		    NUMBER("steps", leak->steps), NUMBER("warm_up_steps", leak->warm_up_steps));
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
	if (trends->steps == 0)
		return json_null();
	json_t *growing = json_array();
	for (size_t i = 0; i < trends->growing_count; i++) {
		json_t *holder = holder_json(analysis, &trends->growing[i].holder);
		neap_json_set(holder, "leak", leak_json(&trends->growing[i].leak));
		neap_json_add(growing, holder);
	}
	return JSON(VALUE("leak", leak_json(&trends->leak)), VALUE("growing", growing),
		    TEXT("cause", causes[trends->swing]), NUMBER("amplitude", trends->amplitude_bytes),
		    NUMBER("micro_batches_per_step", trends->course.micro_batches),
		    REAL("teeth_per_step", trends->teeth_per_step), REAL("spread", trends->spread),
		    GIVEN("period_steps", trends->period), NUMBER("peak_event", trends->peak_event),
		    NUMBER("trough_event", trends->trough_event), NUMBER("cache_emptied", trends->emptied),
		    GIVEN("cache_emptied_every_steps", trends->emptied_period));
}

static json_t *fragments_json(const struct neap_analysis *analysis, const struct neap_fragments *found, size_t top)
{
	if (!found->known)
		return json_null();
	json_t *worst = json_array();
	for (size_t i = 0; i < found->worst_count && i < top; i++) {
		const struct neap_pinned_segment *segment = &found->worst[i];
		json_t *pins = json_array();
		for (size_t n = 0; n < segment->pin_count; n++)
			neap_json_add(pins, holder_json(analysis, &segment->pins[n]));
		json_t *item = JSON(NUMBER("address", segment->address), NUMBER("size", segment->size),
				    NUMBER("pinned", segment->pinned), NUMBER("largest_free", segment->largest_free),
				    NUMBER("live_bytes", segment->live_bytes),
				    NUMBER("live_blocks", segment->live_blocks), VALUE("pins", pins));
		neap_json_add(worst, item);
	}
	return JSON(NUMBER("segments", found->segments), NUMBER("reserved", found->reserved),
		    NUMBER("live", found->live), NUMBER("releasable", found->releasable),
		    NUMBER("pinned", found->pinned), NUMBER("pinned_segments", found->pinned_segments),
		    NUMBER("largest_free", found->largest_free), VALUE("most_pinned", worst));
}

static void put_file(json_t *root, const struct neap_analysis *analysis, const char *path)
{
	const struct neap_trace *trace = analysis->trace;
	const struct neap_profile *profile = &analysis->profile;
	JSON_PUT(root, INTEGER("schema", SCHEMA), TEXT("file", path),
		 TEXT("source", neap_report_source_name(trace->source)), GIVEN("gpu", trace->origin.gpu),
		 ONLY(neap_trace_origin_known(trace), BOOL("simulated", trace->origin.simulated)),
		 NUMBER("devices", trace->device_count), NUMBER("device", analysis->device),
		 NUMBER("streams", analysis->streams), NUMBER("events", analysis->timeline.count),
		 NUMBER("from_event", profile->from), NUMBER("to_event", profile->to),
		 NUMBER("duration_us", profile->last_time_us > profile->first_time_us
					       ? profile->last_time_us - profile->first_time_us
					       : 0),
		 VALUE("counts", counts_json(profile)), NUMBER("blocks_before", analysis->lives.before),
		 NUMBER("steps", analysis->steps.count),
		 ONLY(analysis->steps.count, TEXT("steps_from", analysis->steps.how)));
}

/* The process's own figures, for a recording without allocations; null for all others. */
static json_t *counted_json(const struct neap_analysis *analysis)
{
	struct neap_run_facts facts;

	if (!neap_analysis_empty(analysis) || !analysis->trace->record)
		return json_null();
	neap_run_facts(analysis->trace->record, 0, &facts);
	return JSON(NUMBER("steps", facts.steps), NUMBER("allocated_peak", facts.peak_allocated_bytes),
		    NUMBER("reserved_peak", facts.peak_reserved_bytes));
}

static void put_peaks(json_t *root, const struct neap_analysis *analysis)
{
	const struct neap_profile *profile = &analysis->profile;
	bool empty = neap_analysis_empty(analysis);
	JSON_PUT(root, ONLY(!empty, NUMBER("requested_peak", profile->requested_peak.requested)),
		 ONLY(!empty, NUMBER("rounded_peak", profile->rounded_peak.rounded)),
		 VALUE("counted_without_allocations", counted_json(analysis)),
		 ONLY(analysis->timeline.reserved_known, NUMBER("reserved_peak", profile->reserved_peak.reserved)),
		 VALUE("at_start", levels_json(analysis, &profile->start)),
		 VALUE("at_end", levels_json(analysis, &profile->end)),
		 VALUE("at_requested_peak", levels_json(analysis, &profile->requested_peak)),
		 VALUE("at_reserved_peak", levels_json(analysis, &profile->reserved_peak)),
		 GIVEN("utilization", profile->utilization));
}

static json_t *notes_json(const struct neap_trace *trace)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->note_count; i++) {
		const struct neap_trace_note *note = &trace->notes[i];
		neap_json_add(list, JSON(NUMBER("device", note->device), NUMBER("event", note->event),
					 TEXT("user_metadata", neap_trace_text(trace, note->user)),
					 TEXT("internal_metadata", neap_trace_text(trace, note->internal)),
					 TEXT("compile_context", neap_trace_text(trace, note->compile))));
	}
	return list;
}

static json_t *annotations_json(const struct neap_trace *trace)
{
	json_t *list = json_array();

	for (size_t i = 0; i < trace->annotation_count; i++) {
		const struct neap_trace_annotation *annotation = &trace->annotations[i];
		neap_json_add(list, JSON(NUMBER("device", annotation->device), NUMBER("event", annotation->event),
					 NUMBER("address", annotation->address), NUMBER("size", annotation->size),
					 TEXT("text", neap_trace_text(trace, annotation->text))));
	}
	return list;
}

/* Pinned memory of the host; null if the trace has none. */
static json_t *host_json(const struct neap_trace *trace)
{
	const struct neap_trace_host *host = &trace->host;
	uint64_t bytes = 0, allocated = 0;

	if (!host->segment_count && !host->event_count)
		return json_null();
	for (size_t i = 0; i < host->segment_count; i++) {
		bytes += host->segments[i].size;
		allocated += host->segments[i].allocated;
	}
	return JSON(NUMBER("segments", host->segment_count), NUMBER("bytes", bytes), NUMBER("allocated", allocated),
		    NUMBER("events", host->event_count));
}

static json_t *fit_json(const struct neap_analysis_fit *fit)
{
	if (!fit->memory_bytes)
		return json_null();
	return JSON(NUMBER("memory", fit->memory_bytes), NUMBER("reserved_peak", fit->reserved_peak),
		    NUMBER("left", fit->left_bytes), GIVEN("full_after_steps", fit->more_steps));
}

json_t *neap_analysis_json(const struct neap_analysis *analysis, const char *path, size_t top)
{
	json_t *root = json_object(), *holders = json_array();

	put_file(root, analysis, path);
	put_peaks(root, analysis);
	for (size_t i = 0; i < analysis->holder_count && i < top; i++)
		neap_json_add(holders, holder_json(analysis, &analysis->holders[i]));
	JSON_PUT(root, VALUE("holders", holders), NUMBER("holder_count", analysis->holder_count),
		 VALUE("categories", categories_json(analysis)), VALUE("steps_trends", trends_json(analysis)),
		 VALUE("fragmentation", fragments_json(analysis, &analysis->fragments, top)),
		 VALUE("fragmentation_at_reserved_peak", fragments_json(analysis, &analysis->fragments_at_peak, top)),
		 VALUE("oom", analysis->has_oom ? neap_oom_card_json(&analysis->oom) : json_null()),
		 VALUE("fit", fit_json(&analysis->fit)),
		 VALUE("other_settings",
		       analysis->whatifs.count ? neap_oom_whatifs_json(&analysis->whatifs) : json_null()),
		 VALUE("replay", replay_json(analysis)), VALUE("metadata", notes_json(analysis->trace)),
		 VALUE("annotations", annotations_json(analysis->trace)),
		 VALUE("pinned_host_memory", host_json(analysis->trace)),
		 VALUE("warnings", warnings_json(analysis->trace)));
	return root;
}
