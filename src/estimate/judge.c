/* estimate/judge.c: replays the trace within the memory that PyTorch may reserve: a GPU's memory minus the share of
 * the driver and a context. */
#include "estimate/estimate.h"

#include "analyze/saturate.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_BYTES (1ull << 50)

/* An optimizer makes its state in the first update, so the second update's peak has that state beside the
 * activations. */
#define UPDATES_MOST   50 /* of a program whose memory is not steady: python/neap/_steady.py */
#define UPDATES_ENOUGH 2

size_t neap_estimate_sharing(const struct neap_estimate_run *run, uint64_t *ret_bytes)
{
	const char *device = run->processes[run->worst].device_uuid;
	size_t count = 0;
	*ret_bytes = 0;
	for (size_t i = 0; *device && i < run->process_count; i++) {
		if (i == run->worst || strcmp(run->processes[i].device_uuid, device) != 0)
			continue;
		*ret_bytes = neap_plus(*ret_bytes, run->processes[i].reserved_peak);
		count++;
	}
	return count;
}

void neap_estimate_process_bytes(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
				 uint64_t *ret_low_bytes, uint64_t *ret_high_bytes)
{
	*ret_low_bytes = context->low_bytes + run->reserved_low;
	*ret_high_bytes = context->high_bytes + run->reserved_high + neap_estimate_workspace(run);
}

void neap_estimate_device(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
			  uint64_t *ret_low_bytes, uint64_t *ret_high_bytes)
{
	uint64_t shared_bytes, contexts = neap_estimate_sharing(run, &shared_bytes) + 1;
	*ret_low_bytes = shared_bytes + run->reserved_low + contexts * context->low_bytes;
	*ret_high_bytes =
		shared_bytes + run->reserved_high + contexts * (context->high_bytes + neap_estimate_workspace(run));
}

bool neap_estimate_is_cut_short(const struct neap_estimate_run *run)
{
	const struct neap_estimate_process *process = &run->processes[run->worst];
	return run->result.outcome == NEAP_OUTCOME_TIMEOUT && process->steps < UPDATES_ENOUGH &&
	       process->forwards < UPDATES_ENOUGH;
}

const struct neap_estimate_process *neap_estimate_growing(const struct neap_estimate_run *run)
{
	for (size_t i = 0; run->result.outcome != NEAP_OUTCOME_OK && i < run->process_count; i++) {
		const struct neap_estimate_process *process = &run->processes[i];
		bool bounded = run->result.outcome == NEAP_OUTCOME_TIMEOUT || process->steps >= UPDATES_MOST;
		if (process->steps > UPDATES_ENOUGH &&
		    process->grew_at + (bounded ? NEAP_ESTIMATE_STEADY : 1) > process->steps)
			return process;
	}
	return NULL;
}

const char *neap_estimate_doubt_name(enum neap_estimate_doubt doubt)
{
	static const char *const names[NEAP_ESTIMATE_DOUBTS] = {[NEAP_ESTIMATE_SURE] = "",
								[NEAP_ESTIMATE_CONTEXT] = "context",
								[NEAP_ESTIMATE_WORKSPACE] = "workspace",
								[NEAP_ESTIMATE_ADDRESSES] = "addresses",
								[NEAP_ESTIMATE_CUT_SHORT] = "time limit",
								[NEAP_ESTIMATE_GROWING] = "growing",
								[NEAP_ESTIMATE_UNBOUNDED] = "convolution"};
	return names[doubt];
}

/* PyTorch's kernels run on their own architecture and on later ones of the same generation. */
static bool has_kernels(const struct neap_estimate_run *run, const struct sim_profile *profile)
{
	const char *at = run->architectures;
	if (!*at)
		return true; /* not known */
	for (; (at = strstr(at, "sm_")); at += 3) {
		int number = atoi(at + 3);
		if (number / 10 == profile->compute_major && number % 10 <= profile->compute_minor)
			return true;
	}
	return false;
}

/* Bounds bytes, so that a sum of a few cannot overflow: a run's files may say anything. */
static int64_t limited(uint64_t bytes) { return bytes < LARGEST_BYTES ? (int64_t)bytes : (int64_t)LARGEST_BYTES; }

