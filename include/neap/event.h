/* neap/event.h: the one model of what happens to memory.
 *
 *   0            8          12     14       16                                                   64
 *   | time_ns    | sequence | kind | device | the struct of this kind: 48 bytes                  |
 *
 * Every kind has one struct that says what its fields mean, one function that makes the event, and one that reads it:
 *
 *   struct neap_event event = neap_event_of_step(device, (struct neap_event_step){.number = 7, ...});
 *   const struct neap_event_step *step = neap_event_as_step(&event);      NULL where the event is of another kind
 *
 * Kinds with the same fields (ALLOC and FREE_REQUESTED) share a struct; the function that makes them also takes the
 * kind. `tag` (of memory), `name` and `device_uuid` are numbers of texts in the recording's header; 0: none. A `tag`
 * from NEAP_EVENT_FIRST_STACK on is the number of a stack instead. No struct has padding, so that each byte of an
 * event is set.
 */
#ifndef NEAP_EVENT_H
#define NEAP_EVENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_event_kind {
	/* allocation ring */
	NEAP_EVENT_ALLOC = 1,
	NEAP_EVENT_FREE_REQUESTED = 2,
	NEAP_EVENT_FREE_COMPLETED = 3,
	NEAP_EVENT_RECORD_STREAM = 4,
	NEAP_EVENT_SEGMENT_ALLOC = 5,
	NEAP_EVENT_SEGMENT_FREE = 6,
	NEAP_EVENT_SEGMENT_MAP = 7,
	NEAP_EVENT_SEGMENT_UNMAP = 8,
	NEAP_EVENT_FREE =
		9, /* FREE_REQUESTED and FREE_COMPLETED at once. Only in the slots of a recording: its reader
				gives both */
	/* journal ring from here on */
	NEAP_EVENT_EMPTY_CACHE = 20,
	NEAP_EVENT_OOM = 21,
	NEAP_EVENT_OOM_LIMITS = 22, /* after OOM */
	NEAP_EVENT_TAG_BYTES = 23,  /* after OOM, and after the mark END: one for each tag in use */
	NEAP_EVENT_MARK = 24,
	NEAP_EVENT_STEP = 25,
	NEAP_EVENT_SPLIT = 26, /* the settings in force */
	NEAP_EVENT_CLEANUP = 27,
	NEAP_EVENT_RUNG = 28, /* a rung was taken */
	NEAP_EVENT_SCOPE_BEGIN = 29,
	NEAP_EVENT_SCOPE_END = 30,
	NEAP_EVENT_METRIC = 31,
	NEAP_EVENT_LEAK = 32,      /* the session's own leak watch found one */
	NEAP_EVENT_ROOM = 33,      /* how much this process may reserve in all: at a session's beginning and end */
	NEAP_EVENT_OOM_POOLS = 34, /* after OOM_LIMITS, of an allocator with a pool for small requests (PyTorch's) */
	NEAP_EVENT_SMALLER_PARTS = 35, /* the micro-batches of this step that follow have a sample less */
	NEAP_EVENT_LEVEL = 40,         /* memory is below a threshold */
	NEAP_EVENT_FORECAST = 41,      /* a leak will use up memory */
	NEAP_EVENT_REQUEST = 42,       /* the session asked the loop to end */
	NEAP_EVENT_RESTART = 43,       /* the process has restarted in place and holds nothing any more */
	NEAP_EVENT_PROCESS = 44,       /* what the process is in its run: the last one counts. One for each device */
	NEAP_EVENT_PAGE = 45, /* an allocator's figures on the statistics page: when the page first shows them, and
				 when it no longer does (the allocator's end, a detach, a normal exit) */
	NEAP_EVENT_OOM_ASKED = 46, /* after OOM_LIMITS, if other processes were asked for memory before it */
	NEAP_EVENT_OOM_MODEL = 47, /* after OOM_LIMITS: what the process trains, and how far its step was */
	NEAP_EVENT_BATCH = 48,     /* the micro-batch of a program without a session, as far as neap found it */
};

/* The bytes that the allocator held when the event was made; in the allocation ring, right after the event. First
 * member of every struct that has it. */
struct neap_event_held {
	uint64_t allocated_bytes, reserved_bytes;
};

/* The recording of PyTorch's own allocator has the program's stacks beside it, in the file stacks.PID of the run's
 * folder. `tag` of an ALLOC is then NEAP_EVENT_FIRST_STACK plus the stack's number, from 0; of any other event 0. */
#define NEAP_EVENT_FIRST_STACK 65536u

