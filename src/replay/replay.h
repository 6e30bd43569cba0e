/* replay/replay.h: replays a trace through a policy, to find how much memory it needs, and at what cost.
 *
 * A text trace has only the program's requests, and is replayed as it stands. A recording also shows what its
 * allocator did: the state before its first event is rebuilt, frees complete when they did then, and, under
 * PyTorch's policy with the settings that were recorded, every block and segment is compared with the recorded one.
 *
 * Threads: one replay per thread. Memory: a map of live blocks, and the policy's own.
 */
#ifndef NEAP_REPLAY_REPLAY_H
#define NEAP_REPLAY_REPLAY_H

#include "replay/torch_policy.h"
#include "replay/torch_settings.h"
#include "replay/torch_version.h"
#include "trace/trace.h"

enum neap_replay_policy { NEAP_REPLAY_TORCH, NEAP_REPLAY_TORCH_EXPANDABLE, NEAP_REPLAY_NEAP };

/* The order of addresses. Up to 2.11, PyTorch takes the lowest of equal free blocks, so the addresses of segments can
 * change how much it reserves. 0: as in the recording, else rising. 1: rising. 2: falling. 3 and more: each segment
 * lies above or below all earlier ones, at random; the number is the seed. */
#define NEAP_REPLAY_ADDRESSES 6

struct neap_replay_options {
	enum neap_replay_policy policy;
	/* These override the trace's settings, or the defaults if it has none; NULL: none. Not for NEAP. */
	const char *settings;
	bool alone;         /* they replace the trace's settings, except the fraction of memory that those allow */
	uint32_t addresses; /* where new segments go: 0 to NEAP_REPLAY_ADDRESSES - 1 */
	/* The release of PyTorch 2 to model: 15 is 2.15; 0: that of the trace if known, else the newest. */
	unsigned torch;
	size_t device;           /* index in the trace's devices */
	uint64_t memory_bytes;   /* that the driver may hand out; 0: no bound */
	double fraction;         /* the fraction; 0: that of the settings, if any (NEAP: none) */
	bool no_plan;            /* NEAP: without a plan of steps that repeat */
	bool go_on;              /* continue after an out-of-memory, without that block; else the replay ends there */
	const uint8_t *left_out; /* by stack: if not 0, leave its allocations out; NULL: leave out none */
	uint64_t event_delay;    /* how many events after it is recorded an event completes, in a text trace */
	/* Called now and then with the number of events done; false: stop. NULL: never called. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
	const struct neap_clock *clock; /* measures the replay; NULL: it is not measured */
};

#define NEAP_REPLAY_OOMS 32
struct neap_replay_oom {
	uint64_t event;                          /* from 0 */
	uint64_t requested, allocated, reserved; /* bytes: of the request, and at that moment */
	bool pieces_known;                       /* PyTorch's policy only */
	struct neap_torch_pieces pieces;         /* cached then */
};

/* The release of PyTorch 2 that was replayed, and how it was chosen. */
struct neap_replay_version {
	unsigned from, to; /* minor numbers: the first and the last of the releases that behave as this one */
	enum neap_torch_order order;
	enum {
		NEAP_REPLAY_VERSION_NEWEST,  /* nothing shows it: the newest */
		NEAP_REPLAY_VERSION_ASKED,   /* the options name it */
		NEAP_REPLAY_VERSION_KEYS,    /* only these releases write the snapshot's keys */
		NEAP_REPLAY_VERSION_CHOICES, /* of the releases with these keys, it matched the recording longest */
	} why;
};

/* How well the replay matches the recording. */
struct neap_replay_match {
	bool compared;                    /* the trace is a recording, replayed under its own policy and settings */
	uint64_t allocs, same_allocs;     /* the same block chosen */
	uint64_t segments, same_segments; /* segment events: the same kind, size and place */
	uint64_t first_difference;        /* event number; UINT64_MAX: none */
};

#define NEAP_REPLAY_POOLS 64
/* A private pool that had memory: PyTorch's reserved_bytes_by_private_pools. */
struct neap_replay_pool {
	uint64_t id[2]; /* as the trace has it */
	struct neap_stat reserved[NEAP_CLASS_COUNT];
};

/* The driver's calls in a part of the trace. Growth counts those calls that took or mapped memory in events that
 * raised the bytes given out to a new peak. A program that repeats itself makes no more of them once it has used
 * every shape. */
struct neap_replay_work {
	uint64_t events;
	uint64_t growth_calls, other_calls;
	uint64_t synchronizations;
};

struct neap_replay_result {
	uint64_t events, events_applied;
	struct neap_replay_work warm_up, warm; /* the first quarter of the events, the rest */
	uint64_t ignored;                      /* events about blocks that are unknown, or that were refused */
	struct neap_policy_usage usage;
	/* The largest of all requests, free blocks and recorded releases. PyTorch's allocator does the same with any
	 * max_split_size above this. */
	uint64_t largest_bytes;
	uint64_t first_oom_event; /* UINT64_MAX: none */
	struct neap_replay_oom ooms[NEAP_REPLAY_OOMS];
	size_t oom_count; /* listed; usage.stats.num_ooms in all */
	struct neap_replay_pool pools[NEAP_REPLAY_POOLS];
	size_t pool_count; /* listed: the first ones in the trace; none for NEAP */
	struct neap_replay_match match;
	uint64_t elapsed_ns;                 /* of the replay itself; 0 without a clock */
	struct neap_torch_settings settings; /* in force; not for NEAP */
	struct neap_replay_version version;  /* likewise */
};

/* Finds the settings under which a trace was recorded. Settings that the trace lacks have PyTorch's defaults. */
void neap_replay_settings(const struct neap_trace *trace, struct neap_torch_settings *ret_settings);

/* Errors: those of neap_torch_settings_parse; NEAP_EINVAL for a device that is not there; NEAP_ENOMEM; NEAP_ECANCELED
 * when `progress` asked it to stop. Running out of device memory is a result. */
enum neap_status neap_replay(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct neap_replay_result *ret_result, struct neap_error *err);

#define NEAP_REPLAY_PAGE_BYTES (2ull << 20)
/* The smallest device, in pages, on which the replay ends without running out of memory: found by bisection, and
 * confirmed at each of the next 8 pages above. PyTorch's policy is not monotonic in the device's size, so a smaller
 * device may suffice by luck. `memory_bytes` and `go_on` of the options are ignored. Errors: as neap_replay;
 * NEAP_EOOM when no device suffices. */
enum neap_status neap_replay_smallest(const struct neap_trace *trace, const struct neap_replay_options *options,
				      uint64_t *ret_bytes, struct neap_error *err);

#endif
