/* alloc/core/segment.c: addresses and pages.
 *
 * A segment is one reservation of addresses, twice as large as the device, so that one per arena is enough even with
 * unmapped holes. Pages (one handle each, since cuMemMap takes only whole handles) come and go anywhere in it:
 *
 *   cuMemCreate -> spare -> cuMemMap -> [mapped] -> cuMemSetAccess -> CACHED -> ... -> cuMemUnmap -> spare
 *                    |                     |                                                          |
 *                    |                     +---- (rollback) ---- stuck                                |
 *                    +---------------------------- cuMemRelease <------------------------------------+
 *
 * Every arrow may fail, but no handle is lost. A handle that is mapped nowhere is spare, and the next place is filled
 * from the spare ones. A page that could be neither made accessible nor unmapped stays stuck under its UNMAPPED
 * block; the next growth over it and every release try again.
 *
 *   held_pages of the allocator = spare_count + sum over segments of held_pages
 *   reserved bytes              = held_pages * page_bytes
 *
 * If the device has no virtual memory, a segment is one cuMemAlloc. It is never UNMAPPED, and goes back to the driver
 * when all of it is one CACHED block.
 */
#include "alloc/core/core.h"
#include "base/error.h"

#include <stdlib.h>

static void segment_free(struct neap_segment *segment)
{
	for (size_t i = 0; i < segment->part_count; i++)
		free(segment->handles[i]);
	free(segment);
}

static void segment_held_add(struct neap_alloc *alloc, struct neap_segment *segment, int64_t pages)
{
	bool small = segment->arena->small, was = segment->held_pages > 0;
	segment->held_pages += (uint64_t)pages;
	bool is = segment->held_pages > 0;
	if (was != is)
		neap_metric_add(alloc, NEAP_METRIC_SEGMENT, small, is ? 1 : -1);
}

static void reserved_add(struct neap_alloc *alloc, bool small, int64_t pages)
{
	alloc->held_pages += (uint64_t)pages;
	neap_metric_add(alloc, NEAP_METRIC_RESERVED_BYTES, small, pages * (int64_t)alloc->page_bytes);
	neap_counter_add(alloc, pages > 0 ? &alloc->stats.num_device_alloc : &alloc->stats.num_device_free, 1);
}

/* Moves the bytes of a page from one class to another. Spare pages count as large. */
static void reserved_move(struct neap_alloc *alloc, bool from_small, bool to_small)
{
	if (from_small == to_small)
		return;
	neap_metric_add(alloc, NEAP_METRIC_RESERVED_BYTES, from_small, -(int64_t)alloc->page_bytes);
	neap_metric_add(alloc, NEAP_METRIC_RESERVED_BYTES, to_small, (int64_t)alloc->page_bytes);
}

static void spare_push(struct neap_alloc *alloc, CUmemGenericAllocationHandle handle, bool small)
{
	alloc->spare[alloc->spare_count++] = handle;
	reserved_move(alloc, small, false);
}

static enum neap_status limit_check(struct neap_alloc *alloc, uint64_t more, struct neap_error *err)
{
	uint64_t reserved = alloc->held_pages * alloc->page_bytes;
	if (alloc->limit_bytes != UINT64_MAX && (more > alloc->limit_bytes || reserved > alloc->limit_bytes - more))
		return neap_fail(err, NEAP_EOOM, "the limit set by the fraction is reached");
	return NEAP_OK;
}

static enum neap_status page_create(struct neap_alloc *alloc, struct neap_error *err)
{
	CUmemGenericAllocationHandle handle = 0;
	if (alloc->spare_capacity <= alloc->held_pages) {
		size_t capacity = alloc->spare_capacity ? alloc->spare_capacity * 2 : 256;
		void *grown = realloc(alloc->spare, capacity * sizeof *alloc->spare);
		if (!grown)
			return neap_fail(err, NEAP_ENOMEM, "no host memory for the list of device pages");
		alloc->spare = grown;
		alloc->spare_capacity = capacity;
	}
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, neap_device_handle(alloc->device)},
		.requestedHandleTypes =
			alloc->shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
	};
	neap_published_close(alloc);
	CUresult result = alloc->cuda->cuMemCreate(&handle, alloc->page_bytes, &properties, 0);
	if (alloc->shareable && (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED)) {
		alloc->shareable = false;
		properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		result = alloc->cuda->cuMemCreate(&handle, alloc->page_bytes, &properties, 0);
	}
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemCreate of a page");
	alloc->spare[alloc->spare_count++] = handle;
	reserved_add(alloc, false, 1);
	return NEAP_OK;
}

