/* alloc/front/frozen.c: adds up the counters of frozen lanes, and assigns headroom when they thaw. See front.h. */
#include "alloc/front/front.h"
#include "alloc/plan/plan.h"

/* The bins of a lane hold at most reserved / ROOM_DIVISOR + ROOM_LEAST bytes, and at most limit / ROOM_DIVISOR. */
#define ROOM_DIVISOR 8
#define ROOM_LEAST   (64ull << 20)
#define POLL_EVERY   16 /* hits, while freed blocks wait for other streams */
#define RECENT       8  /* how many freezes a lane that was used keeps its headroom */
#define TIGHT        8  /* bins are shut while less than this part of the limit is left */

/* Adds `taken` and subtracts `given`. Only `current` and the sums change: a lane's headroom keeps it below the
 * peak. */
static void stat_fold(struct neap_alloc *alloc, struct neap_stat *stat, int64_t taken, int64_t given)
{
	stat->current += taken - given;
	stat->allocated += taken;
	stat->freed += given;
	size_t index = (size_t)((int64_t *)stat - (int64_t *)&alloc->stats);
	uint64_t *words = (uint64_t *)&alloc->published->stats + index;
	__atomic_store_n(&words[0], (uint64_t)stat->current, __ATOMIC_RELEASE);
	__atomic_store_n(&words[2], (uint64_t)stat->allocated, __ATOMIC_RELEASE);
	__atomic_store_n(&words[3], (uint64_t)stat->freed, __ATOMIC_RELEASE);
}

static void metric_fold(struct neap_alloc *alloc, enum neap_metric metric, enum neap_pool_class class, int64_t taken,
			int64_t given)
{
	stat_fold(alloc, &alloc->stats.metric[metric][NEAP_CLASS_ALL], taken, given);
	stat_fold(alloc, &alloc->stats.metric[metric][class], taken, given);
}

static void class_fold(struct neap_alloc *alloc, struct neap_lane *lane, enum neap_pool_class class)
{
	struct neap_takes *takes = &lane->takes[class];
	const struct neap_level *level = &lane->level[class];
	int64_t blocks = takes->blocks - level->blocks, bytes = takes->bytes - level->bytes;
	if (!takes->blocks && !blocks)
		return;
	neap_published_open(alloc);
	metric_fold(alloc, NEAP_METRIC_ALLOCATION, class, takes->blocks, blocks);
	metric_fold(alloc, NEAP_METRIC_ACTIVE, class, takes->blocks, blocks);
	metric_fold(alloc, NEAP_METRIC_ALLOCATED_BYTES, class, takes->bytes, bytes);
	metric_fold(alloc, NEAP_METRIC_ACTIVE_BYTES, class, takes->bytes, bytes);
	metric_fold(alloc, NEAP_METRIC_REQUESTED_BYTES, class, takes->requested, takes->requested - level->requested);
	metric_fold(alloc, NEAP_METRIC_INACTIVE_SPLIT, class, blocks, takes->blocks);
	metric_fold(alloc, NEAP_METRIC_INACTIVE_SPLIT_BYTES, class, bytes, takes->bytes);
	alloc->serial += (uint64_t)takes->blocks;
	alloc->dirty = alloc->dirty || blocks > 0;
	*takes = (struct neap_takes){0};
}

static void level_clear(struct neap_level *level)
{
	level->blocks = level->requested = 0;
	__atomic_store_n(&level->bytes, 0, __ATOMIC_RELAXED);
}

static void published_clear(struct neap_alloc *alloc, struct neap_lane *lane)
{
	for (int part = 0; lane->published && part < NEAP_PUBLISHED_PARTS; part++) {
		struct neap_published_lane *to = &lane->published[part];
		neap_published_word(alloc, &to->blocks_taken, 0);
		neap_published_word(alloc, &to->bytes_taken, 0);
		neap_published_word(alloc, &to->requested_taken, 0);
		neap_published_word(alloc, &to->blocks_given, 0);
		neap_published_word(alloc, &to->bytes_given, 0);
		neap_published_word(alloc, &to->requested_given, 0);
	}
}

