/* alloc/check.c: checks the invariants of README.md, exactly as they are written there. */
#include "alloc/core/cache.h"
#include "alloc/front/front.h"
#include "alloc/views/views.h"
#include "base/error.h"

#include <string.h>

struct sums {
	struct neap_stats stats; /* only `current` values are used */
	struct neap_tag tags[NEAP_TAGS_MAX + 2];
	uint64_t held_pages, live_blocks, binned_blocks, pending_uses;
	uint64_t cached_blocks, unmapped_blocks, parts;
};

#define REQUIRE(condition, ...)                                                                                      \
	do {                                                                                                         \
		if (!(condition))                                                                                    \
			return neap_fail(err, NEAP_EINTERNAL, __VA_ARGS__);                                          \
	} while (0)

static void sum_add(struct sums *sums, enum neap_metric metric, bool small, uint64_t value)
{
	sums->stats.metric[metric][NEAP_CLASS_ALL].current += (int64_t)value;
	sums->stats.metric[metric][small ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE].current += (int64_t)value;
}

/* A block in a bin belongs to the lane, whose stamp covers all work on it. */
static enum neap_status binned_check(const struct neap_block *block, struct neap_error *err)
{
	const unsigned long long at = block->address;
	REQUIRE(block->state == NEAP_BLOCK_LIVE && block->lane && !block->uses, "block %#llx is in a bin", at);
	REQUIRE(block->stamp <= block->lane->stamp, "block %#llx is in a bin, and waits for more than its lane", at);
	REQUIRE(block->lane->stamp <= block_stream(block)->recorded + 1,
		"block %#llx: its lane waits for a later record than the next one", at);
	return NEAP_OK;
}

/* Checks what the index's slot says about a LIVE block. */
static enum neap_status slot_check(const struct neap_alloc *alloc, const struct neap_block *block,
				   struct neap_error *err)
{
	const struct neap_index_slot *slot = neap_index_slot(alloc->live.table, block->address);
	const struct neap_lane *lane = block->binned || block->uses ? NULL : block->lane;
	uint64_t asked = block->requested | (uint64_t)block->tag << INDEX_TAG_SHIFT;
	REQUIRE(slot->lane == lane, "block %#llx: its slot names another lane", (unsigned long long)block->address);
	REQUIRE(!lane || (slot->asked == asked && block->bytes == round_up(block->requested, BLOCK_ALIGNMENT)),
		"block %#llx: its slot tells of another request", (unsigned long long)block->address);
	return NEAP_OK;
}

static enum neap_status active_check(const struct neap_block *block, struct sums *sums, struct neap_error *err)
{
	bool small = block_small(block);
	if (block_active(block)) {
		REQUIRE(block->requested && block->requested <= block->bytes, "block %#llx: requested is wrong",
			(unsigned long long)block->address);
		sum_add(sums, NEAP_METRIC_ACTIVE, small, 1);
		sum_add(sums, NEAP_METRIC_ACTIVE_BYTES, small, block->bytes);
	}
	if (block->state == NEAP_BLOCK_LIVE) {
		sum_add(sums, NEAP_METRIC_ALLOCATION, small, 1);
		sum_add(sums, NEAP_METRIC_ALLOCATED_BYTES, small, block->bytes);
		sum_add(sums, NEAP_METRIC_REQUESTED_BYTES, small, block->requested);
		sums->live_blocks++;
		sums->tags[block->tag].live_bytes += block->bytes;
		sums->tags[block->tag].live_blocks++;
	}
	return NEAP_OK;
}

