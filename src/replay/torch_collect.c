/* replay/torch_collect.c: garbage collection: before the driver is asked, whole segments of the large pool that have
 * not been used for long are freed. A block's age is how many searches its pool has seen since it was freed.
 *
 * A plan of what to free is made first, so that a recording's releases can be compared with it.
 */
#include "replay/torch_internal.h"

#include <stdlib.h>

struct candidate {
	struct block *block;
	uint64_t age;
	bool gone;
};

struct plan {
	struct candidate *candidates; /* in the set's order */
	size_t count;
	uint64_t target; /* bytes */
};

static bool is_on(const struct torch *torch)
{
	return torch->limited && torch->options.settings.garbage_collection_threshold > 0;
}

bool neap_torch_collecting(const struct neap_policy *policy) { return is_on((const struct torch *)policy); }

/* Plans how many bytes to free, which are those above the threshold, and lists the unsplit blocks. `searches` are
 * added to those that the pool has seen. Blocks of expandable segments are not freed, but their ages count. False:
 * there is nothing to do, or the host is out of memory. */
static bool plan_make(struct torch *torch, uint64_t searches, struct plan *plan)
{
	const struct set *set = &torch->pools[0]->free;
	double share = torch->options.settings.garbage_collection_threshold;
	uint64_t threshold = (uint64_t)(share * (double)torch->allowed_bytes);
	size_t capacity = 0;
	if (!is_on(torch) || torch->reserved <= threshold)
		return false;
	plan->target = torch->reserved - threshold;
	for (struct block *block = set_first(set); block; block = set_after(set, block))
		capacity += !block_is_split(block);
	plan->candidates = capacity ? calloc(capacity, sizeof *plan->candidates) : NULL;
	if (!plan->candidates) {
		torch->starved = torch->starved || capacity;
		return false;
	}
	for (struct block *block = set_first(set); block; block = set_after(set, block))
		if (!block_is_split(block))
			plan->candidates[plan->count++] = (struct candidate){
				.block = block, .age = block->pool->free_calls + searches - block->free_calls_base};
	return true;
}

/* Calls `take` for each block to free: for all blocks of at least the average age. Repeats this until the target is
 * met or no block is left.
 */
static void plan_run(struct plan *plan, void (*take)(void *context, struct block *block), void *context)
{
	uint64_t total_age = 0, count = plan->count, reclaimed = 0;
	for (size_t i = 0; i < plan->count; i++)
		total_age += plan->candidates[i].age;
	for (bool freed = true; reclaimed < plan->target && freed && count;) {
		double limit = (double)total_age / (double)count;
		freed = false;
		for (size_t i = 0; i < plan->count; i++) {
			struct candidate *candidate = &plan->candidates[i];
			if (candidate->gone || candidate->block->segment->expandable ||
			    (double)candidate->age < limit)
				continue;
			freed = candidate->gone = true;
			reclaimed += candidate->block->size;
			total_age -= candidate->age;
			count--;
			take(context, candidate->block);
		}
	}
}

static void take_free(void *context, struct block *block) { segment_free(context, block); }

void garbage_collect(struct torch *torch)
{
	struct plan plan = {0};
	if (plan_make(torch, 0, &plan))
		plan_run(&plan, take_free, torch);
	free(plan.candidates);
}

struct list {
	struct neap_torch_collected *to;
	size_t capacity, count;
};

static void take_note(void *context, struct block *block)
{
	struct list *list = context;
	if (list->count < list->capacity)
		list->to[list->count] = (struct neap_torch_collected){.address = block->address, .size = block->size};
	list->count++;
}

size_t neap_torch_collects(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool,
			   struct neap_torch_collected *ret_collected, size_t capacity)
{
	struct torch *torch = torch_of(policy);
	struct list list = {.to = ret_collected, .capacity = capacity};
	struct plan plan = {0};
	if (!is_on(torch) || bytes >= LARGEST_REQUEST)
		return 0;
	struct request request = request_make(torch, bytes, stream, pool);
	if (plan_make(torch, request.pool == torch->pools[0], &plan))
		plan_run(&plan, take_note, &list);
	free(plan.candidates);
	return list.count;
}
