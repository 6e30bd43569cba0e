/* alloc/plan/plan.c: learns a step that repeats, and follows it. See plan.h. */
#include "alloc/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define LAYOUT_WORK  20000000 /* comparisons: some 20 ms */
#define PLANNED_MAX  10000    /* blocks: the first try compares each with all, in some 100 ms, and always completes */
#define LEARN_STEPS  8        /* it rests after this many marked steps without a repetition */
#define WORTH        64       /* a step must have moved at least this part of the region's bytes */
#define LOST_STEPS   8        /* the plan stops after this many lost steps in a row */
#define REST_MAX     64       /* it rests for at most this many times the requests that it watched in vain */
#define SPAN         256      /* requests that share one pair of lowest and highest level */
#define RECENT_SPANS 32       /* a step goes through all levels of these spans */
#define LEVELS       8        /* of their range it may miss the eighth part */
#define DRIFTS       64       /* and returns to its first level, except for this part of its range */
#define LOG_FIRST    (4 * SPAN) /* requests; a power of two times this is NEAP_PLAN_REQUESTS_MAX */
#define UNPLANNED    UINT64_MAX

/* A watched request. */
struct item {
	uint64_t bytes;
	int64_t level;   /* bytes live before it, minus bytes live when the log began */
	uint32_t to;     /* the request before which it was freed; 0: not yet */
	uint64_t strain; /* bytes moved since the log began, for this request too */
};

struct levels {
	int64_t low, high;
};

struct log {
	uint64_t *tokens; /* see neap_token */
	struct item *items;
	struct levels *spans;
	uint32_t count, capacity;
	uint64_t first_serial;
	int64_t level;
	uint64_t strain;
	uint32_t marks, last_mark; /* how many marks so far; the request after the last mark */
	struct neap_period period;
};

enum state { RESTING, LEARNING, READY, SERVING };

struct neap_plan {
	enum state state;
	uint64_t least_bytes;
	bool marked;    /* the program marks its steps, so period.c looks for none */
	struct log log; /* LEARNING */
	/* READY, SERVING */
	struct neap_track track;
	uint64_t *offsets; /* by place in the track */
	uint64_t bytes;    /* the region's */
	/* Bytes requested in a whole step; bytes expected and requested so far in this step. */
	uint64_t step_bytes, hit_bytes;
	uint32_t seen;       /* requests in this step so far */
	unsigned lost_steps; /* in a row */
	bool proven;         /* a step was served as expected */
	/* RESTING */
	uint64_t rest_until;   /* the number of a request */
	uint64_t watched_from; /* the first request since watching last gained anything */
	uint64_t last_serial;
	unsigned rest; /* it rests next for this many times the requests that it watched in vain */
};

struct neap_plan *neap_plan_create(uint64_t least_bytes)
{
	struct neap_plan *plan = calloc(1, sizeof *plan);
	if (!plan)
		return NULL;
	plan->least_bytes = least_bytes;
	plan->rest = 1;
	return plan;
}

static void log_fini(struct log *log)
{
	free(log->tokens);
	free(log->items);
	free(log->spans);
	neap_period_fini(&log->period);
	*log = (struct log){0};
}

void neap_plan_destroy(struct neap_plan *plan)
{
	if (!plan)
		return;
	log_fini(&plan->log);
	neap_track_fini(&plan->track);
	free(plan->offsets);
	free(plan);
}

bool neap_plan_watches(const struct neap_plan *plan) { return plan->state != RESTING; }

static void forget(struct neap_plan *plan)
{
	log_fini(&plan->log);
	neap_track_fini(&plan->track);
	free(plan->offsets);
	plan->offsets = NULL;
	plan->state = RESTING;
}

void neap_plan_stop(struct neap_plan *plan)
{
	plan->rest_until = plan->last_serial + plan->rest * (plan->last_serial - plan->watched_from + 1);
	plan->rest = plan->rest < REST_MAX ? 2 * plan->rest : REST_MAX;
	forget(plan);
}

void neap_plan_strain(struct neap_plan *plan, uint64_t bytes, uint64_t serial)
{
	if (plan->state == RESTING && serial >= plan->rest_until) {
		plan->state = LEARNING;
		plan->watched_from = plan->last_serial = serial;
	}
	plan->log.strain += plan->state == LEARNING ? bytes : 0;
}

static uint64_t token_of(const struct neap_plan_request *request)
{
	return neap_token(request->bytes, request->stream);
}

/* Ends a step: it was good if at least half of its bytes were expected. */
static void count_step(struct neap_plan *plan)
{
	bool good = plan->hit_bytes >= plan->step_bytes / 2;
	plan->lost_steps = good ? 0 : plan->lost_steps + 1;
	plan->seen = 0;
	plan->hit_bytes = 0;
	if (good && plan->state == SERVING) {
		plan->proven = true;
		plan->watched_from = plan->last_serial;
		plan->rest = 1;
	}
}

