/* run/keep.h: the history that the supervisor keeps of a process with PyTorch's own allocator, beside its recording
 * (trace/kept.h), before the recording's rings overwrite it.
 *
 * Kept whole: the first steps, each step that reached a new peak, a step a minute, each in which memory ran out. Of
 * every other step only its net effect is kept: the blocks that outlive it, and the frees of older ones. What came
 * and went within it is left out, so that the sequence is still one that an allocator could have made: the live
 * blocks between two steps are exactly those that there were.
 *
 *     ring: ... e e e | e e e e | e e e e e e e e e e     the newest quarter stays in it: those steps are whole
 *               \_____/ \_____/
 *                step    step          choose: whole or its net effect, once the step has ended
 *     kept.PID: [ step | step | step ...                  never more than `bytes`
 *
 * The step that has not ended is in memory alone: the ring still has it. A step that is longer than a quarter of a
 * ring is taken in parts, and so is a program without steps. Consecutive thinned steps are
 * joined: what remains is what outlives all of them.
 *
 * When the file is full it is rewritten: superseded peaks lose their inside first, then every second of the minutes'
 * steps, then the other ones; then marks of steps are joined in pairs.
 *
 * If events were overwritten before they were read, they are counted. What is freed later, but was never seen, is
 * left out; a block that must have been freed meanwhile is freed there.
 *
 * Memory: 2 MiB a process for events, and some 100 bytes for each live block. Threads: one.
 */
#ifndef NEAP_RUN_KEEP_H
#define NEAP_RUN_KEEP_H

#include "base/map.h"
#include "trace/kept.h"

#define NEAP_KEEP_DEVICES 16 /* with a peak each; any further device shares the last one's */

enum neap_keep_why {
	NEAP_KEEP_THINNED, /* its net effect alone */
	NEAP_KEEP_MINUTE,
	NEAP_KEEP_PEAK,
	NEAP_KEEP_FIRST,
	NEAP_KEEP_OOM,
};

/* A step, or a part of one, that has ended. */
struct neap_keep_step {
	uint64_t begin_ns;
	uint64_t peak_bytes[NEAP_KEEP_DEVICES]; /* of each device: the most allocated in it */
	bool failed;                            /* memory ran out in it */
	bool part;                              /* the step goes on */
};

/* What the choice depends on. Zeroed: before the first step. */
struct neap_keep_choice {
	uint64_t steps; /* that have ended */
	uint64_t peak_bytes[NEAP_KEEP_DEVICES];
	uint64_t minute_ns;        /* when the last step of a minute began */
	bool inside;               /* parts of this step were chosen before */
	enum neap_keep_why chosen; /* for all its parts */
};

/* Whether the step stays whole, and why. */
enum neap_keep_why neap_keep_choose(struct neap_keep_choice *choice, const struct neap_keep_step *step);

/* Leaves out what came and went within these events: in order of time, as they lie in a ring. Returns how many stay;
 * they keep their order. Without host memory all stay. */
size_t neap_keep_thin(struct neap_event *events, size_t count);
/* Joins marks of steps in pairs, each of one device, and leaves out scopes and metrics. Returns how many stay. */
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
	int fd;    /* of the file; -1: not begun, or given up */
	bool full; /* given up: nothing more is kept */
	struct neap_keep_span *spans;
	size_t span_count;
	struct neap_event *open; /* the step that has not ended; room for part_events and a few more */
	size_t open_count;
	/* The end of the file, if it is without its inside: room for part_events. */
	struct neap_event *tail;
	size_t tail_count;
	uint64_t tail_first;                   /* number of its first event in the file */
	uint64_t tail_read[NEAP_RECORD_RINGS]; /* `read` where it begins */
	struct neap_keep_step step;            /* the same step */
	uint64_t last_step;                    /* its number: each device's mark has it */
	uint64_t read[NEAP_RECORD_RINGS];      /* of each ring: the index behind the last event taken */
	/* Live blocks: address to twice the requested bytes, plus 1 when the free was requested. */
	struct neap_map live;
	struct neap_map born; /* the same: address to its number by birth times NEAP_KEEP_DEVICES, plus its device */
	uint64_t births;
	uint64_t live_bytes[NEAP_KEEP_DEVICES]; /* of those, rounded, whose free was not requested */
	bool seen;                              /* an allocation event was taken */
	bool missed;                            /* events were lost between two that were taken */
	uint64_t missed_births;                 /* `births` when they were, the last time */
	bool resync[NEAP_KEEP_DEVICES];         /* blocks from before may have been freed meanwhile */
};

/* Begins to follow a recording; takes nothing yet. Errors: as of neap_record_open; NEAP_ENOENT if the recording's
 * name has no room beside it; NEAP_ENOMEM. */
enum neap_status neap_keep_begin(struct neap_keep *keep, const char *recording,
				 const struct neap_keep_options *options, struct neap_error *err);
/* Takes what is new in both rings, up to the time `until_ns`: events before it must have been stored already. The
 * newest quarter of the allocation ring is left. Errors: those of reading and writing; after an error nothing more is
 * kept, and what was kept stays as it is. */
enum neap_status neap_keep_poll(struct neap_keep *keep, uint64_t until_ns, struct neap_error *err);
/* Stops following. The file stays. */
void neap_keep_end(struct neap_keep *keep);

#endif
