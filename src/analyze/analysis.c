/* analyze/analysis.c: runs the parts of an analysis. Each comes after those whose results it needs. */
#include "analyze/analysis.h"

#include "base/error.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

size_t neap_analysis_busiest(const struct neap_trace *trace)
{
	size_t best = 0;
	for (size_t i = 1; i < trace->device_count; i++) {
		const struct neap_trace_device *device = &trace->devices[i], *other = &trace->devices[best];
		if (device->event_count != other->event_count ? device->event_count > other->event_count
							      : device->segment_count > other->segment_count)
			best = i;
	}
	return best;
}

uint64_t neap_analysis_failures(const struct neap_trace *trace, size_t device)
{
	struct neap_trace_cursor cursor = neap_trace_events(trace, device, 0);
	struct neap_trace_event event;
	uint64_t count = 0;
	while (neap_trace_find(&cursor, 1u << NEAP_TRACE_OOM, &event))
		count++;
	return count;
}

size_t neap_analysis_device(const struct neap_trace *trace)
{
	size_t best = SIZE_MAX;
	uint64_t best_us = 0;
	for (size_t i = 0; trace->device_count > 1 && i < trace->device_count; i++) {
		struct neap_trace_cursor cursor = neap_trace_events(trace, i, 0);
		struct neap_trace_event event;
		while (neap_trace_find(&cursor, 1u << NEAP_TRACE_OOM, &event)) {
			if (best != SIZE_MAX && event.time_us < best_us)
				continue;
			best = i;
			best_us = event.time_us;
		}
	}
	return best == SIZE_MAX ? neap_analysis_busiest(trace) : best;
}

/* Returns the first event at least `offset_us` after the first event that has a time. */
static uint64_t event_at_time(const struct neap_analysis *analysis, uint64_t offset_us, bool *ret_has_times)
{
	struct neap_trace_cursor cursor = neap_trace_events(analysis->trace, analysis->device, 0);
	struct neap_trace_event event;
	uint64_t first = 0, at = 0;
	*ret_has_times = false;
	for (; neap_trace_next(&cursor, &event); at++) {
		if (!first)
			first = event.time_us;
		*ret_has_times |= event.time_us != 0;
		if (first && event.time_us >= first && event.time_us - first >= offset_us)
			return at;
	}
	return at;
}

static enum neap_status resolve(const struct neap_analysis *analysis, const struct neap_instant *instant,
				const char *name, uint64_t none, uint64_t *ret_event, struct neap_error *err)
{
	uint64_t events = analysis->trace->devices[analysis->device].event_count;
	bool has_times = false;
	switch (instant->kind) {
	case NEAP_INSTANT_EVENT:
		if (instant->value > events)
			return neap_fail(err, NEAP_EINVAL, "%s: there are %" PRIu64 " events, no number %" PRIu64,
					 name, events, instant->value);
		*ret_event = instant->value;
		return NEAP_OK;
	case NEAP_INSTANT_STEP:
		if (instant->value == 0 || instant->value > analysis->steps.count + 1)
			return neap_fail(err, NEAP_EINVAL, "%s: %zu steps end in this trace, no step %" PRIu64, name,
					 analysis->steps.count, instant->value);
		*ret_event = instant->value == 1 ? 0 : analysis->steps.ends[instant->value - 2];
		return NEAP_OK;
	case NEAP_INSTANT_TIME:
		*ret_event = event_at_time(analysis, instant->value, &has_times);
		if (!has_times)
			return neap_fail(err, NEAP_EINVAL, "%s: this trace has no times: give event:N or step:N",
					 name);
		return NEAP_OK;
	default:
		*ret_event = none;
		return NEAP_OK;
	}
}

