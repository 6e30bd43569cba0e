/* replay/replay.h: a whole trace through a policy: how much memory it would have needed, and what it would have cost.
 *
 * A trace that says only what the program asked for (text) is replayed as it stands. A recording also says what its
 * allocator did: from it the state before its first event is rebuilt, frees complete when they did, and, under
 * PyTorch's policy with the settings that were recorded, every block and segment is compared with the recorded one.
 *
 * Threads: one replay per thread. Memory: a map of live blocks, and the policy's own.
 */
#ifndef NEAP_REPLAY_REPLAY_H
#define NEAP_REPLAY_REPLAY_H

#include "replay/policy.h"
#include "replay/torch_settings.h"
#include "replay/torch_version.h"
#include "trace/trace.h"

enum neap_replay_policy { NEAP_REPLAY_TORCH, NEAP_REPLAY_TORCH_EXPANDABLE, NEAP_REPLAY_NEAP };

struct neap_replay_options {
	enum neap_replay_policy policy;
	const char *settings; /* over those of the trace, else over the defaults; NULL: none. Not for NEAP */
	bool alone;           /* they replace the trace's, all but a fraction that it was allowed */
	unsigned torch; /* as which release of PyTorch 2: 15 is 2.15; 0: the trace's, as far as it tells, else the
			   newest */
	size_t device;  /* index in the trace's devices */
	uint64_t memory_bytes; /* that the driver may hand out; 0: no bound */
	double fraction;       /* 0: none, or what the settings say */
	bool no_plan;          /* NEAP: without a plan of steps that repeat */
	bool go_on;            /* after an out of memory: without that block; else the replay ends there */
	uint64_t event_delay;  /* in a text trace an event is complete this many events after it was recorded */
	/* Now and then, with the events done; false: stop. NULL: never. */
	bool (*progress)(void *context, uint64_t done, uint64_t total);
	void *context;
	const struct neap_clock *clock; /* measures the replay; NULL: it is not measured */
};

#define NEAP_REPLAY_OOMS 32
struct neap_replay_oom {
	uint64_t event;                          /* from 0 */
	uint64_t requested, allocated, reserved; /* bytes: of the request, and at that moment */
};

/* As which release of PyTorch 2 the trace was replayed, and what tells. */
struct neap_replay_version {
	unsigned from, to; /* minor numbers: any of these would do the same */
	enum neap_torch_order order;
	enum {
		NEAP_REPLAY_VERSION_NEWEST,  /* nothing: the newest */
		NEAP_REPLAY_VERSION_ASKED,   /* the options */
		NEAP_REPLAY_VERSION_KEYS,    /* the snapshot's keys, which none but these write */
		NEAP_REPLAY_VERSION_CHOICES, /* of several that write such keys, these chose the recorded blocks
						longest */
	} why;
};

/* The replay against the recording itself. */
struct neap_replay_match {
	bool compared;                    /* a recording, under its own policy and settings */
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

/* The driver's calls in a part of the trace. Growth: the calls that took or mapped memory in an event that raised
 * the bytes handed out to a new peak. A program that repeats itself makes no more of them once it has shown every
 * shape. */
struct neap_replay_work {
	uint64_t events;
	uint64_t growth_calls, other_calls;
	uint64_t synchronizations;
};

struct neap_replay_result {
	uint64_t events, events_applied;
	struct neap_replay_work warm_up, warm; /* the first quarter of the events, the rest */
	uint64_t ignored; /* events about blocks that nothing is known of, or that were refused before */
	struct neap_policy_usage usage;
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

/* The settings that a trace was recorded under, as far as it says: PyTorch's defaults for the rest. */
void neap_replay_settings(const struct neap_trace *trace, struct neap_torch_settings *ret_settings);

/* Errors: those of neap_torch_settings_parse; NEAP_EINVAL for a device that is not there; NEAP_ENOMEM; NEAP_ECANCELED
 * when `progress` asked it to stop. Running out of device memory is a result. */
enum neap_status neap_replay(const struct neap_trace *trace, const struct neap_replay_options *options,
			     struct neap_replay_result *ret_result, struct neap_error *err);

#define NEAP_REPLAY_PAGE_BYTES (2ull << 20)
/* The smallest device, in pages, on which the replay ends without running out of memory: by bisection, and confirmed
 * at each of the next 8 pages above. PyTorch's policy is not monotonic in the device's size, so that a smaller device
 * may do by luck. `memory_bytes` and `go_on` of the options are ignored. Errors: as neap_replay; NEAP_EOOM when none
 * does. */
enum neap_status neap_replay_smallest(const struct neap_trace *trace, const struct neap_replay_options *options,
				      uint64_t *ret_bytes, struct neap_error *err);

#endif
