#include "alloc/plan.h"
#include "alloc/layout.h"
#include "base/array.h"
#include "base/map.h"

#include <stdlib.h>

#define LAYOUT_WORK  20000000 /* comparisons: some 20 ms */
#define PLANNED_MAX  10000    /* blocks: the first try compares each with all, some 100 ms, and is never cut short */
#define REQUESTS_MAX 100000   /* of a step; longer ones are not learned */
#define LEARN_STEPS  8        /* one after another, in which no step repeats, after which it waits */
#define LOST_STEPS   4        /* one after another, after which a plan is given up */
#define WAIT_MAX     1024     /* steps */
#define UNPLANNED    UINT64_MAX

struct request {
	uint64_t bytes;
	const void *stream;
	uint64_t from, to; /* ticks of the step; to 0: it outlives the step */
	uint64_t offset;   /* UNPLANNED: the core serves it */
};

struct requests {
	struct request *items;
	size_t count;
};

enum state { LEARNING, READY, SERVING, WAITING };

struct neap_plan {
	enum state state;
	uint64_t least_bytes;
	struct requests now;    /* LEARNING: this step's */
	struct requests before; /* LEARNING: the last step's. READY, SERVING: the planned ones */
	struct neap_map live;   /* LEARNING: address -> index in `now` */
	uint64_t ticks;         /* LEARNING: requests and frees of this step */
	unsigned learned;       /* LEARNING: steps so far */
	size_t next;            /* SERVING: the request expected next */
	bool lost;              /* SERVING: this step has differed */
	unsigned lost_steps;
	unsigned wait, next_wait; /* steps */
};

struct neap_plan *neap_plan_create(uint64_t least_bytes)
{
	struct neap_plan *plan = calloc(1, sizeof *plan);
	if (!plan)
		return NULL;
	plan->least_bytes = least_bytes;
	plan->next_wait = 1;
	return plan;
}

void neap_plan_destroy(struct neap_plan *plan)
{
	if (!plan)
		return;
	free(plan->now.items);
	free(plan->before.items);
	neap_map_fini(&plan->live);
	free(plan);
}

bool neap_plan_watches(const struct neap_plan *plan) { return plan->state != WAITING; }

bool neap_plan_expects(struct neap_plan *plan, uint64_t bytes, const void *stream, uint64_t *ret_offset)
{
	if (plan->state != SERVING || plan->lost)
		return false;
	const struct request *expected = &plan->before.items[plan->next];
	plan->lost = plan->next == plan->before.count || expected->bytes != bytes || expected->stream != stream;
	if (plan->lost)
		return false;
	plan->next++;
	*ret_offset = expected->offset;
	return expected->offset != UNPLANNED;
}

void neap_plan_note(struct neap_plan *plan, uint64_t bytes, const void *stream, uint64_t address)
{
	struct requests *now = &plan->now;
	if (plan->state != LEARNING)
		return;
	if (now->count == REQUESTS_MAX || !neap_array_grow(&now->items, now->count, sizeof *now->items) ||
	    !neap_map_put(&plan->live, address, now->count)) {
		neap_plan_stop(plan);
		return;
	}
	now->items[now->count++] = (struct request){bytes, stream, ++plan->ticks, 0, UNPLANNED};
}

void neap_plan_note_free(struct neap_plan *plan, uint64_t address)
{
	uint64_t index = 0;
	if (plan->state == LEARNING && neap_map_remove(&plan->live, address, &index))
		plan->now.items[index].to = ++plan->ticks;
}

static bool equal(const struct requests *one, const struct requests *other)
{
	if (!one->count || one->count != other->count)
		return false;
	for (size_t i = 0; i < one->count; i++) {
		const struct request *a = &one->items[i], *b = &other->items[i];
		if (a->bytes != b->bytes || a->stream != b->stream || a->from != b->from || a->to != b->to)
			return false;
	}
	return true;
}

static bool planned(const struct request *request, uint64_t least_bytes)
{
	return request->to && request->bytes >= least_bytes;
}

/* Where the blocks that end within the step go. The bytes of the region; 0: there is nothing to plan, or too much, or
 * no host memory. */
static uint64_t lay_out(struct requests *requests, uint64_t least_bytes)
{
	struct neap_layout_block *blocks = calloc(requests->count, sizeof *blocks);
	struct neap_layout layout = {0};
	size_t count = 0;
	for (size_t i = 0; blocks && i < requests->count; i++) {
		const struct request *request = &requests->items[i];
		if (planned(request, least_bytes))
			blocks[count++] = (struct neap_layout_block){request->bytes, request->from, request->to, 0};
	}
	if (!blocks || count > PLANNED_MAX || neap_layout_make(blocks, count, LAYOUT_WORK, &layout, NULL)) {
		free(blocks);
		return 0;
	}
	count = 0;
	for (size_t i = 0; i < requests->count; i++)
		requests->items[i].offset =
			planned(&requests->items[i], least_bytes) ? blocks[count++].offset : UNPLANNED;
	free(blocks);
	return layout.total_bytes;
}

/* `now` becomes `before`, and a new, empty step begins. */
static void turn(struct neap_plan *plan)
{
	struct requests was = plan->before;
	plan->before = plan->now;
	plan->now = was;
	plan->now.count = 0;
	neap_map_fini(&plan->live);
	plan->live = (struct neap_map){0};
	plan->ticks = 0;
}

static enum neap_plan_advice learn(struct neap_plan *plan, uint64_t *ret_bytes)
{
	bool repeats = equal(&plan->now, &plan->before);
	turn(plan);
	uint64_t bytes = repeats ? lay_out(&plan->before, plan->least_bytes) : 0;
	if (bytes) {
		plan->state = READY;
		*ret_bytes = bytes;
		return NEAP_PLAN_START;
	}
	if (++plan->learned == LEARN_STEPS)
		neap_plan_stop(plan);
	return NEAP_PLAN_GO_ON;
}

enum neap_plan_advice neap_plan_step(struct neap_plan *plan, uint64_t *ret_bytes)
{
	if (plan->state == LEARNING)
		return learn(plan, ret_bytes);
	if (plan->state == WAITING) {
		if (--plan->wait == 0)
			plan->state = LEARNING;
		return NEAP_PLAN_GO_ON;
	}
	bool whole = !plan->lost && plan->next == plan->before.count;
	plan->lost_steps = whole ? 0 : plan->lost_steps + 1;
	plan->next = 0;
	plan->lost = false;
	if (plan->lost_steps < LOST_STEPS)
		return NEAP_PLAN_GO_ON;
	neap_plan_stop(plan);
	return NEAP_PLAN_STOP;
}

void neap_plan_start(struct neap_plan *plan)
{
	plan->state = SERVING;
	plan->next = 0;
	plan->lost = false;
	plan->lost_steps = 0;
}

void neap_plan_stop(struct neap_plan *plan)
{
	plan->before.count = plan->now.count = 0;
	turn(plan);
	plan->learned = 0;
	plan->state = WAITING;
	plan->wait = plan->next_wait;
	plan->next_wait = plan->next_wait < WAIT_MAX ? 2 * plan->next_wait : WAIT_MAX;
}