/* Returns the index after the last tag that may have been used. */
static size_t tags_used(const struct neap_alloc *alloc)
{
	return alloc->tag_count == NEAP_TAGS_MAX ? NEAP_TAGS_MAX + 2 : alloc->tag_count + 1;
}

static void tags_fold(struct neap_alloc *alloc, struct neap_lane *lane, const struct neap_level *all)
{
	if (!lane->tagged) { /* if no allocation was tagged, none of its blocks has a tag */
		alloc->tags[TAG_NONE].live_bytes += (uint64_t)all->bytes;
		alloc->tags[TAG_NONE].live_blocks += (uint64_t)all->blocks;
		return;
	}
	for (size_t i = 0; i < tags_used(alloc); i++) {
		alloc->tags[i].live_bytes += (uint64_t)lane->tags[i].bytes;
		alloc->tags[i].live_blocks += (uint64_t)lane->tags[i].blocks;
		lane->tags[i].bytes = lane->tags[i].blocks = 0;
	}
}

static void lane_fold(struct neap_alloc *alloc, struct neap_lane *lane)
{
	const struct neap_level all = lane_level(lane);
	lane->stream->live_blocks += (uint64_t)all.blocks;
	lane->binned_bytes -= (uint64_t)all.bytes;
	tags_fold(alloc, lane, &all);
	class_fold(alloc, lane, NEAP_CLASS_LARGE);
	class_fold(alloc, lane, NEAP_CLASS_SMALL);
	level_clear(&lane->level[NEAP_CLASS_LARGE]);
	level_clear(&lane->level[NEAP_CLASS_SMALL]);
	published_clear(alloc, lane);
}

/* All lanes are locked. */
void neap_front_fold(struct neap_alloc *alloc)
{
	alloc->front.binned_bytes = 0;
	for (uint32_t i = 0; i < alloc->front.count; i++) {
		struct neap_lane *lane = alloc->front.lanes[i];
		if (lane_moved(lane)) {
			lane->moved = true;
			lane->stamp = lane->stream->recorded + 1;
			lane_fold(alloc, lane);
		}
		alloc->front.binned_bytes += lane->binned_bytes;
		alloc->event_ns = lane->time.ns > alloc->event_ns ? lane->time.ns : alloc->event_ns;
	}
	neap_published_close(alloc);
}

static int64_t rise(const struct neap_alloc *alloc, enum neap_metric metric, int class)
{
	const struct neap_stat *stat = &alloc->stats.metric[metric][class];
	return stat->peak - stat->current;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The headroom of all lanes together in one class. */
static struct neap_headroom headroom_of(const struct neap_alloc *alloc, int class)
{
	struct neap_headroom headroom = {
		.blocks_high =
			least(rise(alloc, NEAP_METRIC_ALLOCATION, class), rise(alloc, NEAP_METRIC_ACTIVE, class)),
		.bytes_high = least(rise(alloc, NEAP_METRIC_ALLOCATED_BYTES, class),
				    rise(alloc, NEAP_METRIC_ACTIVE_BYTES, class)),
		.requested_high = rise(alloc, NEAP_METRIC_REQUESTED_BYTES, class),
		.blocks_low = rise(alloc, NEAP_METRIC_INACTIVE_SPLIT, class),
		.bytes_low = rise(alloc, NEAP_METRIC_INACTIVE_SPLIT_BYTES, class),
	};
	if (class == NEAP_CLASS_ALL) {
		uint64_t allocated = metric_now(alloc, NEAP_METRIC_ALLOCATED_BYTES);
		headroom.bytes_high = least(headroom.bytes_high, (int64_t)(alloc->highest_allocated - allocated));
		headroom.bytes_low = least(headroom.bytes_low, (int64_t)(allocated - alloc->lowest_allocated));
	}
	return headroom;
}

static void share(struct neap_headroom *own, const struct neap_headroom *headroom, unsigned shift, bool given)
{
	own->blocks_high = given ? headroom->blocks_high >> shift : 0;
	own->bytes_high = given ? headroom->bytes_high >> shift : 0;
	own->requested_high = given ? headroom->requested_high >> shift : 0;
	own->blocks_low = given ? headroom->blocks_low >> shift : 0;
	own->bytes_low = given ? headroom->bytes_low >> shift : 0;
}

static int64_t tag_headroom(const struct neap_alloc *alloc, size_t tag)
{
	return (int64_t)(alloc->tags[tag].peak_bytes - alloc->tags[tag].live_bytes);
}

uint64_t neap_front_headroom_bytes(const struct neap_alloc *alloc)
{
	uint64_t headroom = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES) / ROOM_DIVISOR + ROOM_LEAST;
	uint64_t most = neap_limit_bytes(alloc) / ROOM_DIVISOR;
	return headroom < most ? headroom : most;
}