static enum neap_status count_streams(struct neap_analysis *analysis, struct neap_error *err)
{
	uint8_t *seen = calloc(analysis->trace->stream_count + 1, 1);
	if (!seen)
		return neap_fail(err, NEAP_ENOMEM, "no memory to count streams");
	struct neap_life_cursor cursor = neap_lives_begin(&analysis->lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life)) {
		uint8_t *mark = &seen[life.stream];
		analysis->streams += !*mark;
		*mark = 1;
	}
	free(seen);
	return NEAP_OK;
}

/* Replays under the trace's own settings; a recording of neap's allocator, with that allocator. */
static enum neap_status replay_own(struct neap_analysis *analysis, const struct neap_analysis_options *options,
				   struct neap_error *err)
{
	bool own = neap_trace_of_neap(analysis->trace);
	struct neap_replay_options replay = {.policy = own ? NEAP_REPLAY_NEAP : NEAP_REPLAY_TORCH,
					     .device = analysis->device,
					     .go_on = true,
					     .progress = options->progress,
					     .context = options->context};
	return neap_replay(analysis->trace, &replay, &analysis->replay, err);
}

static uint64_t peak(const struct neap_replay_result *replay, enum neap_metric metric)
{
	return (uint64_t)replay->usage.stats.metric[metric][NEAP_CLASS_ALL].peak;
}

static struct neap_compiled compiled_peaks(const struct neap_replay_result *replay)
{
	return (struct neap_compiled){.requested_peak = peak(replay, NEAP_METRIC_REQUESTED_BYTES),
				      .allocated_peak = peak(replay, NEAP_METRIC_ALLOCATED_BYTES),
				      .reserved_peak = peak(replay, NEAP_METRIC_RESERVED_BYTES)};
}

/* Replays without the blocks that were allocated to compile. Blocks that stay, such as constants, are a part of the
 * program. */
static enum neap_status replay_compiled(struct neap_analysis *analysis, const struct neap_analysis_options *options,
					struct neap_error *err)
{
	struct neap_replay_result result;
	struct neap_compiled all = compiled_peaks(&analysis->replay), found;
	uint8_t *left_out = calloc(analysis->trace->call_count + 1, 1);
	struct neap_replay_options replay = {.torch = analysis->replay.version.to,
					     .device = analysis->device,
					     .left_out = left_out,
					     .go_on = true,
					     .progress = options->progress,
					     .context = options->context};
	enum neap_status status = NEAP_OK;
	bool any = false;

	if (!left_out)
		return neap_fail(err, NEAP_ENOMEM, "no memory for the stacks of a trace");
	for (size_t i = 0; i < analysis->trace->call_count; i++)
		left_out[i] = analysis->sites.phases[i] == NEAP_PHASE_COMPILING;
	struct neap_life_cursor cursor = neap_lives_begin(&analysis->lives, 0);
	struct neap_life life;
	while (neap_lives_next(&cursor, &life))
		left_out[life.stack] &= life.end != NEAP_LIFE_AFTER;
	cursor = neap_lives_begin(&analysis->lives, 0);
	while (!any && neap_lives_next(&cursor, &life))
		any = left_out[life.stack];
	if (!any || !analysis->trace->torch)
		goto out;
	status = neap_replay(analysis->trace, &replay, &result, err);
	if (status)
		goto out;
	found = compiled_peaks(&result);
	/* This replay has no recorded failures, so if it reserves more than the program did, its peaks mean
	 * nothing. */
	found.known = found.requested_peak <= all.requested_peak && found.allocated_peak <= all.allocated_peak &&
		      found.reserved_peak <= all.reserved_peak &&
		      (found.requested_peak < all.requested_peak || found.allocated_peak < all.allocated_peak ||
		       found.reserved_peak < all.reserved_peak);
	analysis->compiled = found;
out:
	free(left_out);
	return status;
}

static enum neap_status examine_peak(struct neap_analysis *analysis, struct neap_error *err)
{
	uint64_t peak = analysis->profile.requested_peak.event, events = analysis->timeline.count;
	neap_categories_at(&analysis->lives, &analysis->sites, &analysis->steps, events, peak, &analysis->categories);
	return neap_holders_at(&analysis->lives, &analysis->sites, peak, &analysis->holders, &analysis->holder_count,
			       err);
}