/* ALLOC, FREE_REQUESTED, FREE_COMPLETED, RECORD_STREAM. */
struct neap_event_allocation {
	struct neap_event_held held;
	uint32_t tag;
	uint32_t stream; /* dense number the allocator gave the stream; 0: the default stream */
	uint64_t address;
	uint64_t requested_bytes;
	uint64_t bytes; /* rounded: what the block takes */
};

/* SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP. `pool`: of PyTorch's own allocator, the private pool (a
 * CUDA graph's, say) that it belongs to; 0: none, or not known. */
struct neap_event_segment {
	struct neap_event_held held;
	uint64_t stream;
	uint64_t address;
	uint64_t bytes;
	uint64_t pool;
};

struct neap_event_empty_cache {
	struct neap_event_held held;
	uint64_t ns; /* how long it took */
	uint64_t freed_bytes;
};

/* Flags of an OOM. OTHER: it happened in an allocator other than neap's (PyTorch's own). GROWS: that
 * allocator's segments grow in place. */
#define NEAP_OOM_OTHER 1u
#define NEAP_OOM_GROWS 2u

struct neap_event_oom {
	struct neap_event_held held;
	uint32_t tag;
	uint32_t flags;
	uint64_t device_free_bytes;
	uint64_t requested_bytes;
	uint64_t bytes; /* rounded */
};

struct neap_event_oom_limits {
	uint64_t context_bytes; /* of this process; 0: unknown */
	uint64_t device_total_bytes;
	uint64_t limit_bytes;        /* UINT64_MAX: none */
	uint64_t largest_free_bytes; /* the largest free block; UINT64_MAX: unknown */
	uint64_t others_bytes;       /* what other processes and all contexts hold */
	uint64_t pending_bytes;
};

struct neap_event_oom_pools {
	uint64_t small_failed; /* 1: the request that failed was of the small pool */
	uint64_t small_largest_free_bytes, large_largest_free_bytes;
};

struct neap_event_oom_asked {
	uint64_t processes;   /* that were asked for what they cache */
	uint64_t answered;    /* of these, in time */
	uint64_t freed_bytes; /* by their answers */
};

/* What a program was doing when a request failed. */
enum neap_oom_phase {
	NEAP_OOM_PHASE_UNKNOWN = 0,
	NEAP_OOM_PHASE_MODEL = 1, /* made, or moved to the device */
	NEAP_OOM_PHASE_FORWARD = 2,
	NEAP_OOM_PHASE_BACKWARD = 3,
	NEAP_OOM_PHASE_UPDATE = 4,
};

/* The bytes of each kind that a whole step needs, also those not allocated yet; all 0: unknown. */
struct neap_event_oom_model {
	uint64_t parameter_bytes, gradient_bytes;
	uint64_t optimizer_bytes;  /* its state; UINT64_MAX: not known */
	uint64_t update_bytes;     /* memory that an update also needs, for a moment */
	uint32_t phase;            /* enum neap_oom_phase */
	uint32_t forward_permille; /* FORWARD: the share of the model's modules that had run; 0: not known */
	uint32_t evaluates;        /* FORWARD, 1: the model is in evaluation mode, its inputs need no gradient */
	uint32_t graph;            /* FORWARD, 1: autograd keeps the results of forward for backward */
};

struct neap_event_tag_bytes {
	uint64_t tag;
	uint64_t live_blocks, live_bytes, peak_bytes;
};

struct neap_event_mark {
	struct neap_event_held held;
	uint32_t name;
	uint32_t mark;  /* enum neap_mark */
	uint64_t value; /* epoch or step */
};

/* In a process without optimizer updates, a step begins with each batch of a DataLoader or, without one, with each
 * forward of a model. These are the names of such steps. */
#define NEAP_STEP_BATCH   "batch of a DataLoader"
#define NEAP_STEP_FORWARD "forward of a model"

/* Also stands for the steps since the last STEP: a program's short steps are not recorded one by one. */
struct neap_event_step {
	struct neap_event_held held;
	uint32_t name;          /* the program's own; mostly none */
	uint32_t micro_batches; /* done since the last STEP */
	uint64_t number;        /* from 1 */
	uint64_t peak_bytes;    /* highest and lowest allocated since the last STEP */
	uint64_t lowest_bytes;
};

/* The fields that SPLIT and RUNG share. */
struct neap_event_settings {
	uint32_t rungs;         /* in force: bits 1u << enum neap_rung */
	uint32_t smaller_parts; /* how many of the micro-batches of a step have a sample less */
	uint64_t micro_batch;
	uint64_t accumulate;
};

struct neap_event_split {
	struct neap_event_held held;
	struct neap_event_settings settings;
	uint32_t ranks;
	uint32_t layers; /* of the model; 0: unknown */
};