bool neap_plan_expects(struct neap_plan *plan, const struct neap_plan_request *request, uint64_t *ret_offset)
{
	uint32_t place = 0;
	if (plan->state != READY && plan->state != SERVING)
		return false;
	bool expected = neap_track_follow(&plan->track, token_of(request), &place);
	plan->hit_bytes += expected ? request->bytes : 0;
	if (++plan->seen == plan->track.count && !plan->marked)
		count_step(plan);
	if (!expected || plan->state != SERVING || plan->offsets[place] == UNPLANNED)
		return false;
	*ret_offset = plan->offsets[place];
	return true;
}

void neap_plan_miss(struct neap_plan *plan, const struct neap_plan_request *request)
{
	plan->hit_bytes -= plan->hit_bytes > request->bytes ? request->bytes : plan->hit_bytes;
}

bool neap_plan_lost(const struct neap_plan *plan) { return plan->state == SERVING && plan->track.lost; }

/* Doubles all arrays together, so that one comparison per request is enough. */
static bool log_grow(struct log *log)
{
	uint32_t capacity = log->capacity ? 2 * log->capacity : LOG_FIRST;
	void *tokens = realloc(log->tokens, capacity * sizeof *log->tokens);
	log->tokens = tokens ? tokens : log->tokens;
	void *items = realloc(log->items, capacity * sizeof *log->items);
	log->items = items ? items : log->items;
	void *spans = realloc(log->spans, capacity / SPAN * sizeof *log->spans);
	log->spans = spans ? spans : log->spans;
	if (!tokens || !items || !spans)
		return false;
	log->capacity = capacity;
	return true;
}

static void log_add(struct log *log, const struct neap_plan_request *request)
{
	struct levels *span = &log->spans[log->count / SPAN];
	if (log->count % SPAN == 0)
		*span = (struct levels){log->level, log->level};
	log->tokens[log->count] = token_of(request);
	log->items[log->count] = (struct item){request->bytes, log->level, 0, log->strain};
	span->low = log->level < span->low ? log->level : span->low;
	log->level += (int64_t)request->bytes;
	span->high = log->level > span->high ? log->level : span->high;
	log->count++;
}

void neap_plan_note_free(struct neap_plan *plan, uint64_t bytes, uint64_t serial)
{
	struct log *log = &plan->log;
	if (plan->state != LEARNING)
		return;
	log->level -= (int64_t)bytes;
	if (serial - log->first_serial < log->count)
		log->items[serial - log->first_serial].to = log->count;
}

/* Finds the request in [first, end) with the lowest level, and the range of levels. */
static uint32_t lowest_request(const struct log *log, uint32_t first, uint32_t end, struct levels *ret_levels)
{
	uint32_t lowest = first;
	struct levels levels = {log->items[first].level, log->items[first].level};
	for (uint32_t i = first; i < end; i++) {
		const struct item *item = &log->items[i];
		int64_t after = item->level + (int64_t)item->bytes;
		lowest = item->level < levels.low ? i : lowest;
		levels.low = item->level < levels.low ? item->level : levels.low;
		levels.high = after > levels.high ? after : levels.high;
	}
	*ret_levels = levels;
	return lowest;
}

/* Whether the last `length` requests are a step, not a loop within one: see plan.h. */
static bool is_step(const struct log *log, uint32_t length, const struct levels *levels)
{
	uint32_t last = (log->count - 1) / SPAN, spans = 2 * length / SPAN + 1;
	spans = spans > RECENT_SPANS ? spans : RECENT_SPANS;
	struct levels all = *levels;
	for (uint32_t i = spans <= last ? last - spans + 1 : 0; i <= last; i++) {
		all.low = log->spans[i].low < all.low ? log->spans[i].low : all.low;
		all.high = log->spans[i].high > all.high ? log->spans[i].high : all.high;
	}
	const struct item *now = &log->items[log->count - 1], *then = now - length;
	int64_t range = levels->high - levels->low, drift = now->level - then->level;
	return range >= (all.high - all.low) / LEVELS * (LEVELS - 1) && drift <= range / DRIFTS &&
	       drift >= -range / DRIFTS;
}

/* Returns at which request, counted from the step's first, the block of request `first + place` is freed. If the step
 * that begins at `other` frees the block later, returns that. 0: the block is not freed. */
static uint32_t life(const struct log *log, uint32_t first, uint32_t other, uint32_t place)
{
	uint32_t own = log->items[first + place].to, to = own ? own - first : 0;
	uint32_t others = other + place < log->count ? log->items[other + place].to : 0;
	others = others ? others - other : 0;
	return to && others > to ? others : to;
}

/* Lays out the blocks that are freed within the step [first, first + length). Returns the bytes of the region; 0:
 * there is nothing to plan, or too much, or no host memory. */
