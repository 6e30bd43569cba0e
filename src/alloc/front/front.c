/* alloc/front/front.c: allocates from and frees into a lane's bins, on the hot path and for the core. See front.h. */
#include "alloc/front/front.h"
#include "base/clock.h"
#include "base/slot.h"

#include <stdlib.h>

#define SEEN_LATELY 1024 /* a size gets a bin if it comes again within this many frees by the core */

_Static_assert(offsetof(struct neap_event_allocation, held) == 0 &&
		       offsetof(struct neap_event_allocation, tag) == 16 &&
		       offsetof(struct neap_event_allocation, stream) == 20 &&
		       offsetof(struct neap_event_allocation, address) == 24 &&
		       offsetof(struct neap_event_allocation, requested_bytes) == 32 &&
		       offsetof(struct neap_event_allocation, bytes) == 40,
	       "describe() fills the payload by words");

static struct neap_lane *lane_of(const struct neap_front *front, void *stream)
{
	uint32_t count = __atomic_load_n(&front->count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < count; i++)
		if (front->streams[i] == stream)
			return front->lanes[i];
	return NULL;
}

static uint64_t slot_requested(const struct neap_index_slot *slot)
{
	return slot->asked & ((1ull << INDEX_TAG_SHIFT) - 1);
}

static uint8_t slot_tag(const struct neap_index_slot *slot) { return (uint8_t)(slot->asked >> INDEX_TAG_SHIFT); }

/* Writes the slot of a block that the program holds. `lane` may keep the block once freed; NULL: no lane may. */
static void slot_open(struct neap_index_slot *slot, const struct neap_block *block, struct neap_lane *lane)
{
	slot->asked = block->requested | (uint64_t)block->tag << INDEX_TAG_SHIFT;
	__atomic_store_n(&slot->lane, lane, __ATOMIC_RELAXED);
}

static enum neap_pool_class class_of(uint64_t bytes)
{
	return bytes <= SMALL_LIMIT_BYTES ? NEAP_CLASS_SMALL : NEAP_CLASS_LARGE;
}

/* Publishes the words that one call changes, for readers in other processes. */
static void publish(struct neap_lane *lane, enum neap_pool_class class)
{
	int part = class == NEAP_CLASS_SMALL;
	struct neap_published_lane *to = &lane->published[part];
	const struct neap_level *level = &lane->level[class];
	const struct neap_takes *takes = &lane->takes[class];
	__atomic_store_n(&to->sequence, ++lane->published_sequence[part], __ATOMIC_RELEASE);
	__atomic_store_n(&to->blocks_taken, (uint64_t)takes->blocks, __ATOMIC_RELEASE);
	__atomic_store_n(&to->bytes_taken, (uint64_t)takes->bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&to->requested_taken, (uint64_t)takes->requested, __ATOMIC_RELEASE);
	__atomic_store_n(&to->blocks_given, (uint64_t)(takes->blocks - level->blocks), __ATOMIC_RELEASE);
	__atomic_store_n(&to->bytes_given, (uint64_t)(takes->bytes - level->bytes), __ATOMIC_RELEASE);
	__atomic_store_n(&to->requested_given, (uint64_t)(takes->requested - level->requested), __ATOMIC_RELEASE);
	__atomic_store_n(&to->sequence, ++lane->published_sequence[part], __ATOMIC_RELEASE);
}

/* Returns the bytes allocated on the other lanes since the last freeze. *ret_foreign: another thread owns one of
 * them. */
static int64_t others_now(const struct neap_lane *own, bool *ret_foreign)
{
	const struct neap_front *front = &own->alloc->front;
	uint32_t count = __atomic_load_n(&front->count, __ATOMIC_ACQUIRE);
	int64_t sum = 0;
	for (uint32_t i = 0; count > 1 && i < count; i++) {
		const struct neap_lane *lane = front->lanes[i];
		if (lane == own)
			continue;
		sum += __atomic_load_n(&lane->level[NEAP_CLASS_LARGE].bytes, __ATOMIC_RELAXED) +
		       __atomic_load_n(&lane->level[NEAP_CLASS_SMALL].bytes, __ATOMIC_RELAXED);
		const struct neap_seat *owner = __atomic_load_n(&lane->owner, __ATOMIC_ACQUIRE);
		*ret_foreign = *ret_foreign || (owner && owner->thread != &neap_lane_self);
	}
	return sum;
}

