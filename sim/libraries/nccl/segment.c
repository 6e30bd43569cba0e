/* The file of a communicator, and its ranks. segment_log.c has their logs. */
#include "sim/libraries/nccl/segment_state.h"

#include "base/descriptor.h"
#include "sim/libraries/nccl/fail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- the file ---------------------------------------------------------------------------------------------------- */

static const char *folder(void) { return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp"; }

static size_t control_bytes(int ranks)
{
	size_t count = (size_t)ranks;
	size_t bytes = SEGMENT_PAGE + count * sizeof(struct segment_rank) + count * count * sizeof(uint64_t);

	bytes = (bytes + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
	return bytes + count * NCCL_LOG_ENTRIES * sizeof(struct segment_entry);
}

static size_t file_bytes(int ranks) { return control_bytes(ranks) + (size_t)ranks * SEGMENT_DATA_CAPACITY; }

/* Locks on a rank's byte, or on all of them (-1). */
static struct flock life_range(int rank, int kind)
{
	return (struct flock){.l_type = (short)kind,
			      .l_whence = SEEK_SET,
			      .l_start = SEGMENT_LIFE_BASE + (rank < 0 ? 0 : rank),
			      .l_len = rank < 0 ? NCCL_RANK_LIMIT : 1};
}

/* True if another process holds it, or on an error. */
static bool life_held(int fd, int rank)
{
	struct flock range = life_range(rank, F_WRLCK);

	return fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

/* True if `path` still names the open file. */
static bool still_there(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
	       opened.st_dev == named.st_dev;
}

static bool ours_alone(int fd)
{
	struct stat info;

	return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
	       (info.st_mode & 077) == 0;
}

static bool lock_file(int fd, int how)
{
	while (flock(fd, how) != 0)
		if (errno != EINTR)
			return false;
	return true;
}

/* Opens the file and holds flock on it, so that no process removes it meanwhile. */
static ncclResult_t open_file(struct nccl_segment *segment)
{
	for (;;) {
		segment->fd =
			neap_fd_above_standard(open(segment->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT, 0600));
		if (segment->fd < 0)
			return nccl_fail(ncclSystemError, "cannot open %s: %s", segment->path, strerror(errno));
		if (!ours_alone(segment->fd))
			return nccl_fail(ncclSystemError, "%s is not a private file of this user: remove it",
					 segment->path);
		if (!lock_file(segment->fd, LOCK_EX))
			return nccl_fail(ncclSystemError, "cannot lock %s: %s", segment->path, strerror(errno));
		if (still_there(segment->fd, segment->path))
			return ncclSuccess;
		close(segment->fd); /* removed between open and lock */
	}
}

/* Mapped through a separate file description, and not inherited: the life lock ends with this process. */
static ncclResult_t map_file(struct nccl_segment *segment)
{
	size_t bytes = file_bytes(segment->ranks);
	int fd = neap_fd_above_standard(open(segment->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)), error = errno;
	unsigned char *base = MAP_FAILED;

	if (fd >= 0) {
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		error = errno;
		close(fd);
	}
	if (base == MAP_FAILED)
		return nccl_fail(ncclSystemError, "cannot map %s: %s", segment->path, strerror(error));
	(void)madvise(base, bytes, MADV_DONTFORK);
	segment->bytes = bytes;
	segment->header = (void *)base;
	segment->peers = (void *)(base + SEGMENT_PAGE);
	segment->received = (void *)(segment->peers + segment->ranks);
	segment->logs = (void *)(base + control_bytes(segment->ranks) -
				 (size_t)segment->ranks * NCCL_LOG_ENTRIES * sizeof(struct segment_entry));
	segment->data = base + control_bytes(segment->ranks);
	return ncclSuccess;
}

/* flock held: reuses an empty file, or one whose ranks have all died, for a new communicator. */
static ncclResult_t make(struct nccl_segment *segment)
{
	int ranks = segment->ranks, error;
	ncclResult_t result;

	if (ftruncate(segment->fd, 0) != 0 || ftruncate(segment->fd, (off_t)file_bytes(ranks)) != 0)
		return nccl_fail(ncclSystemError, "cannot size %s: %s", segment->path, strerror(errno));
	error = posix_fallocate(segment->fd, 0, (off_t)control_bytes(ranks));
	if (error != 0)
		return nccl_fail(ncclSystemError, "no room for %zu bytes in %s: %s", control_bytes(ranks),
				 segment->path, strerror(error));
	result = map_file(segment);
	if (result != ncclSuccess)
		return result;
	segment->header->layout = SEGMENT_LAYOUT;
	segment->header->ranks = (uint32_t)ranks;
	segment->header->bytes = segment->bytes;
	segment->header->magic = SEGMENT_MAGIC;
	return ncclSuccess;
}

/* flock held: checks the file that another rank created. */
static ncclResult_t check(struct nccl_segment *segment)
{
	struct segment_header header;
	ssize_t got = pread(segment->fd, &header, sizeof header, 0);
	struct stat info;

	if (got != (ssize_t)sizeof header || header.magic != SEGMENT_MAGIC || header.layout != SEGMENT_LAYOUT)
		return nccl_fail(ncclSystemError, "%s is not a communicator of this version of neap: remove it",
				 segment->path);
	if (header.ranks != (uint32_t)segment->ranks)
		return nccl_fail(ncclInvalidArgument, "this rank wants a communicator of %d ranks, another one of %u",
				 segment->ranks, header.ranks);
	if (header.bytes != file_bytes(segment->ranks) || fstat(segment->fd, &info) != 0 ||
	    (uint64_t)info.st_size != header.bytes)
		return nccl_fail(ncclSystemError, "%s has another size than its header says: remove it",
				 segment->path);
	return map_file(segment);
}

/* flock held. */
static ncclResult_t claim(struct nccl_segment *segment, const struct nccl_place *place)
{
	struct segment_rank *own = &segment->peers[segment->rank];
	struct flock range = life_range(segment->rank, F_WRLCK);

	if (atomic_load(&own->state) != SEGMENT_RANK_ABSENT || fcntl(segment->fd, F_OFD_SETLK, &range) != 0)
		return nccl_fail(ncclInvalidUsage, "rank %d is taken: two processes use it", segment->rank);
	own->place = *place;
	atomic_store(&own->state, SEGMENT_RANK_HERE);
	/* The last rank unlinks the file before the others see that all have arrived: no file is left behind. */
	if (atomic_load(&segment->header->arrived) + 1 == (unsigned int)segment->ranks)
		unlink(segment->path);
	atomic_fetch_add(&segment->header->arrived, 1);
	return ncclSuccess;
}

ncclResult_t nccl_segment_join(const uint64_t id[2], int ranks, int rank, const struct nccl_place *place,
			       struct nccl_segment **ret_segment)
{
	struct nccl_segment *segment;
	struct stat info;
	ncclResult_t result;

	if (ranks > NCCL_RANK_LIMIT)
		return nccl_fail(ncclInvalidArgument, "%d ranks: at most %d are simulated", ranks, NCCL_RANK_LIMIT);
	segment = calloc(1, sizeof *segment);
	if (segment)
		segment->indexes = calloc((size_t)ranks, sizeof *segment->indexes);
	if (!segment || !segment->indexes) {
		free(segment);
		return nccl_fail(ncclSystemError, "host out of memory");
	}
	segment->ranks = ranks;
	segment->rank = rank;
	snprintf(segment->path, sizeof segment->path, "%s/neap-nccl-%lu-%016llx%016llx", folder(),
		 (unsigned long)geteuid(), (unsigned long long)id[0], (unsigned long long)id[1]);
	result = open_file(segment);
	if (result == ncclSuccess && fstat(segment->fd, &info) != 0)
		result = nccl_fail(ncclSystemError, "cannot stat %s: %s", segment->path, strerror(errno));
	if (result == ncclSuccess)
		result = info.st_size == 0 || !life_held(segment->fd, -1) ? make(segment) : check(segment);
	if (result == ncclSuccess)
		result = claim(segment, place);
	if (result != ncclSuccess && segment->fd >= 0 && !life_held(segment->fd, -1) &&
	    still_there(segment->fd, segment->path) && ours_alone(segment->fd))
		unlink(segment->path); /* no process is in it */
	if (segment->fd >= 0)
		flock(segment->fd, LOCK_UN);
	if (result == ncclSuccess) {
		nccl_segment_ring(segment);
		*ret_segment = segment;
	} else {
		nccl_segment_destroy(segment);
	}
	return result;
}

void nccl_segment_leave(struct nccl_segment *segment)
{
	struct flock range = life_range(segment->rank, F_UNLCK);

	atomic_store(&segment->peers[segment->rank].state, SEGMENT_RANK_LEFT);
	nccl_segment_ring(segment);
	(void)fcntl(segment->fd, F_OFD_SETLK, &range);
	if (nccl_segment_complete(segment) || !lock_file(segment->fd, LOCK_EX))
		return;
	if (!life_held(segment->fd, -1) && still_there(segment->fd, segment->path))
		unlink(segment->path);
	flock(segment->fd, LOCK_UN);
}

void nccl_segment_destroy(struct nccl_segment *segment)
{
	int i;

	if (!segment)
		return;
	if (segment->fd >= 0)
		close(segment->fd);
	if (segment->header)
		munmap(segment->header, segment->bytes);
	for (i = 0; i < segment->ranks; i++)
		free(segment->indexes[i]);
	free(segment->indexes);
	free(segment);
}

void nccl_segment_forked(struct nccl_segment *segment)
{
	close(segment->fd);
	segment->fd = -1;
	segment->header = NULL;
}

static void remove_if_dead(const char *path)
{
	int fd = neap_fd_above_standard(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));

	if (fd < 0)
		return;
	if (ours_alone(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && !life_held(fd, -1) && still_there(fd, path))
		unlink(path);
	close(fd);
}

void nccl_segment_sweep(void)
{
	char prefix[64], path[512];
	struct dirent *entry;
	DIR *listing = opendir(folder());

	if (!listing)
		return;
	snprintf(prefix, sizeof prefix, "neap-nccl-%lu-", (unsigned long)geteuid());
	while ((entry = readdir(listing)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder(), entry->d_name);
		remove_if_dead(path);
	}
	closedir(listing);
}

/* -- ranks ------------------------------------------------------------------------------------------------------- */

bool nccl_segment_complete(const struct nccl_segment *segment)
{
	return atomic_load(&segment->header->arrived) == (unsigned int)segment->ranks;
}

enum nccl_peer nccl_segment_peer(const struct nccl_segment *segment, int rank)
{
	switch (atomic_load(&segment->peers[rank].state)) {
	case SEGMENT_RANK_ABSENT:
		return NCCL_PEER_ABSENT;
	case SEGMENT_RANK_HERE:
		return rank == segment->rank || life_held(segment->fd, rank) ? NCCL_PEER_HERE : NCCL_PEER_DEAD;
	default:
		return NCCL_PEER_LEFT;
	}
}

void nccl_segment_place(const struct nccl_segment *segment, int rank, struct nccl_place *ret_place)
{
	*ret_place = segment->peers[rank].place;
	ret_place->bus[sizeof ret_place->bus - 1] = '\0';
}

/* -- the bell ---------------------------------------------------------------------------------------------------- */

uint32_t nccl_segment_bell(const struct nccl_segment *segment) { return atomic_load(&segment->header->bell); }

void nccl_segment_wait(struct nccl_segment *segment, uint32_t bell, int milliseconds)
{
	struct timespec timeout = {milliseconds / 1000, milliseconds % 1000 * 1000000L};

	atomic_fetch_add(&segment->header->waiters, 1);
	syscall(SYS_futex, &segment->header->bell, FUTEX_WAIT, bell, &timeout, NULL, 0);
	atomic_fetch_sub(&segment->header->waiters, 1);
}

void nccl_segment_ring(struct nccl_segment *segment)
{
	atomic_fetch_add(&segment->header->bell, 1);
	if (atomic_load(&segment->header->waiters) != 0)
		syscall(SYS_futex, &segment->header->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
