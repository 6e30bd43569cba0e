/* alloc/front_room.c: what lanes counted, and how far they may go on. See front.h. */
#include "alloc/lane.h"

/* The bins of a lane hold at most this part of the reserved bytes, and as many bytes more; but no larger a part of
 * all that the allocator may reserve. */
#define ROOM_DIVISOR 8
#define ROOM_LEAST   (64ull << 20)

/* `taken` were added and `given` taken away, at once: only `current` and the sums change, as peaks were out of reach.
 */
static void stat_fold(struct neap_alloc *alloc, struct neap_stat *stat, int64_t taken, int64_t given)
{
	stat->current += taken - given;
	stat->allocated += taken;
	stat->freed += given;
	size_t index = (size_t)((int64_t *)stat - (int64_t *)&alloc->stats);
	uint64_t *words = (uint64_t *)&alloc->published->stats + index;
	neap_published_word(alloc, &words[0], (uint64_t)stat->current);
	neap_published_word(alloc, &words[2], (uint64_t)stat->allocated);
	neap_published_word(alloc, &words[3], (uint64_t)stat->freed);
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

static void tags_fold(struct neap_alloc *alloc, struct neap_lane *lane, const struct neap_level *all)
{
	if (!lane->tagged) { /* then none has a tag */
		alloc->tags[TAG_NONE].live_bytes += (uint64_t)all->bytes;
		alloc->tags[TAG_NONE].live_blocks += (uint64_t)all->blocks;
		return;
	}
	for (size_t i = 0; i < neap_tags_used(alloc); i++) {
		alloc->tags[i].live_bytes += (uint64_t)lane->tags[i].bytes;
		alloc->tags[i].live_blocks += (uint64_t)lane->tags[i].blocks;
		lane->tags[i].bytes = lane->tags[i].blocks = 0;
	}
}

void neap_lane_fold(struct neap_alloc *alloc, struct neap_lane *lane)
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

static int64_t rise(const struct neap_alloc *alloc, enum neap_metric metric, int class)
{
	const struct neap_stat *stat = &alloc->stats.metric[metric][class];
	return stat->peak - stat->current;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How far all lanes together may move one class. */
static struct neap_room room_of(const struct neap_alloc *alloc, int class)
{
	struct neap_room room = {
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
		room.bytes_high = least(room.bytes_high, (int64_t)(alloc->highest_allocated - allocated));
		room.bytes_low = least(room.bytes_low, (int64_t)(allocated - alloc->lowest_allocated));
	}
	return room;
}

static void share(struct neap_room *own, const struct neap_room *room, unsigned shift, bool given)
{
	own->blocks_high = given ? room->blocks_high >> shift : 0;
	own->bytes_high = given ? room->bytes_high >> shift : 0;
	own->requested_high = given ? room->requested_high >> shift : 0;
	own->blocks_low = given ? room->blocks_low >> shift : 0;
	own->bytes_low = given ? room->bytes_low >> shift : 0;
}

static int64_t tag_room(const struct neap_alloc *alloc, size_t tag)
{
	return (int64_t)(alloc->tags[tag].peak_bytes - alloc->tags[tag].live_bytes);
}

uint64_t neap_front_room_bytes(const struct neap_alloc *alloc)
{
	uint64_t room = metric_now(alloc, NEAP_METRIC_RESERVED_BYTES) / ROOM_DIVISOR + ROOM_LEAST;
	uint64_t most = neap_front_limit(alloc) / ROOM_DIVISOR;
	return room < most ? room : most;
}

/* Equal shares for the lanes that were used lately: a lane without any comes to the core, and has one from then on.
 */
void neap_front_room(struct neap_alloc *alloc)
{
	const struct neap_front *front = &alloc->front;
	unsigned users = 0, shift = 0;
	for (uint32_t i = 0; i < front->count; i++)
		users += front->lanes[i]->recent > 0;
	while (1u << shift < users)
		shift++;
	for (int class = 0; class < NEAP_CLASS_COUNT; class ++) {
		const struct neap_room room = room_of(alloc, class);
		for (uint32_t i = 0; i < front->count; i++)
			share(&front->lanes[i]->room[class], &room, shift, front->lanes[i]->recent > 0);
	}
	for (uint32_t i = 0; i < front->count; i++) {
		struct neap_lane *lane = front->lanes[i];
		struct neap_room *all = &lane->room[NEAP_CLASS_ALL];
		/* The last live block of a stream is the core's to free: after it the stream may be destroyed. */
		all->blocks_low = least(all->blocks_low, (int64_t)lane->stream->live_blocks - 1);
		all->bytes_low = least(all->bytes_low, (int64_t)(neap_front_room_bytes(alloc) - lane->binned_bytes));
		if (!lane->tagged)
			all->bytes_high = least(all->bytes_high, tag_room(alloc, TAG_NONE) >> shift);
		for (size_t tag = 0; lane->tagged && tag < neap_tags_used(alloc); tag++)
			lane->tags[tag].bytes_high = tag_room(alloc, tag) >> shift;
	}
}
