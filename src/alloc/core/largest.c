/* alloc/core/largest.c: the largest CACHED block of all caches.
 *
 *   a tree changes --> its cache is noted, once --> the next query measures the noted caches and moves them
 *
 * A heap orders all caches by their largest block. So a change costs one test, and a query measures only the caches
 * that changed since the last query, however many streams there are.
 *
 *   heap[i]->largest >= heap[2 * i + 1]->largest, heap[2 * i + 2]->largest;   heap[i]->place == i
 *   a cache that is not noted: largest == the bytes of the last block of its tree
 */
#include "alloc/core/cache.h"

#include <stdlib.h>

static void put(struct neap_largest *index, size_t place, struct neap_cache *cache)
{
	index->heap[place] = cache;
	cache->place = place;
}

static void rise(struct neap_largest *index, struct neap_cache *cache)
{
	size_t place = cache->place;
	while (place > 0 && index->heap[(place - 1) / 2]->largest < cache->largest) {
		put(index, place, index->heap[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	put(index, place, cache);
}

static void sink(struct neap_largest *index, struct neap_cache *cache)
{
	size_t place = cache->place;
	for (size_t child; (child = 2 * place + 1) < index->count; place = child) {
		if (child + 1 < index->count && index->heap[child + 1]->largest > index->heap[child]->largest)
			child++;
		if (index->heap[child]->largest <= cache->largest)
			break;
		put(index, place, index->heap[child]);
	}
	put(index, place, cache);
}

/* Bytes of the cache's last block; 0: it has none. */
static uint64_t measure(const struct neap_cache *cache)
{
	const struct neap_block *last = neap_cache_before(cache, UINT64_MAX, 0);
	return last ? last->bytes : 0;
}

static void measure_again(struct neap_largest *index)
{
	while (index->noted) {
		struct neap_cache *cache = index->noted;
		index->noted = cache->next_noted;
		cache->noted = false;
		cache->largest = measure(cache);
		rise(index, cache);
		sink(index, cache);
	}
}

bool neap_largest_add(struct neap_largest *index, struct neap_cache *cache)
{
	if (index->count == index->capacity) {
		size_t capacity = index->capacity ? 2 * index->capacity : 16;
		struct neap_cache **heap = realloc(index->heap, capacity * sizeof *heap);
		if (!heap)
			return false;
		index->heap = heap;
		index->capacity = capacity;
	}
	put(index, index->count++, cache);
	return true;
}

void neap_largest_remove(struct neap_largest *index, struct neap_cache *cache)
{
	measure_again(index);
	struct neap_cache *last = index->heap[--index->count];
	if (last == cache)
		return;
	put(index, cache->place, last);
	rise(index, last);
	sink(index, last);
}

uint64_t neap_largest_free(struct neap_alloc *alloc)
{
	measure_again(&alloc->largest);
	return alloc->largest.count ? alloc->largest.heap[0]->largest : 0;
}

bool neap_largest_sound(const struct neap_largest *index)
{
	for (size_t i = 0; i < index->count; i++) {
		const struct neap_cache *cache = index->heap[i];
		if (cache->place != i || (i > 0 && index->heap[(i - 1) / 2]->largest < cache->largest) ||
		    (!cache->noted && cache->largest != measure(cache)))
			return false;
	}
	return true;
}
