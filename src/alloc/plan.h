/* alloc/plan.h: a step of a program that repeats, and where each of its blocks goes.
 *
 *   learning  ----- two equal steps: laid out ----->  ready  ----- the region is there ----->  serving
 *      ^                                                                                         |
 *      +------- after a while, longer each time ------- waiting <------ several steps differed --+
 *      |                                                   ^            or memory ran out
 *      +--------- eight steps, no two of them equal -------+
 *
 * Two steps are equal if the same sizes are asked for on the same streams in the same order, and freed after the same
 * requests. The blocks that are freed within the step are laid out (layout.h) in one region, for all streams
 * together. While serving, each request is compared with the one expected next. After one that differs nothing is
 * served until the next step begins.
 *
 * The plan only says where; it knows nothing of the driver or of blocks. The core (planned.c) looks whether the place
 * is free, so a plan that is wrong does no harm.
 *
 * Threads: the caller's lock. Ownership: the creator destroys it.
 */
#ifndef NEAP_ALLOC_PLAN_H
#define NEAP_ALLOC_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct neap_plan;

/* Blocks of fewer than `least_bytes` are watched, but not planned. NULL: the host is out of memory. */
struct neap_plan *neap_plan_create(uint64_t least_bytes);
void neap_plan_destroy(struct neap_plan *plan);

/* Learning or serving: every request and every free must pass by. */
bool neap_plan_watches(const struct neap_plan *plan);

/* The program asks for `bytes`, as rounded. True: it was expected to, and the place in the region is *ret_offset. */
bool neap_plan_expects(struct neap_plan *plan, uint64_t bytes, const void *stream, uint64_t *ret_offset);
/* It got them at `address`. */
void neap_plan_note(struct neap_plan *plan, uint64_t bytes, const void *stream, uint64_t address);
void neap_plan_note_free(struct neap_plan *plan, uint64_t address);

enum neap_plan_advice {
	NEAP_PLAN_GO_ON,
	NEAP_PLAN_START, /* reserve *ret_bytes, then call neap_plan_start; or neap_plan_stop */
	NEAP_PLAN_STOP,  /* the plan has stopped: give up its region */
};
/* A step ends and the next begins. */
enum neap_plan_advice neap_plan_step(struct neap_plan *plan, uint64_t *ret_bytes);
void neap_plan_start(struct neap_plan *plan);
void neap_plan_stop(struct neap_plan *plan);

#endif