/* Creates pages until there are `count` spare ones. NEAP_EOOM: the device or the limit does not allow it; pages that
 * were created stay spare. */
static enum neap_status spare_create(struct neap_alloc *alloc, uint64_t count, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	while (!status && alloc->spare_count < count) {
		status = limit_check(alloc, alloc->page_bytes, err);
		if (!status)
			status = page_create(alloc, err);
	}
	neap_published_close(alloc);
	return status;
}

static enum neap_status page_map(struct neap_alloc *alloc, struct neap_segment *segment, uint64_t index,
				 struct neap_error *err)
{
	CUmemGenericAllocationHandle handle = alloc->spare[alloc->spare_count - 1], **part;
	part = &segment->handles[index / HANDLES_PART];
	if (!*part && !(*part = calloc(HANDLES_PART, sizeof **part)))
		return neap_fail(err, NEAP_ENOMEM, "no host memory for the list of a segment's pages");
	neap_published_close(alloc);
	CUresult result =
		alloc->cuda->cuMemMap(segment->address + index * alloc->page_bytes, alloc->page_bytes, 0, handle, 0);
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemMap of a page");
	alloc->spare_count--;
	reserved_move(alloc, false, segment->arena->small);
	(*part)[index % HANDLES_PART] = handle;
	segment_held_add(alloc, segment, 1);
	return NEAP_OK;
}

/* Unmaps `count` pages, which must all be mapped; they become spare. */
static enum neap_status pages_unmap(struct neap_alloc *alloc, struct neap_segment *segment, uint64_t index,
				    uint64_t count, struct neap_error *err)
{
	uint64_t address = segment->address + index * alloc->page_bytes, bytes = count * alloc->page_bytes;
	enum neap_status status = alloc->views ? neap_views_leave(alloc, address, bytes, err) : NEAP_OK;
	if (status)
		return status;
	neap_published_close(alloc);
	CUresult result = alloc->cuda->cuMemUnmap(address, bytes);
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemUnmap of pages");
	for (uint64_t i = index; i < index + count; i++) {
		CUmemGenericAllocationHandle *handle = &segment->handles[i / HANDLES_PART][i % HANDLES_PART];
		spare_push(alloc, *handle, segment->arena->small);
		*handle = 0;
	}
	segment_held_add(alloc, segment, -(int64_t)count);
	return NEAP_OK;
}

/* Maps spare pages under the first `bytes` of an UNMAPPED block and makes them CACHED. `ret_block`: the block that
 * they are then part of. */
static enum neap_status block_map(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes,
				  struct neap_cache *cache, struct neap_block **ret_block, struct neap_error *err)
{
	struct neap_segment *segment = block->segment;
	uint64_t first = (block->address - segment->address) / alloc->page_bytes;
	uint64_t end = first + bytes / alloc->page_bytes, mapped = first, stuck = 0;
	enum neap_status status = NEAP_OK;
	if (!neap_blocks_ensure(alloc, 1))
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block");
	for (; !status && mapped < end; mapped++) {
		if (segment_handle(segment, mapped))
			stuck++;
		else
			status = page_map(alloc, segment, mapped, err);
	}
	if (!status) {
		const CUmemAccessDesc access = {
			.location = {CU_MEM_LOCATION_TYPE_DEVICE, neap_device_handle(alloc->device)},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
		neap_published_close(alloc);
		CUresult result = alloc->cuda->cuMemSetAccess(block->address, bytes, &access, 1);
		status = neap_cuda_fail(alloc->cuda, result, err, "cuMemSetAccess of new pages");
	}
	segment->stuck_pages -= stuck;
	if (status) {
		for (uint64_t index = first; index < mapped; index++)
			if (segment_handle(segment, index) && pages_unmap(alloc, segment, index, 1, NULL))
				segment->stuck_pages++;
		neap_published_close(alloc);
		return status;
	}
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_MAP, cache->arena, cache->stream, block->address, bytes);
	neap_block_unindex(alloc, block);
	block->state = NEAP_BLOCK_LIVE; /* so that the rest is not joined with it */
	if (block->bytes > bytes)
		neap_block_settle(alloc, neap_block_cut(alloc, block, bytes), NEAP_BLOCK_UNMAPPED);
	block->cache = cache;
	*ret_block = neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
	neap_published_close(alloc);
	return NEAP_OK;
}

