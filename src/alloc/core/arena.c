/* alloc/core/arena.c: streams, arenas, caches and private pools.
 *
 * A stream gets a dense number when it is first seen and keeps it for the allocator's life. Its handle goes to the
 * driver only while it must be valid: in a call that names it, or while blocks allocated on it are live.
 *
 * A private pool has arenas of its own, so its blocks never mix with others.
 */
#include "alloc/core/cache.h"

#include <stdlib.h>

struct neap_stream *neap_stream_find(struct neap_alloc *alloc, void *handle)
{
	uint64_t key = (uint64_t)(uintptr_t)handle, found;
	if (neap_map_get(&alloc->streams_by_handle, key, &found))
		return (struct neap_stream *)(uintptr_t)found;
	struct neap_stream *stream = calloc(1, sizeof *stream);
	if (!stream || !neap_map_put(&alloc->streams_by_handle, key, (uint64_t)(uintptr_t)stream)) {
		free(stream);
		return NULL;
	}
	stream->handle = handle;
	/* 0 always means the default stream, even before it is seen. */
	stream->number = handle ? ++alloc->stream_count : 0;
	stream->waiting_end = &stream->waiting;
	stream->next = alloc->streams;
	alloc->streams = stream;
	return stream;
}

struct neap_arena *neap_arena_make(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small)
{
	struct neap_arena *arena = calloc(1, sizeof *arena);
	if (!arena)
		return NULL;
	arena->stream = stream;
	arena->pool = pool;
	arena->small = small;
	arena->idle.arena = arena;
	if (!neap_largest_add(&alloc->largest, &arena->idle)) {
		free(arena);
		return NULL;
	}
	arena->next = alloc->arenas;
	arena->next_of_stream = stream->arenas;
	alloc->arenas = stream->arenas = arena;
	return arena;
}

static struct neap_arena *arena_find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				     bool small)
{
	for (struct neap_arena *arena = stream->arenas; arena; arena = arena->next_of_stream)
		if (arena->pool == pool && arena->small == small && !arena->planned)
			return arena;
	return neap_arena_make(alloc, stream, pool, small);
}

struct neap_cache *neap_cache_of(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_arena *arena)
{
	for (struct neap_cache *cache = stream->caches; cache; cache = cache->next_of_stream)
		if (cache->arena == arena)
			return cache;
	struct neap_cache *cache = calloc(1, sizeof *cache);
	if (!cache || !neap_largest_add(&alloc->largest, cache)) {
		free(cache);
		return NULL;
	}
	cache->arena = arena;
	cache->stream = stream;
	cache->next_of_arena = arena->caches;
	cache->next_of_stream = stream->caches;
	alloc->common_arenas += arena->caches && !arena->caches->next_of_arena;
	arena->caches = stream->caches = cache;
	return cache;
}

struct neap_cache *neap_cache_find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				   bool small)
{
	struct neap_stream *home = alloc->home && !pool ? alloc->home : stream;
	for (struct neap_cache *cache = stream->caches; cache; cache = cache->next_of_stream)
		if (cache->arena->stream == home && cache->arena->pool == pool && cache->arena->small == small &&
		    !cache->arena->planned)
			return cache;
	struct neap_arena *arena = arena_find(alloc, home, pool, small);
	return arena ? neap_cache_of(alloc, stream, arena) : NULL;
}

struct neap_pool *neap_pool_match(struct neap_alloc *alloc, void *stream)
{
	if (!alloc->pools_open)
		return NULL;
	for (struct neap_pool *pool = alloc->pools; pool; pool = pool->next)
		if (pool->filter && pool->filter(pool->context, stream))
			return pool;
	return NULL;
}

struct neap_pool **neap_pool_find(struct neap_alloc *alloc, uint64_t high, uint64_t low)
{
	struct neap_pool **link = &alloc->pools;
	while (*link && ((*link)->high != high || (*link)->low != low))
		link = &(*link)->next;
	return link;
}

static bool pool_has_arenas(const struct neap_alloc *alloc, const struct neap_pool *pool)
{
	for (const struct neap_arena *arena = alloc->arenas; arena; arena = arena->next)
		if (arena->pool == pool)
			return true;
	return false;
}

/* The arena has no blocks left, so the trees of its caches are empty. */
static void arena_destroy(struct neap_alloc *alloc, struct neap_arena *arena)
{
	struct neap_arena **arena_link = &arena->stream->arenas;
	alloc->common_arenas -= arena->caches && arena->caches->next_of_arena;
	while (arena->caches) {
		struct neap_cache *cache = arena->caches, **link = &cache->stream->caches;
		arena->caches = cache->next_of_arena;
		while (*link != cache)
			link = &(*link)->next_of_stream;
		*link = cache->next_of_stream;
		free(cache->sizes);
		free(cache);
	}
	while (*arena_link != arena)
		arena_link = &(*arena_link)->next_of_stream;
	*arena_link = arena->next_of_stream;
	free(arena->idle.sizes);
	free(arena);
}

static void arena_forget(struct neap_alloc *alloc, struct neap_arena *arena)
{
	for (struct neap_cache *cache = arena->caches; cache; cache = cache->next_of_arena)
		neap_largest_remove(&alloc->largest, cache);
	neap_largest_remove(&alloc->largest, &arena->idle);
	arena_destroy(alloc, arena);
}

void neap_arenas_trim(struct neap_alloc *alloc)
{
	for (struct neap_arena **link = &alloc->arenas; *link;) {
		struct neap_arena *arena = *link;
		if (arena->segment_count) {
			link = &arena->next;
			continue;
		}
		*link = arena->next;
		arena_forget(alloc, arena);
	}
	for (struct neap_pool **link = &alloc->pools; *link;) {
		struct neap_pool *pool = *link;
		if (pool->owners || pool->filter || pool_has_arenas(alloc, pool)) {
			link = &pool->next;
			continue;
		}
		*link = pool->next;
		free(pool);
	}
}

void neap_arenas_fini(struct neap_alloc *alloc, bool talk)
{
	while (alloc->arenas) {
		struct neap_arena *next = alloc->arenas->next;
		arena_destroy(alloc, alloc->arenas);
		alloc->arenas = next;
	}
	while (alloc->streams) {
		struct neap_stream *stream = alloc->streams;
		alloc->streams = stream->next;
		if (talk && stream->event_made)
			alloc->cuda->cuEventDestroy(stream->event);
		neap_map_fini(&stream->waited);
		free(stream);
	}
	neap_map_fini(&alloc->streams_by_handle);
	free(alloc->largest.heap);
	alloc->largest = (struct neap_largest){0};
	while (alloc->pools) {
		struct neap_pool *next = alloc->pools->next;
		free(alloc->pools);
		alloc->pools = next;
	}
}
