/* replay/torch_segments.c: the model's driver, the segments made on it, and when they are given back.
 *
 * The driver counts bytes: a call that would exceed the device's size fails. A plain segment is one of its
 * allocations. An expandable segment is a range of addresses of 9/8 of the device, one per pool and stream (more when
 * full), in which pages of 20 MiB (small pool: 2 MiB) are mapped where they are needed. Blocks with `mapped` are on
 * mapped pages.
 *
 * A flush takes memory only from the default pools and from pools that the program has released.
 */
#include "replay/torch_internal.h"

#include <stdlib.h>

#define FIRST_ADDRESS 0x7f0000000000ull
#define MIDDLE        (1ull << 62) /* the first address, if other segments go below it */
#define LAST_ADDRESS  (1ull << 63)

/* Whether the next segment goes below the others. */
static bool falls(struct torch *torch)
{
	uint32_t order = torch->options.addresses;
	uint64_t chance = (++torch->placed + order) * 0x9e3779b97f4a7c15ull;
	return order > 2 ? (chance ^ chance >> 29) >> 7 & 1 : order == 2;
}

/* Finds an address range for `size` bytes. False: there is none left. */
static bool place(struct torch *torch, uint64_t size, const struct request *request, uint64_t page,
		  uint64_t *ret_address)
{
	const struct neap_torch_options *options = &torch->options;
	uint64_t asked = 0;
	if (options->place)
		asked = options->place(options->context, size, request->stream, request->pool->number, page);
	if (!torch->next_address)
		torch->lowest_address = torch->next_address = options->addresses       ? MIDDLE
							      : options->first_address ? options->first_address
										       : FIRST_ADDRESS;
	bool below = !asked && falls(torch);
	uint64_t address = asked ? asked : below ? torch->lowest_address - size : torch->next_address;
	if (address > LAST_ADDRESS || size > LAST_ADDRESS - address || (below && size >= torch->lowest_address))
		return false;
	if (!asked)
		*(below ? &torch->lowest_address : &torch->next_address) = below ? address : address + size;
	*ret_address = address;
	return true;
}

struct segment *segment_new(struct torch *torch, uint64_t address, uint64_t size, bool expandable)
{
	struct segment *segment = calloc(1, sizeof *segment);
	if (!segment) {
		torch->starved = true;
		return NULL;
	}
	*segment = (struct segment){
		.prev = torch->last_segment, .address = address, .size = size, .expandable = expandable};
	if (torch->options.rules.order == NEAP_TORCH_BY_SEGMENT_AGE)
		segment->age = (torch->last_age += AGE_STEP);
	*(segment->prev ? &segment->prev->next : &torch->first_segment) = segment;
	torch->last_segment = segment;
	return segment;
}

void segment_drop(struct torch *torch, struct segment *segment)
{
	*(segment->prev ? &segment->prev->next : &torch->first_segment) = segment->next;
	*(segment->next ? &segment->next->prev : &torch->last_segment) = segment->prev;
	free(segment);
}

/* Asks the driver for `size` bytes. */
static bool granted(struct torch *torch, uint64_t size)
{
	struct neap_policy_usage *usage = &torch->usage;
	uint64_t all = size > UINT64_MAX - torch->reserved ? UINT64_MAX : torch->reserved + size;
	if (all <= torch->device_bytes) {
		usage->same_from_bytes = all > usage->same_from_bytes ? all : usage->same_from_bytes;
		return true;
	}
	usage->same_below_bytes = all < usage->same_below_bytes ? all : usage->same_below_bytes;
	return false;
}

static bool plain_alloc(struct torch *torch, struct request *request)
{
	uint64_t size = request->segment_size, address = 0;
	struct neap_policy_usage *usage = &torch->usage;
	if (!granted(torch, size) || !place(torch, size, request, 0, &address)) {
		usage->calls.failed_allocs++;
		return false;
	}
	struct segment *segment = segment_new(torch, address, size, false);
	if (!segment)
		return false;
	struct block *block = block_new(torch, segment, request->pool, request->stream, address, size);
	if (!block) {
		segment_drop(torch, segment);
		return false;
	}
	segment->first = block;
	usage->calls.allocs++;
	torch->reserved += size;
	metric_add(torch, NEAP_METRIC_SEGMENT, request->pool, 1);
	reserved_add(torch, request->pool, size);
	if (size >= torch->options.settings.max_split_bytes)
		stat_add(&usage->stats.oversize_segments, 1);
	usage->stats.num_device_alloc++;
	emit(torch, NEAP_TORCH_SEGMENT_ALLOC, address, size, request->stream);
	request->block = block;
	return true;
}