/* Returns the bytes allocated now, with what other threads allocated on their own lanes up to the event's time. */
static inline uint64_t allocated_now(const struct neap_lane *own)
{
	bool foreign = false;
	int64_t sum = own->alloc->stats.metric[NEAP_METRIC_ALLOCATED_BYTES][NEAP_CLASS_ALL].current +
		      own->level[NEAP_CLASS_LARGE].bytes + own->level[NEAP_CLASS_SMALL].bytes;
	return (uint64_t)(sum + (own->time.foreign ? own->time.others_bytes : others_now(own, &foreign)));
}

/* Reads the time of a lane's event. An event of a lane is always newer than the core's earlier events of the same
 * address, even within a nanosecond, because the core's events come later in the ring. */
static __attribute__((noinline)) uint64_t read_time(struct neap_lane *lane, uint64_t tick)
{
	const struct neap_alloc *alloc = lane->alloc;
	struct neap_lane_time *time = &lane->time;
	uint64_t now = neap_clock_now(neap_clock_system());
	uint64_t pace_ns = (now - time->ns) / (time->uses - time->left + 1) + 1;
	uint32_t uses = pace_ns <= SHARED_NS / TIME_USES ? TIME_USES : (uint32_t)(SHARED_NS / pace_ns);
	time->ns = now > alloc->event_ns ? now : alloc->event_ns + 1;
	time->tick_ns = tick;
	time->uses = time->left = pace_ns <= PACE_NS ? uses : 0;
	time->foreign = false;
	time->others_bytes = others_now(lane, &time->foreign);
	return time->ns;
}

static inline uint64_t event_time(struct neap_lane *lane)
{
	struct neap_lane_time *time = &lane->time;
	uint64_t tick = neap_clock_tick_ns();
	if (!time->left || tick != time->tick_ns)
		return read_time(lane, tick);
	time->left--;
	return time->ns;
}

/* Fills the payload of an event, laid out as struct neap_event_allocation, word by word, so that it stays in
 * registers: the processor stalls if a struct is copied while its stores are still on the way to memory. */
static inline void describe(const struct neap_lane *lane, const struct neap_index_slot *slot, uint64_t *ret_payload)
{
	uint8_t tag = slot_tag(slot);
	ret_payload[0] = allocated_now(lane);
	ret_payload[1] = metric_now(lane->alloc, NEAP_METRIC_RESERVED_BYTES);
	ret_payload[2] = (tag ? lane->alloc->tags[tag].number : 0u) | (uint64_t)lane->stream->number << 32;
	ret_payload[3] = slot->address;
	ret_payload[4] = slot_requested(slot);
	ret_payload[5] = round_up(slot_requested(slot), BLOCK_ALIGNMENT);
}

/* Sends the events to an observer that has no slots. */
static __attribute__((noinline)) void send_events(struct neap_lane *lane, const struct neap_index_slot *slot,
						  enum neap_event_kind kind)
{
	const struct neap_observer *observer = lane->observer;
	bool free = kind == NEAP_EVENT_FREE;
	struct neap_event event = {.time_ns = event_time(lane), .device = lane->device};
	event.kind = (uint16_t)(free ? NEAP_EVENT_FREE_REQUESTED : kind);
	describe(lane, slot, event.payload);
	observer->event(observer->context, &event);
	event.kind = NEAP_EVENT_FREE_COMPLETED;
	if (free)
		observer->event(observer->context, &event);
}

/* Reports an event to the lane's observer; `kind` is ALLOC or FREE. */
static void notify(struct neap_lane *lane, const struct neap_index_slot *slot, enum neap_event_kind kind)
{
	const struct neap_observer *observer = lane->observer;
	uint64_t payload[NEAP_EVENT_PAYLOAD_WORDS];
	if (!observer->run) {
		send_events(lane, slot, kind);
		return;
	}
	uint64_t time_ns = event_time(lane);
	uint64_t *to = neap_slot_next(observer, &lane->run);
	if (!to)
		return;
	describe(lane, slot, payload);
	neap_slot_store(to, lane->run.next - 1, time_ns, neap_slot_kind((uint16_t)kind, lane->device), payload);
}