/* Makes the figures of a fit. `replay`: a replay on a device of this size, without a failure. */
static struct neap_analysis_fit fit_of(const struct neap_analysis *analysis, const struct neap_replay_result *replay,
				       uint64_t memory_bytes)
{
	const struct neap_leak *leak = &analysis->trends.leak;
	struct neap_analysis_fit fit = {.reserved_peak = peak(replay, NEAP_METRIC_RESERVED_BYTES)};

	if (neap_analysis_empty(analysis) || fit.reserved_peak > memory_bytes)
		return (struct neap_analysis_fit){0};
	fit.memory_bytes = memory_bytes;
	fit.left_bytes = memory_bytes - fit.reserved_peak;
	if (leak->verdict == NEAP_LEAK_FOUND && leak->bytes_per_step >= 1)
		fit.more_steps = (uint64_t)((double)fit.left_bytes / leak->bytes_per_step);
	return fit;
}

/* Predicts a failure on a device with options->memory_bytes. NEAP_ENOENT: it would not fail, and `fit` is filled. */
static enum neap_status predict_oom(struct neap_analysis *analysis, const struct neap_trace_parts *parts,
				    const struct neap_trace_oom_options *options, struct neap_error *err)
{
	bool own = neap_trace_of_neap(analysis->trace);
	struct neap_trace_oom_options predicted = *options;
	struct neap_replay_options replay = {.policy = own ? NEAP_REPLAY_NEAP : NEAP_REPLAY_TORCH,
					     .device = analysis->device,
					     .memory_bytes = options->memory_bytes,
					     .progress = options->progress,
					     .context = options->context};
	struct neap_replay_result result;
	enum neap_status status = neap_replay(analysis->trace, &replay, &result, err);

	if (status)
		return status;
	if (result.oom_count == 0) {
		analysis->fit = fit_of(analysis, &result, options->memory_bytes);
		return NEAP_ENOENT;
	}
	predicted.predicted = result.ooms;
	return neap_trace_oom_card(parts, &predicted, &analysis->oom, err);
}

/* Replays under other settings, on the device that ran out of memory, or on one without a bound. */
static enum neap_status replay_others(struct neap_analysis *analysis, const struct neap_analysis_options *options,
				      struct neap_error *err)
{
	struct neap_replay_options replay = {
		.device = analysis->device, .progress = options->progress, .context = options->context};
	struct neap_trace_oom_options oom = {.index = SIZE_MAX,
					     .memory_bytes = options->memory_bytes,
					     .progress = options->progress,
					     .context = options->context};
	struct neap_trace_parts parts = {&analysis->timeline, &analysis->lives, &analysis->sites, &analysis->steps};
	const struct neap_stats *stats = &analysis->replay.usage.stats;
	double reserved = (double)stats->metric[NEAP_METRIC_RESERVED_BYTES][NEAP_CLASS_ALL].peak;
	double requested = (double)stats->metric[NEAP_METRIC_REQUESTED_BYTES][NEAP_CLASS_ALL].peak;
	enum neap_status status = neap_trace_oom_card(&parts, &oom, &analysis->oom, err);

	if (status == NEAP_ENOENT && options->memory_bytes)
		status = predict_oom(analysis, &parts, &oom, err);
	analysis->has_oom = status == NEAP_OK;
	if (status != NEAP_ENOENT)
		return status;
	if (reserved - requested <= reserved * NEAP_WASTE_MIN)
		return NEAP_OK;
	return neap_whatifs_find(analysis->trace, &replay, &analysis->replay, (struct neap_deadline){0},
				 &analysis->whatifs, err);
}

enum neap_status neap_analyze(const struct neap_trace *trace, const struct neap_analysis_options *options,
			      struct neap_analysis *ret_analysis, struct neap_error *err)
{
	struct neap_analysis *analysis = ret_analysis;
	uint64_t from = 0, to = UINT64_MAX;