static enum neap_status block_check(const struct neap_alloc *alloc, const struct neap_block *block, struct sums *sums,
				    struct neap_error *err)
{
	const unsigned long long at = block->address;
	bool small = block_small(block);
	uint64_t uses = 0;
	REQUIRE(block->bytes && block->bytes % BLOCK_ALIGNMENT == 0 && at % BLOCK_ALIGNMENT == 0,
		"block %#llx is not made of whole 512 bytes", at);
	const struct neap_block *found = neap_index_find(&alloc->live, block->address);
	bool mapped = found;
	REQUIRE(mapped == (block->state == NEAP_BLOCK_LIVE),
		"block %#llx: live and in the index of live blocks differ", at);
	REQUIRE(!mapped || found == block, "block %#llx: the index holds another block", at);
	for (const struct neap_use *use = block->uses; use; use = use->next_of_block) {
		uses++;
		REQUIRE(use->block == block, "block %#llx has another block's use", at);
	}
	REQUIRE(!uses || block_active(block), "block %#llx is not active but has uses", at);
	REQUIRE((block->state == NEAP_BLOCK_PENDING) == (block->uses_left > 0) && block->uses_left <= uses,
		"block %#llx: pending and waiting uses differ", at);
	sums->pending_uses += block->uses_left;
	bool beside = (block->previous && block_busy(block->previous)) || (block->next && block_busy(block->next));
	REQUIRE(block->split == (block->state == NEAP_BLOCK_CACHED && beside), "block %#llx: split is wrong", at);
	if (block->state == NEAP_BLOCK_CACHED)
		sums->cached_blocks++;
	if (block->state == NEAP_BLOCK_UNMAPPED)
		sums->unmapped_blocks++;
	sums->parts += block->state == BLOCK_IN_VIEW;
	REQUIRE((block->state == NEAP_BLOCK_UNMAPPED) == !block->cache, "block %#llx: unmapped and in a cache", at);
	REQUIRE(!block->cache || block->cache->arena == block->segment->arena,
		"block %#llx is of a cache of another arena", at);
	REQUIRE(!block_active(block) || block_stream(block), "block %#llx is active and no stream's", at);
	if (block->state == NEAP_BLOCK_PENDING || block->state == NEAP_BLOCK_CACHED) {
		const struct neap_stream *stream = block_stream(block);
		REQUIRE(block->stamp <= (stream ? stream->recorded + 1 : 0),
			"block %#llx waits for a later record than the next one", at);
	}
	if (block->split || block->binned) {
		sum_add(sums, NEAP_METRIC_INACTIVE_SPLIT, small, 1);
		sum_add(sums, NEAP_METRIC_INACTIVE_SPLIT_BYTES, small, block->bytes);
	}
	if (block->binned) {
		sums->binned_blocks++;
		return binned_check(block, err);
	}
	return active_check(block, sums, err);
}

/* Every page under a block has a handle; an UNMAPPED block covers whole pages, and only stuck ones have handles. */
static enum neap_status pages_check(const struct neap_alloc *alloc, const struct neap_segment *segment,
				    const struct neap_block *block, uint64_t *stuck, struct neap_error *err)
{
	uint64_t page = alloc->page_bytes, from = block->address - segment->address, to = from + block->bytes;
	REQUIRE(block->state != NEAP_BLOCK_UNMAPPED || (from % page == 0 && to % page == 0),
		"unmapped block %#llx is not made of whole pages", (unsigned long long)block->address);
	for (uint64_t index = from / page; index * page < to; index++) {
		if (block->state == NEAP_BLOCK_UNMAPPED)
			*stuck += segment_handle(segment, index) != 0;
		else
			REQUIRE(segment_handle(segment, index), "block %#llx lies on a page that is not mapped",
				(unsigned long long)block->address);
	}
	return NEAP_OK;
}

static enum neap_status segment_check(const struct neap_alloc *alloc, const struct neap_segment *segment,
				      struct sums *sums, struct neap_error *err)
{
	uint64_t at = segment->address, stuck = 0, held = 0;
	const struct neap_block *previous = NULL;
	REQUIRE(!segment->next || segment->next->address >= at + segment->bytes,
		"segments overlap or are out of order");
	for (const struct neap_block *block = segment->first; block; previous = block, block = block->next) {
		enum neap_status status = block_check(alloc, block, sums, err);
		if (!status && block->state == NEAP_BLOCK_LIVE)
			status = slot_check(alloc, block, err);
		REQUIRE(block->segment == segment && block->previous == previous && block->address == at,
			"segment %#llx: its blocks do not cover it at %#llx", (unsigned long long)segment->address,
			(unsigned long long)at);
		REQUIRE(!previous || block_busy(block) || previous->state != block->state ||
				previous->cache != block->cache,
			"block %#llx was not joined with the one before", (unsigned long long)block->address);
		if (!status && !segment->plain)
			status = pages_check(alloc, segment, block, &stuck, err);
		if (status)
			return status;
		at = block_end(block);
	}
	REQUIRE(at == segment->address + segment->bytes, "segment %#llx: its blocks end at %#llx",
		(unsigned long long)segment->address, (unsigned long long)at);
	if (segment->plain)
		held = segment->bytes / alloc->page_bytes;
	else
		for (uint64_t index = 0; index < segment->bytes / alloc->page_bytes; index++)
			held += segment_handle(segment, index) != 0;
	REQUIRE(held == segment->held_pages && stuck == segment->stuck_pages,
		"segment %#llx counts %llu pages, %llu stuck; it has %llu, %llu",
		(unsigned long long)segment->address, (unsigned long long)segment->held_pages,
		(unsigned long long)segment->stuck_pages, (unsigned long long)held, (unsigned long long)stuck);
	sums->held_pages += held;
	sum_add(sums, NEAP_METRIC_RESERVED_BYTES, segment->arena->small, held * alloc->page_bytes);
	if (held)
		sum_add(sums, NEAP_METRIC_SEGMENT, segment->arena->small, 1);
	return NEAP_OK;
}

