/* sim/driver/races.c: blocks, their lives, and the reports: see the header. */
#include "sim/driver/race_private.h"

#include <stdlib.h>
#include <string.h>

enum {
	LIVES = 1 << 16,      /* lives that reports can name: the newest ones */
	REPORTS_AT_ONCE = 8,  /* races reported of one piece of work */
	REPORTS_MOST = 10000, /* races reported in a process */
};

struct life {
	uint64_t address, bytes;
	uint32_t number, allocated, freed, stream, device;
};

struct reports {
	struct neap_sim_race list[REPORTS_AT_ONCE];
	size_t count;
};

/* One piece of work while it is checked. */
struct check {
	struct sim_races *races;
	struct reports *reports;
	const struct race_clock *clock;
	struct race_use use;
	bool replayed;
};

struct sim_races *sim_races_create(void (*report)(const struct neap_sim_race *race),
				   void (*limited)(const char *what))
{
	struct sim_races *races = calloc(1, sizeof *races);
	struct life *lives = calloc(LIVES, sizeof *lives);

	if (!races || !lives) {
		free(races);
		free(lives);
		return NULL;
	}
	pthread_mutex_init(&races->lock, NULL);
	race_late_init(&races->late);
	races->report = report;
	races->limited = limited;
	races->lives = lives;
	return races;
}

static struct block *block_of(struct sim_span *span) { return (struct block *)(void *)span; }

void sim_races_destroy(struct sim_races *races)
{
	struct sim_span *span;

	if (!races)
		return;
	while ((span = races->blocks.head.next[0]) != NULL) {
		sim_spans_remove(&races->blocks, span);
		free(block_of(span));
	}
	race_cells_fini(&races->cells);
	race_order_fini(&races->order);
	race_late_fini(&races->late);
	neap_map_fini(&races->reported);
	free(races->lives);
	pthread_mutex_destroy(&races->lock);
	free(races);
}

/* -- reports ----------------------------------------------------------------------------------------------------- */

static struct neap_sim_race_side side_of(const struct race_use *use)
{
	return (struct neap_sim_race_side){.name = use->name,
					   .stack = use->stack,
					   .use = use->use,
					   .stream = use->stream,
					   .device = use->device};
}

static void describe_life(const struct sim_races *races, uint32_t number, struct neap_sim_race *race)
{
	const struct life *life = &races->lives[number % LIVES];

	if (!number || life->number != number)
		return;
	race->block.address = life->address;
	race->block.bytes = life->bytes;
	race->block.allocated = life->allocated;
	race->block.freed = life->freed;
	race->block.stream = life->stream;
	race->block.device = life->device;
}

static uint64_t mixed(uint64_t hash, uint64_t with) { return (hash ^ with) * 0x9e3779b97f4a7c15u ^ hash >> 29; }

/* Whether this pair of places was not reported before. */
static bool is_new(struct sim_races *races, const struct neap_sim_race *race)
{
	uint64_t key = mixed(race->kind + 1, race->first.stack), there;

	key = mixed(mixed(key, race->second.stack), race->first.stream);
	key = mixed(mixed(key, race->second.stream), (uintptr_t)race->first.name);
	key = mixed(key, (uintptr_t)race->second.name);
	if (neap_map_get(&races->reported, key, &there))
		return false;
	if (races->reported.count < REPORTS_MOST && neap_map_put(&races->reported, key, 1))
		return true;
	races->left_out = true;
	return false;
}

static void add_report(struct check *check, enum neap_sim_race_kind kind, const struct race_use *first,
		       uint64_t begin, uint64_t end)
{
	struct neap_sim_race race = {.kind = kind,
				     .first = side_of(first),
				     .second = side_of(&check->use),
				     .address = begin,
				     .bytes = end - begin};

	if (check->reports->count == REPORTS_AT_ONCE || !is_new(check->races, &race))
		return;
	describe_life(check->races, first->life, &race);
	check->reports->list[check->reports->count++] = race;
}

static const char *const limits[] = {
	"races between streams that exist beside 63 others",
	"uses of memory beyond 262144 pieces that streams used apart",
	"races after the first 10000",
};

/* Returns the limits that were reached and not reported yet: a bit for each of `limits`. */
static uint32_t new_limits(struct sim_races *races)
{
	uint32_t now =
		(uint32_t)races->order.crowded | (uint32_t)races->cells.full << 1 | (uint32_t)races->left_out << 2;
	uint32_t new = now & ~races->limits_reported;

	races->limits_reported |= now;
	return new;
}

void sim_races_again(struct sim_races *races)
{
	pthread_mutex_lock(&races->lock);
	neap_map_fini(&races->reported);
	races->reported = (struct neap_map){0};
	races->limits_reported = 0;
	races->left_out = false;
	races->cells.full = races->cells.count >= RACE_CELLS_MOST;
	race_order_recheck(&races->order);
	pthread_mutex_unlock(&races->lock);
}

