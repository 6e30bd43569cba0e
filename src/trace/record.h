/* trace/record.h: reads the recorder's file, of a live process or of one that was killed.
 *
 * The file is hostile: magic, version, sizes and every index are checked; torn events are skipped and counted.
 */
#ifndef NEAP_TRACE_RECORD_H
#define NEAP_TRACE_RECORD_H

#include "neap/trace.h"
#include "neap/train.h"

#include <stdbool.h>

#define NEAP_RECORD_PATH         4224       /* room for the path of a file beside a recording */
#define NEAP_RECORD_CAPACITY_MAX (1u << 24) /* events in a ring; a file that claims more is not a recording */

/* The version of neap 0.1. Its recordings can be read and cut; nothing writes them any more. */
#define NEAP_RECORD_EARLIER_VERSION 1u

/* A copy in memory of one recording, at one instant. */
struct neap_record {
	uint64_t pid, start_ticks, wall_at_zero_ns;
	struct neap_event *journal; /* in order of time */
	size_t journal_count;
	struct neap_event *allocations; /* in order of time: the newest events, those still in the ring */
	size_t allocation_count;
	/* Overwritten by newer events, or dropped because they were next to overwritten ones. */
	uint64_t journal_lost, allocations_lost;
	uint64_t allocations_missing; /* events that are missing between two that are here */
	/* Events and steps that `neap run` dropped: see struct neap_record_header. */
	uint64_t thinned_events, thinned_steps;
	/* Events that were being written when the process died, or while we read. */
	uint64_t torn;
	uint32_t names_used;
	char names[NEAP_RECORD_NAMES][NEAP_RECORD_NAME_ROOM]; /* terminated; unknown bytes replaced by '?' */
};

/* Reads the recording, with the events that `neap run` has kept beside it (trace/kept.h). Errors: NEAP_ENOENT,
 * NEAP_EPARSE with the byte position, NEAP_ENOMEM. */
enum neap_status neap_record_read(const char *path, struct neap_record *ret_record, struct neap_error *err);
void neap_record_fini(struct neap_record *record);

/* Reads only the end of the journal: its newest step, and its newest loss (NaN: none). Errors: NEAP_ENOENT without
 * the file or a step, NEAP_EPARSE. */
enum neap_status neap_record_last_step(const char *path, uint64_t *ret_step, double *ret_loss,
				       struct neap_error *err);

/* Opens a recording for reading and checks its header and its size. The caller closes *ret_fd. Errors: as of read. */
enum neap_status neap_record_open(const char *path, int *ret_fd, struct neap_record_header *ret_header,
				  struct neap_error *err);

/* Reads exactly `length` bytes of a recording, or of a file beside it. Errors: NEAP_EIO, NEAP_EPARSE. */
enum neap_status neap_record_read_at(int fd, void *bytes, size_t length, uint64_t offset, struct neap_error *err);

/* Shortens the recording of a process that has ended: its rings become as long as their used part, and the events
 * kept beside it become a part of it. Readers treat it like any whole recording. A reader that has the old file open
 * continues with that one. The mode and times stay. Returns NEAP_OK also if cutting would save nothing. Errors:
 * NEAP_EBUSY while the process lives, NEAP_EINVAL if it is not a regular file, those of read, NEAP_ENOSPC, NEAP_EIO;
 * then the recording reads as before. */
enum neap_status neap_record_cut(const char *path, struct neap_error *err);

/* Follows the rings of a recording while its process writes. Zeroed, but fd -1: closed. */
enum neap_record_ring { NEAP_RECORD_JOURNAL, NEAP_RECORD_ALLOCATIONS, NEAP_RECORD_RINGS };
struct neap_record_follow {
	int fd;
	uint64_t pid, start_ticks;
	uint64_t capacity[NEAP_RECORD_RINGS];
	uint64_t next[NEAP_RECORD_RINGS]; /* index of the next event to read */
};
/* Errors: as of neap_record_open. */
enum neap_status neap_record_follow_open(const char *path, struct neap_record_follow *ret_follow,
					 struct neap_error *err);
void neap_record_follow_close(struct neap_record_follow *follow);
/* How many events were ever claimed in a ring. Errors: NEAP_EIO, NEAP_EPARSE. */
enum neap_status neap_record_follow_written(const struct neap_record_follow *follow, enum neap_record_ring ring,
					    uint64_t *ret_written, struct neap_error *err);
/* Reads up to `capacity` of the ring's next events, in the form of their slots. Adds the number of overwritten and
 * torn events to *lost. Stops at an event that is being written; if `ended` is set, the process no longer writes, so
 * that event counts as torn. Errors: NEAP_EIO, NEAP_EPARSE. */
enum neap_status neap_record_follow_read(struct neap_record_follow *follow, enum neap_record_ring ring, bool ended,
					 struct neap_event *events, size_t capacity, size_t *ret_count,
					 uint64_t *lost, struct neap_error *err);

/* An event of a recording of NEAP_RECORD_EARLIER_VERSION, in today's layout. */
struct neap_event neap_record_convert(const struct neap_event *earlier, const struct neap_record_header *header);

/* Finds the path of the file beside the recording that has another prefix: for "F/start-1.record.4711" and "stacks."
 * it is "F/start-1.stacks.4711". False: the recording's name has another form, or the path is too long. */
bool neap_record_beside(const char *path, const char *prefix, char ret_beside[NEAP_RECORD_PATH]);

/* Returns the settings that a SPLIT or RUNG event puts in force; NULL: it is another event. */
const struct neap_event_settings *neap_record_settings(const struct neap_event *event);
/* Returns the split in these settings. `ranks`: those of the previous split, because a RUNG event has none. */
struct neap_split neap_record_split(const struct neap_event *event, uint64_t ranks);

/* The text of an event's name or tag; "" when it has none. Never NULL. */
const char *neap_record_name(const struct neap_record *record, uint64_t name);

#endif
