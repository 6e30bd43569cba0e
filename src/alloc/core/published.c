/* alloc/core/published.c: the counters as other processes see them.
 *
 *   writer:  sequence odd | words ... | sequence even        reader:  sequence even | words ... | the same sequence
 *
 * There are no fences: every word is stored with release and loaded with acquire order. A release store keeps the odd
 * sequence before every word; an acquire load keeps the second read of the sequence after every word. On x86 these
 * are plain moves, and thread sanitizers understand them. The writer's counters are in private memory; of the page it
 * reads only the sequence from which it begins.
 */
#include "alloc/core/core.h"

static uint64_t word_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* Writes every word: at the start, to a new page, and after a reset of the statistics. */
void neap_published_all(struct neap_alloc *alloc)
{
	struct neap_published copy = {
		.context_bytes = neap_device_context_bytes(alloc->device),
		.limit_bytes = alloc->limit_bytes,
		.largest_free_bytes = alloc->largest_free_bytes,
		.stats = alloc->stats,
	};
	const struct neap_device_info *info = neap_device_info(alloc->device);
	for (size_t i = 0; i < sizeof copy.device_uuid; i++)
		copy.device_uuid[i] = info->uuid[i];
	const uint64_t *from = (const uint64_t *)&copy;
	uint64_t *to = (uint64_t *)alloc->published;
	for (size_t i = 1; i < sizeof copy / sizeof(uint64_t); i++)
		neap_published_word(alloc, to + i, from[i]);
}

_Static_assert(offsetof(struct neap_published, sequence) == 0, "the sequence is word 0");
_Static_assert(sizeof(struct neap_published) % sizeof(uint64_t) == 0, "whole words");

static void add(struct neap_stats *stats, enum neap_metric metric, int part, uint64_t taken, uint64_t given)
{
	struct neap_stat *const both[] = {
		&stats->metric[metric][NEAP_CLASS_ALL],
		&stats->metric[metric][part == 1 ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE],
	};
	/* Unsigned, so that a corrupt page cannot cause signed overflow. */
	for (int i = 0; i < 2; i++) {
		both[i]->current = (int64_t)((uint64_t)both[i]->current + taken - given);
		both[i]->allocated = (int64_t)((uint64_t)both[i]->allocated + taken);
		both[i]->freed = (int64_t)((uint64_t)both[i]->freed + given);
	}
}

void neap_published_add_lanes(struct neap_published *copy)
{
	struct neap_stats *stats = &copy->stats;
	for (int lane = 0; lane < NEAP_PUBLISHED_LANES; lane++) {
		for (int part = 0; part < NEAP_PUBLISHED_PARTS; part++) {
			struct neap_published_lane *did = &copy->lanes[lane][part];
			add(stats, NEAP_METRIC_ALLOCATION, part, did->blocks_taken, did->blocks_given);
			add(stats, NEAP_METRIC_ACTIVE, part, did->blocks_taken, did->blocks_given);
			add(stats, NEAP_METRIC_ALLOCATED_BYTES, part, did->bytes_taken, did->bytes_given);
			add(stats, NEAP_METRIC_ACTIVE_BYTES, part, did->bytes_taken, did->bytes_given);
			add(stats, NEAP_METRIC_REQUESTED_BYTES, part, did->requested_taken, did->requested_given);
			add(stats, NEAP_METRIC_INACTIVE_SPLIT, part, did->blocks_given, did->blocks_taken);
			add(stats, NEAP_METRIC_INACTIVE_SPLIT_BYTES, part, did->bytes_given, did->bytes_taken);
			*did = (struct neap_published_lane){0};
		}
	}
}

static bool same_part(const struct neap_published_lane *from, const struct neap_published_lane *copy)
{
	return copy->sequence % 2 == 0 && word_load(&from->sequence) == copy->sequence;
}

/* Reads one lane as it was at one instant. False: it changed meanwhile. */
static bool read_lane(const struct neap_published_lane *from, struct neap_published_lane *ret_copy)
{
	for (int part = 0; part < NEAP_PUBLISHED_PARTS; part++) {
		const uint64_t *words = (const uint64_t *)&from[part];
		uint64_t *to = (uint64_t *)&ret_copy[part];
		for (size_t i = 0; i < sizeof *from / sizeof(uint64_t); i++)
			to[i] = word_load(words + i);
	}
	bool same = true;
	for (int part = 0; part < NEAP_PUBLISHED_PARTS; part++)
		same = same && same_part(&from[part], &ret_copy[part]);
	return same;
}

/* Reads each lane at an instant of its own: no lane can change so much meanwhile that the sum would exceed a peak. */
static bool read_lanes(const struct neap_published *from, struct neap_published *ret_copy)
{
	for (int lane = 0; lane < NEAP_PUBLISHED_LANES; lane++) {
		int tries = 0;
		while (!read_lane(from->lanes[lane], ret_copy->lanes[lane]))
			if (++tries == 100)
				return false;
	}
	return true;
}

enum neap_status neap_published_read(const struct neap_published *published, struct neap_published *ret_copy)
{
	const uint64_t *from = (const uint64_t *)published;
	struct neap_published copy;
	uint64_t *to = (uint64_t *)&copy;
	for (int tries = 0; tries < 1000; tries++) {
		uint64_t sequence = word_load(from);
		if (sequence % 2 == 1)
			continue;
		for (size_t i = 1; i < offsetof(struct neap_published, lanes) / sizeof(uint64_t); i++)
			to[i] = word_load(from + i);
		if (read_lanes(published, &copy) && word_load(from) == sequence) {
			to[0] = sequence;
			neap_published_add_lanes(&copy);
			*ret_copy = copy;
			return NEAP_OK;
		}
	}
	return NEAP_EBUSY;
}
