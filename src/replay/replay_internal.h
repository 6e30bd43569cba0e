/* replay/replay_internal.h: between the parts of a replay.
 *
 *   replay.c          what the program did, as calls of a policy
 *   replay_match.c    what the model did, against what the recording has there
 *   replay_release.c  why a recorded run of releases was made
 */
#ifndef NEAP_REPLAY_REPLAY_INTERNAL_H
#define NEAP_REPLAY_REPLAY_INTERNAL_H

#include "base/map.h"
#include "replay/replay.h"
#include "replay/start.h"
#include "replay/torch_policy.h"

struct replay {
	const struct neap_trace *trace;
	const struct neap_replay_options *options;
	struct neap_replay_result result;
	struct neap_policy *policy;
	bool recorded;        /* the trace says what its allocator did */
	bool same;            /* under the policy and the settings of the recording */
	bool emptied;         /* within a run of released segments that has been seen to */
	bool refuse;          /* the device was full when the next request was made */
	struct neap_map live; /* address or id -> block */
	uint64_t *deferred;   /* tokens of frees that completed inside the next request */
	size_t deferred_count, deferred_room;
	uint32_t *pool_of; /* number of the pool of each of the trace's streams */
	struct neap_start start;
	const struct neap_map *extra;        /* for the start */
	uint64_t found_bytes;                /* of the block that the model will choose for the request */
	uint64_t wrong_address, wrong_bytes; /* the first block chosen that was not recorded, and by how much it is
						too large to have been passed over */
	struct neap_trace_cursor cursor;     /* after the event being replayed */
	struct neap_trace_cursor segments;   /* after the last segment event that was compared */
	struct neap_trace_event event;       /* being replayed */
};

static inline bool is_release(const struct neap_trace_event *event)
{
	return event->kind == NEAP_TRACE_SEGMENT_FREE || event->kind == NEAP_TRACE_SEGMENT_UNMAP;
}

static inline bool is_growth(const struct neap_trace_event *event)
{
	return event->kind == NEAP_TRACE_SEGMENT_ALLOC || event->kind == NEAP_TRACE_SEGMENT_MAP;
}

/* The next event that is neither a completion nor, with `past_releases`, a release; false at the end. */
bool replay_look_ahead(const struct replay *replay, bool past_releases, struct neap_trace_event *ret_event);
uint64_t replay_reserved(struct replay *replay); /* now; takes the policy's usage */
enum neap_status replay_empty(struct replay *replay, struct neap_error *err);

/* replay_match.c. The first two are the model's `observe` and `place`. */
void replay_observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream);
uint64_t replay_place(void *context, uint64_t size, uint64_t stream, uint64_t page);
void replay_differs(struct replay *replay);
/* The block before the one that was wrongly chosen, if its size was a guess: it may reach into it. Adds what it must
 * have had to *extra. */
bool replay_correct_guess(const struct replay *replay, struct neap_map *extra);

/* replay_release.c. A free that seems to complete at once, just before releases and growth: had it done so, the
 * request would have found the block; on a full device it was completed by the wait that the refused request made. */
bool replay_waited_for(struct replay *replay);

/* replay_release.c. The first of a run of releases that were recorded: why were they made? */
enum neap_status replay_release(struct replay *replay, struct neap_error *err);

#endif
