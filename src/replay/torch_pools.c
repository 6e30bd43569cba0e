/* replay/torch_pools.c: the default pool and private ones, each a pair: large and small blocks. */
#include "replay/torch_internal.h"

#include <stdlib.h>

struct pool *pool_find(struct torch *torch, uint32_t number, bool small)
{
	uint64_t place = 0;
	if (neap_map_get(&torch->pool_places, number, &place))
		return torch->pools[place + small];
	size_t count = torch->pool_count, capacity = count ? 2 * count : 2;
	bool full = (count & (count - 1)) == 0; /* room is a power of two */
	struct pool **pools = full ? realloc(torch->pools, capacity * sizeof *pools) : torch->pools;
	if (!pools)
		goto starved;
	torch->pools = pools;
	for (size_t i = 0; i < 2; i++) {
		struct pool *pool = calloc(1, sizeof *pool);
		if (!pool) {
			if (i)
				free(pools[torch->pool_count]);
			goto starved;
		}
		*pool = (struct pool){.number = number, .small = i == 1, .unmapped = {.by_address = true}};
		pool->page = page_bytes(torch, pool);
		pools[torch->pool_count + i] = pool;
	}
	if (!neap_map_put(&torch->pool_places, number, torch->pool_count)) {
		free(pools[torch->pool_count]);
		free(pools[torch->pool_count + 1]);
		goto starved;
	}
	for (size_t i = 0; i < 2; i++)
		pools[torch->pool_count + i]->large = pools[torch->pool_count];
	torch->pool_count += 2;
	return torch->pools[torch->pool_count - 2 + small];
starved:
	torch->starved = true;
	return NULL;
}
enum neap_status neap_torch_pool(struct neap_policy *policy, uint32_t number, const struct neap_torch_pool *traits,
				 struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	for (int small = 0; small < 2; small++) {
		struct pool *pool = pool_find(torch, number, small);
		if (!pool)
			return torch_starved(torch, err);
		pool->whole = traits->whole;
		pool->plain = traits->plain;
	}
	return NEAP_OK;
}

enum neap_status neap_torch_pool_release(struct neap_policy *policy, uint32_t number, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct pool *pool = pool_find(torch, number, false);
	if (!pool)
		return torch_starved(torch, err);
	if (number)
		pool->released = ++torch->released;
	return NEAP_OK;
}

enum neap_status neap_torch_pool_empty(struct neap_policy *policy, uint32_t number, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct pool *pool = pool_find(torch, number, false);
	if (!pool)
		return torch_starved(torch, err);
	complete_all_events(torch, pool);
	release_private(torch, number);
	return torch->starved ? torch_starved(torch, err) : NEAP_OK;
}

bool neap_torch_pool_reserved(struct neap_policy *policy, uint32_t number,
			      struct neap_stat ret_reserved[NEAP_CLASS_COUNT])
{
	struct torch *torch = torch_of(policy);
	const struct pool *large = pool_find(torch, number, false), *small = pool_find(torch, number, true);
	if (!large || !small || !large->reserved_all.allocated)
		return false;
	ret_reserved[NEAP_CLASS_ALL] = large->reserved_all;
	ret_reserved[NEAP_CLASS_LARGE] = large->reserved;
	ret_reserved[NEAP_CLASS_SMALL] = small->reserved;
	return true;
}

static void examine_piece(const struct request *request, const struct block *block, struct neap_torch_pieces *pieces)
{
	bool own_stream = block->stream == request->stream;

	if (own_stream && block->pool == request->pool) {
		if (block->size > pieces->usable_bytes && block->size < request->size)
			pieces->usable_bytes = block->size;
	} else if (block->size > pieces->elsewhere_bytes) {
		pieces->elsewhere_bytes = block->size;
		pieces->elsewhere_other_size = own_stream && block->pool->large == request->pool->large;
	}
}

void neap_torch_pieces(struct neap_policy *policy, uint64_t bytes, uint64_t stream, uint32_t number,
		       struct neap_torch_pieces *ret_pieces)
{
	struct torch *torch = torch_of(policy);
	struct neap_torch_pieces pieces = {0};
	struct request request = {.pool = NULL};

	if (bytes < LARGEST_REQUEST)
		request = request_make(torch, bytes, stream, number);
	for (size_t i = 0; request.pool && i < torch->pool_count; i++) {
		const struct set *set = &torch->pools[i]->free;
		for (struct block *block = set_first(set); block; block = set_after(set, block))
			examine_piece(&request, block, &pieces);
	}
	*ret_pieces = pieces;
}

void pools_fini(struct torch *torch)
{
	for (size_t i = 0; i < torch->pool_count; i++)
		free(torch->pools[i]);
	free(torch->pools);
	neap_map_fini(&torch->pool_places);
}