/* Whether [address, address + bytes) at home is in a part of the view. */
static bool is_part(const struct neap_view *view, uint64_t address, uint64_t bytes)
{
	const struct neap_block *part = view->parts;
	while (part && (address < part->address || address + bytes > block_end(part)))
		part = part->right;
	return part && part->state == BLOCK_IN_VIEW && part->segment->arena == part->cache->arena;
}

/* The bytes of a view's block are the bytes of its parts, and every page in a view has a handle at home. */
static enum neap_status view_check(const struct neap_alloc *alloc, const struct neap_view *view, struct sums *sums,
				   uint64_t *pages, struct neap_error *err)
{
	const unsigned long long at = view->segment->address;
	const struct neap_block *block = view->block;
	uint64_t page = alloc->page_bytes, made = 0, parts = 0;
	for (uint64_t i = 0; i < view->pages; i++) {
		const struct neap_segment *home = view->homes[i] ? neap_segment_at(alloc, view->homes[i]) : NULL;
		uint64_t start = view->segment->address + i * page, end = start + page;
		REQUIRE(!view->homes[i] || (home && !home->view && !home->arena->pool &&
					    segment_handle(home, (view->homes[i] - home->address) / page)),
			"view %#llx has a page that is not held at home", at);
		*pages += view->homes[i] != 0;
		uint64_t from = block && block->address > start ? block->address - start : 0;
		uint64_t to = block && block_end(block) < end ? block_end(block) - start : page;
		if (!block || block->address >= end || block_end(block) <= start)
			continue;
		REQUIRE(view->homes[i] && is_part(view, view->homes[i] + from, to - from),
			"view %#llx: its block has bytes that are not in it at home", at);
		made += to - from;
	}
	for (const struct neap_block *part = view->parts; part; part = part->right, sums->parts--)
		parts += part->bytes;
	REQUIRE(parts == made && (!block || made == block->bytes),
		"view %#llx: %llu bytes are in it, %llu in its block", at, (unsigned long long)parts,
		(unsigned long long)made);
	REQUIRE(!block || (block->segment == view->segment && view->segment->view == view && block_active(block)),
		"view %#llx: its block is not active, or another's", at);
	enum neap_status status = block ? block_check(alloc, block, sums, err) : NEAP_OK;
	if (!status && block && block->state == NEAP_BLOCK_LIVE)
		status = slot_check(alloc, block, err);
	return status;
}

static enum neap_status views_check(const struct neap_alloc *alloc, struct sums *sums, struct neap_error *err)
{
	uint64_t pages = 0;
	for (const struct neap_view *view = alloc->views; view; view = view->next) {
		enum neap_status status = view_check(alloc, view, sums, &pages, err);
		if (status)
			return status;
	}
	REQUIRE(!sums->parts, "a block is in a view that does not have it");
	REQUIRE(pages == alloc->view_pages, "%llu pages are in views, %llu are counted", (unsigned long long)pages,
		(unsigned long long)alloc->view_pages);
	return NEAP_OK;
}

static const struct neap_block *lowest_below(const struct neap_block *node)
{
	const struct neap_block *lowest = node, *sides[2] = {node->left, node->right};
	for (int i = 0; i < 2; i++)
		if (sides[i] && sides[i]->lowest->address < lowest->address)
			lowest = sides[i]->lowest;
	return lowest;
}