struct neap_event_rung {
	struct neap_event_settings settings; /* from now on */
	uint64_t rung;                       /* enum neap_rung */
	uint64_t micro_batch_before, accumulate_before;
};

struct neap_event_smaller_parts {
	uint64_t count;
};

struct neap_event_cleanup {
	struct neap_event_held held;
	uint64_t ns; /* how long it took */
	uint64_t freed_bytes;
	uint64_t reason; /* enum neap_cleanup_reason */
};

/* SCOPE_BEGIN, SCOPE_END. */
struct neap_event_scope {
	struct neap_event_held held;
	uint64_t name;
	uint64_t ns;         /* END: how long it took */
	uint64_t peak_bytes; /* END: highest allocated inside */
};

struct neap_event_metric {
	struct neap_event_held held;
	uint64_t name; /* "loss" */
	double value;
	uint64_t step;
};

struct neap_event_leak {
	struct neap_event_held held;
	uint64_t bytes_per_step;
	uint64_t confidence_permille;
};

struct neap_event_room {
	struct neap_event_held held;
	uint64_t page_bytes;
	uint64_t device_total_bytes;
	uint64_t room_bytes;  /* free and reserved together, within the limit */
	uint64_t limit_bytes; /* UINT64_MAX: none */
};

struct neap_event_level {
	uint32_t name; /* "device memory" or "host memory" */
	uint32_t act;  /* enum neap_threshold_act */
	uint64_t threshold_bytes;
	uint64_t left_bytes;
};

/* From low_step to high_step is the 99 % interval. */
struct neap_event_forecast {
	uint64_t step, low_step, high_step; /* UINT64_MAX: never */
};

/* A field is 0 if it is not part of the reason. */
struct neap_event_request {
	uint32_t name;                        /* "device memory", "host memory", "leak" or "--max-steps" */
	uint32_t request;                     /* enum neap_train_request */
	uint64_t left_bytes, threshold_bytes; /* memory is short */
	uint64_t low_step, high_step;         /* a leak ends memory in one of these */
	uint64_t max_steps;                   /* the bound of `neap run --max-steps` */
};

struct neap_event_restart {
	uint64_t count; /* how often the process has restarted */
};

enum neap_process_role {
	NEAP_PROCESS_PLAIN = 0,
	NEAP_PROCESS_RANK = 1,   /* of a distributed training */
	NEAP_PROCESS_WORKER = 2, /* loads data; the rank is the one that it works for */
	NEAP_PROCESS_ROLES
};

/* UINT64_MAX in rank, local_rank, ranks or parent: unknown. */
struct neap_event_process {
	uint32_t device_uuid; /* of a device that it uses */
	uint32_t role;        /* enum neap_process_role */
	uint64_t rank, local_rank, ranks;
	uint64_t parent; /* PID */
};

struct neap_event_page {
	uint64_t device_uuid; /* of the allocator's device */
	uint64_t context_bytes;
	uint64_t peak_allocated_bytes, peak_reserved_bytes;
};

/* How neap learned a program's micro-batch. */
enum neap_batch_source {
	NEAP_BATCH_UNKNOWN = 0,
	NEAP_BATCH_LOADER = 1,       /* the DataLoader's batch_size */
	NEAP_BATCH_INPUTS = 2,       /* the first dimension that the model's inputs share */
	NEAP_BATCH_TRANSFORMERS = 3, /* TrainingArguments.per_device_train_batch_size */
	NEAP_BATCH_LIGHTNING = 4,    /* the batch_size of the DataLoader that Lightning's Trainer runs */
	NEAP_BATCH_NAMED = 5,        /* NEAP_MICRO_BATCH: the user */
	NEAP_BATCH_SOURCES
};

struct neap_event_batch {
	uint64_t micro_batch; /* 0: not known */
	uint64_t accumulate;  /* micro-batches of an update; 0: not known */
	uint32_t source;      /* enum neap_batch_source */
	uint32_t ranks;
	uint32_t other_source; /* a source with another value; UNKNOWN: there is none */
	uint32_t other_micro_batch;
};

