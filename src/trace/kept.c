/* trace/kept.c: see kept.h. */
#include "trace/kept.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES    10
#define PAUSE_NS (2 * NEAP_NS_PER_MS)

bool neap_kept_unchanged(int fd, const struct neap_kept_header *header)
{
	struct neap_kept_header now;
	return !neap_record_read_at(fd, &now, sizeof now, 0, NULL) && !memcmp(&now, header, sizeof now);
}

/* Reads the header until two readings agree, because it may be written meanwhile. Waits for a writer that replaces
 * events, but not long, because the writer may have been killed. */
static enum neap_status read_header(int fd, struct neap_kept_header *ret_header, struct neap_error *err)
{
	struct neap_kept_header header;
	enum neap_status status = NEAP_OK;

	for (int tries = 0; !status && tries < TRIES; tries++) {
		if (tries)
			neap_clock_sleep(neap_clock_system(), PAUSE_NS);
		status = neap_record_read_at(fd, &header, sizeof header, 0, err);
		if (!status && (header.rewriting != 1 || tries + 1 == TRIES) && neap_kept_unchanged(fd, &header)) {
			*ret_header = header;
			return NEAP_OK;
		}
	}
	return status ? status : neap_fail(err, NEAP_EPARSE, "the history kept beside a recording changes");
}

static bool is_sound(const struct neap_kept_header *header, uint64_t file_bytes)
{
	bool known = !memcmp(header->magic, NEAP_KEPT_MAGIC, sizeof header->magic) &&
		     header->version == NEAP_KEPT_VERSION && header->header_bytes == NEAP_KEPT_HEADER_BYTES;

	return known && header->events <= NEAP_KEPT_EVENTS_MAX &&
	       file_bytes >= NEAP_KEPT_HEADER_BYTES + header->events * sizeof(struct neap_event) &&
	       header->next[NEAP_RECORD_JOURNAL] < UINT64_MAX / 2 &&
	       header->next[NEAP_RECORD_ALLOCATIONS] < UINT64_MAX / 2 && header->journal_lost < UINT64_MAX / 4 &&
	       header->allocations_lost < UINT64_MAX / 4 && header->allocations_missing < UINT64_MAX / 4;
}

enum neap_status neap_kept_open(const char *recording, uint64_t pid, uint64_t start_ticks, int *ret_fd,
				struct neap_kept_header *ret_header, struct neap_error *err)
{
	struct neap_kept_header header;
	char path[NEAP_RECORD_PATH];
	struct stat file;

	if (!neap_record_beside(recording, "kept.", path))
		return neap_fail(err, NEAP_ENOENT, "nothing is kept beside %.150s", recording);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not hang us */
	if (fd < 0)
		return neap_fail_errno(err, errno, "opening %s", path);
	enum neap_status status = NEAP_OK;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode))
		status = neap_fail(err, NEAP_EPARSE, "%s is not a regular file", path);
	if (!status)
		status = read_header(fd, &header, err);
	if (!status && fstat(fd, &file)) /* after the header was read, since the file may have grown */
		status = neap_fail_errno(err, errno, "looking at %s", path);
	if (!status &&
	    (!is_sound(&header, (uint64_t)file.st_size) || header.pid != pid || header.start_ticks != start_ticks))
		status = neap_fail(err, NEAP_EPARSE, "%s is not the history of process %llu", path,
				   (unsigned long long)pid);
	if (status) {
		close(fd);
		return status;
	}
	*ret_header = header;
	*ret_fd = fd;
	return NEAP_OK;
}

enum neap_status neap_kept_read(int fd, uint64_t first, struct neap_event *events, size_t count,
				struct neap_error *err)
{
	return neap_record_read_at(fd, events, count * sizeof *events,
				   NEAP_KEPT_HEADER_BYTES + first * sizeof *events, err);
}

void neap_kept_fini(struct neap_kept *kept)
{
	free(kept->events);
	*kept = (struct neap_kept){0};
}

/* False: the file changed meanwhile. */
static bool load_once(const char *recording, const struct neap_record_header *record, struct neap_kept *kept)
{
	int fd = -1;

	if (record->merged ||
	    neap_kept_open(recording, record->pid, record->start_ticks, &fd, &kept->header, NULL) != NEAP_OK)
		return true;
	kept->events = calloc(kept->header.events + 1, sizeof *kept->events);
	bool loaded =
		kept->events && neap_kept_read(fd, 0, kept->events, (size_t)kept->header.events, NULL) == NEAP_OK;
	bool same = neap_kept_unchanged(fd, &kept->header);
	if (!loaded || !same)
		neap_kept_fini(kept);
	close(fd);
	return same;
}

void neap_kept_load(const char *recording, const struct neap_record_header *record, struct neap_kept *ret_kept)
{
	*ret_kept = (struct neap_kept){0};
	for (int tries = 0; tries < TRIES && !load_once(recording, record, ret_kept); tries++)
		;
}
