/* alloc/period.h: after how many requests a program repeats itself.
 *
 *   tokens   a b c d e f a x c d e f a x c d e f a x ...        a token says size and stream of a request
 *                            |--- length ---|--- matched --->
 *
 * A run of NEAP_RUN tokens that comes again proposes a length: as far back as it came before. While each token equals
 * the one `length` before it, the proposal stands, and no other is looked at. It is found once it has matched a whole
 * length, several if it is short. Inner loops are found like steps are: the caller looks at what is found, and
 * refuses what is no step.
 *
 * Costs: a hash, a look into a table of constant size and a comparison per token. Threads: the caller's lock. Pure.
 */
#ifndef NEAP_ALLOC_PERIOD_H
#define NEAP_ALLOC_PERIOD_H

#include <stdbool.h>
#include <stdint.h>

#define NEAP_RUN          16
#define NEAP_PERIOD_LEAST 64   /* a shorter one is found as a multiple of it */
#define NEAP_PERIOD_SURE  2048 /* so many must match, even if that is several lengths: parts of steps repeat, too */

/* Tokens of equal requests are equal; of different ones they differ but for one pair in 2^64. */
static inline uint64_t neap_token(uint64_t bytes, uint32_t stream)
{
	uint64_t token = bytes * 0x9e3779b97f4a7c15ull + (stream + 1) * 0xc2b2ae3d27d4eb4full;
	token = (token ^ token >> 32) * 0xd6e8feb86659fd93ull;
	return token ^ token >> 32;
}

/* The hash of the last NEAP_RUN tokens. Zeroed: no token yet. */
struct neap_run {
	uint64_t last[NEAP_RUN]; /* at their number % NEAP_RUN */
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

/* tokens[count - 1] is new; those before it were added in order. False: the host is out of memory. */
bool neap_period_add(struct neap_period *period, const uint64_t *tokens, uint32_t count);
/* How many tokens ago the last ones began to repeat: the last `length` tokens, and NEAP_PERIOD_SURE at least, equal
 * those `length` before them. 0: they do not, or this was answered before; it is answered again each time that twice
 * as many have matched. */
uint32_t neap_period_found(struct neap_period *period);
void neap_period_fini(struct neap_period *period);

#endif
