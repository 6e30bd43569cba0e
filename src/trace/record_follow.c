/* trace/record_follow.c: reads a ring piece by piece while its process writes, and finds the files beside a
 * recording. As in record.c, an event counts if its slot was complete before it was read and not reused after. */
#include "trace/record.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 512 /* events */

static const size_t counters[NEAP_RECORD_RINGS] = {
	[NEAP_RECORD_JOURNAL] = offsetof(struct neap_record_header, journal_written),
	[NEAP_RECORD_ALLOCATIONS] = offsetof(struct neap_record_header, allocation_written),
};

bool neap_record_beside(const char *path, const char *prefix, char ret_beside[NEAP_RECORD_PATH])
{
	static const char own[] = "record.";
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	const char *at = strstr(name, own);

	if (!at || (at > name && at[-1] != '.'))
		return false;
	int length = snprintf(ret_beside, NEAP_RECORD_PATH, "%.*s%s%s", (int)(at - path), path, prefix,
			      at + sizeof own - 1);
	return length > 0 && length < NEAP_RECORD_PATH;
}

enum neap_status neap_record_read_at(int fd, void *bytes, size_t length, uint64_t offset, struct neap_error *err)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = pread(fd, (char *)bytes + done, length - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return neap_fail_errno(err, errno, "reading a recording, or what is kept beside it");
		if (got == 0)
			return neap_fail(err, NEAP_EPARSE, "a recording, or what is kept beside it, was cut short");
		done += (size_t)got;
	}
	return NEAP_OK;
}

enum neap_status neap_record_follow_open(const char *path, struct neap_record_follow *ret_follow,
					 struct neap_error *err)
{
	struct neap_record_header header;
	int fd = -1;
	enum neap_status status = neap_record_open(path, &fd, &header, err);

	if (!status && header.version != NEAP_RECORD_VERSION) {
		close(fd);
		status = neap_fail(err, NEAP_EPARSE, "the recording %s is of neap 0.1: it is read whole only", path);
	}
	if (status)
		return status;
	*ret_follow = (struct neap_record_follow){
		.fd = fd,
		.pid = header.pid,
		.start_ticks = header.start_ticks,
		.capacity = {[NEAP_RECORD_JOURNAL] = header.journal_capacity,
			     [NEAP_RECORD_ALLOCATIONS] = header.allocation_capacity},
	};
	return NEAP_OK;
}

void neap_record_follow_close(struct neap_record_follow *follow)
{
	if (follow->fd >= 0)
		close(follow->fd);
	follow->fd = -1;
}

/* Reads the ring's counter, and skips events that were overwritten before they were read. */
static enum neap_status find_written(struct neap_record_follow *follow, enum neap_record_ring ring,
				     uint64_t *ret_written, uint64_t *lost, struct neap_error *err)
{
	uint64_t written = 0, *next = &follow->next[ring];
	enum neap_status status = neap_record_read_at(follow->fd, &written, sizeof written, counters[ring], err);

	if (status)
		return status;
	if (written < *next || written > UINT64_MAX / 2)
		return neap_fail(err, NEAP_EPARSE, "the counter of a recording ran backwards");
	if (written - *next > follow->capacity[ring]) {
		*lost += written - follow->capacity[ring] - *next;
		*next = written - follow->capacity[ring];
	}
	*ret_written = written;
	return NEAP_OK;
}

/* Reads up to `count` slots that do not wrap. *ret_more: it read all of them. */
static enum neap_status read_chunk(struct neap_record_follow *follow, enum neap_record_ring ring, bool ended,
				   size_t count, struct neap_event *events, size_t *ret_count, uint64_t *lost,
				   bool *ret_more, struct neap_error *err)
{
	struct neap_event before[CHUNK], after[CHUNK];
	uint64_t first = follow->next[ring], capacity = follow->capacity[ring], written = 0;
	uint64_t offset = NEAP_RECORD_HEADER_BYTES + first % capacity * sizeof *before;
	size_t kept = 0;

	if (ring == NEAP_RECORD_ALLOCATIONS)
		offset += follow->capacity[NEAP_RECORD_JOURNAL] * sizeof *before;
	enum neap_status status = neap_record_read_at(follow->fd, before, count * sizeof *before, offset, err);
	if (!status)
		status = neap_record_read_at(follow->fd, after, count * sizeof *after, offset, err);
	if (!status)
		status = find_written(follow, ring, &written, lost, err);
	if (status)
		return status;
	*ret_more = true;
	for (size_t i = (size_t)(follow->next[ring] - first); i < count; i++) { /* by now some may be overwritten */
		uint32_t wanted = (uint32_t)(first + i + 1);
		bool complete = before[i].sequence == wanted && after[i].sequence == wanted;
		/* Its writer may finish soon, unless newer events are far ahead of it. */
		if (!complete && !ended && written - (first + i) < capacity / NEAP_RECORD_RUN_PART) {
			*ret_more = false;
			break;
		}
		if (complete)
			events[kept++] = after[i];
		else
			++*lost;
		follow->next[ring] = first + i + 1;
	}
	*ret_count = kept;
	return NEAP_OK;
}

enum neap_status neap_record_follow_written(const struct neap_record_follow *follow, enum neap_record_ring ring,
					    uint64_t *ret_written, struct neap_error *err)
{
	return neap_record_read_at(follow->fd, ret_written, sizeof *ret_written, counters[ring], err);
}

enum neap_status neap_record_follow_read(struct neap_record_follow *follow, enum neap_record_ring ring, bool ended,
					 struct neap_event *events, size_t capacity, size_t *ret_count,
					 uint64_t *lost, struct neap_error *err)
{
	uint64_t written = 0;
	size_t count = 0;
	bool more = true;
	enum neap_status status = find_written(follow, ring, &written, lost, err);

	while (!status && more && count < capacity && follow->next[ring] < written) {
		uint64_t wanted = written - follow->next[ring];
		uint64_t until_wrap = follow->capacity[ring] - follow->next[ring] % follow->capacity[ring];
		size_t got = 0;
		wanted = wanted < until_wrap ? wanted : until_wrap;
		wanted = wanted < capacity - count ? wanted : capacity - count;
		wanted = wanted < CHUNK ? wanted : CHUNK;
		status = read_chunk(follow, ring, ended, (size_t)wanted, events + count, &got, lost, &more, err);
		count += status ? 0 : got;
	}
	if (!status)
		*ret_count = count;
	return status;
}