static enum neap_status completes(const struct neap_estimate_run *run, const struct neap_replay_options *options,
				  bool *ret_completes, uint64_t *ret_retries, struct neap_error *err)
{
	struct neap_replay_result result;
	enum neap_status status = neap_replay(run->trace, options, &result, err);
	if (status)
		return status;
	*ret_completes = result.first_oom_event == UINT64_MAX;
	*ret_retries = (uint64_t)result.usage.stats.num_alloc_retries;
	return NEAP_OK;
}

/* How many orders of the segments' addresses matter. */
static uint32_t orders_of(const struct neap_estimate_run *run) { return run->by_address ? NEAP_REPLAY_ADDRESSES : 1; }

/* Counts the orders of addresses in which the replay succeeds in that memory. Stops at the first order that differs
 * from the first one. */
static enum neap_status count_orders(const struct neap_estimate_run *run, struct neap_replay_options options,
				     int64_t memory_bytes, uint32_t *ret_count, uint64_t *ret_retries,
				     struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	uint32_t count = 0, done = 0;
	if (memory_bytes < (int64_t)NEAP_REPLAY_PAGE_BYTES)
		return NEAP_OK;
	options.memory_bytes = (uint64_t)memory_bytes;
	while (!status && done < orders_of(run) && (count == 0 || count == done)) {
		bool ends = false;
		uint64_t retries = 0;
		options.addresses = done++;
		status = completes(run, &options, &ends, &retries, err);
		count += ends;
		*ret_retries = ends && retries > *ret_retries ? retries : *ret_retries;
	}
	if (!status)
		*ret_count = count;
	return status;
}

/* Finds the smallest memory in which the replay succeeds in all orders of addresses. */
static enum neap_status find_needed(const struct neap_estimate_run *run, struct neap_replay_options options,
				    uint64_t *ret_bytes, struct neap_error *err)
{
	uint64_t needed = 0, retries;
	enum neap_status status = NEAP_OK;
	for (options.addresses = 0; !status && options.addresses < orders_of(run); options.addresses++) {
		bool ends = false;
		uint64_t bytes = 0;
		options.memory_bytes = needed;
		if (needed)
			status = completes(run, &options, &ends, &retries, err);
		if (!status && !ends)
			status = neap_replay_smallest(run->trace, &options, &bytes, err);
		needed = bytes > needed ? bytes : needed;
	}
	if (!status)
		*ret_bytes = needed;
	return status;
}

uint64_t neap_estimate_category_bytes(const struct neap_categories *categories, int category)
{
	uint64_t bytes = 0;
	for (int how = 0; how < NEAP_HOWS; how++)
		bytes += categories->bytes[category][how];
	return bytes;
}

static void predict(const struct neap_estimate_plan *plan, const struct neap_estimate_run *run,
		    struct neap_estimate_verdict *verdict)
{
	const struct neap_categories *categories = &run->analysis.categories;
	struct neap_demand demand = {
		.activations = neap_estimate_category_bytes(categories, NEAP_CATEGORY_ACTIVATIONS),
		.temporaries = neap_estimate_category_bytes(categories, NEAP_CATEGORY_TEMPORARIES),
		.inputs = neap_estimate_category_bytes(categories, NEAP_CATEGORY_INPUTS),
		.parameters = neap_estimate_category_bytes(categories, NEAP_CATEGORY_PARAMETERS),
		.leaked = neap_estimate_category_bytes(categories, NEAP_CATEGORY_KEPT),
		.unknown = neap_estimate_category_bytes(categories, NEAP_CATEGORY_UNKNOWN)};
	uint64_t samples = demand.activations + demand.temporaries + demand.inputs;
	demand.model = neap_estimate_category_bytes(categories, NEAP_CATEGORY_GRADIENTS) +
		       neap_estimate_category_bytes(categories, NEAP_CATEGORY_OPTIMIZER) +
		       neap_estimate_category_bytes(categories, NEAP_CATEGORY_WORKSPACES);
	verdict->saving_count = neap_predict_savings(&demand, plan->rungs, 0, verdict->savings);
	int64_t headroom = (int64_t)samples + verdict->headroom_bytes;
	verdict->samples_share = samples && headroom > 0 ? (double)headroom / (double)samples : 0;
}

/* The memory that is left for PyTorch. Below 0: that much is missing even without PyTorch. */
struct rooms {
	int64_t low, high; /* with the smallest contexts, with the largest */
	int64_t least;     /* with the largest contexts and the libraries' largest workspaces */
};

