/* The recorder: an observer that keeps events in a file which outlives the process.
 *
 * A crash must be explained after the process is gone. So events go straight into a shared mapping of a file: the
 * kernel keeps its pages whatever kills the process, and no write ever waits for a disk.
 *
 *   +--------+----------------------+------------------------------------+
 *   | header | journal ring         | allocation ring                    |
 *   +--------+----------------------+------------------------------------+
 *                 ^ journal_written      ^ allocation_written              (events ever claimed)
 *
 * A writer claims index i by adding 1 to the ring's counter, and then owns slot i % capacity. It writes the slot's
 * eight words (base/slot.h): first the word that holds `sequence` as invalid, then the payload, then that word again
 * with i + 1. Hence
 *
 *   the slot of i holds i + 1 in `sequence`   =>   its other words are event i's
 *
 * unless a writer stalls between claiming and storing while the others fill the whole ring (64000 events). Then two
 * events may mix, and the reader returns whatever is in the slot.
 *
 * Claiming costs most, so a source of many events (a stream) claims a run of indices at once and fills them as its
 * events come. It gives the run up once a 64th of the ring was claimed after it. The unwritten slots of such a run
 * still hold older events, or nothing: the reader skips them.
 *
 * Names are few and are never removed: a thread looks one up without a lock, and adds one under a lock. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/process.h"
#include "base/slot.h"
#include "neap/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL_CAPACITY    16384u
#define ALLOCATION_CAPACITY 65536u
/* 1 GiB for a ring: a larger ring is a mistake in a unit, here or in a file. */
#define CAPACITY_MAX (1u << 24)
#define RUN_MOST     64u /* events that a run holds; with fewer, threads often wait for the counter's cache line */
#define WINDOW_RUNS  4u  /* a run is given up after at least this many newer runs */

_Static_assert(NEAP_RECORD_HEADER_BYTES + (JOURNAL_CAPACITY + ALLOCATION_CAPACITY) * sizeof(struct neap_event) ==
		       NEAP_RECORD_BYTES,
	       "the size that the header tells");
_Static_assert(sizeof(struct neap_record_header) <= NEAP_RECORD_HEADER_BYTES, "the header fits its room");

struct neap_recorder {
	struct neap_observer observer;
	struct neap_record_header *header; /* the mapping's start */
	uint64_t *journal;                 /* words of the rings */
	uint64_t *allocations;
	uint64_t journal_capacity,
		allocation_capacity; /* our own copies, because another process may change the file */
	size_t mapped_bytes;
	uint64_t run_events;        /* indices claimed at once for a run */
	uint64_t run_window;        /* how many newer indices may be claimed before a run is given up */
	pthread_mutex_t names_lock; /* taken to add a name, not to find one */
};

/* Returns index % capacity. Outside tests the capacity is a power of two; a division would take as long as all the
 * rest. */
static uint64_t slot_of(uint64_t index, uint64_t capacity)
{
	return capacity & (capacity - 1) ? index % capacity : index & (capacity - 1);
}

static void append_event(uint64_t *ring, uint64_t capacity, uint64_t *written, const struct neap_event *event)
{
	uint64_t index = __atomic_fetch_add(written, 1, __ATOMIC_RELAXED);
	neap_slot_store(ring + slot_of(index, capacity) * NEAP_SLOT_WORDS, index, event->time_ns,
			neap_slot_kind(event->kind, event->device), event->payload);
	/* So the cache line of the next event is already on its way. */
	__builtin_prefetch(ring + slot_of(index + 1, capacity) * NEAP_SLOT_WORDS, 1);
}

static void record_event(void *context, const struct neap_event *event)
{
	struct neap_recorder *recorder = context;

	if (event->kind < NEAP_EVENT_FIRST_JOURNAL)
		append_event(recorder->allocations, recorder->allocation_capacity,
			     &recorder->header->allocation_written, event);
	else
		append_event(recorder->journal, recorder->journal_capacity, &recorder->header->journal_written,
			     event);
}

/* A run ends at the ring's end: it does not wrap. */
static bool start_run(void *context, struct neap_event_run *run)
{
	struct neap_recorder *recorder = context;
	uint64_t *claimed = &recorder->header->allocation_written, capacity = recorder->allocation_capacity;
	uint64_t first = __atomic_fetch_add(claimed, recorder->run_events, __ATOMIC_RELAXED), at = first % capacity;

	*run = (struct neap_event_run){
		.slot = recorder->allocations + at * NEAP_SLOT_WORDS,
		.next = first,
		.end = first + (recorder->run_events < capacity - at ? recorder->run_events : capacity - at),
		.claimed = claimed,
		.window = recorder->run_window,
	};
	return true;
}

