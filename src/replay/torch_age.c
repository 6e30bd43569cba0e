/* replay/torch_age.c: finds the age of memory from before a recording began.
 *
 * Age breaks ties of size, and no snapshot has it. If a recording took another block than the guessed ages predict,
 * that block's memory is the older: it moves right before the other, and everything else stays in place. Ages of
 * memory made during the recording are known, and greater than all of these.
 */
#include "replay/torch_internal.h"

/* Whether all blocks of a segment have one age; else each has its own. */
static bool by_segment(const struct torch *torch) { return torch->options.rules.order == NEAP_TORCH_BY_SEGMENT_AGE; }

static bool is_guess(const struct torch *torch, const struct block *block)
{
	return by_segment(torch) ? block->segment->restored : block->restored;
}

/* Returns the greatest age below `age`. */
static uint64_t age_before(const struct torch *torch, uint64_t age)
{
	uint64_t found = 0;
	for (const struct segment *segment = torch->first_segment; segment; segment = segment->next) {
		if (by_segment(torch) && segment->age < age && segment->age > found)
			found = segment->age;
		for (const struct block *block = segment->first; block && !by_segment(torch); block = block->next)
			if (block->age < age && block->age > found)
				found = block->age;
	}
	return found;
}

static void set_age(struct block *block, uint64_t age)
{
	bool listed = block->mapped && block_is_idle(block);
	if (listed)
		set_remove(&block->pool->free, block);
	block->age = age;
	if (listed)
		set_insert(&block->pool->free, block);
}

/* Makes `block` older than `other`, by as little as possible. */
static void make_older(struct torch *torch, struct block *block, const struct block *other)
{
	uint64_t before = age_before(torch, other->age), age = before + (other->age - before) / 2;
	if (block->age < other->age || age == before)
		return;
	if (!by_segment(torch)) {
		set_age(block, age);
		return;
	}
	block->segment->age = age;
	for (struct block *at = block->segment->first; at; at = at->next)
		set_age(at, age);
}

void neap_torch_learn(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t pool, uint64_t address)
{
	struct torch *torch = torch_of(policy);
	if (torch->options.rules.order == NEAP_TORCH_BY_ADDRESS || bytes >= LARGEST_REQUEST)
		return;
	struct request request = request_make(torch, bytes, stream, pool);
	struct block *chosen = request.pool ? choose_free(torch, &request) : NULL, *block = chosen;
	if (!chosen || chosen->address == address || !is_guess(torch, chosen))
		return;
	while (block && block->address != address)
		block = set_after(&request.pool->free, block);
	if (block && block->size == chosen->size && block->stream == chosen->stream && is_guess(torch, block))
		make_older(torch, block, chosen);
}

/* Returns the free block that is the whole segment at `address`. NULL: there is none, or its age is known. */
static struct block *free_segment(const struct torch *torch, uint64_t address)
{
	for (struct segment *segment = torch->first_segment; segment; segment = segment->next) {
		struct block *block = segment->first;
		if (segment->address == address && !segment->expandable && block_is_idle(block) &&
		    !block_is_split(block) && is_guess(torch, block))
			return block;
	}
	return NULL;
}

void neap_torch_learn_freed(struct neap_policy *policy, uint64_t first_address, uint64_t second_address)
{
	struct torch *torch = torch_of(policy);
	if (torch->options.rules.order == NEAP_TORCH_BY_ADDRESS)
		return;
	struct block *first = free_segment(torch, first_address), *second = free_segment(torch, second_address);
	if (first && second && first->pool == second->pool && first->size == second->size &&
	    first->stream == second->stream)
		make_older(torch, first, second);
}
