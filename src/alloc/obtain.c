/* alloc/obtain.c: where memory comes from when an arena has no block that fits.
 *
 *   new     pages from the driver
 *   moved   pages from under cached blocks, of any stream, that are unmapped there and mapped here
 *
 * Either way the arena gets them where it lacks the fewest. Moving costs one unmapping for each block that gives
 * pages and one mapping for each page, and no call that takes or gives memory. Pages whose work is done are moved
 * first; for others their stream is waited for, never the device.
 */
#include "alloc/internal.h"
#include "base/error.h"

/* Pages wanted, and where none may be taken from. */
struct demand {
	uint64_t pages, start, end;
	bool wait;
};

/* From the largest block on: what small ones lose leaves more ends of pages behind. */
static enum neap_status gather_from(struct neap_alloc *alloc, const struct neap_arena *arena,
				    const struct demand *demand, struct neap_error *err)
{
	uint64_t page = alloc->page_bytes;
	struct neap_block *block = neap_block_before(arena, UINT64_MAX, 0), *next = NULL;
	enum neap_status status = NEAP_OK;
	while (!status && block && alloc->spare_count < demand->pages) {
		uint64_t bytes = block->bytes, address = block->address;
		/* What ends at the place must not join an unmapped block that begins it. */
		bool apart = block_end(block) < demand->start || address >= demand->end;
		bool whole = round_up(address, page) < round_down(block_end(block), page);
		bool idle = apart && whole && neap_block_idle(alloc, block);
		if (apart && whole && !idle && demand->wait) {
			status = neap_block_finish(alloc, block, err);
			/* That may have completed frees, and joined any block with others. */
			block = neap_block_before(arena, UINT64_MAX, 0);
			continue;
		}
		if (idle)
			status = neap_block_unmap(alloc, block, demand->pages - alloc->spare_count, &next, err);
		block = neap_block_before(arena, bytes, address);
	}
	return status;
}

static enum neap_status gather(struct neap_alloc *alloc, const struct demand *demand, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_stream *stream = alloc->streams; !status && stream; stream = stream->next)
		for (struct neap_arena *arena = stream->arenas; !status && arena; arena = arena->next)
			if (!arena->pool)
				status = gather_from(alloc, arena, demand, err);
	return status;
}

enum effort { CREATE, MOVE_IDLE, MOVE_ANY };

/* Makes sure of the spare pages for the best place. NEAP_EOOM: they are not to be had. MOVE_ANY waits for work on
 * cached pages, after which the place may be another. */
static enum neap_status prepare(struct neap_alloc *alloc, struct neap_arena *arena, uint64_t bytes,
				enum effort effort, struct neap_place *ret_place, struct neap_error *err)
{
	struct neap_place place = {0};
	enum neap_status status = neap_place_find(alloc, arena, bytes, &place, err);
	if (status)
		return status;
	status = neap_spare_create(alloc, place.lacking_pages, err);
	if (status == NEAP_EOOM && effort != CREATE) {
		struct demand demand = {place.lacking_pages, place.block->address, place.block->address + bytes,
					effort == MOVE_ANY};
		enum neap_status gathered = gather(alloc, &demand, err);
		if (gathered || alloc->spare_count >= demand.pages)
			status = gathered;
	}
	if (!status && effort == MOVE_ANY)
		status = neap_place_find(alloc, arena, bytes, &place, err);
	if (!status && place.lacking_pages > alloc->spare_count)
		status = neap_fail(err, NEAP_EOOM, "the place for a block is another after waiting");
	if (!status)
		*ret_place = place;
	return status;
}

enum neap_status neap_arena_obtain(struct neap_alloc *alloc, struct neap_arena *arena, uint64_t bytes, bool move,
				   struct neap_error *err)
{
	struct neap_place place = {0};
	uint64_t held = alloc->held_pages;
	if (bytes > neap_device_info(alloc->device)->total_bytes)
		return neap_fail(err, NEAP_EOOM, "more than the device has");
	neap_published_close(alloc);
	if (alloc->plain)
		return neap_segment_plain(alloc, arena, bytes, err);
	/* While a pool is open a capture may be under way that nothing tells of. */
	move = move && !alloc->pools_open;
	enum neap_status status = prepare(alloc, arena, bytes, move ? MOVE_IDLE : CREATE, &place, err);
	if (status == NEAP_EOOM && move)
		status = prepare(alloc, arena, bytes, MOVE_ANY, &place, err);
	if (!status)
		status = neap_place_fill(alloc, place, bytes, err);
	/* Others may need what is of no use here. */
	if (status == NEAP_EOOM && alloc->held_pages > held)
		neap_spare_release(alloc, alloc->spare_count - (alloc->held_pages - held), NULL);
	neap_published_close(alloc);
	return status;
}
