/* analyze/trace_oom.c: figures of the failure, then replays on the device it failed on. */
#include "analyze/trace_oom.h"

#include "base/error.h"

#include <string.h>

/* Notes the last failure and whether anything came after it. */
static bool find_event(const struct neap_timeline *timeline, struct neap_trace_oom *oom)
{
	struct neap_timeline_cursor cursor = neap_timeline_begin(timeline);
	while (neap_timeline_next(&cursor)) {
		if (cursor.event.kind == NEAP_TRACE_OOM) {
			oom->event = cursor.now.event;
			oom->count++;
			oom->asked_bytes = cursor.event.size;
			oom->device_free_bytes = cursor.event.address;
			oom->stack = cursor.event.stack;
			oom->levels = cursor.now;
			oom->at_end = true;
		} else if (cursor.event.kind != NEAP_TRACE_SNAPSHOT_TAKEN) {
			oom->at_end = false;
		}
	}
	return oom->count > 0;
}

/* The segment that PyTorch would have made for the request. */
static uint64_t segment_of(uint64_t bytes, bool expandable)
{
	const uint64_t mib = 1ull << 20;
	if (bytes <= mib)
		return 2 * mib;
	if (expandable || bytes < 10 * mib)
		return (bytes + 20 * mib - 1) / (20 * mib) * (20 * mib);
	return (bytes + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

static void find_cause(struct neap_trace_oom *oom, bool expandable, uint64_t given_bytes)
{
	bool limited = oom->device_free_bytes >= segment_of(oom->asked_bytes, expandable);
	uint64_t needed = oom->levels.requested + oom->asked_bytes;

	oom->memory_bytes = given_bytes ? given_bytes
			    : limited   ? oom->levels.reserved
					: oom->levels.reserved + oom->device_free_bytes;
	oom->missing_bytes = needed > oom->memory_bytes ? needed - oom->memory_bytes : 0;
	oom->cause = limited && !given_bytes  ? NEAP_TRACE_OOM_LIMIT
		     : oom->missing_bytes > 0 ? NEAP_TRACE_OOM_CAPACITY
					      : NEAP_TRACE_OOM_FRAGMENTATION;
}

/* What changes of training would save at the failure. The request itself is counted to what its stack says. */
static void predict(const struct neap_lives *lives, const struct neap_sites *sites, const struct neap_steps *steps,
		    uint64_t events, struct neap_trace_oom *oom)
{
	struct neap_train_settings whole = {.split = {.micro_batch = 2, .accumulate = 1, .ranks = 1}}, half = whole;
	struct neap_categories found;
	uint64_t sums[NEAP_CATEGORIES] = {0};

	neap_categories_at(lives, sites, steps, events, oom->event, &found);
	for (int category = 0; category < NEAP_CATEGORIES; category++)
		for (int how = 0; how < NEAP_HOWS; how++)
			sums[category] += found.bytes[category][how];
	struct neap_demand demand = {.activations = sums[NEAP_CATEGORY_ACTIVATIONS],
				     .temporaries = sums[NEAP_CATEGORY_TEMPORARIES],
				     .inputs = sums[NEAP_CATEGORY_INPUTS],
				     .parameters = sums[NEAP_CATEGORY_PARAMETERS],
				     .model = sums[NEAP_CATEGORY_GRADIENTS] + sums[NEAP_CATEGORY_OPTIMIZER] +
					      sums[NEAP_CATEGORY_WORKSPACES],
				     .unknown = sums[NEAP_CATEGORY_UNKNOWN]};
	half.split.micro_batch = 1;
	half.split.accumulate = 2;
	oom->unknown_bytes = demand.unknown;
	/* Where most is unknown the intervals would span nearly everything. */
	if (demand.activations == 0 || demand.unknown > neap_demand_total(&demand) / 2)
		return;
	oom->half_batch_known = neap_predict(&demand, &whole, &half, 0, &oom->half_batch);
	oom->saving_count = neap_predict_savings(&demand, 0, 0, oom->savings);
}

enum neap_status neap_trace_oom_find(const struct neap_timeline *timeline, const struct neap_lives *lives,
				     const struct neap_sites *sites, const struct neap_steps *steps,
				     const struct neap_replay_options *options, struct neap_trace_oom *ret_oom,
				     struct neap_error *err)
{
	const struct neap_trace *trace = timeline->trace;
	struct neap_trace_oom oom = {0};
	struct neap_replay_options replay = *options;
	struct neap_error ignored;

	if (!find_event(timeline, &oom))
		return neap_fail(err, NEAP_ENOENT, "no request of the trace ran out of memory");
	find_cause(&oom, trace->settings.expandable_segments, options->memory_bytes);
	replay.memory_bytes = oom.memory_bytes;
	enum neap_status status = neap_whatifs_find(trace, &replay, &oom.whatifs, err);
	if (status != NEAP_OK)
		return status;
	replay.policy = trace->source == NEAP_TRACE_RECORDING ? NEAP_REPLAY_NEAP : NEAP_REPLAY_TORCH;
	status = neap_replay_smallest(trace, &replay, &oom.smallest_bytes, &ignored);
	if (status != NEAP_OK && status != NEAP_EOOM) {
		neap_fail(err, status, "%s", ignored.message);
		return status;
	}
	predict(lives, sites, steps, timeline->count, &oom);
	*ret_oom = oom;
	return NEAP_OK;
}
