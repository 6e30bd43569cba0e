/* neap/trace.h: the one model of events, and the recorder.
 *
 * Everything that happens to memory is a struct neap_event of 64 bytes. The allocator emits them to an observer; the
 * recorder is an observer that keeps them in a file-backed ring which survives SIGKILL. The file has two rings: one
 * of allocation events, which wraps soon, and one of the rare events (marks, steps, OOMs, cleanups, rungs), so that
 * the story of a whole run is there even when its allocations have wrapped.
 *
 * File (native byte order, version in the header; readers refuse another version):
 *
 *   0        struct neap_record_header, names included, padded to NEAP_RECORD_HEADER_BYTES
 *   ...      journal ring:    journal_capacity events
 *   ...      allocation ring: allocation_capacity events
 *
 * An event at ring index i (counted from the file's first) sits at slot i % capacity, and its `sequence` is the low
 * 32 bits of i + 1, stored last; a slot whose sequence does not fit was being written when the process died.
 */
#ifndef NEAP_TRACE_H
#define NEAP_TRACE_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_event_kind {
	/* allocation ring: address, size (requested), block (rounded), stream, tag; a, b: allocated and reserved
	   after */
	NEAP_EVENT_ALLOC = 1,
	NEAP_EVENT_FREE_REQUESTED = 2,
	NEAP_EVENT_FREE_COMPLETED = 3,
	NEAP_EVENT_RECORD_STREAM = 4,
	/* allocation ring: address, size; a, b as above */
	NEAP_EVENT_SEGMENT_ALLOC = 5,
	NEAP_EVENT_SEGMENT_FREE = 6,
	NEAP_EVENT_SEGMENT_MAP = 7,
	NEAP_EVENT_SEGMENT_UNMAP = 8,
	/* journal ring from here on; a, b: allocated and reserved at that instant, unless said otherwise */
	NEAP_EVENT_EMPTY_CACHE = 20, /* size: bytes given back; address: nanoseconds it took */
	NEAP_EVENT_OOM = 21,         /* size: requested; block: rounded; address: the device's free bytes; tag;
					flags: NEAP_OOM_OTHER, NEAP_OOM_GROWS */
	NEAP_EVENT_OOM_LIMITS =
		22,                /* after OOM. size: limit (UINT64_MAX none); address: device total; block: largest
				      free block (UINT64_MAX not known); a: bytes other processes and contexts hold; b: pending
				      bytes;	        stream: MiB of `a` that are this process's context, 0 unknown */
	NEAP_EVENT_TAG_BYTES = 23, /* after OOM, and after the mark END, one per tag in use. a: live bytes; b: their
				      peak; size: live blocks */
	NEAP_EVENT_MARK = 24,      /* tag: the mark's name; address: enum neap_mark; size: epoch or step */
	NEAP_EVENT_STEP = 25,      /* address: step from 1; size: peak allocated since the last STEP; block: lowest
				      allocated since then; stream: micro-batches done since then. It stands for the
				      steps between that and itself, too: a program's short ones are not recorded each */
	NEAP_EVENT_SPLIT = 26,     /* the settings in force. address: micro_batch; size: accumulate; block: ranks;
				      stream: rungs in force (bits 1u << enum neap_rung) and, from bit
				      NEAP_SMALLER_PARTS_SHIFT on, how many of the micro-batches of a step have a
				      sample less; flags: layers, 0 unknown */
	NEAP_EVENT_CLEANUP = 27,   /* size: bytes given back; address: nanoseconds; block: enum neap_cleanup_reason */
	NEAP_EVENT_RUNG = 28,      /* a rung was taken. block: enum neap_rung; address: micro_batch and size:
				      accumulate from now on; a, b: the same before; stream: as of SPLIT, from now
				      on */
	NEAP_EVENT_SCOPE_BEGIN = 29, /* tag: its name */
	NEAP_EVENT_SCOPE_END = 30,   /* tag: its name; size: peak inside; address: nanoseconds */
	NEAP_EVENT_METRIC = 31,      /* tag: its name; address: bits of a double; size: step. ("loss") */
	NEAP_EVENT_LEAK =
		32, /* the session's own leak watch spoke. size: bytes per step; block: permille confidence */
	NEAP_EVENT_ROOM = 33, /* what this process may reserve in all. size: bytes, free and reserved together, within
				 the limit; address: device total; block: limit (UINT64_MAX none); stream: page
				 size in KiB. At a session's begin and end */
	NEAP_EVENT_OOM_POOLS = 34, /* after OOM_LIMITS, of an allocator that keeps small requests apart from large
				      ones, as PyTorch's does. address: 1: the request that failed was a small one;
				      size: largest free block of the small pool; block: of the large pool */
	NEAP_EVENT_SMALLER_PARTS =
		35,               /* the micro-batches of this step that follow have a sample less. size: how many */
	NEAP_EVENT_LEVEL = 40,    /* a threshold was passed. tag: "device memory" or "host memory"; block: 1 warned, 2
				     degraded, 3 stopped; size: bytes left; address: the threshold */
	NEAP_EVENT_FORECAST = 41, /* a leak will use up memory. address: the step; size, block: its interval */
	NEAP_EVENT_WISH = 42,     /* the session asked the loop to end. block: enum neap_train_wish; tag: "device
				     memory", "host memory" or "leak"; of a threshold size: bytes left, address: the
				     threshold; of a leak size, address: the interval of the forecast. Or the bound of
				     `neap run --max-steps`: tag: "--max-steps", size: the bound, address: steps made */
	NEAP_EVENT_RESTART = 43,  /* the process has restarted in place and holds nothing any more. block: how often
				     it has */
	NEAP_EVENT_PROCESS = 44,  /* what the process is in its run, as far as it knows by now; the last one counts.
				     block:  enum neap_process_role; address: rank; size: local rank; a: ranks in all;
				     b: PID of  its parent (UINT64_MAX: unknown, each). tag: UUID of a device that it
				     uses; such an  event for each */
	NEAP_EVENT_PAGE = 45,     /* what the process's statistics page says of an allocator: when it is first shown
				     there,     and when the process parts from it (the allocator's end, a detach, a
				     normal     exit).     tag: UUID of its device; address: bytes of the process's
				     context     there; size,     block: peak allocated and reserved */
};