/* Divides the headroom equally among the lanes that were used lately. A lane without headroom calls the core, and
 * gets some from then on. */
static void give_room(struct neap_alloc *alloc)
{
	const struct neap_front *front = &alloc->front;
	unsigned users = 0, shift = 0;
	for (uint32_t i = 0; i < front->count; i++)
		users += front->lanes[i]->recent > 0;
	while (1u << shift < users)
		shift++;
	for (int class = 0; class < NEAP_CLASS_COUNT; class ++) {
		const struct neap_headroom headroom = headroom_of(alloc, class);
		for (uint32_t i = 0; i < front->count; i++)
			share(&front->lanes[i]->headroom[class], &headroom, shift, front->lanes[i]->recent > 0);
	}
	for (uint32_t i = 0; i < front->count; i++) {
		struct neap_lane *lane = front->lanes[i];
		struct neap_headroom *all = &lane->headroom[NEAP_CLASS_ALL];
		/* Only the core frees the last live block of a stream: after that the stream may be destroyed. */
		all->blocks_low = least(all->blocks_low, (int64_t)lane->stream->live_blocks - 1);
		all->bytes_low =
			least(all->bytes_low, (int64_t)(neap_front_headroom_bytes(alloc) - lane->binned_bytes));
		if (!lane->tagged)
			all->bytes_high = least(all->bytes_high, tag_headroom(alloc, TAG_NONE) >> shift);
		for (size_t tag = 0; lane->tagged && tag < tags_used(alloc); tag++)
			lane->tags[tag].bytes_high = tag_headroom(alloc, tag) >> shift;
	}
}

/* Asks the observer for the numbers of all tags in use. */
static void number_tags(struct neap_alloc *alloc)
{
	for (size_t i = 1; i < tags_used(alloc); i++)
		neap_tag_number(alloc, (uint8_t)i);
}

/* Whether lanes may serve requests: not while a private pool's filter, a plan, an observer or a watcher must see each
 * request in the core, nor while little memory is left. */
static bool front_open(const struct neap_alloc *alloc)
{
	uint64_t reserved = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES);
	uint64_t limit = neap_limit_bytes(alloc);
	return !alloc->pools_open && !(alloc->plan && neap_plan_watches(alloc->plan)) &&
	       (!alloc->observer || alloc->observer->concurrent) && !alloc->watcher.blocks &&
	       reserved <= limit - limit / TIGHT;
}

void neap_front_thaw(struct neap_alloc *alloc)
{
	bool open = alloc->front.count && front_open(alloc);
	if (!open)
		neap_front_flush(alloc);
	if (open && alloc->observer)
		number_tags(alloc);
	for (uint32_t i = 0; i < alloc->front.count; i++) {
		struct neap_lane *lane = alloc->front.lanes[i];
		lane->recent = lane->moved ? RECENT : lane->recent > 0 ? lane->recent - 1 : 0;
		lane->moved = false;
		lane->open = open;
		lane->tagged = alloc->tag_count > 0;
		lane->polls_left = alloc->waiting_uses ? POLL_EVERY : UINT32_MAX;
		lane->observer = alloc->observer;
		lane->published = alloc->published == &alloc->own_published ? NULL : alloc->published->lanes[i];
		lane->serial = alloc->serial;
		lane->time.uses -= lane->time.left; /* so the next event reads the clock, after the core's events */
		lane->time.left = 0;
	}
	if (open)
		give_room(alloc);
	neap_published_close(alloc);
	for (uint32_t i = 0; i < alloc->front.count; i++)
		lane_unlock(alloc->front.lanes[i], NULL);
}
