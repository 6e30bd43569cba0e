/* alloc/core/block.c: blocks and their neighbours.
 *
 * The blocks of a segment form a list by address that covers it without gaps. A CACHED block is also in the tree of
 * its cache, and an UNMAPPED one in its arena's list. Two neighbours are never both UNMAPPED, nor both CACHED in the
 * same cache: neap_block_settle joins them.
 *
 * A CACHED block beside a busy one counts as an inactive split, in any cache. A change of its neighbours counts it
 * again.
 */
#include "alloc/core/cache.h"
#include "base/large.h"

#include <stdlib.h>

#define SMALL_CHUNK_BYTES ((size_t)8 << 10)
#define MANY_BLOCKS       4096

/* Storage for blocks comes in chunks, so that an operation can allocate all it needs before it changes anything. A
 * program with many blocks gets chunks as large as a huge page. */
struct neap_block_chunk {
	struct neap_block_chunk *next;
	/* blocks follow, aligned */
};

static bool chunk_add(struct neap_alloc *alloc)
{
	size_t bytes = alloc->block_count < MANY_BLOCKS ? SMALL_CHUNK_BYTES : NEAP_HUGE_PAGE_BYTES;
	struct neap_block_chunk *chunk = neap_large_alloc(bytes);
	if (!chunk)
		return false;
	chunk->next = alloc->chunks;
	alloc->chunks = chunk;
	uint64_t start = round_up((uint64_t)(uintptr_t)(chunk + 1), _Alignof(struct neap_block));
	struct neap_block *blocks = (struct neap_block *)(uintptr_t)start;
	size_t count = (bytes - (start - (uint64_t)(uintptr_t)chunk)) / sizeof *blocks;
	for (size_t i = 0; i < count; i++)
		neap_block_drop(alloc, &blocks[i]);
	alloc->block_count += count;
	return true;
}

bool neap_blocks_add(struct neap_alloc *alloc, size_t count)
{
	while (alloc->idle_count < count)
		if (!chunk_add(alloc))
			return false;
	return true;
}

struct neap_block *neap_block_new(struct neap_alloc *alloc)
{
	struct neap_block *block = alloc->idle_blocks;
	alloc->idle_blocks = block->next;
	alloc->idle_count--;
	*block = (struct neap_block){0};
	return block;
}

void neap_block_drop(struct neap_alloc *alloc, struct neap_block *block)
{
	block->next = alloc->idle_blocks;
	alloc->idle_blocks = block;
	alloc->idle_count++;
}

void neap_blocks_fini(struct neap_alloc *alloc)
{
	while (alloc->chunks) {
		struct neap_block_chunk *next = alloc->chunks->next;
		free(alloc->chunks);
		alloc->chunks = next;
	}
	alloc->idle_blocks = NULL;
	alloc->idle_count = alloc->block_count = 0;
}

static void count_split(struct neap_alloc *alloc, struct neap_block *block, bool split)
{
	if (block->split == split)
		return;
	int64_t sign = split ? 1 : -1;
	bool small = block_small(block);
	block->split = split;
	neap_metric_add(alloc, NEAP_METRIC_INACTIVE_SPLIT, small, sign);
	neap_metric_add(alloc, NEAP_METRIC_INACTIVE_SPLIT_BYTES, small, sign * (int64_t)block->bytes);
}

/* Called when a neighbour of `block`, which may be NULL, became busy or stopped being so. */
static void recount(struct neap_alloc *alloc, struct neap_block *block)
{
	if (block && block->state == NEAP_BLOCK_CACHED)
		count_split(alloc, block,
			    (block->previous && block_busy(block->previous)) ||
				    (block->next && block_busy(block->next)));
}

static void block_index(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_arena *arena = block->segment->arena;
	if (block->state == NEAP_BLOCK_CACHED) {
		neap_largest_note(&alloc->largest, block->cache);
		neap_cache_add(block->cache, block);
		recount(alloc, block);
	} else {
		block->left = NULL;
		block->right = arena->unmapped;
		if (arena->unmapped)
			arena->unmapped->left = block;
		arena->unmapped = block;
	}
}

