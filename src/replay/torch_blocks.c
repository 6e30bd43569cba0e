/* replay/torch_blocks.c: blocks, their neighbours, and the ordered sets of free ones.
 *
 * PyTorch keeps free blocks in a balanced tree by (stream, size, age, address), and unmapped ranges in one by
 * (stream, address). Up to 2.11 there is no age; 2.12 counts blocks as they are made, from 2.13 on a block has the
 * age of its segment. Here both are treaps: a priority is a hash of the block's serial number, so that they are
 * balanced in expectation whatever a trace does, and need no memory of their own.
 */
#include "replay/torch_internal.h"

#include <stdlib.h>

#define CHUNK_BLOCKS 512

struct chunk {
	struct chunk *next;
	struct block blocks[CHUNK_BLOCKS];
};

/* The finalizer of splitmix64. */
static uint64_t priority_of(uint64_t serial)
{
	uint64_t x = serial;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static bool before(const struct set *set, const struct block *a, const struct block *b)
{
	if (a->stream != b->stream)
		return a->stream < b->stream;
	if (!set->by_address && a->size != b->size)
		return a->size < b->size;
	if (!set->by_address && a->age != b->age)
		return a->age < b->age;
	return a->address != b->address ? a->address < b->address : a->serial < b->serial;
}

/* Whether the block comes before all blocks of `stream` with at least `size` bytes. */
static bool below(const struct set *set, const struct block *block, uint64_t stream, uint64_t size)
{
	return block->stream != stream ? block->stream < stream : !set->by_address && block->size < size;
}

void set_insert(struct set *set, struct block *block)
{
	struct block **link = &set->root;
	uint64_t own = block->priority;
	while (*link && (*link)->priority >= own)
		link = before(set, *link, block) ? &(*link)->right : &(*link)->left;
	struct block *rest = *link, **less = &block->left, **more = &block->right;
	*link = block;
	while (rest) {
		if (before(set, rest, block)) {
			*less = rest;
			less = &rest->right;
			rest = rest->right;
		} else {
			*more = rest;
			more = &rest->left;
			rest = rest->left;
		}
	}
	*less = *more = NULL;
}

void set_remove(struct set *set, struct block *block)
{
	struct block **link = &set->root;
	while (*link != block)
		link = before(set, *link, block) ? &(*link)->right : &(*link)->left;
	struct block *left = block->left, *right = block->right;
	while (left && right) {
		if (left->priority >= right->priority) {
			*link = left;
			link = &left->right;
			left = left->right;
		} else {
			*link = right;
			link = &right->left;
			right = right->left;
		}
	}
	*link = left ? left : right;
}

struct block *set_at_least(const struct set *set, uint64_t stream, uint64_t size)
{
	struct block *best = NULL;
	for (struct block *node = set->root; node;) {
		if (below(set, node, stream, size)) {
			node = node->right;
		} else {
			best = node;
			node = node->left;
		}
	}
	return best;
}

struct block *set_after(const struct set *set, const struct block *block)
{
	struct block *best = NULL;
	for (struct block *node = set->root; node;) {
		if (before(set, block, node)) {
			best = node;
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return best;
}

struct block *set_before(const struct set *set, const struct block *block)
{
	struct block *best = NULL;
	for (struct block *node = set->root; node;) {
		if (before(set, node, block)) {
			best = node;
			node = node->right;
		} else {
			node = node->left;
		}
	}
	return best;
}

struct block *set_first(const struct set *set)
{
	struct block *node = set->root;
	while (node && node->left)
		node = node->left;
	return node;
}

struct block *set_last(const struct set *set)
{
	struct block *node = set->root;
	while (node && node->right)
		node = node->right;
	return node;
}

struct block *block_new(struct torch *torch, struct segment *segment, struct pool *pool, uint64_t stream,
			uint64_t address, uint64_t size)
{
	if (!torch->idle) {
		struct chunk *chunk = aligned_alloc(_Alignof(struct block), sizeof *chunk);
		if (!chunk) {
			torch->starved = true;
			return NULL;
		}
		chunk->next = torch->chunks;
		torch->chunks = chunk;
		for (size_t i = 0; i < CHUNK_BLOCKS; i++)
			block_drop(torch, &chunk->blocks[i]);
	}
	struct block *block = torch->idle;
	torch->idle = block->right;
	*block = (struct block){.address = address,
				.size = size,
				.stream = stream,
				.serial = ++torch->serial,
				.priority = priority_of(torch->serial),
				.pool = pool,
				.segment = segment,
				.mapped = true};
	if (torch->options.rules.order == NEAP_TORCH_BY_BLOCK_AGE)
		block->age = (torch->last_age += AGE_STEP);
	else
		block->age = segment->age;
	return block;
}

void block_drop(struct torch *torch, struct block *block)
{
	block->right = torch->idle;
	torch->idle = block;
}

void blocks_fini(struct torch *torch)
{
	while (torch->chunks) {
		struct chunk *next = torch->chunks->next;
		free(torch->chunks);
		torch->chunks = next;
	}
	torch->idle = NULL;
}

void block_link(struct block *block, struct block *prev, struct block *next)
{
	block->prev = prev;
	block->next = next;
	if (prev)
		prev->next = block;
	else
		block->segment->first = block;
	if (next)
		next->prev = block;
}

uint64_t block_merge(struct torch *torch, struct block *block, struct block *other)
{
	if (!other || !block_is_idle(other) || other->mapped != block->mapped)
		return 0;
	uint64_t size = other->size;
	if (other->mapped)
		block_unindex(other);
	else
		set_remove(&other->pool->unmapped, other);
	if (block->prev == other) {
		block->address = other->address;
		block_link(block, other->prev, block->next);
	} else {
		block_link(block, block->prev, other->next);
	}
	block->size += size;
	block_drop(torch, other);
	return size;
}

/* Whether a flush may give back the block, or pages of it. This does not change while a block is in the free set. */
static bool is_givable(const struct block *block)
{
	uint64_t page = block->pool->page, begin = block->address - block->segment->address;

	if (!block->segment->expandable)
		return !block_is_split(block);
	return (begin + block->size) / page > (begin + page - 1) / page;
}

void block_index(struct block *block)
{
	struct pool *pool = block->pool;

	block->free_calls_base = pool->free_calls;
	pool->largest = block->size > pool->largest ? block->size : pool->largest;
	set_insert(&pool->free, block);
	block->givable = is_givable(block);
	if (!block->givable)
		return;
	block->givable_prev = NULL;
	block->givable_next = pool->givable;
	if (pool->givable)
		pool->givable->givable_prev = block;
	pool->givable = block;
	pool->givable_count++;
}

void block_unindex(struct block *block)
{
	struct pool *pool = block->pool;

	set_remove(&pool->free, block);
	if (!block->givable)
		return;
	block->givable = false;
	*(block->givable_prev ? &block->givable_prev->givable_next : &pool->givable) = block->givable_next;
	if (block->givable_next)
		block->givable_next->givable_prev = block->givable_prev;
	pool->givable_count--;
}

int block_order(const void *left, const void *right)
{
	static const struct set free_set = {0};
	const struct block *a = *(struct block *const *)left, *b = *(struct block *const *)right;

	return before(&free_set, a, b) ? -1 : before(&free_set, b, a);
}
