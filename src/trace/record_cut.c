/* trace/record_cut.c: cuts the recording of a process that has ended to the events that were written.
 *
 *   as recorded:  | header | journal: 3 of 16384 events | allocations: 5 of 65536 events |     5.3 MB on the disk
 *   cut:          | header | journal: 3 of 4            | allocations: 5 of 6            |     17 KB
 *
 * An event of index i sits at slot i % capacity. In a ring that has not wrapped every index is below the new
 * capacity, written + 1, so each event stays at its slot, and the file is a whole recording of smaller rings. A ring
 * that has wrapped stays as it is.
 *
 * The recorder reserves its disk space at once, because a full disk would be a SIGBUS in the process that records. So
 * unused space is given back only here: first in place (holes), so that the copy fits on a full disk. If it still
 * does not fit, or the file system has no holes, the recording stays as it is. */
#include "trace/kept.h"

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES 65536u

static uint64_t event_bytes(uint64_t events) { return events * sizeof(struct neap_event); }

static uint64_t cut_capacity(uint64_t capacity, uint64_t written)
{
	return written < capacity ? written + 1 : capacity;
}

static void punch(int fd, uint64_t from, uint64_t until)
{
	if (from < until)
		(void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(until - from));
}

/* Gives the disk space of unwritten slots in both rings back. */
static void give_back_unused(const char *path, const struct neap_record_header *header)
{
	uint64_t journal = NEAP_RECORD_HEADER_BYTES;
	uint64_t allocations = journal + event_bytes(header->journal_capacity);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	punch(fd, journal + event_bytes(cut_capacity(header->journal_capacity, header->journal_written)),
	      allocations);
	punch(fd, allocations + event_bytes(cut_capacity(header->allocation_capacity, header->allocation_written)),
	      allocations + event_bytes(header->allocation_capacity));
	close(fd);
}

static enum neap_status copy(int fd, struct neap_file *file, uint64_t at, uint64_t bytes, struct neap_error *err)
{
	char chunk[COPY_BYTES];
	enum neap_status status = NEAP_OK;
	while (!status && bytes > 0) {
		ssize_t got = pread(fd, chunk, bytes < sizeof chunk ? bytes : sizeof chunk, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? neap_fail_errno(err, errno, "reading recording %s", file->path)
				   : neap_fail(err, NEAP_EPARSE, "recording %s is damaged: it was cut short",
					       file->path);
		status = neap_file_append(file, chunk, (size_t)got, err);
		at += (uint64_t)got;
		bytes -= (uint64_t)got;
	}
	return status;
}

static enum neap_status write_cut(int fd, const struct neap_record_header *header, struct neap_file *file,
				  struct neap_error *err)
{
	struct neap_record_header cut = *header;
	uint64_t allocations = NEAP_RECORD_HEADER_BYTES + event_bytes(header->journal_capacity);
	cut.journal_capacity = cut_capacity(header->journal_capacity, header->journal_written);
	cut.allocation_capacity = cut_capacity(header->allocation_capacity, header->allocation_written);
	enum neap_status status = neap_file_append(file, &cut, sizeof cut, err);
	if (!status)
		status = copy(fd, file, sizeof cut, NEAP_RECORD_HEADER_BYTES - sizeof cut, err);
	if (!status)
		status = copy(fd, file, NEAP_RECORD_HEADER_BYTES, event_bytes(cut.journal_capacity), err);
	if (!status)
		status = copy(fd, file, allocations, event_bytes(cut.allocation_capacity), err);
	return status ? status : neap_file_commit(file, err);
}

static enum neap_status shorten(const char *path, int fd, const struct neap_record_header *header, mode_t mode,
				struct neap_error *err)
{
	struct neap_file file = {.fd = -1};
	give_back_unused(path, header);
	enum neap_status status = neap_file_begin(&file, path, mode, err);
	if (!status)
		status = write_cut(fd, header, &file, err);
	neap_file_abort(&file);
	return status;
}

enum neap_status neap_record_cut(const char *path, struct neap_error *err)
{
	struct neap_record_header header;
	char beside[NEAP_RECORD_PATH];
	struct stat info;
	int fd = -1;
	if (lstat(path, &info))
		return neap_fail_errno(err, errno, "looking at recording %s", path);
	if (!S_ISREG(info.st_mode)) /* a link's target may not be ours */
		return neap_fail(err, NEAP_EINVAL, "recording %s is not a regular file", path);
	enum neap_status status = neap_record_open(path, &fd, &header, err);
	if (status)
		return status;
	bool kept = neap_record_beside(path, "kept.", beside) && !access(beside, F_OK);
	if (kept && header.merged) { /* an earlier merge was killed before it could remove this file */
		kept = false;
		unlink(beside);
	}
	if (!kept && cut_capacity(header.journal_capacity, header.journal_written) == header.journal_capacity &&
	    cut_capacity(header.allocation_capacity, header.allocation_written) == header.allocation_capacity)
		goto out;
	if (neap_process_alive((pid_t)header.pid, header.start_ticks)) {
		status = neap_fail(err, NEAP_EBUSY, "process %d still writes to %s", (int)header.pid, path);
		goto out;
	}
	status = kept ? neap_record_merge(path, info.st_mode & 0777, err) : NEAP_ENOENT;
	if (status) /* the kept events stay in their own file */
		status = shorten(path, fd, &header, info.st_mode & 0777, err);
	if (!status)
		(void)!utimensat(AT_FDCWD, path, (struct timespec[]){info.st_atim, info.st_mtim},
				 AT_SYMLINK_NOFOLLOW);
out:
	close(fd);
	return status;
}