static struct rooms find_rooms(const struct neap_estimate_gpu *gpu, const struct neap_estimate_run *run,
			       const struct neap_estimate_context *context)
{
	uint64_t shared_bytes;
	int64_t processes = (int64_t)neap_estimate_sharing(run, &shared_bytes) + 1;
	int64_t headroom = limited(gpu->total_bytes) - limited(gpu->reserved_bytes) - limited(shared_bytes);
	struct rooms rooms = {.low = headroom - processes * limited(context->low_bytes),
			      .high = headroom - processes * limited(context->high_bytes)};
	rooms.least = rooms.high - processes * limited(neap_estimate_workspace(run));
	return rooms;
}

/* Replays the trace in the least memory that may be left, and in more if that is not enough. */
static enum neap_status find_fit(const struct neap_estimate_run *run, const struct neap_replay_options *options,
				 const struct rooms *rooms, struct neap_estimate_verdict *verdict,
				 struct neap_error *err)
{
	uint32_t least = 0, high = 0, low = 0;
	enum neap_status status = count_orders(run, *options, rooms->least, &least, &verdict->retries, err);
	if (!status && !least && rooms->high > rooms->least)
		status = count_orders(run, *options, rooms->high, &high, &verdict->retries, err);
	if (!status && !least && !high)
		status = count_orders(run, *options, rooms->low, &low, &verdict->retries, err);
	if (status)
		return status;
	if (!least)
		verdict->doubt = high ? NEAP_ESTIMATE_WORKSPACE : low ? NEAP_ESTIMATE_CONTEXT : NEAP_ESTIMATE_SURE;
	else if (least < orders_of(run))
		verdict->doubt = NEAP_ESTIMATE_ADDRESSES;
	else if (neap_estimate_is_cut_short(run))
		verdict->doubt = NEAP_ESTIMATE_CUT_SHORT;
	else if (neap_estimate_growing(run))
		verdict->doubt = NEAP_ESTIMATE_GROWING;
	else if (neap_estimate_is_unbounded(run))
		verdict->doubt = NEAP_ESTIMATE_UNBOUNDED;
	verdict->fits = verdict->doubt ? NEAP_ESTIMATE_UNSURE : least ? NEAP_ESTIMATE_YES : NEAP_ESTIMATE_NO;
	return NEAP_OK;
}

enum neap_status neap_estimate_judge(const struct neap_estimate_plan *plan, size_t index,
				     const struct neap_estimate_run *run,
				     bool (*progress)(void *context, uint64_t done, uint64_t total), void *context,
				     struct neap_estimate_verdict *ret_verdict, struct neap_error *err)
{
	const struct neap_estimate_gpu *gpu = &plan->gpus[index];
	struct neap_estimate_verdict verdict = {.context = neap_estimate_context(plan, index, run)};
	struct neap_replay_options options = {.policy = NEAP_REPLAY_TORCH,
					      .device = run->analysis.device,
					      .torch = run->by_address,
					      .progress = progress,
					      .context = context};
	struct rooms rooms = find_rooms(gpu, run, &verdict.context);

	verdict.unsupported = !has_kernels(run, gpu->profile);
	enum neap_status status = find_needed(run, options, &verdict.needed_bytes, err);
	if (!status)
		status = find_fit(run, &options, &rooms, &verdict, err);
	if (status)
		return status;
	verdict.headroom_bytes = rooms.least - limited(verdict.needed_bytes);
	/* If the run was cut short, the settings that would help are unknown, too, and a run that fits so far needs
	 * none. */
	if (verdict.fits != NEAP_ESTIMATE_YES && verdict.doubt != NEAP_ESTIMATE_GROWING &&
	    verdict.doubt != NEAP_ESTIMATE_UNBOUNDED && !neap_estimate_is_cut_short(run)) {
		options.memory_bytes = rooms.least > 0 ? (uint64_t)rooms.least : 0;
		if (options.memory_bytes >= NEAP_REPLAY_PAGE_BYTES)
			status = neap_whatifs_find(run->trace, &options, NULL, (struct neap_deadline){0},
						   &verdict.settings, err);
		predict(plan, run, &verdict);
	}
	if (!status)
		*ret_verdict = verdict;
	return status;
}
