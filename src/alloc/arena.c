/* alloc/arena.c: streams, arenas, caches and private pools.
 *
 * A stream gets a dense number when it is first seen and keeps it for the allocator's life. Its handle is handed to
 * the driver only where its owner must still have it: in a call that names it, or while blocks allocated on it are
 * live.
 *
 * A private pool has arenas of its own, so nothing of it mixes with anything else. While it has owners, its pages
 * stay even when every block in them is free: a captured graph has their addresses and will run again.
 */
#include "alloc/internal.h"
#include "base/error.h"

#include <stdlib.h>

/* The driver's answer about the default stream while another stream is captured: using it would break the capture. */
#define CAPTURE_IMPLICIT 906

struct neap_stream *neap_stream_find(struct neap_alloc *alloc, void *handle)
{
	for (struct neap_stream *stream = alloc->streams; stream; stream = stream->next)
		if (stream->handle == handle)
			return stream;
	struct neap_stream *stream = calloc(1, sizeof *stream);
	if (!stream)
		return NULL;
	stream->handle = handle;
	/* 0 is the default stream's, whether it was seen or not. */
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
	arena->next = alloc->arenas;
	alloc->arenas = arena;
	return arena;
}

static struct neap_arena *arena_find(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_pool *pool,
				     bool small)
{
	for (struct neap_arena *arena = alloc->arenas; arena; arena = arena->next)
		if (arena->stream == stream && arena->pool == pool && arena->small == small && !arena->planned)
			return arena;
	return neap_arena_make(alloc, stream, pool, small);
}

struct neap_cache *neap_cache_of(struct neap_stream *stream, struct neap_arena *arena)
{
	for (struct neap_cache *cache = stream->caches; cache; cache = cache->next_of_stream)
		if (cache->arena == arena)
			return cache;
	struct neap_cache *cache = calloc(1, sizeof *cache);
	if (!cache)
		return NULL;
	*cache = (struct neap_cache){arena->caches, stream->caches, arena, stream, NULL};
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
	return arena ? neap_cache_of(stream, arena) : NULL;
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

static bool pool_has_arenas(const struct neap_alloc *alloc, const struct neap_pool *pool)
{
	for (const struct neap_arena *arena = alloc->arenas; arena; arena = arena->next)
		if (arena->pool == pool)
			return true;
	return false;
}

/* Its blocks are gone, and so are its caches' trees. */
static void arena_destroy(struct neap_arena *arena)
{
	while (arena->caches) {
		struct neap_cache *cache = arena->caches, **link = &cache->stream->caches;
		arena->caches = cache->next_of_arena;
		while (*link != cache)
			link = &(*link)->next_of_stream;
		*link = cache->next_of_stream;
		free(cache);
	}
	free(arena);
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
		arena_destroy(arena);
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
		arena_destroy(alloc->arenas);
		alloc->arenas = next;
	}
	while (alloc->streams) {
		struct neap_stream *stream = alloc->streams;
		alloc->streams = stream->next;
		neap_stream_event_fini(alloc, stream, talk);
		free(stream);
	}
	while (alloc->pools) {
		struct neap_pool *next = alloc->pools->next;
		free(alloc->pools);
		alloc->pools = next;
	}
}

bool neap_capture_forbids(CUresult result)
{
	return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CAPTURE_IMPLICIT;
}

enum neap_status neap_stream_capturing(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
				       struct neap_error *err)
{
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = 0;
	if (neap_driver_capabilities(neap_device_driver(alloc->device))->capture_status)
		result = alloc->cuda->cuStreamIsCapturing(stream, &capture);
	bool implicit = neap_capture_forbids(result);
	if (result && !implicit)
		return neap_cuda_fail(alloc->cuda, result, err, "cuStreamIsCapturing");
	*ret_capturing = implicit || capture != CU_STREAM_CAPTURE_STATUS_NONE;
	return NEAP_OK;
}

