/* trace/kept.h: the history that `neap run` keeps of a recording of PyTorch's own allocator: "kept.PID" beside
 * "record.PID".
 *
 *     | header | event | event | ...      of both rings, in order of time, 64 bytes each
 *
 * A process's rings hold only its newest events. The supervisor copies events here before they are overwritten, and
 * drops those that are not needed (run/keep.h). So the whole history of a process is
 *
 *     the events here, then those of its rings from `next` on
 *
 * A writer appends events, then counts them in the header. Before it replaces the last events, it reduces the count.
 * So the events that the header counts are whole at every instant. If a reader finds the same header before and
 * after, it has read one state. For any other change, the writer makes a new file and renames it over this one. When
 * the run is over, both become one recording, and this file is removed.
 *
 * The file is hostile to a reader, like a recording.
 */
#ifndef NEAP_TRACE_KEPT_H
#define NEAP_TRACE_KEPT_H

#include "trace/record.h"

#include <sys/types.h>

#define NEAP_KEPT_MAGIC        "NEAPKEP1"
#define NEAP_KEPT_VERSION      1u
#define NEAP_KEPT_HEADER_BYTES 512u
#define NEAP_KEPT_EVENTS_MAX   (1u << 21)

struct neap_kept_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t pid, start_ticks; /* as of the recording */
	uint64_t events;
	/* Of each ring: the first index that was not read. */
	uint64_t next[NEAP_RECORD_RINGS];
	uint64_t journal_lost, allocations_lost, allocations_missing; /* as in struct neap_record_header */
	uint64_t thinned_events, thinned_steps;
	/* 1: events after the counted ones are being replaced; `next` belongs to the counted ones. */
	uint64_t rewriting;
};

/* Opens the file beside a recording of the process with this number and start, and reads its header. The caller
 * closes *ret_fd. Errors: NEAP_ENOENT: there is none; NEAP_EPARSE: it is not one of this process. */
enum neap_status neap_kept_open(const char *recording, uint64_t pid, uint64_t start_ticks, int *ret_fd,
				struct neap_kept_header *ret_header, struct neap_error *err);

/* Whether the file's header is still this one. */
bool neap_kept_unchanged(int fd, const struct neap_kept_header *header);

/* Reads `count` events from number `first` on. Errors: NEAP_EIO, NEAP_EPARSE: the file ends before. */
enum neap_status neap_kept_read(int fd, uint64_t first, struct neap_event *events, size_t count,
				struct neap_error *err);

/* The kept events of a recording. All zero: there are none. */
struct neap_kept {
	struct neap_kept_header header;
	struct neap_event *events; /* header.events */
};
/* Reads the whole file, if it belongs to this recording. */
void neap_kept_load(const char *recording, const struct neap_record_header *record, struct neap_kept *ret_kept);
void neap_kept_fini(struct neap_kept *kept);

/* Merges both into one recording, whole or not at all, and removes the file of kept events. Errors: as of
 * neap_kept_open; those of reading and writing. */
enum neap_status neap_record_merge(const char *path, mode_t mode, struct neap_error *err);

/* Whether an event belongs to the ring. */
static inline bool neap_kept_is_of(const struct neap_event *event, enum neap_record_ring ring)
{
	return (event->kind < NEAP_EVENT_FIRST_JOURNAL) == (ring == NEAP_RECORD_ALLOCATIONS);
}

#endif