/* Flags of an OOM: it is another allocator's than neap's (PyTorch's own), whose allocations are not recorded; and
 * that allocator's segments grow in place. */
#define NEAP_OOM_OTHER 1u
#define NEAP_OOM_GROWS 2u

/* In `stream` of SPLIT and RUNG. */
#define NEAP_SMALLER_PARTS_SHIFT 8
#define NEAP_SMALLER_PARTS_MAX   (1u << (32 - NEAP_SMALLER_PARTS_SHIFT))

enum neap_process_role {
	NEAP_PROCESS_PLAIN = 0,
	NEAP_PROCESS_RANK = 1,   /* of a distributed training */
	NEAP_PROCESS_WORKER = 2, /* loads data; the rank is the one that it works for */
	NEAP_PROCESS_ROLES
};

struct neap_event {
	uint64_t time_ns; /* CLOCK_MONOTONIC; the header has the wall clock at its zero */
	uint32_t sequence;
	uint16_t kind;   /* enum neap_event_kind */
	uint16_t tag;    /* index of a name in the header; 0: none */
	uint16_t device; /* ordinal within the process */
	uint16_t flags;
	uint32_t stream; /* dense number the allocator gave the stream; 0: the default stream */
	uint64_t address;
	uint64_t size;
	uint64_t block;
	uint64_t a;
	uint64_t b;
};

#define NEAP_RECORD_MAGIC        "NEAPREC1"
#define NEAP_RECORD_VERSION      1u
#define NEAP_RECORD_NAMES        256
#define NEAP_RECORD_NAME_ROOM    48
#define NEAP_RECORD_HEADER_BYTES 16384u
#define NEAP_RECORD_BYTES        5259264u /* a whole recording of the default capacities */

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
};

/* Where events go. `event` may be called from any thread, inside the allocator's lock: it must be short, must not
 * block and must not call the allocator. It may set nothing in the event. */
struct neap_observer {
	void (*event)(void *context, const struct neap_event *event);
	/* The number of a name, the same for the same text; 0 when the table is full. */
	uint16_t (*name)(void *context, const char *text);
	void *context;
};

struct neap_recorder;

/* Creates PATH (replacing it) with the given capacities; 0 means 16384 journal and 65536 allocation events (5.3 MB).
 * The disk space is taken at once (posix_fallocate), so that a full disk is an error here and never a SIGBUS later.
 * After the run, `neap run` frees the unused part: the file is then a recording of smaller capacities. */
NEAP_API enum neap_status neap_recorder_create(const char *path, uint64_t journal_capacity,
					       uint64_t allocation_capacity, struct neap_recorder **ret_recorder,
					       struct neap_error *err);
/* The same, but goes on with PATH where that is a recording which this very process (PID and start time) began with
 * the same capacities: before an exec (see neap_restart). Nobody else may be writing to it. */
NEAP_API enum neap_status neap_recorder_resume(const char *path, uint64_t journal_capacity,
					       uint64_t allocation_capacity, struct neap_recorder **ret_recorder,
					       struct neap_error *err);
/* The observer that writes to it; borrowed, lives with the recorder. Any thread; `event` takes no lock, `name` takes
 * a short one only for a name it has not seen. Names are cut at NEAP_RECORD_NAME_ROOM - 1 bytes. */
NEAP_API const struct neap_observer *neap_recorder_observer(struct neap_recorder *recorder);
/* Unmaps; the file stays. */
NEAP_API void neap_recorder_destroy(struct neap_recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
