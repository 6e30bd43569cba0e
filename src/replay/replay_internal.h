/* replay/replay_internal.h: shared by the parts of a replay.
 *
 *   replay.c          what the program did, as calls of a policy
 *   replay_begin.c    what was there before
 *   replay_guess.c    what the recording does not say
 *   replay_pools.c    private pools
 *   replay_match.c    what the model did, against what the recording has there
 *   replay_release.c  why a recorded run of releases was made
 */
#ifndef NEAP_REPLAY_REPLAY_INTERNAL_H
#define NEAP_REPLAY_REPLAY_INTERNAL_H

#include "base/map.h"
#include "replay/replay.h"
#include "replay/start.h"
#include "replay/torch_policy.h"

/* Guesses. If a replay differs from the recording, they are corrected and the replay starts again. */
struct replay_guesses {
	unsigned torch;        /* the release of PyTorch 2 */
	struct neap_map extra; /* for the state before the first event: see start.h */
	struct neap_map whole; /* numbers of pools whose blocks are not split */
};

#define REPLAY_RUN_POOLS 16
/* Segments that one flush released, one after another: those of the default pool, then of private ones; or only those
 * of private ones. The whole run is replayed at its first event. */
struct replay_run {
	uint64_t count, left;             /* the number of releases, and of those that are still to come */
	bool defaults;                    /* some are of the default pool */
	bool last;                        /* another run does not follow at once */
	bool flushed;                     /* another run came right before this request */
	uint32_t pools[REPLAY_RUN_POOLS]; /* the private pools, in the run's order */
	size_t pool_count;
};

struct replay {
	const struct neap_trace *trace;
	const struct neap_replay_options *options;
	struct neap_replay_result result;
	struct neap_policy *policy;
	bool recorded; /* the trace has what its allocator did */
	bool same;     /* replayed under the policy and the settings of the recording */
	struct replay_run run;
	int frees_have_stacks; /* frees have stacks of their own: 1 yes, -1 no; 0: not known yet */
	unsigned refuse;       /* how often the driver refuses the next request */
	struct neap_map live;  /* address or id -> block */
	uint64_t *deferred;    /* tokens of frees that completed inside the next request */
	size_t deferred_count, deferred_capacity;
	uint32_t *pool_of;              /* by stream of the trace: the number of its pool */
	uint32_t pool_count;            /* private ones; they are numbered from 1 */
	struct neap_torch_pool *traits; /* by number; NULL where there are none */
	struct neap_torch_rules rules;
	struct neap_start start;
	struct replay_guesses *guesses;   /* the caller's; not used after replay_open */
	struct neap_policy_totals totals; /* after the last event */
	size_t mark;                      /* the index of the next mark */
	bool ended;                       /* the result is complete */
	uint64_t found_bytes;             /* the bytes of the block that the model will choose for the request */
	/* The first block that was chosen wrongly, and how much smaller it must have been. */
	uint64_t wrong_address, wrong_bytes;
	uint32_t wrong_pool;               /* the request's pool at the first difference; 0: the common one */
	struct neap_trace_cursor cursor;   /* after the event that is being replayed */
	struct neap_trace_cursor ahead;    /* after the event `next` */
	struct neap_trace_event next;      /* the event after the current one, if `more` */
	bool more;                         /* there is a next event */
	struct neap_trace_cursor segments; /* after the last segment event that was compared */
	struct neap_trace_event event;     /* the event that is being replayed */
};

static inline bool is_release(const struct neap_trace_event *event)
{
	return event->kind == NEAP_TRACE_SEGMENT_FREE || event->kind == NEAP_TRACE_SEGMENT_UNMAP;
}

static inline bool is_growth(const struct neap_trace_event *event)
{
	return event->kind == NEAP_TRACE_SEGMENT_ALLOC || event->kind == NEAP_TRACE_SEGMENT_MAP;
}

/* Finds the next event that is neither a completion nor, with `past_releases`, a release. False: there is none. */
bool replay_look_ahead(const struct replay *replay, bool past_releases, struct neap_trace_event *ret_event);
uint64_t replay_reserved(struct replay *replay); /* the bytes reserved now; fetches the policy's usage */
enum neap_status replay_empty(struct replay *replay, struct neap_error *err);

enum neap_status replay_starved(struct neap_error *err);

/* Begins a replay. If it is compared with its recording, it pauses at the first difference; else it runs to its end.
 * The caller closes *ret_replay. */
enum neap_status replay_open(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct replay_guesses *guesses, struct replay **ret_replay, struct neap_error *err);
/* Continues to the end. */
enum neap_status replay_finish(struct replay *replay, struct neap_error *err);
void replay_close(struct replay *replay);

/* replay_begin.c. Makes the state before the first event. NEAP_EOOM: the device is too small for it. */
enum neap_status replay_begin(struct replay *replay, struct neap_error *err);

/* replay_pools.c: numbers the private pools (0: the common one), and passes their known traits to the policy.
 */
enum neap_status replay_number_pools(struct replay *replay, struct neap_error *err);
/* Lists the bytes of each pool in the result; for PyTorch's policy only. */
void replay_list_pools(struct replay *replay);
/* Fills replay->traits from the trace and the guesses; then passes them to the policy. */
enum neap_status replay_find_traits(struct replay *replay, struct neap_error *err);
enum neap_status replay_shape_pools(struct replay *replay, struct neap_error *err);

/* replay_match.c. The first two are the model's `observe` and `place`. */
void replay_observe(void *context, enum neap_torch_action action, uint64_t address, uint64_t size, uint64_t stream);
uint64_t replay_place(void *context, uint64_t size, uint64_t stream, uint32_t pool, uint64_t page);
void replay_differs(struct replay *replay);
/* Corrects one guess. If the block before the wrongly chosen one has a guessed size, makes that size larger: the
 * block may reach into the chosen one. Else assumes that the request's private pool splits no blocks. False: there
 * was no guess left. */
bool replay_correct_guess(const struct replay *replay, struct replay_guesses *guesses);

/* replay_release.c. Called for a free that seems to complete at once, just before releases and growth. Whether the
 * refused request really waited for it, on a full device. (If the free had completed before, the request would have
 * found its block.) */
bool replay_waited_for(struct replay *replay);

/* replay_release.c. Whether a poll, and not a wait inside the request, completed the free right before releases. */
bool replay_was_polled(const struct replay *replay);

/* replay_release.c. Whether this request could not flush, because it was made in the capture of a graph or inside a
 * private pool. */
bool replay_in_capture(struct replay *replay);
/* Whether this failed request would have found a block in the pool that it seems to use. If so, it used another pool,
 * which older snapshots do not record. */
bool replay_found_anyway(struct replay *replay);

/* replay_release.c. Replays a recorded release. At the first one of a run, finds why the run was made. */
enum neap_status replay_release(struct replay *replay, struct neap_error *err);

#endif
