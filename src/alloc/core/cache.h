/* alloc/core/cache.h: the blocks of a cache by size, and the largest block of all caches. As for core.h, the
 * holder of the allocator's lock calls these functions. Nothing here talks to the driver. */
#ifndef NEAP_ALLOC_CACHE_H
#define NEAP_ALLOC_CACHE_H

#include "alloc/core/core.h"

/* Trees by address, one for each multiple of BLOCK_ALIGNMENT up to SMALL_LIMIT_BYTES. Bit i of word w in `used` is
 * set if tree 64 * w + i is not empty, bit w of `words` if used[w] is not 0. */
#define SIZE_TREES (SMALL_LIMIT_BYTES / BLOCK_ALIGNMENT)
struct neap_size_trees {
	uint64_t words, used[SIZE_TREES / 64];
	struct neap_block *trees[SIZE_TREES];
};

/* cache.c. Adds a CACHED block of this cache, which is in no tree; or removes one, which is in its tree. */
void neap_cache_add(struct neap_cache *cache, struct neap_block *block);
void neap_cache_remove(struct neap_cache *cache, struct neap_block *block);
/* Returns the smallest CACHED block that holds `bytes`, among equals the lowest; NULL: none. */
struct neap_block *neap_cache_best(const struct neap_cache *cache, uint64_t bytes);
/* Returns the CACHED block right after, or before, (bytes, address) in this order; NULL: none. */
struct neap_block *neap_cache_after(const struct neap_cache *cache, uint64_t bytes, uint64_t address);
struct neap_block *neap_cache_before(const struct neap_cache *cache, uint64_t bytes, uint64_t address);
/* Returns the lowest CACHED block of a large arena that holds `bytes`; NULL: none. */
struct neap_block *neap_cache_lowest(const struct neap_cache *cache, uint64_t bytes);

/* largest.c: the heap of caches by their largest block. Adds a new cache without blocks. False: no host memory. */
bool neap_largest_add(struct neap_largest *index, struct neap_cache *cache);
void neap_largest_remove(struct neap_largest *index, struct neap_cache *cache);
/* Notes that the cache's tree has changed. */
static inline void neap_largest_note(struct neap_largest *index, struct neap_cache *cache)
{
	if (cache->noted)
		return;
	cache->noted = true;
	cache->next_noted = index->noted;
	index->noted = cache;
}
/* Returns the bytes of the largest CACHED block, which is the largest request that a cache could serve. */
uint64_t neap_largest_free(struct neap_alloc *alloc);
/* Whether the heap agrees with the trees. */
bool neap_largest_sound(const struct neap_largest *index);

#endif