static bool may_rise(const struct neap_lane *lane, enum neap_pool_class class, int64_t bytes, int64_t requested)
{
	const struct neap_level *own = &lane->level[class];
	const struct neap_headroom *headroom = &lane->headroom[class], *all = &lane->headroom[NEAP_CLASS_ALL];
	const struct neap_level sum = lane_level(lane);
	/* One branch for all comparisons: they are almost always true. */
	return (own->blocks < headroom->blocks_high) & (own->bytes + bytes <= headroom->bytes_high) &
	       (own->requested + requested <= headroom->requested_high) & (sum.blocks < all->blocks_high) &
	       (sum.bytes + bytes <= all->bytes_high) & (sum.requested + requested <= all->requested_high);
}

static bool may_fall(const struct neap_lane *lane, enum neap_pool_class class, int64_t bytes)
{
	const struct neap_level *own = &lane->level[class];
	const struct neap_headroom *headroom = &lane->headroom[class], *all = &lane->headroom[NEAP_CLASS_ALL];
	const struct neap_level sum = lane_level(lane);
	return (-own->blocks < headroom->blocks_low) & (bytes - own->bytes <= headroom->bytes_low) &
	       (-sum.blocks < all->blocks_low) & (bytes - sum.bytes <= all->bytes_low);
}

/* `bytes` is atomic: other threads read it for their events, without this lane's lock. */
static void level_move(struct neap_level *level, int64_t blocks, int64_t bytes, int64_t requested)
{
	level->blocks += blocks;
	__atomic_store_n(&level->bytes, level->bytes + bytes, __ATOMIC_RELAXED);
	level->requested += requested;
}

static struct neap_block *bin_pop(struct neap_bin *bin)
{
	struct neap_block *block = bin->first;
	bin->first = block->left;
	block->left = NULL;
	block->binned = false;
	return block;
}

static void bin_push(struct neap_bin *bin, struct neap_block *block, size_t slot)
{
	block->slot = slot;
	block->left = bin->first;
	block->binned = true;
	bin->first = block;
}

/* Returns the slot of a block that was in a bin. Tries the known slot first: the block has mostly not moved, and a
 * search costs a branch that is hard to predict. */
static struct neap_index_slot *slot_of(const struct neap_alloc *alloc, const struct neap_block *block)
{
	struct neap_index_table *table = alloc->live.table;
	struct neap_index_slot *slot = &table->slots[block->slot & table->mask];
	return slot->address == block->address ? slot : neap_index_slot(table, block->address);
}

static bool take_locked(struct neap_alloc *alloc, struct neap_lane *lane, const struct neap_request *request,
			uint64_t *ret_address)
{
	struct neap_bin *bin = lane_bin(lane, request->rounded);
	enum neap_pool_class class = class_of(request->rounded);
	int64_t bytes = (int64_t)request->rounded, requested = (int64_t)request->bytes;
	uint8_t tag = neap_thread_tag ? neap_tag_known(alloc) : TAG_NONE;
	if (!bin->first || bin->bytes != request->rounded || !lane->open || tag == TAG_UNKNOWN ||
	    !may_rise(lane, class, bytes, requested) || !lane->polls_left)
		return false;
	if (lane->tagged) {
		if (lane->tags[tag].bytes + bytes > lane->tags[tag].bytes_high)
			return false;
		lane->tags[tag].bytes += bytes;
		lane->tags[tag].blocks++;
	}
	struct neap_block *block = bin_pop(bin);
	block->requested = request->bytes;
	block->tag = tag;
	block->serial = ++lane->serial;
	struct neap_index_slot *slot = slot_of(alloc, block);
	slot_open(slot, block, lane);
	level_move(&lane->level[class], 1, bytes, requested);
	lane->takes[class].blocks++;
	lane->takes[class].bytes += bytes;
	lane->takes[class].requested += requested;
	lane->polls_left--;
	if (lane->published)
		publish(lane, class);
	if (lane->observer)
		notify(lane, slot, NEAP_EVENT_ALLOC);
	*ret_address = block->address;
	return true;
}

