/* alloc/views/stitch.c: makes blocks of views out of free bytes at home.
 *
 *   free bytes (space.c) -> stitch: suffix, whole pages, prefix -> wait for their work -> map (map.c) -> IN_VIEW
 *
 * Everything that can fail is done before anything changes at home. If another stream freed some of the bytes, this
 * stream waits for its work first, as for any block that changes streams.
 */
#include "alloc/views/views.h"
#include "base/error.h"

#include <stdlib.h>

#define TRIES         3 /* a wait on the host may join blocks; then the search starts again */
#define SPARE_DIVISOR 8 /* a view may have this part more pages than needed */

/* Adjacent bytes at home, and the CACHED block that holds the first of them. */
struct part {
	struct neap_block *first;
	uint64_t first_address, address, bytes;
};

struct work {
	struct neap_alloc *alloc;
	struct neap_cache *cache;
	uint64_t bytes;
	struct neap_space space;
	struct neap_stitch stitch;
	struct neap_view *view; /* the view to change; NULL: make a new one */
	uint64_t *homes;        /* per page of the view */
	uint64_t pages;
	struct part *parts;
	size_t part_count;
};

/* Whether the kept view can serve the request, because all bytes of the block are free at home. Fills the stitch. */
static bool kept_fits(struct work *work, const struct neap_view *view)
{
	const struct neap_space *space = &work->space;
	uint64_t page = space->page_bytes, last = view->pages - 1;
	if (view->block || view->broken || view->pages < 2 || work->bytes <= (view->pages - 2) * page ||
	    work->bytes > view->pages * page)
		return false;
	if (!view->homes[0] || !view->homes[last] || view->homes[0] == view->homes[last])
		return false;
	uint64_t rest = work->bytes - (view->pages - 2) * page;
	uint64_t suffix = neap_space_suffix(space, view->homes[0]);
	uint64_t prefix = neap_space_prefix(space, view->homes[last]);
	if (suffix + prefix < rest)
		return false;
	for (uint64_t i = 1; i < last; i++)
		if (!view->homes[i] || !neap_space_whole(space, view->homes[i]))
			return false;
	/* Use up an end before cutting a page. */
	uint64_t head = suffix < rest ? suffix : rest;
	if (suffix == page && prefix < page)
		head = rest - (prefix < rest ? prefix : rest);
	work->stitch = (struct neap_stitch){.suffix_page = view->homes[0],
					    .suffix_bytes = head,
					    .prefix_page = view->homes[last],
					    .prefix_bytes = rest - head,
					    .whole_pages = view->pages - 2};
	return true;
}

/* Counts the whole pages of the stitch that the view has mapped already, at places for whole pages. */
static uint64_t same_pages(const struct work *work, const struct neap_view *view, uint64_t first)
{
	uint64_t same = 0;
	for (uint64_t i = first; i < first + work->stitch.whole_pages; i++)
		same += view->homes[i] && neap_space_whole(&work->space, view->homes[i]);
	return same;
}

static void view_choose(struct work *work, uint64_t first)
{
	uint64_t most = 0;
	for (struct neap_view *view = work->alloc->views; view; view = view->next) {
		if (view->block || view->broken || view->pages < work->pages ||
		    view->pages > work->pages + work->pages / SPARE_DIVISOR)
			continue;
		uint64_t same = same_pages(work, view, first);
		if (same > most && neap_view_idle(work->alloc, view)) {
			most = same;
			work->view = view;
		}
	}
}

/* Assigns a page to each place of the view. If the view already has a free page there, it stays. */
static void homes_fill(struct work *work, uint64_t first)
{
	struct neap_stitch *stitch = &work->stitch;
	uint64_t end = first + stitch->whole_pages;
	if (first)
		work->homes[0] = stitch->suffix_page;
	if (stitch->prefix_bytes) {
		if (!stitch->prefix_page)
			stitch->prefix_page = neap_space_take_any(&work->space);
		work->homes[end] = stitch->prefix_page;
	}
	for (uint64_t i = first; work->view && i < end; i++) {
		uint64_t home = work->view->homes[i];
		if (home && neap_space_whole(&work->space, home)) {
			neap_space_take(&work->space, home);
			work->homes[i] = home;
		}
	}
	for (uint64_t i = first; i < end; i++)
		if (!work->homes[i])
			work->homes[i] = neap_space_take_any(&work->space);
}