static bool tree_check(const struct neap_cache *cache, const struct neap_block *node, const struct neap_block **last,
		       uint64_t *count)
{
	if (!node)
		return true;
	if (!tree_check(cache, node->left, last, count))
		return false;
	if (node->state != NEAP_BLOCK_CACHED || node->cache != cache)
		return false;
	if (!cache->arena->small && node->lowest != lowest_below(node))
		return false;
	if (*last &&
	    ((*last)->bytes > node->bytes || ((*last)->bytes == node->bytes && (*last)->address >= node->address)))
		return false;
	*last = node;
	++*count;
	return tree_check(cache, node->right, last, count);
}

/* Checks all trees of a cache, in the order of their sizes. A tree has only blocks of its size, and its bit is set if
 * it has any. */
static bool cache_check(const struct neap_cache *cache, uint64_t *count)
{
	const struct neap_size_trees *sizes = cache->sizes;
	const struct neap_block *last = NULL;
	uint64_t before = *count;
	for (size_t i = 0; sizes && i < SIZE_TREES; i++) {
		const struct neap_block *tree = sizes->trees[i];
		bool used = sizes->used[i / 64] >> i % 64 & 1, word = sizes->words >> i / 64 & 1;
		if (used != !!tree || word != !!sizes->used[i / 64] || !tree_check(cache, tree, &last, count) ||
		    (tree && last->bytes != (i + 1) * BLOCK_ALIGNMENT))
			return false;
	}
	return tree_check(cache, cache->tree, &last, count) && *count - before == cache->count &&
	       (!sizes || !cache->tree ||
		neap_cache_after(cache, SMALL_LIMIT_BYTES, UINT64_MAX)->bytes > SMALL_LIMIT_BYTES);
}

static enum neap_status indexes_check(const struct neap_alloc *alloc, const struct sums *sums, struct neap_error *err)
{
	uint64_t cached = 0, live = 0, uses = 0, unmapped = 0;
	for (const struct neap_stream *stream = alloc->streams; stream; stream = stream->next) {
		live += stream->live_blocks;
		for (const struct neap_cache *cache = stream->caches; cache; cache = cache->next_of_stream) {
			REQUIRE(cache->stream == stream, "a stream has another's cache");
			REQUIRE(cache_check(cache, &cached), "a cache's tree is out of order");
		}
		REQUIRE(stream->done <= stream->recorded, "a stream's event is done before it was recorded");
		for (const struct neap_use *use = stream->waiting; use; use = use->next_of_stream) {
			uses++;
			REQUIRE(use->stream == stream && use->block->state == NEAP_BLOCK_PENDING,
				"a stream waits for a block that is not pending");
		}
	}
	REQUIRE(neap_largest_sound(&alloc->largest), "the index of largest blocks is out of order");
	bool region = !alloc->region;
	for (const struct neap_arena *arena = alloc->arenas; arena; arena = arena->next) {
		region |= arena == alloc->region && arena->planned;
		REQUIRE(cache_check(&arena->idle, &cached), "the tree of idle blocks is out of order");
		for (const struct neap_block *block = arena->unmapped; block; block = block->right) {
			REQUIRE(block->state == NEAP_BLOCK_UNMAPPED && block->segment->arena == arena,
				"an arena's list of unmapped blocks holds another");
			unmapped++;
		}
	}
	REQUIRE(region, "the plan's region is no arena of a plan");
	REQUIRE(unmapped == sums->unmapped_blocks, "the lists hold %llu unmapped blocks, there are %llu",
		(unsigned long long)unmapped, (unsigned long long)sums->unmapped_blocks);
	REQUIRE(cached == sums->cached_blocks, "the trees hold %llu blocks, %llu are cached",
		(unsigned long long)cached, (unsigned long long)sums->cached_blocks);
	REQUIRE(live == sums->live_blocks && alloc->live.count == live + sums->binned_blocks,
		"streams count %llu live blocks, there are %llu", (unsigned long long)live,
		(unsigned long long)sums->live_blocks);
	REQUIRE(uses == sums->pending_uses && uses == alloc->waiting_uses,
		"queues hold %llu uses, blocks wait for %llu", (unsigned long long)uses,
		(unsigned long long)sums->pending_uses);
	return NEAP_OK;
}