/* ONE(member, kind), FAMILY(member, first kind, last kind): the union's member that belongs to a kind. */
#define NEAP_EVENT_STRUCTS(ONE, FAMILY)                                                                              \
	FAMILY(allocation, NEAP_EVENT_ALLOC, NEAP_EVENT_RECORD_STREAM)                                               \
	FAMILY(segment, NEAP_EVENT_SEGMENT_ALLOC, NEAP_EVENT_SEGMENT_UNMAP)                                          \
	ONE(empty_cache, NEAP_EVENT_EMPTY_CACHE)                                                                     \
	ONE(oom, NEAP_EVENT_OOM)                                                                                     \
	ONE(oom_limits, NEAP_EVENT_OOM_LIMITS)                                                                       \
	ONE(oom_pools, NEAP_EVENT_OOM_POOLS)                                                                         \
	ONE(tag_bytes, NEAP_EVENT_TAG_BYTES)                                                                         \
	ONE(mark, NEAP_EVENT_MARK)                                                                                   \
	ONE(step, NEAP_EVENT_STEP)                                                                                   \
	ONE(split, NEAP_EVENT_SPLIT)                                                                                 \
	ONE(rung, NEAP_EVENT_RUNG)                                                                                   \
	ONE(smaller_parts, NEAP_EVENT_SMALLER_PARTS)                                                                 \
	ONE(cleanup, NEAP_EVENT_CLEANUP)                                                                             \
	FAMILY(scope, NEAP_EVENT_SCOPE_BEGIN, NEAP_EVENT_SCOPE_END)                                                  \
	ONE(metric, NEAP_EVENT_METRIC)                                                                               \
	ONE(leak, NEAP_EVENT_LEAK)                                                                                   \
	ONE(room, NEAP_EVENT_ROOM)                                                                                   \
	ONE(level, NEAP_EVENT_LEVEL)                                                                                 \
	ONE(forecast, NEAP_EVENT_FORECAST)                                                                           \
	ONE(request, NEAP_EVENT_REQUEST)                                                                             \
	ONE(restart, NEAP_EVENT_RESTART)                                                                             \
	ONE(process, NEAP_EVENT_PROCESS)                                                                             \
	ONE(page, NEAP_EVENT_PAGE)                                                                                   \
	ONE(oom_asked, NEAP_EVENT_OOM_ASKED)                                                                         \
	ONE(oom_model, NEAP_EVENT_OOM_MODEL)                                                                         \
	ONE(batch, NEAP_EVENT_BATCH)

#define NEAP_EVENT_PAYLOAD_WORDS 6
#define NEAP_EVENT_FIRST_JOURNAL 20 /* kinds below it go into the allocation ring */

struct neap_event {
	uint64_t time_ns; /* CLOCK_MONOTONIC; the header has the wall clock at its zero */
	uint32_t sequence;
	uint16_t kind;   /* enum neap_event_kind */
	uint16_t device; /* ordinal within the process */
	union {
		uint64_t payload[NEAP_EVENT_PAYLOAD_WORDS];
		struct neap_event_held held; /* see neap_event_as_held */
#define NEAP_EVENT_MEMBER(member, ...) struct neap_event_##member member;
		NEAP_EVENT_STRUCTS(NEAP_EVENT_MEMBER, NEAP_EVENT_MEMBER)
#undef NEAP_EVENT_MEMBER
	};
};

#define NEAP_EVENT_READER(member, first, last)                                                                       \
	static inline const struct neap_event_##member *neap_event_as_##member(const struct neap_event *event)       \
	{                                                                                                            \
		return event->kind >= (first) && event->kind <= (last) ? &event->member : NULL;                      \
	}
#define NEAP_EVENT_FAMILY(member, first, last)                                                                       \
	NEAP_EVENT_READER(member, first, last)                                                                       \
	static inline struct neap_event neap_event_of_##member(enum neap_event_kind which, uint16_t device,          \
							       struct neap_event_##member what)                      \
	{                                                                                                            \
		struct neap_event event = {0, 0, (uint16_t)which, device, {{0}}};                                    \
		event.member = what;                                                                                 \
		return event;                                                                                        \
	}
#define NEAP_EVENT_ONE(member, only)                                                                                 \
	NEAP_EVENT_READER(member, only, only)                                                                        \
	static inline struct neap_event neap_event_of_##member(uint16_t device, struct neap_event_##member what)     \
	{                                                                                                            \
		struct neap_event event = {0, 0, only, device, {{0}}};                                               \
		event.member = what;                                                                                 \
		return event;                                                                                        \
	}
NEAP_EVENT_STRUCTS(NEAP_EVENT_ONE, NEAP_EVENT_FAMILY)
#undef NEAP_EVENT_ONE
#undef NEAP_EVENT_FAMILY
#undef NEAP_EVENT_READER

/* NULL: events of this kind do not tell what the allocator held. */
static inline const struct neap_event_held *neap_event_as_held(const struct neap_event *event)
{
	switch (event->kind) {
	case NEAP_EVENT_OOM_LIMITS:
	case NEAP_EVENT_TAG_BYTES:
	case NEAP_EVENT_RUNG:
		return NULL;
	default:
		return event->kind >= NEAP_EVENT_ALLOC && event->kind <= NEAP_EVENT_ROOM ? &event->held : NULL;
	}
}

#ifdef __cplusplus
}
#endif
#endif
