/* run/keep.h: the history that the supervisor keeps of a process with PyTorch's own allocator, beside its recording
 * (trace/kept.h), before the recording's rings overwrite it.
 *
 * It keeps whole: the first steps, each step that reached a new peak, one step a minute, and each step in which
 * memory ran out. Of every other step it keeps only the net effect: the blocks that outlive the step, and the frees
 * of older blocks. It drops blocks that were allocated and freed within the step. So the sequence is still one that
 * an allocator could have made: between two steps, the live blocks are exactly those of the process.
 *
 *     ring: ... e e e | e e e e | e e e e e e e e e e     the newest quarter stays in it: those steps are whole
 *               \_____/ \_____/
 *                step    step          choose: whole or its net effect, once the step has ended
 *     kept.PID: [ step | step | step ...                  never more than `bytes`
 *
 * The step that has not ended is only in memory: the ring still has it. A step longer than a quarter of a ring is
 * taken in parts, and so is a program without steps. Consecutive thinned steps are joined: only blocks that outlive
 * all of them remain.
 *
 * When the file is full it is rewritten with fewer whole steps: first the superseded peaks are thinned, then every
 * second one of the steps kept each minute, then the others. At last, marks of steps are joined in pairs.
 *
 * Events that were overwritten before they were read are counted. The free of a block that was never seen is dropped;
 * a block that must have been freed meanwhile is freed at that point.
 *
 * Host memory: 2 MiB per process for events, and some 100 bytes for each live block. Threads: one.
 */
#ifndef NEAP_RUN_KEEP_H
#define NEAP_RUN_KEEP_H

#include "base/map.h"
#include "trace/kept.h"

#define NEAP_KEEP_DEVICES 16 /* each has its own peak; further devices share the last one's */

enum neap_keep_why {
	NEAP_KEEP_THINNED, /* only its net effect is kept */
	NEAP_KEEP_MINUTE,
	NEAP_KEEP_PEAK,
	NEAP_KEEP_FIRST,
	NEAP_KEEP_OOM,
};

/* A step, or a part of one, that has ended. */
struct neap_keep_step {
	uint64_t begin_ns;
	/* The most bytes that were allocated on each device during the step */
	uint64_t peak_bytes[NEAP_KEEP_DEVICES];
	bool failed; /* memory ran out in it */
	bool part;   /* the step continues after this part */
};

/* The facts that the choice depends on. Zeroed: before the first step. */
struct neap_keep_choice {
	uint64_t steps; /* how many steps have ended */
	uint64_t peak_bytes[NEAP_KEEP_DEVICES];
	uint64_t minute_ns;        /* when the last step of a minute began */
	bool inside;               /* a part of this step was chosen before */
	enum neap_keep_why chosen; /* the reason for all parts of the step */
};

/* Whether the step stays whole, and why. */
enum neap_keep_why neap_keep_choose(struct neap_keep_choice *choice, const struct neap_keep_step *step);

/* Drops the blocks that were allocated and freed within these events, which are in order of time, as in a ring.
 * Returns how many events stay; they keep their order. Without host memory all stay. */
size_t neap_keep_thin(struct neap_event *events, size_t count);
/* Joins marks of steps in pairs, each of one device, and drops scopes and metrics. Returns how many events stay. */
size_t neap_keep_join_steps(struct neap_event *events, size_t count);

#define NEAP_KEEP_BYTES (64ull << 20) /* of the file, at most */

struct neap_keep_options {
	uint64_t bytes;     /* of the file; 0: NEAP_KEEP_BYTES */
	size_t part_events; /* a longer step is taken in parts; 0: a quarter of the ring, at most 16384 */
};

/* Consecutive events of the file. */
struct neap_keep_span {
	uint64_t first; /* number of its first event; it ends where the next begins */
	enum neap_keep_why why;
};

struct neap_keep {
	struct neap_record_follow follow;
	struct neap_keep_choice choice;
	struct neap_kept_header header;
	uint64_t bytes;
	size_t part_events;
	char path[NEAP_RECORD_PATH];
	int fd;    /* the file's descriptor; -1: not opened, or given up */
	bool full; /* the file was given up: nothing more is kept */
	struct neap_keep_span *spans;
	size_t span_count;
	struct neap_event *open; /* the events of the step that has not ended: part_events and a few more */
	size_t open_count;
	/* The thinned events at the end of the file, if any: at most part_events. */
	struct neap_event *tail;
	size_t tail_count;
	uint64_t tail_first;                   /* number of its first event in the file */
	uint64_t tail_read[NEAP_RECORD_RINGS]; /* the value of `read` where the tail begins */
	struct neap_keep_step step;            /* facts about the tail's steps */
	uint64_t last_step;                    /* the number of that step, which each device's mark repeats */
	uint64_t read[NEAP_RECORD_RINGS];      /* of each ring: the index after the last event taken */
	/* The live blocks. Key: the address. Value: requested bytes * 2, + 1 if the free was requested. */
	struct neap_map live;
	/* The same blocks. Value: number in order of birth * NEAP_KEEP_DEVICES + device. */
	struct neap_map born;
	uint64_t births;
	uint64_t live_bytes[NEAP_KEEP_DEVICES]; /* rounded bytes of the live blocks whose free was not requested */
	bool seen;                              /* an allocation event was taken */
	bool missed;                            /* events were lost between two that were taken */
	uint64_t missed_births;                 /* the value of `births` when events were last lost */
	bool resync[NEAP_KEEP_DEVICES];         /* blocks from before the loss may have been freed meanwhile */
};

/* Begins to follow a recording, but reads no events yet. Errors: as of neap_record_open; NEAP_ENOENT if no
 * file can lie beside the recording, because of its name; NEAP_ENOMEM. */
enum neap_status neap_keep_begin(struct neap_keep *keep, const char *recording,
				 const struct neap_keep_options *options, struct neap_error *err);
/* Takes the new events of both rings, up to the time `until_ns`: all earlier events must be stored already. Leaves
 * the newest quarter of the allocation ring. Errors: those of reading and writing; after an error nothing more is
 * kept, and the file stays as it is. */
enum neap_status neap_keep_poll(struct neap_keep *keep, uint64_t until_ns, struct neap_error *err);
/* Stops following. The file stays. */
void neap_keep_end(struct neap_keep *keep);

#endif
