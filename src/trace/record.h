/* trace/record.h: reads the recorder's file, of a live process or of one that was killed.
 *
 * The file is hostile: magic, version, sizes and every index are checked; torn events are skipped and counted.
 */
#ifndef NEAP_TRACE_RECORD_H
#define NEAP_TRACE_RECORD_H

#include "neap/trace.h"
#include "neap/train.h"

#include <stdbool.h>

#define NEAP_RECORD_CAPACITY_MAX (1u << 24) /* events in a ring; a file that claims more is not a recording */

/* A copy in memory of one recording, at one instant. */
struct neap_record {
	uint64_t pid, start_ticks, wall_at_zero_ns;
	struct neap_event *journal; /* in order of time */
	size_t journal_count;
	struct neap_event *allocations; /* likewise: the newest, those still in the ring */
	size_t allocation_count;
	uint64_t journal_lost, allocations_lost; /* overwritten by newer ones, or dropped at the edge to these */
	uint64_t torn;                           /* being written when the process died, or while we read */
	uint32_t names_used;
	char names[NEAP_RECORD_NAMES][NEAP_RECORD_NAME_ROOM]; /* terminated; unknown bytes replaced by '?' */
};

/* Errors: NEAP_ENOENT, NEAP_EPARSE with the byte position, NEAP_ENOMEM. */
enum neap_status neap_record_read(const char *path, struct neap_record *ret_record, struct neap_error *err);
void neap_record_fini(struct neap_record *record);

/* Reads only the end of the journal: its newest step, and its newest loss (NaN: none). Errors: NEAP_ENOENT without
 * the file or a step, NEAP_EPARSE. */
enum neap_status neap_record_last_step(const char *path, uint64_t *ret_step, double *ret_loss,
				       struct neap_error *err);

/* Opens a recording for reading and checks its header and its size. The caller closes *ret_fd. Errors: as of read. */
enum neap_status neap_record_open(const char *path, int *ret_fd, struct neap_record_header *ret_header,
				  struct neap_error *err);

/* Shortens the recording of a process that has ended: its rings become as long as they were used. Every reader takes
 * it like a whole one; a reader that has it open continues with the old file. Its mode and times stay. NEAP_OK also
 * if there is nothing to gain. Errors: NEAP_EBUSY while the process lives, NEAP_EINVAL if it is not a regular file,
 * those of read, NEAP_ENOSPC, NEAP_EIO; then the recording reads as before. */
enum neap_status neap_record_cut(const char *path, struct neap_error *err);

/* The settings that an event SPLIT or RUNG puts in force; NULL: it is another event. */
const struct neap_event_settings *neap_record_settings(const struct neap_event *event);
/* The split among these settings. `ranks`: those of the split before, since a RUNG has none. */
struct neap_split neap_record_split(const struct neap_event *event, uint64_t ranks);

/* The text of an event's name or tag; "" when it has none. Never NULL. */
const char *neap_record_name(const struct neap_record *record, uint64_t name);

#endif