bool neap_front_take(struct neap_alloc *alloc, const struct neap_request *request, uint64_t *ret_address)
{
	struct neap_lane *lane = lane_of(&alloc->front, request->stream);
	if (!lane)
		return false;
	struct neap_seat *seat = lane_lock(alloc, lane);
	bool taken = take_locked(alloc, lane, request, ret_address);
	lane_unlock(lane, seat);
	return taken;
}

/* Returns the bin that takes freed blocks of `bytes`; NULL: none. */
static struct neap_bin *bin_for(struct neap_lane *lane, uint64_t bytes)
{
	struct neap_bin *bin = lane_bin(lane, bytes);
	if (!lane->open || bin->bytes != bytes || lane->core_frees - bin->last_seen > SEEN_LATELY)
		return NULL;
	return bin;
}

static bool give_locked(struct neap_lane *lane, struct neap_index_slot *slot)
{
	uint64_t requested = slot_requested(slot), rounded = round_up(requested, BLOCK_ALIGNMENT);
	struct neap_bin *bin = bin_for(lane, rounded);
	enum neap_pool_class class = class_of(rounded);
	int64_t bytes = (int64_t)rounded;
	if (!bin || !may_fall(lane, class, bytes))
		return false;
	if (lane->tagged) {
		lane->tags[slot_tag(slot)].bytes -= bytes;
		lane->tags[slot_tag(slot)].blocks--;
	}
	level_move(&lane->level[class], -1, -bytes, -(int64_t)requested);
	if (lane->published)
		publish(lane, class);
	if (lane->observer)
		notify(lane, slot, NEAP_EVENT_FREE);
	__atomic_store_n(&slot->lane, NULL, __ATOMIC_RELAXED);
	bin_push(bin, slot->block, (size_t)(slot - lane->alloc->live.table->slots));
	return true;
}

bool neap_front_give(struct neap_alloc *alloc, uint64_t address)
{
	struct neap_index_table *table = __atomic_load_n(&alloc->live.table, __ATOMIC_ACQUIRE);
	struct neap_index_slot *slot = table ? neap_index_slot(table, address) : NULL;
	struct neap_lane *lane = slot ? __atomic_load_n(&slot->lane, __ATOMIC_RELAXED) : NULL;
	if (!lane)
		return false;
	struct neap_seat *seat = lane_lock(alloc, lane);
	/* The slot was found without a lock: by now another block may have it, or its table may be replaced. */
	bool found = __atomic_load_n(&slot->lane, __ATOMIC_RELAXED) == lane && slot->address == address &&
		     alloc->live.table == table;
	bool given = found && give_locked(lane, slot);
	const struct neap_block *block = found && !given ? slot->block : NULL;
	lane_unlock(lane, seat);
	if (block) { /* the core will read both of its cache lines */
		__builtin_prefetch(block);
		__builtin_prefetch(&block->stamp);
	}
	return given;
}

void neap_front_mark(struct neap_alloc *alloc, const struct neap_block *block)
{
	bool keeps = block->state == NEAP_BLOCK_LIVE && !block->binned && !block->uses;
	slot_open(neap_index_slot(alloc->live.table, block->address), block, keeps ? block->lane : NULL);
}

/* Counts a block that enters (1) or leaves (-1) a bin as an inactive split. With the allocator's lock held. */
static void count_binned(struct neap_alloc *alloc, const struct neap_block *block, int64_t sign)
{
	bool small = block->bytes <= SMALL_LIMIT_BYTES;
	neap_metric_add(alloc, NEAP_METRIC_INACTIVE_SPLIT, small, sign);
	neap_metric_add(alloc, NEAP_METRIC_INACTIVE_SPLIT_BYTES, small, sign * (int64_t)block->bytes);
}