/* Whether a place for the cache may include the block. */
static bool placeable(const struct neap_cache *cache, const struct neap_block *block, bool any)
{
	if (!block || block_busy(block))
		return false;
	return any || block->state == NEAP_BLOCK_UNMAPPED || block->cache == cache || !block_stream(block);
}

/* Searches the run of placeable blocks that begins with `first` for a better place: one that lacks fewer pages than
 * *place. */
static void run_search(const struct neap_alloc *alloc, const struct neap_cache *cache, struct neap_block *first,
		       uint64_t bytes, bool any, struct neap_place *place)
{
	/* [start, last] is a window. `unmapped` counts the bytes of the UNMAPPED blocks in it before `last`. */
	struct neap_block *last = first;
	uint64_t unmapped = 0;
	for (struct neap_block *start = first; placeable(cache, start, any); start = start->next) {
		uint64_t end = start->address + bytes;
		while (block_end(last) < end) {
			unmapped += last->state == NEAP_BLOCK_UNMAPPED ? last->bytes : 0;
			last = last->next;
			if (!placeable(cache, last, any))
				return;
		}
		uint64_t lacking = unmapped;
		if (last->state == NEAP_BLOCK_UNMAPPED)
			lacking += round_up(end - last->address, alloc->page_bytes);
		lacking /= alloc->page_bytes;
		if (lacking < place->lacking_pages ||
		    (lacking == place->lacking_pages && start->address < place->block->address))
			*place = (struct neap_place){start, lacking};
		if (start == last) {
			last = start->next;
			if (!placeable(cache, last, any))
				return;
		} else if (start->state == NEAP_BLOCK_UNMAPPED) {
			unmapped -= start->bytes;
		}
	}
}

/* False: there is no place. */
static bool place_search(const struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes, bool any,
			 struct neap_place *ret_place)
{
	struct neap_place place = {.lacking_pages = UINT64_MAX};
	for (struct neap_segment *segment = alloc->segments; any && segment; segment = segment->next)
		for (struct neap_block *block = segment->first; block; block = block->next)
			if (segment->arena == cache->arena && placeable(cache, block, any) &&
			    !placeable(cache, block->previous, any))
				run_search(alloc, cache, block, bytes, any, &place);
	/* If only the stream's own and idle blocks count, a place without an UNMAPPED block would be a block that
	 * fits. */
	for (struct neap_block *block = cache->arena->unmapped; !any && block; block = block->right) {
		struct neap_block *first = block;
		while (placeable(cache, first->previous, any) && first->previous->state == NEAP_BLOCK_CACHED)
			first = first->previous;
		/* A block that follows another unmapped one is searched together with it. */
		if (!placeable(cache, first->previous, any))
			run_search(alloc, cache, first, bytes, any, &place);
	}
	if (place.block)
		*ret_place = place;
	return place.block;
}