/* The bins hold exactly the blocks that are marked as binned, each of its bin's size. */
static enum neap_status bins_check(const struct neap_alloc *alloc, const struct sums *sums, struct neap_error *err)
{
	uint64_t binned = 0;
	for (uint32_t i = 0; i < alloc->front.count; i++) {
		const struct neap_lane *lane = alloc->front.lanes[i];
		uint64_t bytes = 0;
		for (size_t j = 0; j < DIRECT_BINS + HASHED_BINS; j++) {
			for (const struct neap_block *block = lane->bins[j].first; block; block = block->left) {
				REQUIRE(block->binned && block->lane == lane && block->bytes == lane->bins[j].bytes,
					"a bin holds another block");
				bytes += block->bytes;
				binned++;
			}
		}
		REQUIRE(bytes == lane->binned_bytes, "a lane counts %llu bytes in bins, there are %llu",
			(unsigned long long)lane->binned_bytes, (unsigned long long)bytes);
	}
	REQUIRE(binned == sums->binned_blocks, "the bins hold %llu blocks, %llu are in a bin",
		(unsigned long long)binned, (unsigned long long)sums->binned_blocks);
	return NEAP_OK;
}

static enum neap_status totals_check(const struct neap_alloc *alloc, const struct sums *sums, struct neap_error *err)
{
	for (int metric = 0; metric < NEAP_METRIC_COUNT; metric++) {
		for (int pool = 0; pool < NEAP_CLASS_COUNT; pool++) {
			const struct neap_stat *stat = &alloc->stats.metric[metric][pool];
			int64_t sum = sums->stats.metric[metric][pool].current;
			REQUIRE(stat->current == sum, "metric %d of class %d counts %lld, blocks sum to %lld", metric,
				pool, (long long)stat->current, (long long)sum);
			REQUIRE(stat->peak >= stat->current, "metric %d of class %d is above its peak", metric, pool);
		}
	}
	for (size_t i = 0; i < sizeof alloc->tags / sizeof alloc->tags[0]; i++) {
		const struct neap_tag *tag = &alloc->tags[i];
		REQUIRE(tag->live_bytes == sums->tags[i].live_bytes &&
				tag->live_blocks == sums->tags[i].live_blocks && tag->peak_bytes >= tag->live_bytes,
			"tag \"%s\" counts %llu bytes, its blocks sum to %llu", tag->text,
			(unsigned long long)tag->live_bytes, (unsigned long long)sums->tags[i].live_bytes);
	}
	uint64_t now = metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES);
	REQUIRE(alloc->lowest_allocated <= now && now <= alloc->highest_allocated,
		"allocated is outside its extremes");
	REQUIRE(alloc->held_pages == sums->held_pages, "%llu pages are held, segments and spares have %llu",
		(unsigned long long)alloc->held_pages, (unsigned long long)sums->held_pages);
	return NEAP_OK;
}

static enum neap_status published_check(struct neap_alloc *alloc, struct neap_error *err)
{
	struct neap_published copy;
	neap_published_close(alloc);
	REQUIRE(neap_published_read(alloc->published, &copy) == NEAP_OK, "the published counters cannot be read");
	REQUIRE(memcmp(&copy.stats, &alloc->stats, sizeof copy.stats) == 0, "the published counters are stale");
	REQUIRE(copy.limit_bytes == alloc->limit_bytes && copy.largest_free_bytes == alloc->largest_free_bytes,
		"the published limits are stale");
	return NEAP_OK;
}

enum neap_status neap_alloc_check(struct neap_alloc *alloc, struct neap_error *err)
{
	struct sums sums = {0};
	enum neap_status status = NEAP_OK;
	neap_alloc_lock(alloc);
	for (struct neap_segment *segment = alloc->segments; !status && segment; segment = segment->next)
		status = segment_check(alloc, segment, &sums, err);
	if (!status)
		status = views_check(alloc, &sums, err);
	sums.held_pages += alloc->spare_count;
	sum_add(&sums, NEAP_METRIC_RESERVED_BYTES, false, alloc->spare_count * alloc->page_bytes);
	if (!status)
		status = indexes_check(alloc, &sums, err);
	if (!status)
		status = bins_check(alloc, &sums, err);
	if (!status)
		status = totals_check(alloc, &sums, err);
	if (!status)
		status = published_check(alloc, err);
	neap_alloc_unlock(alloc);
	return status;
}
