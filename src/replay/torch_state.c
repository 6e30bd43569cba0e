/* replay/torch_state.c: restores the state that a recording begins with, and checks the model's invariants. */
#include "base/error.h"
#include "replay/torch_internal.h"

#include <stdlib.h>

static uint64_t mapped_bytes(const struct neap_torch_segment *segment)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < segment->piece_count; i++)
		if (segment->pieces[i].state != NEAP_TORCH_UNMAPPED)
			bytes += segment->pieces[i].size;
	return bytes;
}

/* Checks everything that restore relies on. */
static enum neap_status validate(struct torch *torch, const struct neap_torch_segment *segment, uint64_t *ret_size,
				 struct neap_error *err)
{
	uint64_t offset = 0, page = segment->large ? torch->options.settings.large_segment_bytes : SMALL_SEGMENT;
	for (size_t i = 0; i < segment->piece_count; i++) {
		const struct neap_torch_piece *piece = &segment->pieces[i];
		bool idle = piece->state == NEAP_TORCH_FREE || piece->state == NEAP_TORCH_UNMAPPED;
		if (!piece->size || piece->size > LARGEST_REQUEST || offset > LARGEST_REQUEST)
			return neap_fail(err, NEAP_EINVAL, "segment at 0x%llx: a block of %llu bytes",
					 (unsigned long long)segment->address, (unsigned long long)piece->size);
		if (idle && i && segment->pieces[i - 1].state == piece->state)
			return neap_fail(err, NEAP_EINVAL, "segment at 0x%llx: two free blocks side by side",
					 (unsigned long long)segment->address);
		if (piece->state == NEAP_TORCH_UNMAPPED &&
		    (!segment->expandable || offset % page || piece->size % page))
			return neap_fail(err, NEAP_EINVAL, "segment at 0x%llx: a hole that is not of whole pages",
					 (unsigned long long)segment->address);
		offset += piece->size;
	}
	if (!offset || offset > LARGEST_REQUEST || segment->address > UINT64_MAX / 2)
		return neap_fail(err, NEAP_EINVAL, "segment at 0x%llx: no bytes, or too many",
				 (unsigned long long)segment->address);
	if (mapped_bytes(segment) > torch->device_bytes - torch->reserved)
		return neap_fail(err, NEAP_EOOM,
				 "the device is smaller than what the recording begins with: %llu bytes",
				 (unsigned long long)(torch->reserved + mapped_bytes(segment)));
	*ret_size = offset;
	return NEAP_OK;
}

/* Counts a restored block, and puts it into the set or queue of its state. */
static void enter(struct torch *torch, struct block *block, struct neap_torch_piece *piece)
{
	struct pool *pool = block->pool;
	block->restored = true;
	block->mapped = piece->state != NEAP_TORCH_UNMAPPED;
	if (piece->state == NEAP_TORCH_UNMAPPED) {
		set_insert(&pool->unmapped, block);
		return;
	}
	if (piece->state == NEAP_TORCH_FREE) {
		block_index(block);
		if (block_is_split(block) && !block->segment->expandable) {
			metric_add(torch, NEAP_METRIC_INACTIVE_SPLIT, pool, 1);
			metric_add(torch, NEAP_METRIC_INACTIVE_SPLIT_BYTES, pool, block->size);
		}
		return;
	}
	block->requested = piece->requested;
	metric_add(torch, NEAP_METRIC_ACTIVE, pool, 1);
	metric_add(torch, NEAP_METRIC_ACTIVE_BYTES, pool, block->size);
	metric_add(torch, NEAP_METRIC_REQUESTED_BYTES, pool, block->requested);
	if (piece->state == NEAP_TORCH_PENDING) {
		block_hold(torch, block, piece->token);
		return;
	}
	block->allocated = true;
	piece->block = block;
	metric_add(torch, NEAP_METRIC_ALLOCATION, pool, 1);
	metric_add(torch, NEAP_METRIC_ALLOCATED_BYTES, pool, block->size);
	if (block->size >= torch->options.settings.max_split_bytes)
		stat_add(&torch->usage.stats.oversize_allocations, 1);
}

static void drop_segment(struct torch *torch, struct segment *segment)
{
	while (segment->first) {
		struct block *next = segment->first->next;
		block_drop(torch, segment->first);
		segment->first = next;
	}
	segment_drop(torch, segment);
}

enum neap_status neap_torch_restore(struct neap_policy *policy, struct neap_torch_segment *from,
				    struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	uint64_t size = 0, address = from->address;
	enum neap_status status = validate(torch, from, &size, err);
	if (status)
		return status;
	struct pool *pool = pool_find(torch, from->pool, !from->large);
	struct segment *segment = pool ? segment_new(torch, address, size, from->expandable) : NULL;
	struct block *last = NULL;
	for (size_t i = 0; segment && !torch->starved && i < from->piece_count; i++) {
		struct block *block = block_new(torch, segment, pool, from->stream, address, from->pieces[i].size);
		if (!block)
			break;
		block_link(block, last, NULL);
		last = block;
		address += block->size;
	}
	if (torch->starved) {
		if (segment)
			drop_segment(torch, segment);
		torch->starved = false;
		return neap_fail(err, NEAP_ENOMEM, "restoring a segment: this machine is out of memory");
	}
	segment->restored = true;
	uint64_t mapped = mapped_bytes(from);
	torch->reserved += mapped;
	reserved_add(torch, pool, mapped);
	if (!from->expandable) {
		metric_add(torch, NEAP_METRIC_SEGMENT, pool, 1);
		if (size >= torch->options.settings.max_split_bytes)
			stat_add(&torch->usage.stats.oversize_segments, 1);
	}
	size_t i = 0;
	for (struct block *block = segment->first; block; block = block->next)
		enter(torch, block, &from->pieces[i++]);
	if (torch->starved) {
		torch->starved = false;
		return neap_fail(err, NEAP_ENOMEM, "restoring a segment: this machine is out of memory");
	}
	return NEAP_OK;
}

