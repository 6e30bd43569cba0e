/* run/ranks.c: see ranks.h. */
#include "run/ranks.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t plausible(uint64_t number, uint64_t otherwise) { return number > INT64_MAX ? otherwise : number; }

void neap_ranks_add(struct neap_ranks *ranks, uint64_t pid, const struct neap_run_facts *facts)
{
	static const enum neap_role roles[NEAP_PROCESS_ROLES] = {
		[NEAP_PROCESS_PLAIN] = NEAP_ROLE_PROCESS,
		[NEAP_PROCESS_RANK] = NEAP_ROLE_RANK,
		[NEAP_PROCESS_WORKER] = NEAP_ROLE_WORKER,
	};
	const struct neap_run_process *process = &facts->process;
	if (ranks->count == NEAP_RESULT_RANKS)
		return;
	ranks->parents[ranks->count] = process->parent;
	struct neap_result_rank *rank = &ranks->items[ranks->count++];
	*rank = (struct neap_result_rank){
		.role = roles[process->role],
		.rank = plausible(process->rank, UINT64_MAX),
		.local_rank = plausible(process->local_rank, UINT64_MAX),
		.pid = pid,
		.peak_allocated_bytes = plausible(facts->peak_allocated_bytes, INT64_MAX),
		.peak_reserved_bytes = plausible(facts->peak_reserved_bytes, INT64_MAX),
		.steps = facts->steps,
		.ooms = facts->ooms,
	};
	snprintf(rank->device, sizeof rank->device, "%s", process->devices);
}

static bool is_started_by_its_rank(const struct neap_ranks *ranks, size_t index)
{
	for (size_t i = 0; i < ranks->count; i++)
		if (i != index && ranks->items[i].pid == ranks->parents[index] &&
		    ranks->items[i].rank == ranks->items[index].rank)
			return true;
	return false;
}

static int compare(uint64_t one, uint64_t other) { return one < other ? -1 : one > other; }

static int by_rank(const void *a, const void *b)
{
	const struct neap_result_rank *one = a, *other = b;
	int order = compare(one->role != NEAP_ROLE_RANK, other->role != NEAP_ROLE_RANK);
	order = order ? order : compare(one->rank, other->rank);
	order = order ? order : compare(one->role, other->role);
	return order ? order : compare(one->pid, other->pid);
}

enum neap_status neap_ranks_put(struct neap_ranks *ranks, struct neap_result *result, struct neap_error *err)
{
	struct neap_result_rank *sorted = calloc(ranks->count + 1, sizeof *sorted);
	if (!sorted)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory while noting a run's processes");
	memcpy(sorted, ranks->items, ranks->count * sizeof *sorted);
	for (size_t i = 0; i < ranks->count; i++)
		if (sorted[i].role == NEAP_ROLE_RANK && is_started_by_its_rank(ranks, i))
			sorted[i].role = NEAP_ROLE_PROCESS;
	qsort(sorted, ranks->count, sizeof *sorted, by_rank);
	free(result->ranks);
	result->ranks = sorted;
	result->rank_count = ranks->count;
	return NEAP_OK;
}
