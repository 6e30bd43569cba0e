/* alloc/plan/plan.h: learns a step that a program repeats, and plans a place for each of its blocks.
 *
 *   resting -- memory is short --> learning -- a step repeats, --> ready -- the step --> serving
 *      ^                              |        and would gain        |      begins          |
 *      +----- none does, longer ------+------------------------------+---- out of step, or -+
 *             each time                                                    memory ran out
 *
 * While memory is plentiful, a plan gains nothing and costs speed, so it rests until pages have to move. Then it
 * watches each request. Two steps are equal if they request the same sizes on the same streams in the same order. A
 * program may mark its steps. If it does not, period.c finds them: a step goes through all the levels of memory that
 * were seen lately, and returns to the level where it began. It begins where the level is lowest. A region costs a
 * move for each of its pages, so a step is worth one only if at least a part as many pages move in it.
 *
 * The blocks that are freed within the step are laid out (layout.c) in one region, for all streams together. While
 * serving, each request is compared with the expected one. After a surprise nothing is expected until the program is
 * back in step (track.c).
 *
 * Invariants: the plan only computes places; it knows neither the driver nor blocks. planned.c serves a request from
 * its place only if that is free, so a wrong plan does no harm. The region in force is an arena of its own with
 * ordinary blocks. Once the plan stops, the region is ordinary memory. obtain.c gets its pages.
 *
 * Threads: the caller's lock. Ownership: the creator destroys it. Host memory: at most 6 MiB while it learns, then 32
 * bytes per request of the step.
 */
#ifndef NEAP_ALLOC_PLAN_H
#define NEAP_ALLOC_PLAN_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_PLAN_REQUESTS_MAX (1u << 17) /* requests that it learns from: two steps, and the requests before them */

struct neap_alloc;
struct neap_block;
struct neap_plan;
struct neap_request;
struct neap_stream;

struct neap_plan_request {
	uint64_t bytes; /* rounded bytes */
	uint32_t stream;
	uint64_t serial; /* increases by 1 with each request of the program */
};

/* Blocks of fewer than `least_bytes` are watched, but not planned. NULL: no host memory. */
struct neap_plan *neap_plan_create(uint64_t least_bytes);
void neap_plan_destroy(struct neap_plan *plan);

/* Whether it is learning, ready or serving. Then it must see every request and every free. */
bool neap_plan_watches(const struct neap_plan *plan);
/* Notes that pages of `bytes` moved for request number `serial`. */
void neap_plan_strain(struct neap_plan *plan, uint64_t bytes, uint64_t serial);

/* Compares a new request with the expected one. True: they are equal, and *ret_offset is its place in the region. */
bool neap_plan_expects(struct neap_plan *plan, const struct neap_plan_request *request, uint64_t *ret_offset);
/* Notes that the expected place was not free. */
void neap_plan_miss(struct neap_plan *plan, const struct neap_plan_request *request);
/* Whether it is serving but out of step: the last request was not expected. */
bool neap_plan_lost(const struct neap_plan *plan);
/* Notes that the request got a block. */
void neap_plan_note(struct neap_plan *plan, const struct neap_plan_request *request);
/* Notes that the block of `bytes` of request number `serial` is freed. */
void neap_plan_note_free(struct neap_plan *plan, uint64_t bytes, uint64_t serial);
/* Notes that the program marked the end of a step. */
void neap_plan_step(struct neap_plan *plan);

enum neap_plan_advice {
	NEAP_PLAN_GO_ON,
	NEAP_PLAN_START, /* reserve *ret_bytes, then call neap_plan_start; or neap_plan_stop */
	NEAP_PLAN_STOP,  /* the program is out of step: call neap_plan_stop, and give up the region */
};
/* Called after each step's mark, and before each request. */
enum neap_plan_advice neap_plan_advise(const struct neap_plan *plan, uint64_t *ret_bytes);
void neap_plan_start(struct neap_plan *plan);
/* Makes the plan rest, longer each time. */
void neap_plan_stop(struct neap_plan *plan);

/* planned.c. Called while a plan watches, after doing what it advised. Returns the planned block for the request,
 * LIVE and in the index; NULL: the core serves the request. */
struct neap_block *neap_planned_take(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request);
/* Called when no other cached block fits; `last`: when there is no other memory either. Returns a block of the
 * region, LIVE and in the index, if `last`, or if the request is large and the program out of step; otherwise
 * NULL. */
struct neap_block *neap_planned_lend(struct neap_alloc *alloc, struct neap_stream *stream,
				     const struct neap_request *request, bool last);
/* Notes a served request. There must be a plan. */
void neap_planned_note(struct neap_alloc *alloc, const struct neap_stream *stream,
		       const struct neap_request *request);
/* Stops the plan in force; its region becomes ordinary memory. Returns whether there was one. */
bool neap_planned_stop(struct neap_alloc *alloc);

/* layout.c: lays out blocks whose sizes and lives are all known in advance.
 *
 *   offset
 *     ^      +--------+-------------+
 *     |      | c      | d           |       a block is a rectangle: as high as its bytes, as wide as its life; no two
 *     |      +----+---+------+------+       may overlap, and the highest edge is the memory that all of them need
 *     |      | a  |   b      |
 *     +------+----+----------+------> events
 *
 * The problem is dynamic storage allocation, which is NP-hard. The most bytes live at once are a lower bound. More
 * work brings the layout nearer to it.
 *
 * Pure: host memory only, any thread, the same result everywhere.
 */

/* Live from event `from` until before event `to`. */
struct neap_layout_block {
	uint64_t bytes, from, to;
	uint64_t offset; /* the result */
};

