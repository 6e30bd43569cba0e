/* alloc/plan.h: a step of a program that repeats, and where each of its blocks goes.
 *
 *   resting -- memory is short --> learning -- a step repeats, --> ready -- the step --> serving
 *      ^                              |        and would gain        |      begins          |
 *      +----- none does, longer ------+------------------------------+---- out of step, or -+
 *             each time                                                    memory ran out
 *
 * While memory is plentiful a plan gains nothing and costs speed: it rests until pages have to move. Then it watches
 * each request. Two steps are equal if the same sizes are asked for on the same streams in the same order. A program
 * may mark its steps; for one that does not, period.h finds them: a step goes through all the levels of memory that
 * were seen lately, and comes back to the level where it began. It begins where that is lowest. A region costs a move
 * for each of its pages, so a step must have had a part of that to be worth one.
 *
 * The blocks that are freed within the step are laid out (layout.h) in one region, for all streams together. While
 * serving, each request is compared with the one expected next; after a surprise nothing is expected until the
 * program is back in step (track.h).
 *
 * The plan only says where; it knows nothing of the driver or of blocks. The core (planned.c) looks whether the place
 * is free, so a plan that is wrong does no harm.
 *
 * Threads: the caller's lock. Ownership: the creator destroys it. Host memory: at most 6 MiB while it learns, then 32
 * bytes per request of the step.
 */
#ifndef NEAP_ALLOC_PLAN_H
#define NEAP_ALLOC_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define NEAP_PLAN_REQUESTS_MAX (1u << 17) /* that it learns from: two steps, and what came before them */

struct neap_plan;

struct neap_plan_request {
	uint64_t bytes; /* as rounded */
	uint32_t stream;
	uint64_t serial; /* 1 more for each request of the program */
};

/* Blocks of fewer than `least_bytes` are watched, but not planned. NULL: the host is out of memory. */
struct neap_plan *neap_plan_create(uint64_t least_bytes);
void neap_plan_destroy(struct neap_plan *plan);

/* Learning, ready or serving: every request and every free must pass by. */
bool neap_plan_watches(const struct neap_plan *plan);
/* Pages of `bytes` had to move so that request number `serial` could be served. */
void neap_plan_strain(struct neap_plan *plan, uint64_t bytes, uint64_t serial);

/* The program asks. True: it was expected to, and the place in the region is *ret_offset. */
bool neap_plan_expects(struct neap_plan *plan, const struct neap_plan_request *request, uint64_t *ret_offset);
/* That place was not free. */
void neap_plan_miss(struct neap_plan *plan, const struct neap_plan_request *request);
/* Serving, and what the program asked for last was not expected. */
bool neap_plan_lost(const struct neap_plan *plan);
/* It got a block. */
void neap_plan_note(struct neap_plan *plan, const struct neap_plan_request *request);
/* A block of `bytes`, of request number `serial`, is freed. */
void neap_plan_note_free(struct neap_plan *plan, uint64_t bytes, uint64_t serial);
/* The program marks the end of a step. */
void neap_plan_step(struct neap_plan *plan);

enum neap_plan_advice {
	NEAP_PLAN_GO_ON,
	NEAP_PLAN_START, /* reserve *ret_bytes, then call neap_plan_start; or neap_plan_stop */
	NEAP_PLAN_STOP,  /* the program is out of step: call neap_plan_stop, and give up the region */
};
/* After each step's mark, and before each request. */
enum neap_plan_advice neap_plan_advise(const struct neap_plan *plan, uint64_t *ret_bytes);
void neap_plan_start(struct neap_plan *plan);
/* It rests, longer each time. */
void neap_plan_stop(struct neap_plan *plan);

#endif
