/* estimate/judge.c: a GPU's memory, less its driver's and a context, is what PyTorch may reserve; the trace is
 * replayed in it. */
#include "estimate/estimate.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

/* How much the code of kernels and libraries may add to a bare context, at most. Drivers load it when a kernel is
 * first launched, so it depends on the program, the driver and PyTorch, and is known on a GPU alone: this is assumed.
 * It is for lazy loading (CUDA_MODULE_LOADING), the default of today's drivers. */
#define CODE_BYTES (512 * NEAP_MIB)

/* What cuBLAS allocates with a handle and NCCL with a communicator is theirs, beside PyTorch's allocator. The
 * workspaces of the other libraries PyTorch allocates for them. */
static bool is_beside(const struct neap_simulated_gap *gap)
{
	return gap->kind == NEAP_GAP_WORKSPACE &&
	       (!strcmp(gap->library, "NCCL") || !strncmp(gap->function, "cublasCreate", 12));
}

struct neap_estimate_context neap_estimate_context(const struct neap_estimate_plan *plan, size_t gpu,
						   const struct neap_estimate_run *run)
{
	struct neap_estimate_context context = {.bare_bytes = plan->gpus[gpu].profile->context_mib * NEAP_MIB,
						.code_bytes = CODE_BYTES};
	uint64_t processes = run->process_count ? run->process_count : 1;
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		if (is_beside(gap)) /* of one process: as many calls as the others make */
			context.pools_bytes += (gap->calls + processes - 1) / processes * gap->high_bytes;
	}
	context.low_bytes = context.bare_bytes;
	context.high_bytes = context.bare_bytes + context.code_bytes + context.pools_bytes;
	return context;
}

uint64_t neap_estimate_workspace(const struct neap_estimate_run *run)
{
	uint64_t most = 0;
	for (size_t i = 0; i < run->gaps.gap_count; i++) {
		const struct neap_simulated_gap *gap = &run->gaps.gaps[i];
		if (gap->kind == NEAP_GAP_WORKSPACE && !is_beside(gap) && gap->high_bytes - gap->low_bytes > most)
			most = gap->high_bytes - gap->low_bytes;
	}
	return most;
}

size_t neap_estimate_sharing(const struct neap_estimate_run *run, uint64_t *ret_bytes)
{
	const char *device = run->processes[run->worst].device_uuid;
	size_t count = 0;
	*ret_bytes = 0;
	for (size_t i = 0; *device && i < run->process_count; i++) {
		if (i == run->worst || strcmp(run->processes[i].device_uuid, device) != 0)
			continue;
		*ret_bytes += run->processes[i].reserved_peak;
		count++;
	}
	return count;
}

void neap_estimate_device(const struct neap_estimate_run *run, const struct neap_estimate_context *context,
			  uint64_t *ret_low_bytes, uint64_t *ret_high_bytes)
{
	uint64_t shared_bytes, contexts = neap_estimate_sharing(run, &shared_bytes) + 1;
	uint64_t reserved = shared_bytes + run->reserved_peak;
	*ret_low_bytes = reserved + contexts * context->low_bytes;
	*ret_high_bytes = reserved + contexts * context->high_bytes + neap_estimate_workspace(run);
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

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static enum neap_status completes(const struct neap_estimate_run *run, struct neap_replay_options options,
				  uint64_t memory_bytes, bool *ret_completes, uint64_t *ret_retries,
				  struct neap_error *err)
{
	struct neap_replay_result result;
	*ret_completes = false;
	if (memory_bytes < NEAP_REPLAY_PAGE_BYTES)
		return NEAP_OK;
	options.memory_bytes = memory_bytes;
	enum neap_status status = neap_replay(run->trace, &options, &result, err);
	if (status)
		return status;
	*ret_completes = result.first_oom_event == UINT64_MAX;
	if (ret_retries)
		*ret_retries = (uint64_t)result.usage.stats.num_alloc_retries;
	return NEAP_OK;
}

static uint64_t category_bytes(const struct neap_categories *categories, enum neap_category category)
{
	uint64_t bytes = 0;
	for (int how = 0; how < NEAP_HOWS; how++)
		bytes += categories->bytes[category][how];
	return bytes;
}

static void predict(const struct neap_estimate_run *run, struct neap_estimate_verdict *verdict)
{
	const struct neap_categories *categories = &run->analysis.categories;
	struct neap_demand demand = {.activations = category_bytes(categories, NEAP_CATEGORY_ACTIVATIONS),
				     .temporaries = category_bytes(categories, NEAP_CATEGORY_TEMPORARIES),
				     .inputs = category_bytes(categories, NEAP_CATEGORY_INPUTS),
				     .parameters = category_bytes(categories, NEAP_CATEGORY_PARAMETERS),
				     .unknown = category_bytes(categories, NEAP_CATEGORY_UNKNOWN)};
	uint64_t samples = demand.activations + demand.temporaries + demand.inputs;
	demand.model = category_bytes(categories, NEAP_CATEGORY_GRADIENTS) +
		       category_bytes(categories, NEAP_CATEGORY_OPTIMIZER) +
		       category_bytes(categories, NEAP_CATEGORY_WORKSPACES);
	verdict->saving_count = neap_predict_savings(&demand, 0, 0, verdict->savings);
	int64_t room = (int64_t)samples + verdict->headroom_bytes;
	verdict->samples_share = samples && room > 0 ? (double)room / (double)samples : 0;
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
					      .progress = progress,
					      .context = context};
	uint64_t room = minus(gpu->total_bytes, gpu->reserved_bytes);
	uint64_t shared_bytes, sharing = neap_estimate_sharing(run, &shared_bytes);
	uint64_t least = minus(room, (sharing + 1) * verdict.context.high_bytes + shared_bytes);
	uint64_t most = minus(room, (sharing + 1) * verdict.context.low_bytes + shared_bytes);
	bool in_least = false, in_most = false;
	uint64_t workspace = neap_estimate_workspace(run);

	verdict.unsupported = !has_kernels(run, gpu->profile);
	enum neap_status status = neap_replay_smallest(run->trace, &options, &verdict.needed_bytes, err);
	if (!status)
		status = completes(run, options, minus(least, workspace), &in_least, &verdict.retries, err);
	if (!status && !in_least)
		status = completes(run, options, most, &in_most, &verdict.retries, err);
	if (status)
		return status;
	verdict.fits = in_least ? NEAP_ESTIMATE_YES : in_most ? NEAP_ESTIMATE_UNSURE : NEAP_ESTIMATE_NO;
	verdict.headroom_bytes = (int64_t)least - (int64_t)verdict.needed_bytes - (int64_t)workspace;
	if (!in_least && least >= NEAP_REPLAY_PAGE_BYTES) {
		options.memory_bytes = least;
		status = neap_whatifs_find(run->trace, &options, NULL, (struct neap_deadline){0}, &verdict.settings,
					   err);
	}
	if (!in_least)
		predict(run, &verdict);
	if (!status)
		*ret_verdict = verdict;
	return status;
}