struct neap_block *neap_front_pop(struct neap_alloc *alloc, const struct neap_request *request)
{
	struct neap_lane *lane = lane_of(&alloc->front, request->stream);
	struct neap_bin *bin = lane ? lane_bin(lane, request->rounded) : NULL;
	if (!lane || !lane->open || !bin->first || bin->bytes != request->rounded || !lane->polls_left)
		return NULL;
	struct neap_block *block = bin_pop(bin);
	lane->binned_bytes -= block->bytes;
	lane->moved = true;
	count_binned(alloc, block, -1);
	return block;
}

static struct neap_lane *lane_make(struct neap_alloc *alloc, struct neap_stream *stream)
{
	struct neap_front *front = &alloc->front;
	struct neap_lane *lane = front->count < FRONT_LANES ? calloc(1, sizeof *lane) : NULL;
	if (!lane)
		return NULL;
	front->owned = front->count ? front->owned : neap_lanes_may_be_owned();
	lane->locked = 1; /* locked while frozen, like the others */
	lane->alloc = alloc;
	lane->stream = stream;
	lane->device = (uint16_t)neap_device_info(alloc->device)->ordinal;
	front->lanes[front->count] = lane;
	front->streams[front->count] = stream->handle;
	__atomic_store_n(&front->count, front->count + 1, __ATOMIC_RELEASE);
	return lane;
}

void neap_front_adopt(struct neap_alloc *alloc, struct neap_stream *stream, struct neap_block *block)
{
	struct neap_lane *lane = NULL;
	if (!alloc->pools_open && (!alloc->observer || alloc->observer->concurrent))
		lane = lane_of(&alloc->front, stream->handle);
	if (!lane && !alloc->pools_open && (!alloc->observer || alloc->observer->concurrent))
		lane = lane_make(alloc, stream);
	block->lane = lane;
}

/* Gives a bin to a size that the core frees. If two large sizes share an empty bin, the later one gets it. */
static void bin_see(struct neap_lane *lane, uint64_t bytes)
{
	struct neap_bin *bin = lane_bin(lane, bytes);
	lane->core_frees++;
	if (bin->bytes == bytes || !bin->first)
		*bin = (struct neap_bin){bytes, bin->first, lane->core_frees};
}

bool neap_front_push(struct neap_alloc *alloc, struct neap_block *block)
{
	struct neap_lane *lane = block->lane;
	struct neap_bin *bin = lane && !block->uses ? bin_for(lane, block->bytes) : NULL;
	if (lane && !bin)
		bin_see(lane, block->bytes);
	if (!bin || lane->binned_bytes + block->bytes > neap_front_headroom_bytes(alloc))
		return false;
	bin_push(bin, block, 0);
	neap_front_mark(alloc, block);
	lane->binned_bytes += block->bytes;
	lane->stamp = block->stamp > lane->stamp ? block->stamp : lane->stamp;
	lane->moved = true;
	count_binned(alloc, block, 1);
	return true;
}

uint64_t neap_front_flush(struct neap_alloc *alloc)
{
	uint64_t flushed = 0;
	for (uint32_t i = 0; i < alloc->front.count; i++) {
		struct neap_lane *lane = alloc->front.lanes[i];
		for (size_t j = 0; lane->binned_bytes && j < DIRECT_BINS + HASHED_BINS; j++) {
			while (lane->bins[j].first) {
				struct neap_block *block = bin_pop(&lane->bins[j]);
				flushed += block->bytes;
				lane->binned_bytes -= block->bytes;
				count_binned(alloc, block, -1);
				block->stamp = lane->stamp;
				neap_index_remove(&alloc->live, block->address);
				neap_block_settle(alloc, block, NEAP_BLOCK_CACHED);
			}
		}
	}
	return flushed;
}

void neap_front_part(struct neap_alloc *alloc)
{
	for (uint32_t i = 0; i < alloc->front.count; i++)
		alloc->front.lanes[i]->run = (struct neap_event_run){0};
}

void neap_front_fini(struct neap_alloc *alloc)
{
	for (uint32_t i = 0; i < alloc->front.count; i++)
		free(alloc->front.lanes[i]);
	alloc->front = (struct neap_front){0};
}
