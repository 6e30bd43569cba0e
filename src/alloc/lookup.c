/* alloc/lookup.c: describes blocks for snapshots and for callers that have only an address; sets the watcher. */
#include "alloc/front/front.h"

static struct neap_block_info describe(const struct neap_alloc *alloc, const struct neap_block *block)
{
	const struct neap_segment *segment = block->segment;
	const struct neap_pool *pool = segment->arena->pool;
	const struct neap_stream *own = block->cache ? block_stream(block) : NULL;
	return (struct neap_block_info){
		.segment_address = segment->address,
		.segment_bytes = segment->bytes,
		.address = block->address,
		.bytes = block->bytes,
		.requested_bytes = block->requested,
		.tag = alloc->tags[block->tag].text,
		.stream = (own ? own : segment->arena->stream)->handle,
		.state = block->state == BLOCK_IN_VIEW ? NEAP_BLOCK_UNMAPPED : block->state,
		.small_pool = segment->arena->small,
		.serial = block->serial,
		.pool_high = pool ? pool->high : 0,
		.pool_low = pool ? pool->low : 0,
	};
}

/* Returns the lowest segment, or view in use, at or above the address; NULL: none. */
static const struct neap_segment *segment_from(const struct neap_alloc *alloc, uint64_t address)
{
	const struct neap_segment *lowest = alloc->segments;
	while (lowest && lowest->address < address)
		lowest = lowest->next;
	for (const struct neap_view *view = alloc->views; view; view = view->next)
		if (view->block && view->segment->address >= address &&
		    (!lowest || view->segment->address < lowest->address))
			lowest = view->segment;
	return lowest;
}

/* Visits a view's block, and the rest of its addresses as UNMAPPED. Bytes IN_VIEW are UNMAPPED at home, too: each
 * byte counts at one address. */
static void visit_view(const struct neap_alloc *alloc, const struct neap_view *view,
		       void (*visit)(void *context, const struct neap_block_info *), void *context)
{
	const struct neap_segment *segment = view->segment;
	const struct neap_block *block = view->block;
	uint64_t end = segment->address + segment->bytes;
	struct neap_block_info info = describe(alloc, block), beside = info;
	beside.state = NEAP_BLOCK_UNMAPPED;
	beside.requested_bytes = beside.serial = 0;
	beside.tag = alloc->tags[TAG_NONE].text;
	beside.address = segment->address;
	beside.bytes = block->address - segment->address;
	if (beside.bytes)
		visit(context, &beside);
	visit(context, &info);
	beside.address = block_end(block);
	beside.bytes = end - beside.address;
	if (beside.bytes)
		visit(context, &beside);
}

void neap_each_block(struct neap_alloc *alloc, void (*visit)(void *context, const struct neap_block_info *),
		     void *context)
{
	neap_alloc_lock(alloc);
	neap_front_flush(alloc);
	for (const struct neap_segment *segment = segment_from(alloc, 0); segment;
	     segment = segment_from(alloc, segment->address + segment->bytes)) {
		if (segment->view)
			visit_view(alloc, segment->view, visit, context);
		for (const struct neap_block *block = segment->first; block; block = block->next) {
			struct neap_block_info info = describe(alloc, block);
			visit(context, &info);
		}
	}
	neap_alloc_unlock(alloc);
}

enum neap_status neap_block_at(struct neap_alloc *alloc, uint64_t address, struct neap_block_info *ret_block)
{
	neap_alloc_lock(alloc);
	const struct neap_block *block = neap_index_find(&alloc->live, address);
	bool found = block && !block->binned;
	if (found)
		*ret_block = describe(alloc, block);
	neap_alloc_unlock(alloc);
	return found ? NEAP_OK : NEAP_EINVAL;
}

void neap_watch(struct neap_alloc *alloc, const struct neap_watcher *watcher)
{
	neap_alloc_lock(alloc);
	alloc->watcher = watcher ? *watcher : (struct neap_watcher){0};
	neap_alloc_unlock(alloc);
}
