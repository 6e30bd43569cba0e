/* alloc/core/view.c: begins and ends the blocks of existing views, and unmaps views when their pages leave home.
 *
 * The allocator knows free bytes only at home: when a view's block ends, its parts become CACHED there. Before a page
 * leaves its home, it leaves all views. If the driver does not unmap a view's pages, the view is kept, so that its
 * pages do not leave their homes while they are mapped in it.
 */
#include "alloc/core/core.h"
#include "base/error.h"

#include <stdlib.h>

static bool has(const struct neap_segment *segment, uint64_t address)
{
	return address >= segment->address && address - segment->address < segment->bytes;
}

struct neap_segment *neap_segment_at(const struct neap_alloc *alloc, uint64_t address)
{
	for (struct neap_segment *segment = alloc->segments; segment; segment = segment->next)
		if (has(segment, address))
			return segment;
	for (const struct neap_view *view = alloc->views; view; view = view->next)
		if (view->block && has(view->segment, address))
			return view->segment;
	return NULL;
}

static void unlink_view(struct neap_alloc *alloc, struct neap_view *view)
{
	struct neap_view **link = &alloc->views;
	while (*link != view)
		link = &(*link)->next;
	*link = view->next;
}

void neap_view_used(struct neap_alloc *alloc, struct neap_view *view)
{
	unlink_view(alloc, view);
	view->next = alloc->views;
	alloc->views = view;
}

enum neap_status neap_view_unmap(struct neap_alloc *alloc, struct neap_view *view, uint64_t first, uint64_t end,
				 struct neap_error *err)
{
	uint64_t page = alloc->page_bytes;
	for (uint64_t i = first, last = first; i < end; i = last + 1) {
		for (last = i; last < end && view->homes[last]; last++)
			;
		if (last == i)
			continue;
		neap_published_close(alloc);
		CUresult result = alloc->cuda->cuMemUnmap(view->segment->address + i * page, (last - i) * page);
		if (result)
			return neap_cuda_fail(alloc->cuda, result, err, "cuMemUnmap of a view's pages");
		alloc->view_pages -= last - i;
		for (; i < last; i++)
			view->homes[i] = 0;
	}
	return NEAP_OK;
}

enum neap_status neap_view_drop(struct neap_alloc *alloc, struct neap_view *view, struct neap_error *err)
{
	enum neap_status status = neap_view_unmap(alloc, view, 0, view->pages, err);
	if (status)
		return status;
	CUresult result = alloc->cuda->cuMemAddressFree(view->segment->address, view->segment->bytes);
	if (result)
		return neap_cuda_fail(alloc->cuda, result, err, "cuMemAddressFree of a view");
	unlink_view(alloc, view);
	free(view->segment);
	free(view);
	return NEAP_OK;
}

bool neap_view_idle(struct neap_alloc *alloc, const struct neap_view *view)
{
	return neap_stamp_idle(alloc, view->stream, view->stamp);
}

void neap_views_drop(struct neap_alloc *alloc)
{
	for (struct neap_view *view = alloc->views, *next; view; view = next) {
		next = view->next;
		if (!view->block && neap_view_idle(alloc, view))
			neap_view_drop(alloc, view, NULL);
	}
}

static bool is_mapped(const struct neap_view *view)
{
	for (uint64_t i = 0; i < view->pages; i++)
		if (view->homes[i])
			return true;
	return false;
}

static enum neap_status leave(struct neap_alloc *alloc, struct neap_view *view, uint64_t start, uint64_t end,
			      struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (uint64_t i = 0, last = 0; !status && i < view->pages; i = last + 1) {
		for (last = i; last < view->pages && view->homes[last] >= start && view->homes[last] < end; last++)
			;
		if (last > i)
			status = neap_view_unmap(alloc, view, i, last, err);
	}
	return status;
}

enum neap_status neap_views_leave(struct neap_alloc *alloc, uint64_t address, uint64_t bytes, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_view *view = alloc->views, *next; !status && view; view = next) {
		next = view->next;
		/* If the view is in use, its block does not need these pages: they are free at home. */
		status = leave(alloc, view, address, address + bytes, err);
		if (!status && !view->block && !is_mapped(view))
			neap_view_drop(alloc, view, NULL);
	}
	return status;
}

static void part_event(struct neap_alloc *alloc, enum neap_event_kind kind, const struct neap_block *part)
{
	const struct neap_arena *arena = part->segment->arena;
	neap_event_range(alloc, kind, arena, arena->stream, part->address, part->bytes);
}

/* Readers of the events add up mapped bytes, so the parts must count at one address only. */
void neap_view_begin(struct neap_alloc *alloc, struct neap_view *view, struct neap_block *block)
{
	struct neap_arena *arena = block->cache->arena;
	view->block = block;
	view->segment->arena = arena;
	arena->segment_count++;
	for (const struct neap_block *part = view->parts; part; part = part->right)
		part_event(alloc, NEAP_EVENT_SEGMENT_UNMAP, part);
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_MAP, arena, block_stream(block), block->address, block->bytes);
}

void neap_view_end(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_view *view = block->segment->view;
	view->stream = block_stream(block);
	view->stamp = block->stamp;
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_UNMAP, view->segment->arena, view->stream, block->address,
			 block->bytes);
	view->segment->arena->segment_count--;
	view->block = NULL;
	while (view->parts) {
		struct neap_block *part = view->parts;
		view->parts = part->right;
		part->right = NULL;
		part->stamp = block->stamp;
		part_event(alloc, NEAP_EVENT_SEGMENT_MAP, part);
		neap_block_settle(alloc, part, NEAP_BLOCK_CACHED);
	}
	neap_block_drop(alloc, block);
}

void neap_views_fini(struct neap_alloc *alloc, bool talk)
{
	while (alloc->views) {
		struct neap_view *view = alloc->views;
		alloc->views = view->next;
		if (talk) {
			neap_view_unmap(alloc, view, 0, view->pages, NULL);
			alloc->cuda->cuMemAddressFree(view->segment->address, view->segment->bytes);
		}
		free(view->segment);
		free(view);
	}
	alloc->view_pages = 0;
}