/* Returns the number of `name` among the first `used` names, or 0. */
static uint16_t find_name(const struct neap_recorder *recorder, uint32_t used, const char *name)
{
	for (uint32_t i = 1; i < used && i < NEAP_RECORD_NAMES; i++)
		if (!strcmp(recorder->header->names[i], name))
			return (uint16_t)i;
	return 0;
}

static uint16_t record_name(void *context, const char *text)
{
	struct neap_recorder *recorder = context;
	char name[NEAP_RECORD_NAME_ROOM];
	uint16_t found;
	uint32_t used;

	if (!text || !text[0])
		return 0;
	snprintf(name, sizeof name, "%s", text);
	found = find_name(recorder, __atomic_load_n(&recorder->header->names_used, __ATOMIC_ACQUIRE), name);
	if (found)
		return found;

	pthread_mutex_lock(&recorder->names_lock);
	used = __atomic_load_n(&recorder->header->names_used, __ATOMIC_RELAXED);
	found = find_name(recorder, used, name);
	if (!found && used < NEAP_RECORD_NAMES) {
		memcpy(recorder->header->names[used], name, sizeof name);
		__atomic_store_n(&recorder->header->names_used, used + 1, __ATOMIC_RELEASE);
		found = (uint16_t)used;
	}
	pthread_mutex_unlock(&recorder->names_lock);
	return found;
}

static void fill_header(struct neap_recorder *recorder)
{
	struct neap_record_header *header = recorder->header;
	struct neap_process self;

	header->version = NEAP_RECORD_VERSION;
	header->header_bytes = NEAP_RECORD_HEADER_BYTES;
	header->pid = (uint64_t)getpid();
	if (neap_process_read(getpid(), &self, NULL) == NEAP_OK)
		header->start_ticks = self.start_ticks;
	header->wall_at_zero_ns = neap_wall_ns() - neap_clock_now(neap_clock_system());
	header->journal_capacity = recorder->journal_capacity;
	header->allocation_capacity = recorder->allocation_capacity;
	header->names_used = 1;
	memcpy(header->magic, NEAP_RECORD_MAGIC, sizeof header->magic);
}

/* Reserves the file's space on disk. First checks the limit on file sizes, because exceeding it would raise a signal
 * in the host's process. */
static enum neap_status reserve_space(int fd, const char *path, size_t bytes, struct neap_error *err)
{
	struct rlimit limit;
	int error_number;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
		return neap_fail(err, NEAP_ENOSPC,
				 "recording %s needs %zu bytes, more than this process may write to a file "
				 "(ulimit -f)",
				 path, bytes);
	do {
		error_number = posix_fallocate(fd, 0, (off_t)bytes);
	} while (error_number == EINTR);
	if (error_number)
		return neap_fail_errno(err, error_number, "taking %zu bytes of disk for recording %s", bytes, path);
	return NEAP_OK;
}

/* Whether the mapped file was written by this very process, before an exec or a detach. */
static bool is_ours(const struct neap_recorder *recorder)
{
	const struct neap_record_header *header = recorder->header;
	struct neap_process self;

	if (memcmp(header->magic, NEAP_RECORD_MAGIC, sizeof header->magic) != 0 ||
	    header->version != NEAP_RECORD_VERSION || header->header_bytes != NEAP_RECORD_HEADER_BYTES ||
	    header->journal_capacity != recorder->journal_capacity ||
	    header->allocation_capacity != recorder->allocation_capacity || header->names_used == 0 ||
	    header->names_used > NEAP_RECORD_NAMES || header->pid != (uint64_t)getpid() ||
	    neap_process_read(getpid(), &self, NULL) != NEAP_OK || header->start_ticks != self.start_ticks)
		return false;
	for (uint32_t i = 0; i < header->names_used; i++)
		if (!memchr(header->names[i], '\0', sizeof header->names[i]))
			return false;
	return true;
}

/* Continues a recording that this process has begun, so that the events before an exec stay in it. */
static bool reopen(struct neap_recorder *recorder, const char *path)
{
	struct stat status;
	void *mapping = MAP_FAILED;
	int fd = neap_fd_above_standard(open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));

	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
	    (uint64_t)status.st_size == recorder->mapped_bytes)
		mapping = mmap(NULL, recorder->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (mapping == MAP_FAILED)
		return false;
	recorder->header = mapping;
	if (is_ours(recorder))
		return true;
	munmap(mapping, recorder->mapped_bytes);
	recorder->header = NULL;
	return false;
}

/* Makes the file under a temporary name, maps it, and publishes it whole. So a reader never sees a file without a
 * header, and a recording that another process maps is replaced, not cut. */