/* Inserts a segment. `cache`: the cache of its one block; NULL: nothing is mapped yet. */
static void segment_insert(struct neap_alloc *alloc, struct neap_segment *segment, struct neap_cache *cache)
{
	/* Search from the newest segment on: drivers return addresses that rise or fall. */
	struct neap_segment *after = alloc->newest, *before = after ? after->next : alloc->segments;
	while (after && after->address > segment->address) {
		before = after;
		after = after->previous;
	}
	while (before && before->address < segment->address) {
		after = before;
		before = before->next;
	}
	segment->previous = after;
	segment->next = before;
	*(after ? &after->next : &alloc->segments) = segment;
	if (before)
		before->previous = segment;
	alloc->newest = segment;
	segment->arena->segment_count++;
	struct neap_block *block = neap_block_new(alloc);
	block->address = segment->address;
	block->bytes = segment->bytes;
	block->segment = segment;
	block->cache = cache;
	segment->first = block;
	neap_block_settle(alloc, block, cache ? NEAP_BLOCK_CACHED : NEAP_BLOCK_UNMAPPED);
}

static enum neap_status segment_make(struct neap_alloc *alloc, struct neap_arena *arena, uint64_t bytes,
				     uint64_t handles, struct neap_segment **ret_segment, struct neap_error *err)
{
	struct neap_segment *segment = NULL;
	size_t parts = (size_t)((handles + HANDLES_PART - 1) / HANDLES_PART);
	if (neap_blocks_ensure(alloc, 1))
		segment = calloc(1, sizeof *segment + parts * sizeof segment->handles[0]);
	if (!segment)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a segment");
	segment->arena = arena;
	segment->bytes = bytes;
	segment->part_count = parts;
	*ret_segment = segment;
	return NEAP_OK;
}

static enum neap_status segment_reserve(struct neap_alloc *alloc, struct neap_arena *arena, uint64_t bytes,
					struct neap_error *err)
{
	uint64_t total = neap_device_info(alloc->device)->total_bytes;
	uint64_t least = round_up(bytes, alloc->page_bytes);
	uint64_t size = round_up(2 * total, alloc->page_bytes);
	for (;;) {
		struct neap_segment *segment = NULL;
		CUdeviceptr address = 0;
		enum neap_status status = segment_make(alloc, arena, size, size / alloc->page_bytes, &segment, err);
		if (status)
			return status;
		CUresult result = alloc->cuda->cuMemAddressReserve(&address, size, alloc->page_bytes, 0, 0);
		if (!result) {
			segment->address = address;
			segment_insert(alloc, segment, NULL);
			return NEAP_OK;
		}
		free(segment);
		if (result != CUDA_ERROR_OUT_OF_MEMORY || size == least)
			return neap_cuda_fail(alloc->cuda, result, err, "cuMemAddressReserve for a segment");
		size = round_up(size / 2, alloc->page_bytes);
		size = size < least ? least : size;
	}
}

/* Makes a segment if the device has no virtual memory. */
static enum neap_status segment_plain(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				      struct neap_error *err)
{
	struct neap_segment *segment = NULL;
	CUdeviceptr address = 0;
	uint64_t size = round_up(bytes, alloc->page_bytes);
	enum neap_status status = limit_check(alloc, size, err);
	if (!status)
		status = segment_make(alloc, cache->arena, size, 0, &segment, err);
	if (status)
		return status;
	neap_published_close(alloc);
	CUresult result = alloc->cuda->cuMemAlloc(&address, size);
	if (result) {
		free(segment);
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemAlloc of a segment");
	}
	segment->plain = true;
	segment->address = address;
	reserved_add(alloc, cache->arena->small, (int64_t)(size / alloc->page_bytes));
	segment_held_add(alloc, segment, (int64_t)(size / alloc->page_bytes));
	segment_insert(alloc, segment, cache);
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_ALLOC, cache->arena, cache->stream, address, size);
	neap_published_close(alloc);
	return NEAP_OK;
}

enum neap_status neap_place_find(struct neap_alloc *alloc, const struct neap_cache *cache, uint64_t bytes, bool any,
				 struct neap_place *ret_place, struct neap_error *err)
{
	if (place_search(alloc, cache, bytes, any, ret_place))
		return NEAP_OK;
	enum neap_status status = segment_reserve(alloc, cache->arena, bytes, err);
	if (!status && !place_search(alloc, cache, bytes, any, ret_place))
		status = neap_fail(err, NEAP_EINTERNAL, "a new segment has no place for a block");
	return status;
}