/* Takes pages for `size` bytes from the driver. */
static bool create_pages(struct torch *torch, uint64_t size, uint64_t page)
{
	struct neap_policy_calls *calls = &torch->usage.calls;
	uint64_t wanted = size / page, possible = (torch->device_bytes - torch->reserved) / page;
	if (!granted(torch, size)) {
		calls->creates += possible;
		calls->failed_creates++;
		calls->releases += possible;
		return false;
	}
	calls->creates += wanted;
	calls->maps += wanted;
	calls->accesses++;
	return true;
}

/* Maps pages for the first `size` bytes of an unmapped block. The block joins its free neighbours. */
static bool map(struct torch *torch, struct block *block, uint64_t size)
{
	uint64_t page = page_bytes(torch, block->pool);
	uint64_t mapped = (size + page - 1) / page * page, address = block->address;
	struct block *rest = NULL;
	if (mapped < block->size && !(rest = block_new(torch, block->segment, block->pool, block->stream,
						       address + mapped, block->size - mapped)))
		return false;
	if (!create_pages(torch, mapped, page)) {
		if (rest)
			block_drop(torch, rest);
		return false;
	}
	set_remove(&block->pool->unmapped, block);
	block->mapped = true;
	if (rest) {
		rest->mapped = false;
		block_link(rest, block, block->next);
		set_insert(&block->pool->unmapped, rest);
		block->size = mapped;
	}
	block_merge(torch, block, block->prev);
	block_merge(torch, block, block->next);
	block_index(block);
	torch->reserved += mapped;
	reserved_add(torch, block->pool, mapped);
	torch->usage.stats.num_device_alloc++;
	emit(torch, NEAP_TORCH_SEGMENT_MAP, address, mapped, block->stream);
	return true;
}

/* Whether the free and unmapped blocks from `block` on have `size` bytes. */
static bool has_room(const struct block *block, uint64_t size)
{
	uint64_t bytes = 0;
	while (bytes < size && block && block_is_idle(block)) {
		bytes += block->size;
		block = block->next;
	}
	return bytes >= size;
}

static bool is_reserve_set(const struct neap_torch_settings *settings)
{
	return settings->reserve_share > 0 || settings->reserve_bytes > 0;
}

/* The bytes of a new range. */
static uint64_t range_bytes(const struct torch *torch, const struct request *request)
{
	if (torch->device_bytes != UNBOUNDED || is_reserve_set(&torch->options.settings))
		return neap_torch_reserve(&torch->options.settings, torch->device_bytes);
	return request->size > UNBOUNDED_RANGE ? request->size : UNBOUNDED_RANGE;
}

/* Returns the block at which a request can grow: the unmapped block with the lowest address, or a free one right
 * before it. */
static struct block *find_free(struct torch *torch, const struct request *request)
{
	struct set *unmapped = &request->pool->unmapped;
	uint64_t page = page_bytes(torch, request->pool), address = 0;
	for (struct block *at = set_at_least(unmapped, request->stream, 0); at && at->stream == request->stream;
	     at = set_after(unmapped, at)) {
		struct block *from = at->prev && block_is_idle(at->prev) ? at->prev : at;
		if (has_room(from, request->size))
			return from;
	}
	uint64_t size = range_bytes(torch, request);
	size = (size + page - 1) / page * page;
	/* If the reserve is set too small, its addresses are given back, and the request fails. */
	if (size < request->size && is_reserve_set(&torch->options.settings)) {
		torch->usage.calls.reserves++;
		torch->usage.calls.address_frees++;
		return NULL;
	}
	if (!place(torch, size, request, page, &address))
		return NULL;
	struct segment *segment = segment_new(torch, address, size, true);
	if (!segment)
		return NULL;
	struct block *block = block_new(torch, segment, request->pool, request->stream, address, size);
	if (!block) {
		segment_drop(torch, segment);
		return NULL;
	}
	torch->usage.calls.reserves++;
	block->mapped = false;
	segment->first = block;
	set_insert(unmapped, block);
	return block;
}

