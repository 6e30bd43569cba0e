/* alloc/views/map.c: mapping pages a second time.
 *
 *   unused addresses -> cuMemMap, a page at a time -> cuMemSetAccess -> in use -> kept -> ... -> cuMemUnmap
 *
 * Every call may fail. A view that is only partly mapped is not used: its pages are unmapped again (core/view.c). At
 * most as many pages as the device has are mapped a second time; beyond that the least recently used views are
 * dropped.
 */
#include "alloc/views/views.h"
#include "base/error.h"

#include <stdlib.h>

static CUmemGenericAllocationHandle handle_of(const struct neap_alloc *alloc, uint64_t home)
{
	const struct neap_segment *segment = neap_segment_at(alloc, home);
	return segment_handle(segment, (home - segment->address) / alloc->page_bytes);
}

/* Drops idle views, the least recently used first, until `more` pages may be mapped. Never drops `but`. */
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
		enum neap_status status = neap_view_drop(alloc, oldest, err);
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
	view->next = alloc->views;
	alloc->views = view;
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

/* Maps the pages `homes` into the view. Exchanges only the pages that differ. */
static enum neap_status change(struct neap_alloc *alloc, struct neap_view *view, const struct neap_homes *homes,
			       struct neap_error *err)
{
	uint64_t first = homes->count, end = 0;
	for (uint64_t i = 0, last = 0; i < homes->count; i = last + 1) {
		for (last = i; last < homes->count && view->homes[last] != homes->addresses[last]; last++)
			;
		if (last == i)
			continue;
		enum neap_status status = neap_view_unmap(alloc, view, i, last, err);
		if (!status)
			status = pages_map(alloc, view, i, last, homes, err);
		if (status)
			return status;
		first = i < first ? i : first;
		end = last;
	}
	if (first >= end)
		return NEAP_OK;
	/* So no page is in the view twice. */
	enum neap_status status = neap_view_unmap(alloc, view, homes->count, view->pages, err);
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
		neap_view_drop(alloc, view, NULL);
		return status;
	}
	neap_view_used(alloc, view);
	*ret_view = view;
	return NEAP_OK;
}