void neap_block_unindex(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_arena *arena = block->segment->arena;
	if (block->state == NEAP_BLOCK_CACHED) {
		count_split(alloc, block, false);
		neap_largest_note(&alloc->largest, block->cache);
		neap_cache_remove(block->cache, block);
	} else {
		*(block->left ? &block->left->right : &arena->unmapped) = block->right;
		if (block->right)
			block->right->left = block->left;
	}
	block->left = block->right = NULL;
}

struct neap_block *neap_block_cut(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes)
{
	struct neap_block *rest = neap_block_new(alloc);
	rest->address = block->address + bytes;
	rest->bytes = block->bytes - bytes;
	rest->stamp = block->stamp;
	rest->segment = block->segment;
	rest->cache = block->cache;
	rest->state = block->state;
	rest->previous = block;
	rest->next = block->next;
	if (rest->next)
		rest->next->previous = rest;
	block->next = rest;
	block->bytes = bytes;
	return rest;
}

/* Joins `block` with the block that follows; both are in no index. */
static void join_next(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_block *gone = block->next;
	block->bytes += gone->bytes;
	block->stamp = gone->stamp > block->stamp ? gone->stamp : block->stamp;
	block->next = gone->next;
	if (block->next)
		block->next->previous = block;
	neap_block_drop(alloc, gone);
}

static bool joinable(const struct neap_block *a, const struct neap_block *b)
{
	return a && b && a->state == b->state && a->cache == b->cache;
}

struct neap_block *neap_block_settle(struct neap_alloc *alloc, struct neap_block *block, uint8_t state)
{
	block->state = state;
	block->requested = 0;
	block->tag = TAG_NONE;
	if (state == NEAP_BLOCK_UNMAPPED) {
		block->cache = NULL;
		block->stamp = 0;
	}
	if (joinable(block, block->next)) {
		neap_block_unindex(alloc, block->next);
		join_next(alloc, block);
	}
	if (joinable(block->previous, block)) {
		block = block->previous;
		neap_block_unindex(alloc, block);
		join_next(alloc, block);
	}
	block_index(alloc, block);
	recount(alloc, block->previous);
	recount(alloc, block->next);
	return block;
}

void neap_block_take(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes, struct neap_cache *cache)
{
	neap_block_unindex(alloc, block);
	block->state = NEAP_BLOCK_LIVE;
	if (block->bytes > bytes) {
		struct neap_block *rest = neap_block_cut(alloc, block, bytes);
		neap_block_settle(alloc, rest, NEAP_BLOCK_CACHED);
	}
	block->cache = cache;
	recount(alloc, block->previous);
	recount(alloc, block->next);
}

struct neap_block *neap_block_adopt(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes,
				    struct neap_cache *cache)
{
	neap_block_unindex(alloc, block);
	block->state = NEAP_BLOCK_LIVE; /* so that the rest is not joined with it */
	if (block->bytes > bytes)
		neap_block_settle(alloc, neap_block_cut(alloc, block, bytes), NEAP_BLOCK_CACHED);
	bool done = !block_stream(block) || block->stamp <= block_stream(block)->done;
	/* The stream waits for unfinished work, so its next record comes after that work. */
	block->stamp = done ? 0 : cache->stream->recorded + 1;
	block->cache = cache;
	return neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
}

struct neap_block *neap_block_carve(struct neap_alloc *alloc, struct neap_block *first, uint64_t address,
				    uint64_t bytes, struct neap_cache *cache)
{
	uint64_t end = address + bytes;
	struct neap_block *block = first, *head = NULL, *tail = NULL;
	neap_block_unindex(alloc, block);
	if (block->address < address) {
		head = block;
		block = neap_block_cut(alloc, head, address - head->address);
	}
	while (block_end(block) < end) {
		struct neap_block *gone = block->next;
		neap_block_unindex(alloc, gone);
		if (block_end(gone) > end)
			tail = neap_block_cut(alloc, gone, end - gone->address);
		join_next(alloc, block);
	}
	if (block_end(block) > end)
		tail = neap_block_cut(alloc, block, bytes);
	block->state = NEAP_BLOCK_LIVE;
	block->cache = cache;
	block->lane = NULL;
	if (head)
		neap_block_settle(alloc, head, NEAP_BLOCK_CACHED);
	if (tail)
		neap_block_settle(alloc, tail, NEAP_BLOCK_CACHED);
	recount(alloc, block->previous);
	recount(alloc, block->next);
	return block;
}