static void unlock(struct sim_races *races, const struct reports *reports)
{
	uint32_t limited = new_limits(races);

	pthread_mutex_unlock(&races->lock);
	for (size_t i = 0; i < reports->count; i++)
		races->report(&reports->list[i]);
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
		if (limited & 1u << i)
			races->limited(limits[i]);
}

/* -- uses -------------------------------------------------------------------------------------------------------- */

static bool may_write(uint32_t use) { return use & (NEAP_SIM_WRITES | NEAP_SIM_UNKNOWN); }

/* Whether unordered uses are a race. */
static bool conflict(const struct race_use *first, const struct race_use *second, enum neap_sim_race_kind *ret_kind)
{
	uint32_t both = first->use | second->use;

	*ret_kind = NEAP_SIM_RACE_DATA;
	if (first->life != second->life && first->life && second->life) {
		*ret_kind = NEAP_SIM_RACE_LIFETIME;
		return may_write(both);
	}
	return (both & NEAP_SIM_WRITES) && !(both & (NEAP_SIM_UNKNOWN | NEAP_SIM_SPARSE));
}

static void find_conflicts(struct check *check, uint64_t begin, uint64_t end)
{
	struct sim_span *span = sim_spans_from(&check->races->cells.spans, begin);
	enum neap_sim_race_kind kind;

	for (; span && span->begin < end; span = span->next[0]) {
		const struct race_cell *cell = (const void *)span;
		uint64_t from = begin > span->begin ? begin : span->begin, to = end < span->end ? end : span->end;

		for (uint32_t i = 0; i < cell->count; i++)
			if (!race_seen(&cell->uses[i], check->clock) && conflict(&cell->uses[i], &check->use, &kind))
				add_report(check, kind, &cell->uses[i], from, to);
	}
}

/* Returns the life of the block that has the bytes. Reports a race if that life has ended. */
static uint32_t life_at(struct check *check, uint64_t address, uint64_t end)
{
	struct sim_span *span = sim_spans_from(&check->races->blocks, address);
	const struct block *block = block_of(span);
	struct race_use freed = {0};

	if (!span || span->begin > address)
		return 0;
	if (!block->freed)
		return block->life;
	if (check->replayed || block->kept)
		return 0;
	freed.name = "";
	freed.life = block->life;
	freed.stack = check->races->lives[block->life % LIVES].freed;
	freed.stream = UINT32_MAX;
	add_report(check, NEAP_SIM_RACE_FREED, &freed, address, end < span->end ? end : span->end);
	return block->life;
}

static void check_touch(struct check *check, const struct neap_sim_touch *touch)
{
	uint64_t end = touch->address + touch->bytes;

	if (!touch->bytes || end < touch->address)
		return;
	check->use.use = (uint8_t)touch->use;
	check->use.life = life_at(check, touch->address, end);
	find_conflicts(check, touch->address, end);
	race_cells_use(&check->races->cells, touch->address, end, &check->use, check->clock,
		       &check->races->order.host);
}

static void work(struct sim_races *races, struct sim_race_stream what, const struct neap_sim_uses *uses,
		 bool replayed)
{
	struct reports reports;

	reports.count = 0;
	pthread_mutex_lock(&races->lock);
	struct race_stream *stream = race_order_now(&races->order, what);
	if (stream) {
		struct check check = {
			.races = races, .reports = &reports, .clock = &stream->clock, .replayed = replayed};

		stream->clock.seen[stream->lane] = ++races->order.counts[stream->lane];
		stream->collective = strncmp(uses->name, "nccl", 4) == 0;
		check.use = (struct race_use){.name = uses->name,
					      .count = races->order.counts[stream->lane],
					      .stack = uses->stack,
					      .stream = stream->number,
					      .device = what.device,
					      .lane = (uint8_t)stream->lane};
		for (size_t i = 0; i < uses->count; i++)
			check_touch(&check, &uses->touches[i]);
	}
	unlock(races, &reports);
}

void sim_races_work(struct sim_races *races, struct sim_race_stream stream, const struct neap_sim_uses *uses)
{
	work(races, stream, uses, false);
}

void sim_races_replay(struct sim_races *races, struct sim_race_stream stream, const struct neap_sim_uses *uses)
{
	work(races, stream, uses, true);
}

static void check_host_touch(struct check *check, const struct neap_sim_touch *touch)
{
	uint64_t end = touch->address + touch->bytes;
	struct sim_span *span = sim_spans_from(&check->races->cells.spans, touch->address);

	check->use.use = (uint8_t)touch->use;
	for (; span && span->begin < end; span = span->next[0]) {
		const struct race_cell *cell = (const void *)span;

		for (uint32_t i = 0; i < cell->count; i++) {
			uint32_t both = cell->uses[i].use | touch->use;

			if (!race_seen(&cell->uses[i], check->clock) && (both & NEAP_SIM_WRITES) &&
			    !(both & (NEAP_SIM_UNKNOWN | NEAP_SIM_SPARSE)))
				add_report(check, NEAP_SIM_RACE_HOST, &cell->uses[i], span->begin, span->end);
		}
	}
}