static uint64_t lay_out(struct neap_plan *plan, uint32_t first, uint32_t length, uint32_t other)
{
	const struct log *log = &plan->log;
	struct neap_layout_block *blocks = calloc(length, sizeof *blocks);
	struct neap_layout layout = {0};
	uint32_t count = 0;
	plan->offsets = calloc(length, sizeof *plan->offsets);
	for (uint32_t i = 0; blocks && plan->offsets && i < length; i++) {
		uint64_t bytes = log->items[first + i].bytes;
		uint32_t to = life(log, first, other, i);
		bool planned = bytes >= plan->least_bytes && to && to <= length;
		plan->offsets[i] = planned ? count : UNPLANNED;
		if (planned)
			blocks[count++] = (struct neap_layout_block){bytes, i, to, 0};
	}
	if (!blocks || !plan->offsets || count > PLANNED_MAX ||
	    neap_layout_make(blocks, count, LAYOUT_WORK, &layout, NULL))
		layout.total_bytes = 0;
	for (uint32_t i = 0; layout.total_bytes && i < length; i++)
		if (plan->offsets[i] != UNPLANNED)
			plan->offsets[i] = blocks[plan->offsets[i]].offset;
	free(blocks);
	return layout.total_bytes;
}

/* Plans the step [first, first + length) of the log, which repeats. The plan is READY afterwards, or RESTING. */
static void make(struct neap_plan *plan, uint32_t first, uint32_t length, uint32_t other)
{
	struct log *log = &plan->log;
	uint32_t ahead = log->count - first - length;
	uint64_t strain = log->strain - log->items[log->count - length - 1].strain;
	uint64_t *tokens = calloc(length, sizeof *tokens);
	plan->bytes = tokens ? lay_out(plan, first, length, other) : 0;
	plan->step_bytes = 0;
	for (uint32_t i = 0; tokens && i < length; i++) {
		tokens[i] = log->tokens[first + i];
		plan->step_bytes += log->items[first + i].bytes;
	}
	if (!plan->bytes || strain < plan->bytes / WORTH) {
		free(tokens);
		neap_plan_stop(plan);
	} else if (!neap_track_init(&plan->track, tokens, length, !plan->marked)) {
		neap_plan_stop(plan);
	} else {
		log_fini(log);
		neap_track_set(&plan->track, ahead % length);
		plan->seen = plan->lost_steps = 0;
		plan->proven = false;
		plan->hit_bytes = 0;
		plan->state = READY;
	}
}

/* Called when the last `length` requests repeat a step. Plans it, from request `first` on, if pages moved in it. */
static void found(struct neap_plan *plan, uint32_t first, uint32_t length, uint32_t other)
{
	const struct log *log = &plan->log;
	if (log->strain != log->items[log->count - length - 1].strain)
		make(plan, first, length, other);
	else
		forget(plan);
}

static void look_for_step(struct neap_plan *plan)
{
	struct log *log = &plan->log;
	struct levels levels;
	uint32_t length = neap_period_found(&log->period);
	if (!length)
		return;
	lowest_request(log, log->count - length, log->count, &levels);
	if (!is_step(log, length, &levels))
		return;
	uint32_t first = lowest_request(log, log->count - 2 * length, log->count - length, &levels);
	found(plan, first, length, first + length);
}

void neap_plan_note(struct neap_plan *plan, const struct neap_plan_request *request)
{
	struct log *log = &plan->log;
	plan->last_serial = request->serial;
	if (plan->state != LEARNING)
		return;
	if (log->count && request->serial != log->first_serial + log->count)
		log_fini(log);
	log->first_serial = log->count ? log->first_serial : request->serial;
	if (log->count == log->capacity && (log->count == NEAP_PLAN_REQUESTS_MAX || !log_grow(log))) {
		neap_plan_stop(plan);
		return;
	}
	log_add(log, request);
	if (plan->marked)
		return;
	if (neap_period_add(&log->period, log->tokens, log->count))
		look_for_step(plan);
	else
		neap_plan_stop(plan);
}

/* Whether the last `length` requests equal the `length` before them. */
static bool repeats(const struct log *log, uint32_t length)
{
	const uint64_t *now = log->tokens + log->count - length;
	return length && log->count >= 2 * length && memcmp(now, now - length, length * sizeof *now) == 0;
}

void neap_plan_step(struct neap_plan *plan)
{
	struct log *log = &plan->log;
	plan->marked = true;
	if (plan->state == LEARNING) {
		uint32_t first = log->last_mark, length = log->count - first;
		log->last_mark = log->count;
		if (repeats(log, length))
			found(plan, first, length, first - length);
		else if (++log->marks == LEARN_STEPS)
			neap_plan_stop(plan);
	} else if (plan->state != RESTING) {
		count_step(plan);
		neap_track_set(&plan->track, 0);
	}
}

enum neap_plan_advice neap_plan_advise(const struct neap_plan *plan, uint64_t *ret_bytes)
{
	if (plan->state != READY && plan->state != SERVING)
		return NEAP_PLAN_GO_ON;
	/* A plan that fails in its first step stops at once. */
	if (plan->lost_steps == (plan->proven || plan->state == READY ? LOST_STEPS : 1))
		return NEAP_PLAN_STOP;
	if (plan->state == SERVING || plan->track.lost || plan->track.next)
		return NEAP_PLAN_GO_ON;
	*ret_bytes = plan->bytes;
	return NEAP_PLAN_START;
}

void neap_plan_start(struct neap_plan *plan)
{
	plan->state = SERVING;
	plan->seen = plan->lost_steps = 0;
	plan->hit_bytes = 0;
}
