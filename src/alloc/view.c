/* alloc/view.c: mapping pages a second time, keeping that for later, and giving it up.
 *
 *   unused addresses -> cuMemMap, a page at a time -> cuMemSetAccess -> in use -> kept -> ... -> cuMemUnmap
 *
 * Every call may fail. A view that is mapped in part is not used: its pages are unmapped again, and where the driver
 * refuses that too, the view stays as one that is kept, so that its pages cannot leave their homes unseen. At most as
 * many pages as the device has are mapped a second time: the views that were used least recently give way.
 */
#include "alloc/view.h"
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

static CUmemGenericAllocationHandle handle_of(const struct neap_alloc *alloc, uint64_t home)
{
	const struct neap_segment *segment = neap_segment_at(alloc, home);
	return segment->handles[(home - segment->address) / alloc->page_bytes];
}

static void unlink_view(struct neap_alloc *alloc, struct neap_view *view)
{
	struct neap_view **link = &alloc->views;
	while (*link != view)
		link = &(*link)->next;
	*link = view->next;
}

static void link_first(struct neap_alloc *alloc, struct neap_view *view)
{
	view->next = alloc->views;
	alloc->views = view;
}

/* Unmaps those of its pages [first, end) that are mapped. */
static enum neap_status pages_unmap(struct neap_alloc *alloc, struct neap_view *view, uint64_t first, uint64_t end,
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

/* A view that is not in use, and idle. Where the driver refuses, what is left of it stays. */
static enum neap_status drop(struct neap_alloc *alloc, struct neap_view *view, struct neap_error *err)
{
	enum neap_status status = pages_unmap(alloc, view, 0, view->pages, err);
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
			drop(alloc, view, NULL);
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
			status = pages_unmap(alloc, view, i, last, err);
	}
	return status;
}

enum neap_status neap_views_leave(struct neap_alloc *alloc, uint64_t address, uint64_t bytes, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	for (struct neap_view *view = alloc->views, *next; !status && view; view = next) {
		next = view->next;
		/* Of a view that is in use these are pages that its block does not need. */
		status = leave(alloc, view, address, address + bytes, err);
		if (!status && !view->block && !is_mapped(view))
			drop(alloc, view, NULL);
	}
	return status;
}

/* Makes room for `more` pages, by waiting only for the work of views that are dropped. */
static enum neap_status evict(struct neap_alloc *alloc, uint64_t more, const struct neap_view *but,
			      struct neap_error *err)
{
	uint64_t most = neap_device_info(alloc->device)->total_bytes / alloc->page_bytes;
	while (alloc->view_pages + more > most) {
		struct neap_view *oldest = NULL;
		for (struct neap_view *view = alloc->views; view; view = view->next)
			if (!view->block && view != but && neap_view_idle(alloc, view))
				oldest = view;
		if (!oldest)
			return neap_fail(err, NEAP_EOOM, "as much memory is mapped twice as may be");
		enum neap_status status = drop(alloc, oldest, err);
		if (status)
			return status;
	}
	return NEAP_OK;
}

static enum neap_status view_make(struct neap_alloc *alloc, uint64_t pages, struct neap_view **ret_view,
				  struct neap_error *err)
{
	CUdeviceptr address = 0;
	uint64_t bytes = pages * alloc->page_bytes;
	struct neap_view *view = calloc(1, sizeof *view + pages * sizeof view->homes[0]);
	struct neap_segment *segment = calloc(1, sizeof *segment);
	enum neap_status status = NEAP_OK;
	if (!view || !segment)
		status = neap_fail(err, NEAP_ENOMEM, "no host memory for a view");
	if (!status) {
		neap_published_close(alloc);
		CUresult result = alloc->cuda->cuMemAddressReserve(&address, bytes, alloc->page_bytes, 0, 0);
		status = neap_cuda_fail(alloc->cuda, result, err, "cuMemAddressReserve for a view");
	}
	if (status) {
		free(view);
		free(segment);
		return status;
	}
	*segment = (struct neap_segment){.address = address, .bytes = bytes, .view = view};
	view->segment = segment;
	view->pages = pages;
	link_first(alloc, view);
	*ret_view = view;
	return NEAP_OK;
}