struct neap_layout {
	uint64_t total_bytes; /* the highest end of a block */
	uint64_t bound_bytes; /* the most bytes live at once: no layout needs fewer */
	uint64_t tries, work; /* work is counted in comparisons of two blocks */
};

#define NEAP_LAYOUT_BLOCKS_MAX (1u << 20)

/* Sets the offset of each block. The search ends when a layout meets the bound, or after `work` comparisons. The
 * first try always completes, in at most count * count / 2 comparisons. Offsets are sums of sizes, so if all sizes
 * are multiples of an alignment, offsets are, too. Errors: NEAP_EINVAL for a block without bytes or life, for more
 * than NEAP_LAYOUT_BLOCKS_MAX blocks, and for sizes whose sum is 2^63 or more; NEAP_ENOMEM. On failure no offset
 * changes. */
enum neap_status neap_layout_make(struct neap_layout_block *blocks, size_t count, uint64_t work,
				  struct neap_layout *ret_layout, struct neap_error *err);

/* period.c: finds after how many requests a program repeats itself.
 *
 *   tokens   a b c d e f a x c d e f a x c d e f a x ...        a token says size and stream of a request
 *                            |--- length ---|--- matched --->
 *
 * When a run of NEAP_RUN tokens repeats, the distance between both is proposed as the length. The proposal stands
 * while each token equals the one `length` before it; meanwhile there is no other. The length is found once a whole
 * length has matched, or several if it is short. This finds inner loops as well as steps; the caller rejects the
 * loops.
 *
 * Costs: a hash, a lookup in a table of constant size and a comparison per token. Threads: the caller's lock. Pure.
 */

#define NEAP_RUN          16
#define NEAP_PERIOD_LEAST 64 /* a shorter period is found as one of its multiples */
/* This many tokens must match, even if that is several lengths: parts of steps repeat. */
#define NEAP_PERIOD_SURE 2048

/* Equal requests have equal tokens. Different requests have equal tokens only in one of 2^64 pairs. */
static inline uint64_t neap_token(uint64_t bytes, uint32_t stream)
{
	uint64_t token = bytes * 0x9e3779b97f4a7c15ull + (stream + 1) * 0xc2b2ae3d27d4eb4full;
	token = (token ^ token >> 32) * 0xd6e8feb86659fd93ull;
	return token ^ token >> 32;
}

/* The hash of the last NEAP_RUN tokens. Zeroed: no token yet. */
struct neap_run {
	uint64_t last[NEAP_RUN]; /* token number i is at i % NEAP_RUN */
	uint64_t count, hash;
};

#define NEAP_RUN_BASE 0xbf58476d1ce4e5b9ull

static inline void neap_run_add(struct neap_run *run, uint64_t token)
{
	uint64_t *last = &run->last[run->count++ % NEAP_RUN], leaving = NEAP_RUN_BASE;
	for (int power = 1; power < NEAP_RUN; power *= 2)
		leaving *= leaving;
	run->hash = run->hash * NEAP_RUN_BASE + token - *last * leaving;
	*last = token;
}

static inline bool neap_run_full(const struct neap_run *run) { return run->count >= NEAP_RUN; }

struct neap_period_slot {
	uint32_t check,
		end; /* of a run: a part of its hash, and how many tokens there were at its end; end 0: free */
};

/* Zeroed: no token yet. */
struct neap_period {
	struct neap_period_slot *slots; /* runs seen lately, by hash */
	struct neap_run run;
	uint32_t length; /* proposed; 0: none */
	uint32_t matched, due;
};

/* Adds tokens[count - 1]. The tokens before it were added in order. False: no host memory. */
bool neap_period_add(struct neap_period *period, const uint64_t *tokens, uint32_t count);
/* Returns a length such that the last `length` tokens, and at least NEAP_PERIOD_SURE, equal the tokens `length`
 * before them. 0: there is no such length, or it was returned already. It is returned again whenever the number of
 * matching tokens has doubled. */
uint32_t neap_period_found(struct neap_period *period);
void neap_period_fini(struct neap_period *period);

/* track.c: follows a program through a sequence of requests that it repeats.
 *
 *   expected   a b c d e f g h ...                 one comparison per request
 *   comes      a b c Z Z Z Z Z d e f g h ...       Z: a surprise. The track is lost, until the last NEAP_RUN
 *                                                  requests are a run of the sequence again
 *
 * Threads: the caller's lock. Pure.
 */

/* A zeroed struct expects nothing. While not lost, next <= count. */
struct neap_track {
	uint64_t *tokens; /* see neap_token */
	uint32_t count;
	bool cyclic; /* after the last token the first one is expected; otherwise nothing is */
	bool lost;
	uint32_t next;   /* the place of the expected token; while lost: of the last one that was expected */
	uint32_t *heads; /* by the top bits of a run's hash: 1 + the last place after such a run; 0: none */
	uint32_t *chain; /* by place: 1 + the previous place with the same hash; 0: none */
	unsigned shift;
	struct neap_run run; /* the run since the track was lost */
};

/* Takes ownership of `tokens`, even on failure, and will free() them. `count` is above 0 and below 2^31. False: no
 * host memory. */
bool neap_track_init(struct neap_track *track, uint64_t *tokens, uint32_t count, bool cyclic);
void neap_track_fini(struct neap_track *track);

/* Compares a new request's token with the expected one. True: they are equal; *ret_place is its place. */
bool neap_track_follow(struct neap_track *track, uint64_t token, uint32_t *ret_place);
/* Makes token `next` the expected one. */
void neap_track_set(struct neap_track *track, uint32_t next);

#endif