	*analysis = (struct neap_analysis){.trace = trace};
	analysis->device = options->device == SIZE_MAX ? neap_analysis_device(trace) : options->device;
	if (analysis->device >= trace->device_count)
		return neap_fail(err, NEAP_EINVAL, "the trace has %zu device%s, no number %zu", trace->device_count,
				 trace->device_count == 1 ? "" : "s", analysis->device);
	enum neap_status status = neap_lives_find(trace, analysis->device, &analysis->lives, err);
	if (!status)
		status = neap_sites_make(trace, &analysis->sites, err);
	if (!status)
		status = neap_steps_find(trace, analysis->device, &analysis->steps, err);
	if (!status)
		status = neap_categories_pair(&analysis->lives, &analysis->sites, &analysis->steps,
					      trace->devices[analysis->device].event_count, err);
	if (!status)
		status = count_streams(analysis, err);
	if (!status)
		status = resolve(analysis, &options->from, "--from", 0, &from, err);
	if (!status)
		status = resolve(analysis, &options->to, "--to", UINT64_MAX, &to, err);
	if (!status && from > to)
		status = neap_fail(err, NEAP_EINVAL, "--from is after --to");
	if (!status)
		status = replay_own(analysis, options, err);
	if (!status)
		status = replay_compiled(analysis, options, err);
	if (!status)
		status = neap_timeline_make(trace, analysis->device, &analysis->lives, &analysis->replay.settings,
					    &analysis->timeline, err);
	if (status)
		return status;
	neap_profile_take(&analysis->timeline, from, to, &analysis->profile);
	status = examine_peak(analysis, err);
	if (!status)
		status = neap_trends_find(&analysis->timeline, &analysis->lives, &analysis->sites, &analysis->steps,
					  &analysis->trends, err);
	if (!status)
		status = neap_fragments_find(trace, analysis->device, &analysis->lives, &analysis->sites,
					     NEAP_LIFE_AFTER, NULL, &analysis->fragments, err);
	if (!status && analysis->timeline.reserved_known && analysis->profile.reserved_peak.event != NEAP_LIFE_BEFORE)
		status = neap_fragments_find(trace, analysis->device, &analysis->lives, &analysis->sites,
					     analysis->profile.reserved_peak.event, NULL,
					     &analysis->fragments_at_peak, err);
	if (!status && options->answered)
		options->answered(options->context, analysis);
	return status == NEAP_OK ? replay_others(analysis, options, err) : status;
}

void neap_analysis_fini(struct neap_analysis *analysis)
{
	neap_lives_fini(&analysis->lives);
	neap_sites_fini(&analysis->sites);
	neap_steps_fini(&analysis->steps);
	neap_timeline_fini(&analysis->timeline);
	neap_trends_fini(&analysis->trends);
	free(analysis->holders);
	*analysis = (struct neap_analysis){0};
}

enum neap_status neap_instant_parse(const char *text, struct neap_instant *ret_instant, struct neap_error *err)
{
	static const struct {
		const char *prefix;
		enum neap_instant_kind kind;
	} kinds[] = {{"event:", NEAP_INSTANT_EVENT}, {"step:", NEAP_INSTANT_STEP}};
	uint64_t value = 0;

	if (!text)
		return NEAP_OK;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		size_t length = strlen(kinds[i].prefix);
		if (strncmp(text, kinds[i].prefix, length) != 0)
			continue;
		enum neap_status status = neap_u64_parse(text + length, &value, err);
		if (!status)
			*ret_instant = (struct neap_instant){kinds[i].kind, value};
		return status;
	}
	enum neap_status status = neap_duration_parse(text, &value, err);
	if (!status)
		*ret_instant = (struct neap_instant){NEAP_INSTANT_TIME, value / 1000};
	return status;
}