void sim_races_host(struct sim_races *races, const struct neap_sim_uses *uses)
{
	struct reports reports;

	reports.count = 0;
	pthread_mutex_lock(&races->lock);
	struct check check = {.races = races, .reports = &reports, .clock = &races->order.host};
	check.use = (struct race_use){.name = uses->name, .stack = uses->stack, .stream = UINT32_MAX};
	for (size_t i = 0; i < uses->count; i++)
		check_host_touch(&check, &uses->touches[i]);
	unlock(races, &reports);
}

/* -- blocks ------------------------------------------------------------------------------------------------------ */

static void stop_waiting(struct sim_races *races, struct block *block)
{
	struct block **link = &races->waiting;

	while (*link != block)
		link = &(*link)->next;
	*link = block->next;
	block->waits = false;
}

/* Ends the lives of the blocks whose bytes now belong to other blocks. */
static void end_blocks(struct sim_races *races, uint64_t begin, uint64_t end)
{
	struct sim_span *span;

	while ((span = sim_spans_from(&races->blocks, begin)) != NULL && span->begin < end) {
		if (block_of(span)->waits)
			stop_waiting(races, block_of(span));
		sim_spans_remove(&races->blocks, span);
		free(block_of(span));
	}
}

void sim_races_allocated(struct sim_races *races, uint64_t address, uint64_t bytes, struct sim_race_stream what,
			 uint32_t stack, bool kept)
{
	struct block *block = calloc(1, sizeof *block);

	if (!block)
		return;
	pthread_mutex_lock(&races->lock);
	const struct race_stream *stream = race_order_now(&races->order, what);
	block->life = ++races->lives_made;
	block->kept = kept;
	block->span.begin = address;
	block->span.end = address + (bytes ? bytes : 1);
	races->lives[block->life % LIVES] = (struct life){.address = address,
							  .bytes = bytes,
							  .number = block->life,
							  .allocated = stack,
							  .stream = stream ? stream->number : 0,
							  .device = what.device};
	end_blocks(races, address, block->span.end);
	sim_spans_add(&races->blocks, &block->span);
	pthread_mutex_unlock(&races->lock);
}

/* Returns the block that begins at the address; NULL: none. Lock held. */
static struct block *block_at(const struct sim_races *races, uint64_t address)
{
	struct sim_span *span = sim_spans_from(&races->blocks, address);

	return span && span->begin == address ? block_of(span) : NULL;
}

void sim_races_freed(struct sim_races *races, uint64_t address, uint32_t stack, bool by_watchdog)
{
	pthread_mutex_lock(&races->lock);
	struct block *block = block_at(races, address);
	if (block && !block->freed) {
		struct life *life = &races->lives[block->life % LIVES];

		if (life->number == block->life)
			life->freed = stack;
		block->freed = block->waits = true;
		block->release = by_watchdog ? races->order.watchdogs : (struct race_clock){{0}};
		block->next = races->waiting;
		races->waiting = block;
	}
	pthread_mutex_unlock(&races->lock);
}

void sim_races_reusable(struct sim_races *races, uint64_t address)
{
	pthread_mutex_lock(&races->lock);
	struct block *block = block_at(races, address);
	if (block && block->waits) {
		stop_waiting(races, block);
		race_cells_drop(&races->cells, block->span.begin, block->span.end, &block->release);
	}
	pthread_mutex_unlock(&races->lock);
}

void sim_races_unmapped(struct sim_races *races, uint64_t address, uint64_t bytes, uint32_t stack)
{
	struct reports reports;
	uint64_t end = address + bytes;

	reports.count = 0;
	pthread_mutex_lock(&races->lock);
	struct check check = {.races = races, .reports = &reports, .clock = &races->order.host};
	check.use = (struct race_use){.name = "", .stack = stack, .stream = UINT32_MAX};
	struct sim_span *span = sim_spans_from(&races->cells.spans, address);
	for (; span && span->begin < end; span = span->next[0]) {
		const struct race_cell *cell = (const void *)span;

		for (uint32_t i = 0; i < cell->count; i++)
			if (!race_seen(&cell->uses[i], check.clock))
				add_report(&check, NEAP_SIM_RACE_UNMAPPED, &cell->uses[i], span->begin, span->end);
	}
	race_cells_drop(&races->cells, address, end, NULL);
	end_blocks(races, address, end);
	unlock(races, &reports);
}

void sim_races_forget(struct sim_races *races, uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&races->lock);
	race_cells_drop(&races->cells, address, address + bytes, NULL);
	pthread_mutex_unlock(&races->lock);
}