static enum neap_status map_file(struct neap_recorder *recorder, const char *path, struct neap_error *err)
{
	enum neap_status status = NEAP_OK;
	char temporary[4096];
	void *mapping = MAP_FAILED;
	int fd = -1;

	int length = snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
	if (length < 0 || (size_t)length >= sizeof temporary)
		return neap_fail(err, NEAP_EINVAL, "the path of the recording is too long (%zu bytes)", strlen(path));
	unlink(temporary);
	fd = neap_fd_above_standard(open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (fd < 0) {
		status = neap_fail_errno(err, errno, "creating recording %s", path);
		/* The file was created, but its descriptor could not be moved above the standard ones. */
		unlink(temporary);
		return status;
	}
	status = reserve_space(fd, path, recorder->mapped_bytes, err);
	if (status)
		goto out;
	mapping = mmap(NULL, recorder->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapping == MAP_FAILED) {
		status = neap_fail_errno(err, errno, "mapping recording %s", path);
		goto out;
	}
	recorder->header = mapping;
	fill_header(recorder);
	if (rename(temporary, path) != 0)
		status = neap_fail_errno(err, errno, "putting recording %s in its place", path);
out:
	if (status) {
		if (mapping != MAP_FAILED)
			munmap(mapping, recorder->mapped_bytes);
		recorder->header = NULL;
		unlink(temporary);
	}
	close(fd);
	return status;
}

static enum neap_status create(const char *path, uint64_t journal_capacity, uint64_t allocation_capacity, bool resume,
			       struct neap_recorder **ret_recorder, struct neap_error *err)
{
	struct neap_recorder *recorder;
	enum neap_status status;

	if (!path || !path[0])
		return neap_fail(err, NEAP_EINVAL, "a recording needs a path");
	if (journal_capacity > CAPACITY_MAX || allocation_capacity > CAPACITY_MAX)
		return neap_fail(err, NEAP_EINVAL, "a recording's ring holds at most %u events", CAPACITY_MAX);
	recorder = calloc(1, sizeof *recorder);
	if (!recorder)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the recorder");
	recorder->journal_capacity = journal_capacity ? journal_capacity : JOURNAL_CAPACITY;
	recorder->allocation_capacity = allocation_capacity ? allocation_capacity : ALLOCATION_CAPACITY;
	recorder->mapped_bytes =
		NEAP_RECORD_HEADER_BYTES +
		(size_t)(recorder->journal_capacity + recorder->allocation_capacity) * sizeof(struct neap_event);
	status = resume && reopen(recorder, path) ? NEAP_OK : map_file(recorder, path, err);
	if (status) {
		free(recorder);
		return status;
	}
	recorder->journal = (uint64_t *)((char *)recorder->header + NEAP_RECORD_HEADER_BYTES);
	recorder->allocations = recorder->journal + recorder->journal_capacity * NEAP_SLOT_WORDS;
	recorder->run_window = recorder->allocation_capacity / NEAP_RECORD_RUN_PART;
	recorder->run_events = recorder->run_window / WINDOW_RUNS;
	if (recorder->run_events > RUN_MOST)
		recorder->run_events = RUN_MOST;
	if (!recorder->run_events)
		recorder->run_events = 1;
	pthread_mutex_init(&recorder->names_lock, NULL);
	recorder->observer.event = record_event;
	recorder->observer.run = start_run;
	recorder->observer.name = record_name;
	recorder->observer.context = recorder;
	recorder->observer.concurrent = true;
	*ret_recorder = recorder;
	return NEAP_OK;
}

enum neap_status neap_recorder_create(const char *path, uint64_t journal_capacity, uint64_t allocation_capacity,
				      struct neap_recorder **ret_recorder, struct neap_error *err)
{
	return create(path, journal_capacity, allocation_capacity, false, ret_recorder, err);
}

enum neap_status neap_recorder_resume(const char *path, uint64_t journal_capacity, uint64_t allocation_capacity,
				      struct neap_recorder **ret_recorder, struct neap_error *err)
{
	return create(path, journal_capacity, allocation_capacity, true, ret_recorder, err);
}

const struct neap_observer *neap_recorder_observer(struct neap_recorder *recorder) { return &recorder->observer; }

void neap_recorder_destroy(struct neap_recorder *recorder)
{
	if (!recorder)
		return;
	munmap(recorder->header, recorder->mapped_bytes);
	pthread_mutex_destroy(&recorder->names_lock);
	free(recorder);
}

void neap_recorder_abandon(struct neap_recorder *recorder)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

	if (!recorder)
		return;
	if (mmap(recorder->header, recorder->mapped_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
		munmap(recorder->header, recorder->mapped_bytes);
	pthread_mutex_destroy(&recorder->names_lock);
	free(recorder);
}
