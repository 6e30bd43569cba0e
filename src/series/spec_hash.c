/* series/spec_hash.c: hashes of a series file and of an experiment, which an edit changes. */
#include "series/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t hash_more(uint64_t hash, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
	return hash;
}

uint64_t neap_spec_hash(const void *bytes, size_t length) { return hash_more(0xcbf29ce484222325ull, bytes, length); }

void neap_experiment_key(const struct neap_experiment *experiment, char ret_key[NEAP_EXPERIMENT_KEY_CAPACITY])
{
	const struct neap_argv *const lists[] = {&experiment->command, &experiment->params, &experiment->env};
	uint64_t hash = neap_spec_hash("", 0);
	/* Hash each word with its terminator and each list with its length, so that different lists have different
	 * bytes.
	 */
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		uint64_t count = lists[i]->count;
		hash = hash_more(hash, &count, sizeof count);
		for (size_t k = 0; k < lists[i]->count; k++)
			hash = hash_more(hash, lists[i]->items[k], strlen(lists[i]->items[k]) + 1);
	}
	snprintf(ret_key, NEAP_EXPERIMENT_KEY_CAPACITY, "%016" PRIx64, hash);
}