/* Moves the first `bytes` of a block to the cache. The block is another stream's, or no stream's. */
static enum neap_status block_adopt(struct neap_alloc *alloc, struct neap_block *block, uint64_t bytes,
				    struct neap_cache *cache, struct neap_block **ret_block, struct neap_error *err)
{
	bool waited = false;
	if (!neap_blocks_ensure(alloc, 1))
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block");
	enum neap_status status = NEAP_OK;
	if (block_stream(block))
		status = neap_block_order(alloc, block, cache->stream, &waited, err);
	if (!status && waited)
		return neap_fail(err, NEAP_EOOM, "blocks were joined while a place was filled");
	if (!status)
		*ret_block = neap_block_adopt(alloc, block, bytes, cache);
	return status;
}

enum neap_status neap_place_fill(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_place place,
				 uint64_t bytes, struct neap_error *err)
{
	struct neap_block *block = place.block;
	uint64_t end = block->address + bytes;
	enum neap_status status = NEAP_OK;
	while (!status) {
		uint64_t stop = block_end(block) < end ? block_end(block) : end, more = stop - block->address;
		if (block->state == NEAP_BLOCK_UNMAPPED)
			status = block_map(alloc, block, round_up(more, alloc->page_bytes), cache, &block, err);
		else if (block->cache != cache)
			status = block_adopt(alloc, block, more, cache, &block, err);
		if (status || block_end(block) >= end)
			break;
		block = block->next;
	}
	neap_published_close(alloc);
	return status;
}

enum neap_status neap_pages_grow(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				 struct neap_error *err)
{
	struct neap_place place = {0};
	if (alloc->plain)
		return segment_plain(alloc, cache, bytes, err);
	enum neap_status status = neap_place_find(alloc, cache, bytes, false, &place, err);
	if (!status)
		status = spare_create(alloc, place.lacking_pages, err);
	if (!status)
		status = neap_place_fill(alloc, cache, place, bytes, err);
	return status;
}

enum neap_status neap_block_unmap(struct neap_alloc *alloc, struct neap_block *block, uint64_t most,
				  struct neap_block **ret_next, struct neap_error *err)
{
	struct neap_segment *segment = block->segment;
	uint64_t page = alloc->page_bytes, end = block_end(block);
	uint64_t first = round_up(block->address, page), last = round_down(end, page);
	*ret_next = block->next;
	if (first >= last)
		return NEAP_OK;
	if ((last - first) / page > most)
		first = last - most * page;
	if (!neap_blocks_ensure(alloc, 2))
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block");
	enum neap_status status =
		pages_unmap(alloc, segment, (first - segment->address) / page, (last - first) / page, err);
	if (status)
		return status;
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_UNMAP, segment->arena, segment->arena->stream, first,
			 last - first);
	neap_block_unindex(alloc, block);
	struct neap_block *tail = last < end ? neap_block_cut(alloc, block, last - block->address) : NULL;
	struct neap_block *middle = block;
	if (first > block->address)
		middle = neap_block_cut(alloc, block, first - block->address);
	middle->state = NEAP_BLOCK_UNMAPPED;
	middle->cache = NULL;
	if (middle != block)
		neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
	if (tail)
		neap_block_settle(alloc, tail, NEAP_BLOCK_CACHED);
	*ret_next = neap_block_settle(alloc, middle, NEAP_BLOCK_UNMAPPED)->next;
	return NEAP_OK;
}

static void segment_destroy(struct neap_alloc *alloc, struct neap_segment *segment)
{
	*(segment->previous ? &segment->previous->next : &alloc->segments) = segment->next;
	if (segment->next)
		segment->next->previous = segment->previous;
	if (alloc->newest == segment)
		alloc->newest = segment->previous;
	segment->arena->segment_count--;
	segment_free(segment);
}

