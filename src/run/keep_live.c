/* run/keep_live.c: follows the live blocks of a process. If events were lost, these blocks show which frees are
 * missing from the kept history: without those, a freed block would live forever. */
#include "run/keep_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rounded(uint64_t bytes) { return bytes > UINT64_MAX / 4 ? 0 : (bytes + 511) / 512 * 512; }

static uint64_t minus(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

static bool is_free(uint16_t kind)
{
	return kind == NEAP_EVENT_FREE || kind == NEAP_EVENT_FREE_REQUESTED || kind == NEAP_EVENT_FREE_COMPLETED;
}

/* Removes a live block, or notes that its free was requested. */
static void account_free(struct neap_keep *keep, const struct neap_event *event, uint64_t value)
{
	size_t device = neap_keep_device(event);

	if (!(value & 1))
		keep->live_bytes[device] = minus(keep->live_bytes[device], rounded(value >> 1));
	if (event->kind == NEAP_EVENT_FREE_REQUESTED) {
		neap_map_put(&keep->live, event->allocation.address, value | 1); /* replaces a value: cannot fail */
		return;
	}
	neap_map_remove(&keep->live, event->allocation.address, NULL);
	neap_map_remove(&keep->born, event->allocation.address, NULL);
}

/* Adds a free of the block at `address` right before `event`: the event of that free was lost. */
static void add_free(struct neap_keep *keep, const struct neap_event *event, uint64_t address, uint64_t value)
{
	struct neap_event free = *event;

	if (keep->open_count + 1 >= keep->part_events + NEAP_KEEP_SPARE)
		return;
	free.kind = value & 1 ? NEAP_EVENT_FREE_COMPLETED : NEAP_EVENT_FREE;
	free.sequence = event->sequence - 1;
	free.allocation = (struct neap_event_allocation){
		.held = event->held, .address = address, .requested_bytes = value >> 1, .bytes = rounded(value >> 1)};
	account_free(keep, &free, value);
	keep->open[keep->open_count++] = free;
}

static int youngest_first(const void *left, const void *right)
{
	const struct neap_map_slot *a = left, *b = right;
	return (a->value < b->value) - (a->value > b->value);
}

/* Lists the live blocks of a device that were allocated before events were lost, youngest first. The caller frees the
 * list. NULL: out of host memory. */
static struct neap_map_slot *list_old(const struct neap_keep *keep, size_t device, size_t *ret_count)
{
	struct neap_map_slot *blocks = calloc(keep->born.count + 1, sizeof *blocks);
	const struct neap_map_slot *slot;
	size_t count = 0;

	for (size_t cursor = 0; blocks && (slot = neap_map_next(&keep->born, &cursor));)
		if (slot->value % NEAP_KEEP_DEVICES == device &&
		    slot->value / NEAP_KEEP_DEVICES < keep->missed_births)
			blocks[count++] = *slot;
	if (blocks)
		qsort(blocks, count, sizeof *blocks, youngest_first);
	*ret_count = count;
	return blocks;
}

/* How many bytes the allocator held before the event. */
static uint64_t held_before(const struct neap_event *event)
{
	const struct neap_event_allocation *block = &event->allocation;
	uint64_t after = event->held.allocated_bytes;

	if (event->kind == NEAP_EVENT_ALLOC)
		return minus(after, block->bytes);
	return event->kind == NEAP_EVENT_FREE_COMPLETED ? after : after + rounded(block->bytes);
}

/* Each event says how many bytes are live. If our sum is higher after events were lost, some of the older blocks were
 * freed meanwhile: most likely the youngest ones, since the model outlives the steps. (If our sum is lower, some
 * blocks were never seen; the sum is right again once they are freed.) */
static void resolve(struct neap_keep *keep, const struct neap_event *event)
{
	size_t device = neap_keep_device(event), count = 0;
	uint64_t before = held_before(event);

	if (keep->live_bytes[device] <= before)
		return;
	struct neap_map_slot *blocks = list_old(keep, device, &count);
	keep->resync[device] = count > 0; /* else there is nothing left to repair */
	for (size_t i = 0; i < count && keep->live_bytes[device] > before; i++) {
		uint64_t value = 0;
		if (blocks[i].key != event->allocation.address && neap_map_get(&keep->live, blocks[i].key, &value))
			add_free(keep, event, blocks[i].key, value);
	}
	free(blocks);
}

/* Notes a block. If host memory is short, the block stays unknown, and its free is dropped. */
static void account_alloc(struct neap_keep *keep, const struct neap_event *event)
{
	const struct neap_event_allocation *block = &event->allocation;
	uint64_t born = keep->births++ * NEAP_KEEP_DEVICES + neap_keep_device(event);

	if (!neap_map_put(&keep->live, block->address, block->requested_bytes << 1) ||
	    !neap_map_put(&keep->born, block->address, born)) {
		neap_map_remove(&keep->live, block->address, NULL);
		keep->missed = true;
		return;
	}
	keep->live_bytes[neap_keep_device(event)] += rounded(block->requested_bytes);
}

bool neap_keep_account(struct neap_keep *keep, struct neap_event *event)
{
	uint64_t address = event->allocation.address, value = 0;

	if (event->kind == NEAP_EVENT_RESTART) {
		neap_map_fini(&keep->live);
		neap_map_fini(&keep->born);
		memset(keep->live_bytes, 0, sizeof keep->live_bytes);
	}
	if (event->kind != NEAP_EVENT_ALLOC && !is_free(event->kind))
		return true;
	keep->seen = true;
	if (keep->missed && keep->resync[neap_keep_device(event)])
		resolve(keep, event);
	bool live = neap_map_get(&keep->live, address, &value);
	if (event->kind == NEAP_EVENT_ALLOC) {
		if (live && keep->missed)
			add_free(keep, event, address, value);
		account_alloc(keep, event);
		return true;
	}
	if (!live)
		return !keep->missed;
	if (keep->missed && event->kind == NEAP_EVENT_FREE_COMPLETED && !(value & 1))
		event->kind = NEAP_EVENT_FREE;
	else if (keep->missed && event->kind != NEAP_EVENT_FREE_COMPLETED && value & 1)
		return false;
	account_free(keep, event, value);
	return true;
}
