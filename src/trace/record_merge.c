/* trace/record_merge.c: merges a recording with the events that `neap run` has kept beside it.
 *
 *   before   record.PID  | header | journal ring | allocation ring |       the newest events
 *            kept.PID    | header | events of both, in order of time |     those before
 *   after    record.PID  | header | journal: all + 1 | allocations: all + 1 |
 *
 * The kept events are read twice, once for each ring, in small pieces: a whole history is tens of megabytes. */
#include "trace/kept.h"

#include "base/error.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK 1024 /* events */

struct merge {
	struct neap_kept_header kept;
	struct neap_record_follow follow;
	int kept_fd;
	uint64_t counts[NEAP_RECORD_RINGS]; /* how many kept events each ring gets */
	uint64_t tails[NEAP_RECORD_RINGS];  /* how many events of its own each ring adds */
	struct neap_event *tail[NEAP_RECORD_RINGS];
	uint64_t lost[NEAP_RECORD_RINGS];
};

static enum neap_status count_kept(struct merge *merge, struct neap_error *err)
{
	struct neap_event events[CHUNK];
	enum neap_status status = NEAP_OK;

	for (uint64_t first = 0; !status && first < merge->kept.events;) {
		uint64_t left = merge->kept.events - first;
		size_t count = left < CHUNK ? (size_t)left : CHUNK;
		status = neap_kept_read(merge->kept_fd, first, events, count, err);
		for (size_t i = 0; !status && i < count; i++)
			for (int ring = 0; ring < NEAP_RECORD_RINGS; ring++)
				merge->counts[ring] += neap_kept_is_of(&events[i], (enum neap_record_ring)ring);
		first += count;
	}
	return status;
}

static enum neap_status read_tail(struct merge *merge, enum neap_record_ring ring, struct neap_error *err)
{
	size_t capacity = (size_t)merge->follow.capacity[ring], count = 0;

	merge->tail[ring] = calloc(capacity, sizeof *merge->tail[ring]);
	if (!merge->tail[ring])
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the events of a recording");
	merge->follow.next[ring] = merge->kept.next[ring];
	enum neap_status status = neap_record_follow_read(&merge->follow, ring, true, merge->tail[ring], capacity,
							  &count, &merge->lost[ring], err);
	merge->tails[ring] = count;
	return status;
}

static enum neap_status write_events(struct neap_file *file, struct neap_event *events, size_t count, uint64_t *index,
				     struct neap_error *err)
{
	for (size_t i = 0; i < count; i++)
		events[i].sequence = (uint32_t)++ * index;
	return neap_file_append(file, events, count * sizeof *events, err);
}

/* Writes a ring: the kept events, the tail, and a slot that was never used. */
static enum neap_status write_ring(struct merge *merge, enum neap_record_ring ring, struct neap_file *file,
				   struct neap_error *err)
{
	static const struct neap_event unused = {0};
	struct neap_event events[CHUNK];
	enum neap_status status = NEAP_OK;
	uint64_t index = 0;

	for (uint64_t first = 0; !status && first < merge->kept.events;) {
		uint64_t left = merge->kept.events - first;
		size_t count = left < CHUNK ? (size_t)left : CHUNK, own = 0;
		status = neap_kept_read(merge->kept_fd, first, events, count, err);
		for (size_t i = 0; !status && i < count; i++)
			if (neap_kept_is_of(&events[i], ring))
				events[own++] = events[i];
		if (!status)
			status = write_events(file, events, own, &index, err);
		first += count;
	}
	if (!status)
		status = write_events(file, merge->tail[ring], (size_t)merge->tails[ring], &index, err);
	return status ? status : neap_file_append(file, &unused, sizeof unused, err);
}

static enum neap_status write_merged(struct merge *merge, struct neap_file *file, struct neap_error *err)
{
	char bytes[NEAP_RECORD_HEADER_BYTES];
	struct neap_record_header header;
	enum neap_status status = neap_record_read_at(merge->follow.fd, bytes, sizeof bytes, 0, err);

	if (status)
		return status;
	memcpy(&header, bytes, sizeof header);
	header.journal_written = merge->counts[NEAP_RECORD_JOURNAL] + merge->tails[NEAP_RECORD_JOURNAL];
	header.allocation_written = merge->counts[NEAP_RECORD_ALLOCATIONS] + merge->tails[NEAP_RECORD_ALLOCATIONS];
	header.journal_capacity = header.journal_written + 1;
	header.allocation_capacity = header.allocation_written + 1;
	header.journal_lost += merge->kept.journal_lost + merge->lost[NEAP_RECORD_JOURNAL];
	header.allocations_lost += merge->kept.allocations_lost;
	header.allocations_missing += merge->kept.allocations_missing + merge->lost[NEAP_RECORD_ALLOCATIONS];
	header.merged = 1;
	header.thinned_events += merge->kept.thinned_events;
	header.thinned_steps += merge->kept.thinned_steps;
	memcpy(bytes, &header, sizeof header);
	status = neap_file_append(file, bytes, sizeof bytes, err);
	if (!status)
		status = write_ring(merge, NEAP_RECORD_JOURNAL, file, err);
	if (!status)
		status = write_ring(merge, NEAP_RECORD_ALLOCATIONS, file, err);
	return status ? status : neap_file_commit(file, err);
}

enum neap_status neap_record_merge(const char *path, mode_t mode, struct neap_error *err)
{
	struct merge merge = {.kept_fd = -1};
	struct neap_file file = {.fd = -1};
	char kept[NEAP_RECORD_PATH];
	enum neap_status status = neap_record_follow_open(path, &merge.follow, err);

	if (status)
		return status;
	status = neap_kept_open(path, merge.follow.pid, merge.follow.start_ticks, &merge.kept_fd, &merge.kept, err);
	if (!status)
		status = count_kept(&merge, err);
	for (int ring = 0; !status && ring < NEAP_RECORD_RINGS; ring++)
		status = read_tail(&merge, (enum neap_record_ring)ring, err);
	if (!status)
		status = neap_file_begin(&file, path, mode, err);
	if (!status)
		status = write_merged(&merge, &file, err);
	neap_file_abort(&file);
	if (!status && neap_record_beside(path, "kept.", kept))
		unlink(kept);
	for (int ring = 0; ring < NEAP_RECORD_RINGS; ring++)
		free(merge.tail[ring]);
	if (merge.kept_fd >= 0)
		close(merge.kept_fd);
	neap_record_follow_close(&merge.follow);
	return status;
}