static enum neap_status plain_release(struct neap_alloc *alloc, struct neap_segment *segment, struct neap_error *err)
{
	struct neap_block *block = segment->first;
	if (block->state != NEAP_BLOCK_CACHED || block->next)
		return NEAP_OK;
	CUresult result = alloc->cuda->cuMemFree(segment->address);
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemFree of a segment");
	reserved_add(alloc, segment->arena->small, -(int64_t)segment->held_pages);
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_FREE, segment->arena, segment->arena->stream, segment->address,
			 segment->bytes);
	neap_block_unindex(alloc, block);
	neap_block_drop(alloc, block);
	segment_held_add(alloc, segment, -(int64_t)segment->held_pages);
	segment_destroy(alloc, segment);
	return NEAP_OK;
}

static void stuck_release(struct neap_alloc *alloc, struct neap_segment *segment)
{
	for (struct neap_block *block = segment->first; block && segment->stuck_pages; block = block->next) {
		if (block->state != NEAP_BLOCK_UNMAPPED)
			continue;
		uint64_t first = (block->address - segment->address) / alloc->page_bytes;
		for (uint64_t index = first; index < first + block->bytes / alloc->page_bytes; index++)
			if (segment_handle(segment, index) && !pages_unmap(alloc, segment, index, 1, NULL))
				segment->stuck_pages--;
	}
}

enum neap_status neap_segment_release(struct neap_alloc *alloc, struct neap_segment *segment, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	neap_published_close(alloc);
	if (segment->plain)
		return plain_release(alloc, segment, err);
	stuck_release(alloc, segment);
	for (struct neap_block *block = segment->first; !status && block;) {
		struct neap_block *next = block->next;
		if (block->state == NEAP_BLOCK_CACHED)
			status = neap_block_unmap(alloc, block, UINT64_MAX, &next, err);
		block = next;
	}
	neap_published_close(alloc);
	return status;
}

enum neap_status neap_spare_release(struct neap_alloc *alloc, uint64_t keep, struct neap_error *err)
{
	while (alloc->spare_count > keep) {
		neap_published_close(alloc);
		CUresult result = alloc->cuda->cuMemRelease(alloc->spare[alloc->spare_count - 1]);
		if (result)
			return neap_cuda_fail(alloc->cuda, result, err, "cuMemRelease of a page");
		alloc->spare_count--;
		reserved_add(alloc, false, -1);
	}
	neap_published_close(alloc);
	return NEAP_OK;
}

void neap_segments_trim(struct neap_alloc *alloc)
{
	for (struct neap_segment *segment = alloc->segments, *next; segment; segment = next) {
		next = segment->next;
		if (segment->plain || segment->held_pages)
			continue;
		if (alloc->cuda->cuMemAddressFree(segment->address, segment->bytes))
			continue;
		neap_block_unindex(alloc, segment->first);
		neap_block_drop(alloc, segment->first);
		segment_destroy(alloc, segment);
	}
}

static void segment_give_up(struct neap_alloc *alloc, struct neap_segment *segment)
{
	uint64_t page = alloc->page_bytes;
	if (segment->plain) {
		alloc->cuda->cuMemFree(segment->address);
		return;
	}
	for (uint64_t index = 0, left = segment->held_pages; left > 0 && index < segment->bytes / page; index++) {
		if (!segment_handle(segment, index))
			continue;
		left--;
		alloc->cuda->cuMemUnmap(segment->address + index * page, page);
		alloc->cuda->cuMemRelease(segment_handle(segment, index));
	}
	alloc->cuda->cuMemAddressFree(segment->address, segment->bytes);
}

void neap_segments_fini(struct neap_alloc *alloc, bool talk)
{
	neap_views_fini(alloc, talk);
	alloc->newest = NULL;
	while (alloc->segments) {
		struct neap_segment *segment = alloc->segments;
		alloc->segments = segment->next;
		if (talk)
			segment_give_up(alloc, segment);
		segment_free(segment);
	}
	for (; alloc->spare_count; alloc->spare_count--)
		if (talk)
			alloc->cuda->cuMemRelease(alloc->spare[alloc->spare_count - 1]);
	free(alloc->spare);
	alloc->spare = NULL;
}
