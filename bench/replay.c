/* bench/replay.c: nanoseconds per event of PyTorch's modelled policy and of neap's allocator, on made-up training.
 *
 * usage: bench_replay [EVENTS]    200 000 of each kind when not said
 *
 * Prints one line per workload and policy: the best of three runs, without the reading of a trace.
 */
#include "../tests/replay/workload.h"
#include "base/clock.h"
#include "base/error.h"
#include "replay/neap_policy.h"
#include "replay/torch_policy.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kinds[] = {[WORKLOAD_RANDOM] = "random, 4 streams",
				    [WORKLOAD_STEPS] = "training steps",
				    [WORKLOAD_GROWING] = "growing buffers"};
static const char *const policies[] = {"torch", "torch-expandable", "neap"};

static enum neap_status make(size_t policy, struct neap_policy **ret_policy, struct neap_error *err)
{
	struct neap_torch_options options = {0};
	if (policy == 2)
		return neap_policy_create(&(struct neap_policy_options){0}, ret_policy, err);
	neap_torch_settings_default(&options.settings);
	options.settings.expandable_segments = policy == 1;
	return neap_torch_create(&options, ret_policy, err);
}

static enum neap_status apply(struct neap_policy *policy, const struct workload *work, void **blocks,
			      struct neap_error *err)
{
	for (size_t i = 0; i < work->count; i++) {
		const struct workload_op *op = &work->ops[i];
		enum neap_status status = NEAP_OK;
		policy->at(policy, i);
		if (op->verb == 'a')
			status = policy->alloc(policy, op->size, op->stream, 0, &blocks[op->id], err);
		else if (op->verb == 'f')
			status = policy->free(policy, blocks[op->id], err);
		else if (op->verb == 'r')
			status = policy->record_stream(policy, blocks[op->id], op->stream, err);
		else
			status = policy->empty_cache(policy, err);
		if (status)
			return status;
	}
	return NEAP_OK;
}

/* Nanoseconds per event, the best of three; below 0: *err says why. */
static double measure(size_t index, const struct workload *work, struct neap_error *err)
{
	const struct neap_clock *clock = neap_clock_system();
	void **blocks = calloc(work->ids + 1, sizeof *blocks);
	double best = -1;
	for (int round = 0; blocks && round < 3; round++) {
		struct neap_policy *policy = NULL;
		if (make(index, &policy, err) != NEAP_OK)
			break;
		uint64_t start = neap_clock_now(clock);
		enum neap_status status = apply(policy, work, blocks, err);
		double ns = (double)(neap_clock_now(clock) - start) / (double)work->count;
		policy->destroy(policy);
		if (status) {
			best = -1;
			break;
		}
		if (best < 0 || ns < best)
			best = ns;
	}
	free(blocks);
	return best;
}

int main(int argc, char **argv)
{
	size_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
	struct neap_error err = {.message = "out of memory"};
	printf("%-20s %-18s %s\n", "workload", "policy", "ns per event");
	for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
		struct workload work = workload_make((enum workload_kind)kind, 1, events);
		for (size_t i = 0; i < 3; i++) {
			double ns = measure(i, &work, &err);
			if (ns < 0) {
				fprintf(stderr, "bench_replay: %s, %s: %s\n", kinds[kind], policies[i], err.message);
				return 1;
			}
			printf("%-20s %-18s %.0f\n", kinds[kind], policies[i], ns);
		}
		free(work.ops);
	}
	return 0;
}