enum neap_status neap_capture_under_way(struct neap_alloc *alloc, void *stream, bool *ret_capturing,
					struct neap_error *err)
{
	/* Asking the default stream finds a capture on any stream that is not non-blocking. */
	bool capturing = false;
	enum neap_status status = neap_stream_capturing(alloc, NULL, &capturing, err);
	if (!status && !capturing && stream)
		status = neap_stream_capturing(alloc, stream, &capturing, err);
	for (struct neap_stream *other = alloc->streams; !status && !capturing && other; other = other->next)
		if (other->live_blocks && other->handle && other->handle != stream)
			status = neap_stream_capturing(alloc, other->handle, &capturing, err);
	if (!status)
		*ret_capturing = capturing;
	return status;
}

static struct neap_pool **pool_link(struct neap_alloc *alloc, uint64_t high, uint64_t low)
{
	struct neap_pool **link = &alloc->pools;
	while (*link && ((*link)->high != high || (*link)->low != low))
		link = &(*link)->next;
	return link;
}

struct neap_pool *neap_pool_find(struct neap_alloc *alloc, uint64_t high, uint64_t low)
{
	return *pool_link(alloc, high, low);
}

/* Opens the pool that `wanted` describes. */
static enum neap_status pool_open(struct neap_alloc *alloc, const struct neap_pool *wanted, struct neap_error *err)
{
	if (!wanted->filter)
		return neap_fail(err, NEAP_EINVAL, "a private pool needs a filter");
	enum neap_status status = NEAP_OK;
	neap_alloc_lock(alloc);
	struct neap_pool **link = pool_link(alloc, wanted->high, wanted->low), *pool = *link;
	if (pool && pool->filter) {
		status = neap_fail(err, NEAP_ESTATE, "the private pool is already between begin and end");
		goto out;
	}
	if (pool)
		*link = pool->next;
	else
		pool = calloc(1, sizeof *pool);
	if (!pool) {
		status = neap_fail(err, NEAP_ENOMEM, "no host memory for a private pool");
		goto out;
	}
	uint64_t owners = pool->owners + 1;
	*pool = *wanted;
	pool->owners = owners;
	pool->next = alloc->pools;
	alloc->pools = pool;
	alloc->pools_open++;
	alloc->captures_open += pool->captures;
out:
	neap_alloc_unlock(alloc);
	return status;
}

enum neap_status neap_pool_begin(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
				 bool (*filter)(void *context, void *stream), void *context, struct neap_error *err)
{
	const struct neap_pool wanted = {
		.high = pool_high, .low = pool_low, .filter = filter, .context = context, .captures = true};
	return pool_open(alloc, &wanted, err);
}

enum neap_status neap_pool_use(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low,
			       bool (*filter)(void *context, void *stream), void *context, struct neap_error *err)
{
	const struct neap_pool wanted = {.high = pool_high, .low = pool_low, .filter = filter, .context = context};
	return pool_open(alloc, &wanted, err);
}

enum neap_status neap_pool_end(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low)
{
	enum neap_status status = NEAP_ESTATE;
	neap_alloc_lock(alloc);
	struct neap_pool *pool = neap_pool_find(alloc, pool_high, pool_low);
	if (pool && pool->filter) {
		pool->filter = NULL;
		pool->context = NULL;
		alloc->pools_open--;
		alloc->captures_open -= pool->captures;
		pool->captures = false;
		status = NEAP_OK;
	}
	neap_arenas_trim(alloc);
	neap_alloc_unlock(alloc);
	return status;
}

enum neap_status neap_pool_release(struct neap_alloc *alloc, uint64_t pool_high, uint64_t pool_low)
{
	enum neap_status status = NEAP_ESTATE;
	neap_alloc_lock(alloc);
	struct neap_pool *pool = neap_pool_find(alloc, pool_high, pool_low);
	if (pool && pool->owners) {
		pool->owners--;
		/* A graph may have run on its free blocks since they were freed. */
		alloc->dirty = true;
		status = NEAP_OK;
	}
	neap_arenas_trim(alloc);
	neap_alloc_unlock(alloc);
	return status;
}