static bool expandable_alloc(struct torch *torch, struct request *request)
{
	struct block *block = find_free(torch, request);
	if (!block)
		return false;
	if (!block->mapped && !map(torch, block, block->size < request->size ? block->size : request->size))
		return false;
	while (block->size < request->size) {
		struct block *next = block->next; /* unmapped: find_free has checked that */
		uint64_t missing = request->size - block->size;
		if (!next || next->mapped || !map(torch, next, missing < next->size ? missing : next->size))
			return false;
		block = next;
	}
	block_unindex(block);
	request->block = block;
	return true;
}

/* Whether the request is refused before the driver is asked. */
static bool reject(const struct torch *torch, struct request *request)
{
	const struct neap_torch_settings *settings = &torch->options.settings;
	double share = settings->fraction > 0 ? settings->fraction : 1;
	uint64_t most = (uint64_t)(share * (double)torch->device_bytes);
	request->rejected =
		settings->throw_on_oom && (torch->reserved > most || request->segment_size > most - torch->reserved);
	return request->rejected;
}

static bool is_allowed(const struct torch *torch, uint64_t reserved, uint64_t segment_size)
{
	return !torch->limited ||
	       (reserved <= torch->allowed_bytes && segment_size <= torch->allowed_bytes - reserved);
}

bool neap_torch_has_headroom(struct neap_policy *policy, uint64_t bytes, uint64_t growth, uint64_t freed)
{
	const struct torch *torch = torch_of(policy);
	uint64_t reserved = torch->reserved - (freed < torch->reserved ? freed : torch->reserved);
	return bytes < LARGEST_REQUEST && growth <= torch->device_bytes - reserved &&
	       is_allowed(torch, reserved, segment_bytes(torch, neap_torch_round(&torch->options.settings, bytes)));
}

bool segment_alloc(struct torch *torch, struct request *request, bool retry)
{
	if (retry)
		torch->usage.stats.num_alloc_retries++;
	if (!is_allowed(torch, torch->reserved, request->segment_size))
		return false;
	if (reject(torch, request))
		return false;
	if (torch->refusals) {
		torch->refusals--;
		return false;
	}
	return request->expandable ? expandable_alloc(torch, request) : plain_alloc(torch, request);
}

void segment_free(struct torch *torch, struct block *block)
{
	struct neap_policy_usage *usage = &torch->usage;
	usage->stats.num_device_free++;
	emit(torch, NEAP_TORCH_SEGMENT_FREE, block->address, block->size, block->stream);
	usage->calls.frees++;
	usage->synchronizations++;
	torch->reserved -= block->size;
	metric_take(torch, NEAP_METRIC_SEGMENT, block->pool, 1);
	reserved_take(torch, block->pool, block->size);
	if (block->size >= torch->options.settings.max_split_bytes)
		stat_take(&usage->stats.oversize_segments, 1);
	block_unindex(block);
	segment_drop(torch, block->segment);
	block_drop(torch, block);
}

/* Keeps a piece of a free block mapped and free: the part outside the pages that are unmapped. */
static void keep_piece(struct block *piece, struct block *prev, struct block *next)
{
	block_link(piece, prev, next);
	block_index(piece);
}

/* Gives back the whole pages of a free block of an expandable segment. */
static void unmap(struct torch *torch, struct block *block)
{
	struct pool *pool = block->pool;
	uint64_t page = page_bytes(torch, pool), base = block->segment->address, begin = block->address - base;
	uint64_t end = (begin + block->size) / page * page, first = (begin + page - 1) / page * page;
	struct block *head = NULL, *tail = NULL;
	if (first >= end)
		return;
	uint64_t head_size = first - begin, tail_size = begin + block->size - end;
	if (head_size && !(head = block_new(torch, block->segment, pool, block->stream, block->address, head_size)))
		return;
	if (tail_size && !(tail = block_new(torch, block->segment, pool, block->stream, base + end, tail_size))) {
		if (head)
			block_drop(torch, head);
		return;
	}
	torch->usage.synchronizations++;
	torch->usage.calls.unmaps += (end - first) / page;
	torch->usage.calls.releases += (end - first) / page;
	block_unindex(block);
	if (head)
		keep_piece(head, block->prev, block);
	if (tail)
		keep_piece(tail, block, block->next);
	block->address = base + first;
	block->size = end - first;
	block->mapped = false;
	block_merge(torch, block, block->prev);
	block_merge(torch, block, block->next);
	set_insert(&pool->unmapped, block);
	torch->reserved -= end - first;
	reserved_take(torch, pool, end - first);
	torch->usage.stats.num_device_free++;
	emit(torch, NEAP_TORCH_SEGMENT_UNMAP, base + first, end - first, block->stream);
	if (!block_is_split(block)) {
		torch->usage.calls.address_frees++;
		set_remove(&pool->unmapped, block);
		segment_drop(torch, block->segment);
		block_drop(torch, block);
	}
}

