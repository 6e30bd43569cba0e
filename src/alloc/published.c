/* alloc/published.c: the counters as other processes see them.
 *
 *   writer:  sequence odd | words ... | sequence even        reader:  sequence even | words ... | the same sequence
 *
 * Every word is stored with release and loaded with acquire order instead of using fences: a release store keeps the
 * odd sequence before every word, an acquire load keeps the second look at the sequence behind every word. On x86
 * these are plain moves, and thread sanitizers understand them. What is in the page is never read back by the writer
 * but for the sequence it begins from: its own counters are in private memory.
 */
#include "alloc/internal.h"

static uint64_t word_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

void neap_published_close(struct neap_alloc *alloc)
{
	if (alloc->published_sequence % 2 == 1)
		__atomic_store_n(&alloc->published->sequence, ++alloc->published_sequence, __ATOMIC_RELEASE);
}

/* Writes a whole copy: at the start, in a new place, and after a change of everything. */
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

enum neap_status neap_published_read(const struct neap_published *published, struct neap_published *ret_copy)
{
	const uint64_t *from = (const uint64_t *)published;
	struct neap_published copy;
	uint64_t *to = (uint64_t *)&copy;
	for (int tries = 0; tries < 1000; tries++) {
		uint64_t sequence = word_load(from);
		if (sequence % 2 == 1)
			continue;
		for (size_t i = 1; i < sizeof copy / sizeof(uint64_t); i++)
			to[i] = word_load(from + i);
		if (word_load(from) == sequence) {
			to[0] = sequence;
			*ret_copy = copy;
			return NEAP_OK;
		}
	}
	return NEAP_EBUSY;
}