static void part_add(struct work *work, uint64_t address, uint64_t bytes)
{
	struct neap_block *first = neap_space_run(&work->space, address)->first;
	while (block_end(first) <= address)
		first = first->next;
	work->parts[work->part_count++] = (struct part){first, first->address, address, bytes};
}

static int by_address(const void *a, const void *b)
{
	uint64_t first = ((const struct part *)a)->address, second = ((const struct part *)b)->address;
	return (first > second) - (first < second);
}

static void parts_fill(struct work *work, uint64_t first)
{
	const struct neap_stitch *stitch = &work->stitch;
	uint64_t page = work->space.page_bytes;
	size_t joined = 0;
	if (stitch->suffix_bytes)
		part_add(work, stitch->suffix_page + page - stitch->suffix_bytes, stitch->suffix_bytes);
	for (uint64_t i = 0; i < stitch->whole_pages; i++)
		part_add(work, work->homes[first + i], page);
	if (stitch->prefix_bytes)
		part_add(work, stitch->prefix_page, stitch->prefix_bytes);
	qsort(work->parts, work->part_count, sizeof *work->parts, by_address);
	for (size_t i = 1; i < work->part_count; i++) {
		struct part *part = &work->parts[joined];
		if (part->address + part->bytes == work->parts[i].address)
			part->bytes += work->parts[i].bytes;
		else
			work->parts[++joined] = work->parts[i];
	}
	work->part_count = joined + 1;
}

/* Makes the stream wait for the work on all parts. *ret_waited: the host waited instead, and the parts may be
 * stale. */
static enum neap_status parts_order(const struct work *work, bool *ret_waited, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (size_t i = 0; i < work->part_count; i++) {
		const struct part *part = &work->parts[i];
		uint64_t end = part->address + part->bytes;
		for (struct neap_block *block = part->first; block && block->address < end; block = block->next) {
			if (block_stream(block))
				status = neap_block_order(work->alloc, block, work->cache->stream, ret_waited, err);
			if (status || *ret_waited)
				return status;
		}
	}
	return NEAP_OK;
}

/* Makes the parts at home, which are CACHED, IN_VIEW. Cannot fail: blocks and caches are already allocated. */
static void parts_take(const struct work *work, struct neap_view *view)
{
	const struct neap_block *last = NULL;
	for (size_t i = 0; i < work->part_count; i++) {
		const struct part *part = &work->parts[i];
		/* The block that held this part may have been cut for the part before. */
		struct neap_block *block = last && part->first_address < block_end(last) ? last->next : part->first;
		while (block_end(block) <= part->address)
			block = block->next;
		struct neap_cache *home = neap_cache_of(work->alloc, work->cache->stream, block->segment->arena);
		block = neap_block_carve(work->alloc, block, part->address, part->bytes, home);
		block->state = BLOCK_IN_VIEW;
		block->right = view->parts;
		view->parts = block;
		last = block;
	}
}

static enum neap_status block_make(const struct work *work, struct neap_view *view, struct neap_block **ret_block,
				   struct neap_error *err)
{
	struct neap_alloc *alloc = work->alloc;
	uint64_t page = work->space.page_bytes;
	bool suffix = work->stitch.suffix_page;
	uint64_t address = view->segment->address + (suffix ? page - work->stitch.suffix_bytes : 0);
	bool ensured = neap_blocks_ensure(alloc, 1 + 2 * work->part_count);
	for (size_t i = 0; ensured && i < work->part_count; i++)
		ensured = neap_cache_of(work->alloc, work->cache->stream, work->parts[i].first->segment->arena);
	struct neap_block *block = ensured ? neap_block_new(alloc) : NULL;
	if (block && !neap_index_put(&alloc->live, address, block)) {
		neap_block_drop(alloc, block);
		block = NULL;
	}
	if (!block)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a block of a view");
	parts_take(work, view);
	block->address = address;
	block->bytes = work->bytes;
	block->segment = view->segment;
	block->cache = work->cache;
	block->state = NEAP_BLOCK_LIVE;
	neap_view_begin(alloc, view, block);
	*ret_block = block;
	return NEAP_OK;
}