static enum neap_torch_state state_of(const struct block *block)
{
	if (!block->mapped)
		return NEAP_TORCH_UNMAPPED;
	if (block->allocated)
		return NEAP_TORCH_LIVE;
	return block->events ? NEAP_TORCH_PENDING : NEAP_TORCH_FREE;
}

bool neap_torch_covers(const struct neap_policy *policy, uint64_t address)
{
	const struct torch *torch = (const struct torch *)policy;
	for (const struct segment *segment = torch->first_segment; segment; segment = segment->next)
		if (address - segment->address < segment->size)
			return true;
	return false;
}

struct sums {
	uint64_t reserved, allocated, active, requested, free_blocks, unmapped_blocks, segments;
};

static enum neap_status check_segment(const struct torch *torch, const struct segment *segment, struct sums *sums,
				      struct neap_error *err)
{
	uint64_t address = segment->address;
	const struct block *last = NULL;
	const char *broken = NULL;
	for (const struct block *block = segment->first; block; last = block, block = block->next) {
		enum neap_torch_state state = state_of(block);
		if (block->address != address || block->prev != last || block->segment != segment || !block->size)
			broken = "blocks do not follow one another";
		if (last && (state == NEAP_TORCH_FREE || state == NEAP_TORCH_UNMAPPED) && state_of(last) == state)
			broken = "two free neighbours were not merged";
		if (!block->mapped &&
		    (!segment->expandable || (address - segment->address) % page_bytes(torch, block->pool)))
			broken = "a hole does not begin at a page";
		sums->reserved += block->mapped ? block->size : 0;
		sums->allocated += block->allocated ? block->size : 0;
		sums->free_blocks += state == NEAP_TORCH_FREE;
		sums->unmapped_blocks += state == NEAP_TORCH_UNMAPPED;
		if (block->allocated || block->events) {
			sums->active += block->size;
			sums->requested += block->requested;
		}
		address += block->size;
	}
	if (address != segment->address + segment->size)
		broken = "the blocks do not fill the segment";
	sums->segments += !segment->expandable;
	if (broken)
		return neap_fail(err, NEAP_EINTERNAL, "segment at 0x%llx: %s", (unsigned long long)segment->address,
				 broken);
	return NEAP_OK;
}

/* Counts the blocks of a set. Each must be in order, free, and mapped exactly if `mapped`. */
static enum neap_status check_set(const struct set *set, bool mapped, uint64_t *count, struct neap_error *err)
{
	for (struct block *block = set_first(set), *next = NULL; block; block = next) {
		next = set_after(set, block);
		if (block->mapped != mapped || !block_is_idle(block))
			return neap_fail(err, NEAP_EINTERNAL, "a set holds a block that is not free");
		if (next && (next->stream < block->stream ||
			     (!set->by_address && next->stream == block->stream && next->size < block->size)))
			return neap_fail(err, NEAP_EINTERNAL, "a set is out of order");
		++*count;
	}
	return NEAP_OK;
}

enum neap_status torch_check(struct neap_policy *policy, struct neap_error *err)
{
	struct torch *torch = torch_of(policy);
	struct sums sums = {0};
	uint64_t free_blocks = 0, unmapped_blocks = 0;
	enum neap_status status = NEAP_OK;
	for (struct segment *segment = torch->first_segment; segment && !status; segment = segment->next)
		status = check_segment(torch, segment, &sums, err);
	for (size_t i = 0; i < torch->pool_count && !status; i++) {
		status = check_set(&torch->pools[i]->free, true, &free_blocks, err);
		if (!status)
			status = check_set(&torch->pools[i]->unmapped, false, &unmapped_blocks, err);
	}
	if (status)
		return status;
	if (free_blocks != sums.free_blocks || unmapped_blocks != sums.unmapped_blocks)
		return neap_fail(err, NEAP_EINTERNAL, "%llu free blocks, %llu of them in a set",
				 (unsigned long long)sums.free_blocks, (unsigned long long)free_blocks);
	const struct {
		enum neap_metric metric;
		uint64_t sum;
		const char *name;
	} equations[] = {{NEAP_METRIC_RESERVED_BYTES, sums.reserved, "reserved"},
			 {NEAP_METRIC_ALLOCATED_BYTES, sums.allocated, "allocated"},
			 {NEAP_METRIC_ACTIVE_BYTES, sums.active, "active"},
			 {NEAP_METRIC_REQUESTED_BYTES, sums.requested, "requested"},
			 {NEAP_METRIC_SEGMENT, sums.segments, "segments"}};
	for (size_t i = 0; i < sizeof equations / sizeof equations[0]; i++) {
		const struct neap_stat *stat = torch->usage.stats.metric[equations[i].metric];
		if (stat[NEAP_CLASS_ALL].current != (int64_t)equations[i].sum ||
		    stat[NEAP_CLASS_ALL].current != stat[NEAP_CLASS_LARGE].current + stat[NEAP_CLASS_SMALL].current)
			return neap_fail(err, NEAP_EINTERNAL, "%s: %lld counted, the sum is %llu", equations[i].name,
					 (long long)stat[NEAP_CLASS_ALL].current,
					 (unsigned long long)equations[i].sum);
	}
	if (torch->reserved != sums.reserved || torch->reserved > torch->device_bytes)
		return neap_fail(err, NEAP_EINTERNAL, "the driver gave %llu bytes, segments hold %llu",
				 (unsigned long long)torch->reserved, (unsigned long long)sums.reserved);
	return NEAP_OK;
}
