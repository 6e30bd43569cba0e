/* neap/trace.h: where events (neap/event.h) go, and the recorder.
 *
 * The allocator emits events to an observer; the recorder is an observer that keeps them in a file-backed ring which
 * survives SIGKILL. The file has two rings: one of allocation events, which wraps soon, and one of the rare events
 * (marks, steps, OOMs, cleanups, rungs), so that the story of a whole run is there even when its allocations have
 * wrapped.
 *
 * File (native byte order, version in the header; readers refuse another version and say so):
 *
 *   0        struct neap_record_header, names included, padded to NEAP_RECORD_HEADER_BYTES
 *   ...      journal ring:    journal_capacity events
 *   ...      allocation ring: allocation_capacity events
 *
 * An event at ring index i (counted from the file's first) sits at slot i % capacity, and its `sequence` is the low
 * 32 bits of i + 1, stored last; a slot whose sequence does not fit was being written when the process died, or, in
 * the allocation ring, was set aside for a stream that has made no more events. Sources of events fill slots of their
 * own, so the order of events is that of their times, and of their sequences where these are equal. The event FREE
 * of the allocation ring stands for two: FREE_REQUESTED, then FREE_COMPLETED.
 */
#ifndef NEAP_TRACE_H
#define NEAP_TRACE_H

#include "neap/event.h"
#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NEAP_RECORD_MAGIC        "NEAPREC1"
#define NEAP_RECORD_VERSION      3u
#define NEAP_RECORD_NAMES        256
#define NEAP_RECORD_NAME_ROOM    48
#define NEAP_RECORD_HEADER_BYTES 16384u
#define NEAP_RECORD_BYTES        5259264u /* a whole recording of the default capacities */

#define NEAP_RECORD_RUN_PART                                                                                         \
	64 /* a source fills its slots before this part of the ring was claimed after them, or not at all */

struct neap_record_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t pid;
	uint64_t start_ticks;                           /* of the process, field 22 of /proc/PID/stat */
	uint64_t wall_at_zero_ns;                       /* CLOCK_REALTIME minus CLOCK_MONOTONIC at creation */
	uint64_t journal_capacity, allocation_capacity; /* events */
	uint64_t journal_written, allocation_written;   /* events ever written */
	uint32_t names_used;                            /* names[0] is "" */
	uint32_t reserved;
	char names[NEAP_RECORD_NAMES][NEAP_RECORD_NAME_ROOM];
	/* 0 in a recording as its process wrote it. In the longer history that `neap run` keeps of PyTorch's own
	 * allocator: how many events were lost before the first one here, and between two; and how many events of how
	 * many steps it dropped, because their blocks were allocated and freed within a step. */
	uint64_t journal_lost, allocations_lost, allocations_missing;
	uint64_t thinned_events, thinned_steps;
	uint64_t merged; /* 1: it is such a history, whole: a file of kept events beside it no longer counts */
};

/* Slots of an observer's ring that one source of events fills. Zeroed: none. One thread at a time uses it. */
struct neap_event_run {
	uint64_t *slot;          /* the next one */
	uint64_t next, end;      /* its index in the ring, and the first index behind the run; equal: none is left */
	const uint64_t *claimed; /* how many indices of the ring were claimed so far */
	uint64_t window;         /* the run is given up when so many were claimed from its next one on */
};

/* Where events go. `event` may be called from any thread, inside the allocator's lock: it must be short, must not
 * block and must not call the allocator. It must not change the event. */
struct neap_observer {
	void (*event)(void *context, const struct neap_event *event);
	/* The number of a name, the same for the same text; 0 when the table is full. */
	uint16_t (*name)(void *context, const char *text);
	void *context;
	/* `event` may be called by several threads at once, in order for each address. Without it, events come one at
	 * a time, and every request takes the allocator's slow path. */
	bool concurrent;
	/* Optional, and cheaper than `event`: a new run of slots in the allocation ring for one source of events,
	 * which stores its events there itself, as the file's format says. All events of one address come from one
	 * source, or with a later time. False: there is none, and the event is dropped. When neap_observe or
	 * neap_observe_if_none returns, runs that were given out before are not used any more. */
	bool (*run)(void *context, struct neap_event_run *run);
};

struct neap_recorder;

/* Creates PATH (replacing it) with the given capacities; 0 means 16384 journal and 65536 allocation events (5.3 MB).
 * The disk space is taken at once (posix_fallocate), so that a full disk is an error here and never a SIGBUS later.
 * After the run, `neap run` frees the unused part: the file is then a recording of smaller capacities. */
NEAP_API enum neap_status neap_recorder_create(const char *path, uint64_t journal_capacity,
					       uint64_t allocation_capacity, struct neap_recorder **ret_recorder,
					       struct neap_error *err);
/* The same, but continues PATH if it is a recording that this very process (PID and start time) began with the same
 * capacities, before an exec (see neap_restart). No other process may be writing to it. */
NEAP_API enum neap_status neap_recorder_resume(const char *path, uint64_t journal_capacity,
					       uint64_t allocation_capacity, struct neap_recorder **ret_recorder,
					       struct neap_error *err);
/* The observer that writes to it; borrowed, lives with the recorder. Any thread; `event` takes no lock, `name` takes
 * a short one only for a name it has not seen. Names are cut at NEAP_RECORD_NAME_ROOM - 1 bytes. */
NEAP_API const struct neap_observer *neap_recorder_observer(struct neap_recorder *recorder);
/* Unmaps; the file stays. */
NEAP_API void neap_recorder_destroy(struct neap_recorder *recorder);
/* The same in the child of a fork, where allocators may still store events: puts memory of the child's own in place
 * of the file, for as long as the child lives. */
NEAP_API void neap_recorder_abandon(struct neap_recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