/* Makes the block of the chosen stitch; with `kept`, in the chosen view. NEAP_EOOM with *ret_waited: search again. */
static enum neap_status make(struct work *work, bool kept, struct neap_block **ret_block, bool *ret_waited,
			     struct neap_error *err)
{
	const struct neap_stitch *stitch = &work->stitch;
	uint64_t first = stitch->suffix_page ? 1 : 0;
	struct neap_view *view = work->view;
	work->pages = first + stitch->whole_pages + (kept || stitch->prefix_bytes);
	work->homes = calloc(work->pages, sizeof *work->homes);
	work->parts = calloc(work->pages, sizeof *work->parts);
	if (!work->homes || !work->parts)
		return neap_fail(err, NEAP_ENOMEM, "no host memory for a view");
	if (!kept)
		view_choose(work, first);
	if (kept)
		for (uint64_t i = 0; i < work->pages; i++)
			work->homes[i] = view->homes[i];
	else
		homes_fill(work, first);
	parts_fill(work, first);
	enum neap_status status = parts_order(work, ret_waited, err);
	if (!status && *ret_waited)
		status = neap_fail(err, NEAP_EOOM, "blocks were joined while a block was stitched");
	const struct neap_homes homes = {work->homes, work->pages};
	if (!status)
		status = neap_view_map(work->alloc, &homes, work->view, &view, err);
	if (!status)
		status = block_make(work, view, ret_block, err);
	return status;
}

static bool possible(const struct neap_alloc *alloc, const struct neap_cache *cache)
{
	return !alloc->plain && !cache->arena->pool && !cache->arena->small && !cache->arena->planned;
}

struct neap_block *neap_stitch_kept(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes)
{
	struct work work = {.alloc = alloc, .cache = cache, .bytes = bytes};
	struct neap_block *block = NULL;
	bool waited = false;
	if (!alloc->views || !possible(alloc, cache) || !neap_space_init(alloc, &work.space))
		return NULL;
	for (struct neap_view *view = alloc->views; view && !work.view; view = view->next)
		if (kept_fits(&work, view))
			work.view = view;
	if (work.view)
		make(&work, true, &block, &waited, NULL);
	free(work.homes);
	free(work.parts);
	neap_space_fini(&work.space);
	return block;
}

static bool spares_wanted(const struct work *work)
{
	const struct neap_stitch *stitch = &work->stitch;
	bool cut = stitch->prefix_bytes && !stitch->prefix_page;
	return stitch->whole_pages + cut > work->space.pages;
}

/* Maps all spare pages in the arena, which becomes their home. */
static enum neap_status spares_settle(struct neap_alloc *alloc, struct neap_cache *cache, struct neap_error *err)
{
	uint64_t bytes = alloc->spare_count * alloc->page_bytes;
	for (struct neap_block *block = cache->arena->unmapped; block; block = block->right)
		if (block->bytes >= bytes)
			return neap_place_fill(alloc, cache, (struct neap_place){block, alloc->spare_count}, bytes,
					       err);
	return neap_fail(err, NEAP_EOOM, "no addresses for spare pages");
}

enum neap_status neap_stitch_new(struct neap_alloc *alloc, struct neap_cache *cache, uint64_t bytes,
				 struct neap_block **ret_block, struct neap_error *err)
{
	enum neap_status status = NEAP_EOOM;
	bool again = possible(alloc, cache);
	if (!again)
		return neap_fail(err, NEAP_EOOM, "no block of a view can serve this");
	for (int tries = 0; again && tries < TRIES; tries++) {
		struct work work = {.alloc = alloc, .cache = cache, .bytes = bytes};
		again = false;
		if (!neap_space_init(alloc, &work.space))
			return neap_fail(err, NEAP_ENOMEM, "no host memory for a list of what is free");
		status = NEAP_EOOM;
		if (!neap_space_stitch(&work.space, bytes, alloc->spare_count, &work.stitch)) {
			status = neap_fail(err, NEAP_EOOM, "all that is cached does not make a block");
		} else if (spares_wanted(&work)) {
			status = spares_settle(alloc, cache, err);
			again = !status;
		} else {
			status = make(&work, false, ret_block, &again, err);
			/* Pages that were created for this request, but were too few, serve the next one. */
			if (!status && alloc->spare_count)
				spares_settle(alloc, cache, NULL);
		}
		free(work.homes);
		free(work.parts);
		neap_space_fini(&work.space);
	}
	return status;
}
