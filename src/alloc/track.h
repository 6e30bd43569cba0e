/* alloc/track.h: where a program is in a sequence of requests that it repeats.
 *
 *   expected   a b c d e f g h ...                 one comparison per request
 *   comes      a b c Z Z Z Z Z d e f g h ...       Z: a surprise. The track is lost, until the last NEAP_RUN
 *                                                  requests are a run of the sequence again
 *
 * Threads: the caller's lock. Pure.
 */
#ifndef NEAP_ALLOC_TRACK_H
#define NEAP_ALLOC_TRACK_H

#include "alloc/period.h"

/* Zeroed: nothing is expected. */
struct neap_track {
	uint64_t *tokens; /* see period.h */
	uint32_t count;
	bool cyclic; /* after the last token the first one is expected; otherwise nothing is */
	bool lost;
	uint32_t next;   /* the token expected; while lost: what was expected then */
	uint32_t *heads; /* by the hash of a run: 1 + the last place that follows such a run; 0: none */
	uint32_t *chain; /* by place: the one before it, in the same way */
	unsigned shift;
	struct neap_run run; /* since it was lost */
};

/* Takes `tokens`, which free() must be able to free, also where it fails. False: the host is out of memory. `count`
 * is not 0 and less than 2^31. */
bool neap_track_init(struct neap_track *track, uint64_t *tokens, uint32_t count, bool cyclic);
void neap_track_fini(struct neap_track *track);

/* The program asks. True: for what was expected, token number *ret_place. */
bool neap_track_follow(struct neap_track *track, uint64_t token, uint32_t *ret_place);
/* Expects token `next` from now on. */
void neap_track_set(struct neap_track *track, uint32_t next);

#endif