/* Releases all that is whole in one pool: plain segments without a split, and whole pages of expandable ones, in the
 * order of the set. It visits only these blocks: thousands of streams have many blocks, and most flushes release
 * none. */
static void release_pool(struct torch *torch, struct pool *pool)
{
	size_t count = 0;

	if (pool->givable_count == 0)
		return;
	/* Here none of them is merged, and no new one is made. */
	struct block **found = malloc(pool->givable_count * sizeof *found);
	if (!found) {
		torch->starved = true;
		return;
	}
	for (struct block *block = pool->givable; block; block = block->givable_next)
		found[count++] = block;
	qsort(found, count, sizeof(struct block *), block_order);
	for (size_t i = 0; i < count; i++)
		if (!found[i]->segment->expandable && !block_is_split(found[i])) {
			segment_free(torch, found[i]);
			found[i] = NULL;
		}
	for (size_t i = 0; i < count; i++)
		if (found[i] && found[i]->segment->expandable)
			unmap(torch, found[i]);
	free(found);
}

static uint64_t flushable(const struct torch *torch, const struct pool *pool)
{
	uint64_t page = page_bytes(torch, pool), bytes = 0;
	for (const struct block *block = set_first(&pool->free); block; block = set_after(&pool->free, block)) {
		uint64_t begin = block->address - block->segment->address, end = begin + block->size;
		if (block->segment->expandable)
			bytes += end / page > (begin + page - 1) / page ? page : 0;
		else
			bytes += block_is_split(block) ? 0 : block->size;
	}
	return bytes;
}

uint64_t neap_torch_flushable(struct neap_policy *policy, uint32_t number)
{
	const struct torch *torch = torch_of(policy);
	uint64_t bytes = 0;
	for (size_t i = 0; i < torch->pool_count; i++) {
		const struct pool *pool = torch->pools[i], *large = torch->pools[i & ~(size_t)1];
		if (number == UINT32_MAX ? !pool->number || large->released : pool->number == number)
			bytes += flushable(torch, pool);
	}
	return bytes;
}

void release_private(struct torch *torch, uint32_t number)
{
	release_pool(torch, pool_find(torch, number, true));
	release_pool(torch, pool_find(torch, number, false));
}

/* Returns the released pool that comes after the `last` one; NULL: none. */
static const struct pool *next_released(const struct torch *torch, uint32_t last)
{
	const struct pool *next = NULL;
	for (size_t i = 0; i < torch->pool_count; i += 2)
		if (torch->pools[i]->released > last && (!next || torch->pools[i]->released < next->released))
			next = torch->pools[i];
	return next;
}

void release_all(struct torch *torch)
{
	complete_all_events(torch, NULL);
	release_pool(torch, torch->pools[0]);
	release_pool(torch, torch->pools[1]);
	for (const struct pool *pool = NULL; (pool = next_released(torch, pool ? pool->released : 0));)
		release_private(torch, pool->number);
}

bool release_oversize(struct torch *torch, const struct request *request)
{
	uint64_t limit = torch->options.settings.max_split_bytes;
	struct set *set = &request->pool->free;
	if (limit == NEAP_TORCH_UNLIMITED)
		return false;
	uint64_t size = request->size < limit ? limit : request->size, released = 0;
	struct block *block = set_at_least(set, request->stream, size), *below = NULL;
	if (block && block->stream == request->stream && !block->segment->expandable && !block_is_split(block)) {
		segment_free(torch, block);
		return true;
	}
	/* No single block is large enough: free blocks from the largest down, until they are enough. */
	for (block = block ? set_before(set, block) : set_last(set);
	     block && released < size && block->stream == request->stream && block->size >= limit; block = below) {
		below = set_before(set, block);
		if (block->segment->expandable || block_is_split(block))
			continue;
		released += block->size;
		segment_free(torch, block);
	}
	return released >= size;
}