/* Maps the pages [first, end), which are not mapped yet. */
static enum neap_status pages_map(struct neap_alloc *alloc, struct neap_view *view, uint64_t first, uint64_t end,
				  const struct neap_homes *homes, struct neap_error *err)
{
	uint64_t page = alloc->page_bytes;
	for (uint64_t i = first; i < end; i++) {
		neap_published_close(alloc);
		CUresult result = alloc->cuda->cuMemMap(view->segment->address + i * page, page, 0,
							handle_of(alloc, homes->addresses[i]), 0);
		if (result)
			return neap_cuda_fail(alloc->cuda, result, err, "cuMemMap of a view's page");
		view->homes[i] = homes->addresses[i];
		alloc->view_pages++;
		alloc->moved_pages++;
	}
	return NEAP_OK;
}

static enum neap_status access_set(struct neap_alloc *alloc, struct neap_view *view, uint64_t first, uint64_t end,
				   struct neap_error *err)
{
	const CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, neap_device_handle(alloc->device)},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	neap_published_close(alloc);
	CUresult result = alloc->cuda->cuMemSetAccess(view->segment->address + first * alloc->page_bytes,
						      (end - first) * alloc->page_bytes, &access, 1);
	return neap_cuda_fail(alloc->cuda, result, err, "cuMemSetAccess of a view");
}

/* Exchanges what differs. */
static enum neap_status change(struct neap_alloc *alloc, struct neap_view *view, const struct neap_homes *homes,
			       struct neap_error *err)
{
	uint64_t first = homes->count, end = 0;
	for (uint64_t i = 0, last = 0; i < homes->count; i = last + 1) {
		for (last = i; last < homes->count && view->homes[last] != homes->addresses[last]; last++)
			;
		if (last == i)
			continue;
		enum neap_status status = pages_unmap(alloc, view, i, last, err);
		if (!status)
			status = pages_map(alloc, view, i, last, homes, err);
		if (status)
			return status;
		first = i < first ? i : first;
		end = last;
	}
	if (first >= end)
		return NEAP_OK;
	/* So that no page is in it twice. */
	enum neap_status status = pages_unmap(alloc, view, homes->count, view->pages, err);
	return status ? status : access_set(alloc, view, first, end, err);
}

enum neap_status neap_view_map(struct neap_alloc *alloc, const struct neap_homes *homes, struct neap_view *view,
			       struct neap_view **ret_view, struct neap_error *err)
{
	enum neap_status status = view ? NEAP_OK : evict(alloc, homes->count, NULL, err);
	if (!status && !view)
		status = view_make(alloc, homes->count, &view, err);
	if (status)
		return status;
	status = change(alloc, view, homes, err);
	if (status) {
		view->broken = true;
		drop(alloc, view, NULL);
		return status;
	}
	unlink_view(alloc, view);
	link_first(alloc, view);
	*ret_view = view;
	return NEAP_OK;
}

/* Readers sum up what is mapped, so that the bytes of the parts count at one address at a time. */
void neap_view_begin(struct neap_alloc *alloc, struct neap_view *view, struct neap_block *block)
{
	struct neap_arena *arena = block->cache->arena;
	view->block = block;
	view->segment->arena = arena;
	arena->segment_count++;
	for (const struct neap_block *part = view->parts; part; part = part->right)
		neap_event_range(alloc, NEAP_EVENT_SEGMENT_UNMAP, part->segment->arena->stream, part->address,
				 part->bytes);
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_MAP, block_stream(block), block->address, block->bytes);
}

void neap_view_end(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_view *view = block->segment->view;
	view->stream = block_stream(block);
	view->stamp = block->stamp;
	neap_event_range(alloc, NEAP_EVENT_SEGMENT_UNMAP, view->stream, block->address, block->bytes);
	view->segment->arena->segment_count--;
	view->block = NULL;
	while (view->parts) {
		struct neap_block *part = view->parts;
		view->parts = part->right;
		part->right = NULL;
		part->stamp = block->stamp;
		neap_event_range(alloc, NEAP_EVENT_SEGMENT_MAP, part->segment->arena->stream, part->address,
				 part->bytes);
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
			pages_unmap(alloc, view, 0, view->pages, NULL);
			alloc->cuda->cuMemAddressFree(view->segment->address, view->segment->bytes);
		}
		free(view->segment);
		free(view);
	}
	alloc->view_pages = 0;
}
