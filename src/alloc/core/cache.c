/* alloc/core/cache.c: the tree of a cache's blocks.
 *
 * It is a treap ordered by (bytes, address). The priority of a node is a hash of its address, so priorities need no
 * memory, and the expected depth is logarithmic whatever the order of frees. Best fit is the lower bound. In large
 * arenas each node knows the lowest block of its subtree, so one descent also finds the lowest of all blocks that
 * fit. Small arenas may have very many blocks, in 2048 sizes: from MANY_CACHED blocks on, a cache of theirs has a
 * treap for each size, a third as deep, and bits that say which of them have blocks. The order is the same.
 */
#include "alloc/core/cache.h"

#include <stdlib.h>

#define MANY_CACHED 128

/* The finalizer of splitmix64: every bit of the address reaches every bit of the priority. */
static uint64_t priority(const struct neap_block *block)
{
	uint64_t x = block->address;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static bool before(const struct neap_block *a, const struct neap_block *b)
{
	return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* Returns the block at the lower address; either may be NULL. */
static struct neap_block *lower(struct neap_block *a, struct neap_block *b)
{
	if (!a || !b)
		return a ? a : b;
	return a->address < b->address ? a : b;
}

static struct neap_block *lowest_of(const struct neap_block *tree) { return tree ? tree->lowest : NULL; }

static void refresh(struct neap_block *node)
{
	/* No small block is ever chosen for its address alone (fit.c), and there may be very many of them. */
	if (!node->segment->arena->small)
		node->lowest = lower(node, lower(lowest_of(node->left), lowest_of(node->right)));
}

/* Splits a tree at the place where `block` belongs. */
static void tree_split(struct neap_block *tree, const struct neap_block *block, struct neap_block **ret_less,
		       struct neap_block **ret_more)
{
	if (!tree) {
		*ret_less = *ret_more = NULL;
	} else if (before(tree, block)) {
		tree_split(tree->right, block, &tree->right, ret_more);
		refresh(tree);
		*ret_less = tree;
	} else {
		tree_split(tree->left, block, ret_less, &tree->left);
		refresh(tree);
		*ret_more = tree;
	}
}

static void tree_insert(struct neap_block **link, struct neap_block *block)
{
	uint64_t own = priority(block);
	bool small = block->segment->arena->small;
	struct neap_block *tree;
	while ((tree = *link) && priority(tree) >= own) {
		if (!small)
			tree->lowest = lower(tree->lowest, block);
		link = before(tree, block) ? &tree->right : &tree->left;
	}
	tree_split(tree, block, &block->left, &block->right);
	refresh(block);
	*link = block;
}

/* All of `left` comes before all of `right`. */
static struct neap_block *tree_join(struct neap_block *left, struct neap_block *right)
{
	if (!left || !right)
		return left ? left : right;
	bool first = priority(left) >= priority(right);
	struct neap_block *root = first ? left : right;
	if (first)
		left->right = tree_join(left->right, right);
	else
		right->left = tree_join(left, right->left);
	refresh(root);
	return root;
}

/* Removes a block. Returns the root of the subtree afterwards. */
static struct neap_block *tree_remove_tracked(struct neap_block *tree, struct neap_block *block)
{
	if (tree == block)
		return tree_join(block->left, block->right);
	struct neap_block **link = before(tree, block) ? &tree->right : &tree->left;
	*link = tree_remove_tracked(*link, block);
	if (tree->lowest == block)
		refresh(tree);
	return tree;
}

static void tree_remove(struct neap_block **link, struct neap_block *block)
{
	if (!block->segment->arena->small) {
		*link = tree_remove_tracked(*link, block);
		return;
	}
	for (struct neap_block *tree; (tree = *link) != block;)
		link = before(tree, block) ? &tree->right : &tree->left;
	*link = tree_join(block->left, block->right);
}

/* --- one tree, or one for each size --- */

static size_t size_index(uint64_t bytes) { return (size_t)((bytes + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT) - 1; }

static bool has_own_tree(const struct neap_cache *cache, uint64_t bytes)
{
	return cache->sizes && bytes <= SMALL_LIMIT_BYTES;
}

static struct neap_block **root_of(struct neap_cache *cache, uint64_t bytes)
{
	return has_own_tree(cache, bytes) ? &cache->sizes->trees[size_index(bytes)] : &cache->tree;
}

/* Called when the tree of this size becomes empty, or gets its first block. */
static void note_used(struct neap_size_trees *sizes, size_t index)
{
	size_t word = index / 64;
	uint64_t bit = 1ull << index % 64;
	sizes->used[word] = sizes->trees[index] ? sizes->used[word] | bit : sizes->used[word] & ~bit;
	sizes->words = sizes->used[word] ? sizes->words | 1ull << word : sizes->words & ~(1ull << word);
}

/* Returns the first tree at or after `index` that has blocks; SIZE_TREES: none. */
static size_t used_from(const struct neap_size_trees *sizes, size_t index)
{
	size_t word = index / 64;
	if (index >= SIZE_TREES)
		return SIZE_TREES;
	uint64_t bits = sizes->used[word] >> index % 64 << index % 64;
	if (!bits) {
		uint64_t words = word < 63 ? sizes->words >> (word + 1) << (word + 1) : 0;
		if (!words)
			return SIZE_TREES;
		word = (size_t)__builtin_ctzll(words);
		bits = sizes->used[word];
	}
	return 64 * word + (size_t)__builtin_ctzll(bits);
}

/* Returns the last tree before `index` that has blocks; SIZE_TREES: none. */
static size_t used_before(const struct neap_size_trees *sizes, size_t index)
{
	while (index-- > 0) {
		uint64_t bits = sizes->used[index / 64] << (63 - index % 64);
		if (bits)
			return index - (size_t)__builtin_clzll(bits);
		index = index / 64 * 64;
	}
	return SIZE_TREES;
}

static void cache_insert(struct neap_cache *cache, struct neap_block *block)
{
	struct neap_block **root = root_of(cache, block->bytes);
	tree_insert(root, block);
	if (root != &cache->tree)
		note_used(cache->sizes, size_index(block->bytes));
}

static void insert_all(struct neap_cache *cache, struct neap_block *tree)
{
	if (!tree)
		return;
	struct neap_block *left = tree->left, *right = tree->right;
	insert_all(cache, left);
	cache_insert(cache, tree);
	insert_all(cache, right);
}

void neap_cache_add(struct neap_cache *cache, struct neap_block *block)
{
	if (++cache->count == MANY_CACHED && cache->arena->small && !cache->sizes) {
		/* Without memory for it, the cache keeps its one tree. */
		cache->sizes = calloc(1, sizeof *cache->sizes);
		struct neap_block *tree = cache->sizes ? cache->tree : NULL;
		cache->tree = tree ? NULL : cache->tree;
		insert_all(cache, tree);
	}
	cache_insert(cache, block);
}

void neap_cache_remove(struct neap_cache *cache, struct neap_block *block)
{
	struct neap_block **root = root_of(cache, block->bytes);
	tree_remove(root, block);
	cache->count--;
	if (root != &cache->tree && !*root)
		note_used(cache->sizes, size_index(block->bytes));
}

static struct neap_block *leftmost(struct neap_block *tree)
{
	while (tree && tree->left)
		tree = tree->left;
	return tree;
}

static struct neap_block *rightmost(struct neap_block *tree)
{
	while (tree && tree->right)
		tree = tree->right;
	return tree;
}

static struct neap_block *tree_after(struct neap_block *tree, uint64_t bytes, uint64_t address)
{
	struct neap_block *next = NULL;
	while (tree) {
		bool after = tree->bytes > bytes || (tree->bytes == bytes && tree->address > address);
		next = after ? tree : next;
		tree = after ? tree->left : tree->right;
	}
	return next;
}

static struct neap_block *tree_before(struct neap_block *tree, uint64_t bytes, uint64_t address)
{
	struct neap_block *last = NULL;
	while (tree) {
		bool comes = tree->bytes < bytes || (tree->bytes == bytes && tree->address < address);
		last = comes ? tree : last;
		tree = comes ? tree->right : tree->left;
	}
	return last;
}

struct neap_block *neap_cache_after(const struct neap_cache *cache, uint64_t bytes, uint64_t address)
{
	const struct neap_size_trees *sizes = cache->sizes;
	struct neap_block *next = NULL;
	if (has_own_tree(cache, bytes)) {
		size_t index = bytes ? size_index(bytes) : 0;
		next = tree_after(sizes->trees[index], bytes, address);
		index = next ? SIZE_TREES : used_from(sizes, bytes ? index + 1 : 0);
		next = index < SIZE_TREES ? leftmost(sizes->trees[index]) : next;
	}
	return next ? next : tree_after(cache->tree, bytes, address);
}

struct neap_block *neap_cache_before(const struct neap_cache *cache, uint64_t bytes, uint64_t address)
{
	const struct neap_size_trees *sizes = cache->sizes;
	struct neap_block *last = tree_before(cache->tree, bytes, address);
	if (last || !sizes)
		return last;
	size_t index = bytes > SMALL_LIMIT_BYTES ? SIZE_TREES : bytes ? size_index(bytes) : 0;
	last = index < SIZE_TREES ? tree_before(sizes->trees[index], bytes, address) : NULL;
	index = last ? SIZE_TREES : used_before(sizes, index);
	return index < SIZE_TREES ? rightmost(sizes->trees[index]) : last;
}

struct neap_block *neap_cache_best(const struct neap_cache *cache, uint64_t bytes)
{
	return bytes ? neap_cache_after(cache, bytes - 1, UINT64_MAX) : neap_cache_after(cache, 0, 0);
}

struct neap_block *neap_cache_lowest(const struct neap_cache *cache, uint64_t bytes)
{
	struct neap_block *lowest = NULL;
	for (struct neap_block *node = cache->tree; node;) {
		if (node->bytes >= bytes) {
			lowest = lower(lowest, lower(node, lowest_of(node->right)));
			node = node->left;
		} else {
			node = node->right;
		}
	}
	return lowest;
}
