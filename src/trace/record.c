/* Reading a recording, possibly while its process still writes.
 *
 * The file is read, never mapped: a file cut short under a mapping would be a SIGBUS to us. An event counts only if
 * its slot is complete before *and* after its bytes were read, which needs three readings per chunk:
 *
 *   1. counters  -> the indices that the ring should hold: [written - capacity, written)
 *   2. chunk     -> whose sequence fits: complete at this moment
 *   3. chunk     -> the payload that is kept
 *   4. counters  -> an index whose slot was claimed again meanwhile is dropped as torn
 *
 * The events that `neap run` has kept beside it (kept.h) come first. Then only the indices after those count.
 *
 * Nothing in the file is trusted: sizes are computed from checked values, and memory use is bounded by the file's
 * size. */
#include "trace/record.h"

#include "base/error.h"
#include "trace/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK       512 /* events */
#define FIELD(name) offsetof(struct neap_record_header, name)

static enum neap_status fail_at(struct neap_error *err, uint64_t position, const char *path, const char *what)
{
	neap_fail(err, NEAP_EPARSE, "%s is not a recording: %s (at byte %llu)", path, what,
		  (unsigned long long)position);
	if (err)
		err->position = position;
	return NEAP_EPARSE;
}

static enum neap_status fail_version(struct neap_error *err, uint32_t version, const char *path)
{
	neap_fail(err, NEAP_EPARSE,
		  "recording %s has format %u, and this neap reads formats %u and %u: read it with the neap that "
		  "recorded it, "
		  "or record the run again",
		  path, version, NEAP_RECORD_EARLIER_VERSION, NEAP_RECORD_VERSION);
	if (err)
		err->position = FIELD(version);
	return NEAP_EPARSE;
}

/* Reads up to `length` bytes at `offset`; fewer only at the file's end. */
static enum neap_status read_at(int fd, void *bytes, size_t length, uint64_t offset, const char *path,
				size_t *ret_length, struct neap_error *err)
{
	size_t done = 0;

	while (done < length) {
		ssize_t got = pread(fd, (char *)bytes + done, length - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return neap_fail_errno(err, errno, "reading recording %s", path);
		if (got == 0)
			break;
		done += (size_t)got;
	}
	*ret_length = done;
	return NEAP_OK;
}

static enum neap_status check_header(const struct neap_record_header *header, uint64_t file_bytes, const char *path,
				     struct neap_error *err)
{
	if (memcmp(header->magic, NEAP_RECORD_MAGIC, sizeof header->magic) != 0)
		return fail_at(err, FIELD(magic), path, "it does not begin with " NEAP_RECORD_MAGIC);
	if (header->version != NEAP_RECORD_VERSION && header->version != NEAP_RECORD_EARLIER_VERSION)
		return fail_version(err, header->version, path);
	if (header->header_bytes != NEAP_RECORD_HEADER_BYTES)
		return fail_at(err, FIELD(header_bytes), path, "its header has another size");
	if (header->journal_capacity == 0 || header->journal_capacity > NEAP_RECORD_CAPACITY_MAX)
		return fail_at(err, FIELD(journal_capacity), path, "the journal's capacity is impossible");
	if (header->allocation_capacity == 0 || header->allocation_capacity > NEAP_RECORD_CAPACITY_MAX)
		return fail_at(err, FIELD(allocation_capacity), path, "the allocation ring's capacity is impossible");
	if (header->names_used == 0 || header->names_used > NEAP_RECORD_NAMES)
		return fail_at(err, FIELD(names_used), path, "the number of names is impossible");
	if (header->pid == 0 || header->pid > INT32_MAX)
		return fail_at(err, FIELD(pid), path, "the process number is impossible");
	/* Counters near the end of 64 bits would wrap when compared; no process writes that many. */
	if (header->journal_written > UINT64_MAX / 2)
		return fail_at(err, FIELD(journal_written), path, "the journal's counter is impossible");
	if (header->allocation_written > UINT64_MAX / 2)
		return fail_at(err, FIELD(allocation_written), path, "the allocation ring's counter is impossible");
	if (header->journal_lost > UINT64_MAX / 4 || header->allocations_lost > UINT64_MAX / 4 ||
	    header->allocations_missing > UINT64_MAX / 4)
		return fail_at(err, FIELD(journal_lost), path, "a counter of lost events is impossible");
	uint64_t events = header->journal_capacity + header->allocation_capacity;
	uint64_t expected = NEAP_RECORD_HEADER_BYTES + events * sizeof(struct neap_event);
	if (file_bytes < expected) {
		neap_fail(err, NEAP_EPARSE,
			  "recording %s is damaged: it was cut short: %llu bytes are there, its header says %llu",
			  path, (unsigned long long)file_bytes, (unsigned long long)expected);
		if (err)
			err->position = file_bytes;
		return NEAP_EPARSE;
	}
	if (file_bytes != expected)
		return fail_at(err, file_bytes, path, "its size is not what its header says");
	return NEAP_OK;
}

/* One ring of the file while it is being read. */
struct ring {
	uint64_t offset;   /* of slot 0 in the file */
	uint64_t capacity; /* events */
	uint64_t written;  /* when reading began */
	size_t counter;    /* where the counter is in the header */
	uint64_t from;     /* the first index that counts; events before it are kept elsewhere */
	bool continues;    /* kept events come before those of the ring */
	bool runs;         /* writers claim slots before they have events for them */
	const struct neap_record_header *earlier; /* the header, if of NEAP_RECORD_EARLIER_VERSION; else NULL */
	struct neap_event *events;
	uint64_t *indices; /* the index of each event that is kept; only while reading */
	size_t count;
	uint64_t lost, torn;
};

static int by_time(const void *left, const void *right)
{
	const struct neap_event *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	/* Events of the same instant are in the order in which they were claimed. A difference of sequences is right
	 * even if 32 bits have wrapped. */
	int32_t order = (int32_t)(a->sequence - b->sequence);
	return order < 0 ? -1 : order > 0;
}

/* Reads `count` slots from index `first` on. The slots do not wrap within the chunk. */
static enum neap_status read_chunk(int fd, struct ring *ring, uint64_t first, size_t count, const char *path,
				   struct neap_error *err)
{
	struct neap_event before[CHUNK], after[CHUNK];
	uint64_t offset = ring->offset + first % ring->capacity * sizeof *before;
	size_t bytes = count * sizeof *before, got_before = 0, got_after = 0;
	enum neap_status status;

	status = read_at(fd, before, bytes, offset, path, &got_before, err);
	if (!status)
		status = read_at(fd, after, bytes, offset, path, &got_after, err);
	if (status)
		return status;
	if (got_before != bytes || got_after != bytes)
		return fail_at(err, offset + (got_before < got_after ? got_before : got_after), path,
			       "it was cut short");
	for (size_t i = 0; i < count; i++) {
		uint32_t wanted = (uint32_t)(first + i + 1);
		if (before[i].sequence != wanted || after[i].sequence != wanted) {
			/* The slot has an older event: either its run continues, or the run ended early. */
			bool unwritten = (int32_t)(wanted - after[i].sequence) > 0;
			ring->torn += !(ring->runs && unwritten);
			continue;
		}
		ring->indices[ring->count] = first + i;
		ring->events[ring->count++] =
			ring->earlier ? neap_record_convert(&after[i], ring->earlier) : after[i];
	}
	return NEAP_OK;
}

/* Drops events whose slots were claimed again while we read: their bytes may be a newer event's. */
static enum neap_status drop_overtaken(int fd, struct ring *ring, const char *path, struct neap_error *err)
{
	uint64_t written = 0;
	size_t got = 0, kept = 0;
	enum neap_status status = read_at(fd, &written, sizeof written, ring->counter, path, &got, err);

	if (status)
		return status;
	if (got != sizeof written || written < ring->written)
		return fail_at(err, ring->counter, path, "its counter ran backwards");
	for (size_t i = 0; i < ring->count; i++) {
		if (written - ring->indices[i] > ring->capacity)
			continue;
		ring->indices[kept] = ring->indices[i];
		ring->events[kept++] = ring->events[i];
	}
	ring->torn += ring->count - kept;
	ring->count = kept;
	return NEAP_OK;
}

/* Drops the oldest events of a ring that has wrapped. An event may be stored after later ones of its address, up to a
 * part of the ring further on. So an overwritten event may belong between two that remain; this drops all events as
 * old as any near the overwritten ones. */
static void drop_edge(struct ring *ring)
{
	uint64_t edge = ring->written - ring->capacity + ring->capacity / NEAP_RECORD_RUN_PART, until_ns = 0;
	size_t kept = 0;

	if (!ring->runs || ring->written <= ring->capacity || ring->continues)
		return;
	for (size_t i = 0; i < ring->count && ring->indices[i] < edge; i++)
		until_ns = ring->events[i].time_ns > until_ns ? ring->events[i].time_ns : until_ns;
	for (size_t i = 0; i < ring->count; i++)
		if (ring->events[i].time_ns > until_ns)
			ring->events[kept++] = ring->events[i];
	ring->lost += ring->count - kept;
	ring->count = kept;
}

/* Puts the events in order of time, and replaces each FREE by a requested and a completed free. */
static enum neap_status split_frees(struct ring *ring, const char *path, struct neap_error *err)
{
	size_t frees = 0;

	for (size_t i = 0; ring->runs && i < ring->count; i++)
		frees += ring->events[i].kind == NEAP_EVENT_FREE;
	if (!frees)
		return NEAP_OK;
	struct neap_event *events = reallocarray(ring->events, ring->count + frees, sizeof *events);
	if (!events)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the events of %s", path);
	ring->events = events;
	size_t to = ring->count + frees;
	for (size_t i = ring->count; i-- > 0;) {
		bool free = events[i].kind == NEAP_EVENT_FREE;
		events[--to] = events[i];
		if (!free)
			continue;
		events[to].kind = NEAP_EVENT_FREE_COMPLETED;
		events[--to] = events[i];
		events[to].kind = NEAP_EVENT_FREE_REQUESTED;
	}
	ring->count += frees;
	return NEAP_OK;
}

/* Merges the ring's events with the kept ones. */
static enum neap_status add_kept(struct ring *ring, const struct neap_kept *kept, const char *path,
				 struct neap_error *err)
{
	enum neap_record_ring which = ring->runs ? NEAP_RECORD_ALLOCATIONS : NEAP_RECORD_JOURNAL;
	size_t more = 0;

	for (uint64_t i = 0; i < kept->header.events; i++)
		more += neap_kept_is_of(&kept->events[i], which);
	if (!more)
		return NEAP_OK;
	struct neap_event *events = reallocarray(ring->events, ring->count + more, sizeof *events);
	if (!events)
		return neap_fail(err, NEAP_ENOMEM, "out of host memory for the events of %s", path);
	ring->events = events;
	for (uint64_t i = 0; i < kept->header.events; i++)
		if (neap_kept_is_of(&kept->events[i], which))
			events[ring->count++] = kept->events[i];
	return NEAP_OK;
}

static enum neap_status read_ring(int fd, struct ring *ring, const struct neap_kept *kept, const char *path,
				  struct neap_error *err)
{
	uint64_t held = ring->written < ring->capacity ? ring->written : ring->capacity;
	enum neap_status status = NEAP_OK;

	uint64_t oldest = ring->written - held, begin = oldest < ring->from ? ring->from : oldest;
	ring->lost = begin - ring->from;
	ring->events = calloc(held + 1, sizeof *ring->events);
	ring->indices = calloc(held + 1, sizeof *ring->indices);
	if (!ring->events || !ring->indices) {
		status = neap_fail(err, NEAP_ENOMEM, "out of host memory for the events of %s", path);
		goto out;
	}
	for (uint64_t first = begin; first < ring->written;) {
		uint64_t count = ring->written - first;
		uint64_t until_wrap = ring->capacity - first % ring->capacity;
		if (count > until_wrap)
			count = until_wrap;
		if (count > CHUNK)
			count = CHUNK;
		status = read_chunk(fd, ring, first, (size_t)count, path, err);
		if (status)
			goto out;
		first += count;
	}
	status = drop_overtaken(fd, ring, path, err);
	if (!status)
		drop_edge(ring);
	if (!status)
		status = add_kept(ring, kept, path, err);
	if (!status) {
		qsort(ring->events, ring->count, sizeof *ring->events, by_time);
		status = split_frees(ring, path, err);
	}
out:
	free(ring->indices);
	ring->indices = NULL;
	if (status) {
		free(ring->events);
		ring->events = NULL;
	}
	return status;
}

/* Copies a name. Names go to terminals and pages, so bytes that are not text become '?'. */
static void copy_name(char *name, const char *from)
{
	size_t i = 0;

	for (; i < NEAP_RECORD_NAME_ROOM - 1 && from[i]; i++) {
		unsigned char c = (unsigned char)from[i];
		name[i] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
	}
	name[i] = '\0';
}

enum neap_status neap_record_open(const char *path, int *ret_fd, struct neap_record_header *ret_header,
				  struct neap_error *err)
{
	struct neap_record_header header;
	enum neap_status status;
	struct stat file;
	size_t got = 0;
	/* Not blocking: opening a FIFO must not hang us. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return neap_fail_errno(err, errno, "opening recording %s", path);
	if (fstat(fd, &file) != 0) {
		status = neap_fail_errno(err, errno, "looking at recording %s", path);
		goto out;
	}
	if (!S_ISREG(file.st_mode)) {
		status = fail_at(err, 0, path, "it is not a regular file");
		goto out;
	}
	status = read_at(fd, &header, sizeof header, 0, path, &got, err);
	if (status)
		goto out;
	if (got != sizeof header) {
		status = fail_at(err, got, path, "it ends inside its header");
		goto out;
	}
	status = check_header(&header, (uint64_t)file.st_size, path, err);
out:
	if (status) {
		close(fd);
		return status;
	}
	*ret_header = header;
	*ret_fd = fd;
	return NEAP_OK;
}

/* Reads the kept events, and then the header again: the process has written more meanwhile. */
static enum neap_status load_kept(int fd, const char *path, struct neap_record_header *header, struct neap_kept *kept,
				  struct neap_error *err)
{
	struct neap_record_header now;

	neap_kept_load(path, header, kept);
	if (!kept->header.events)
		return NEAP_OK;
	enum neap_status status = neap_record_read_at(fd, &now, sizeof now, 0, err);
	if (!status &&
	    (now.journal_written < header->journal_written || now.allocation_written < header->allocation_written ||
	     now.journal_written > UINT64_MAX / 2 || now.allocation_written > UINT64_MAX / 2))
		status = fail_at(err, FIELD(journal_written), path, "its counter ran backwards");
	if (!status) { /* the other fields have been checked */
		header->journal_written = now.journal_written;
		header->allocation_written = now.allocation_written;
	}
	if (status || kept->header.next[NEAP_RECORD_JOURNAL] > header->journal_written ||
	    kept->header.next[NEAP_RECORD_ALLOCATIONS] > header->allocation_written)
		neap_kept_fini(kept);
	return status;
}

/* Ranks the kinds of steps: updates above batches, batches above forwards; 0: the event is no step. */
static int rhythm_of(const struct neap_record *record, const struct neap_event *event)
{
	const char *name = event->kind == NEAP_EVENT_STEP ? neap_record_name(record, event->step.name) : NULL;

	return !name ? 0 : !strcmp(name, NEAP_STEP_FORWARD) ? 1 : !strcmp(name, NEAP_STEP_BATCH) ? 2 : 3;
}

/* Keeps one kind of steps only: before its first update, a training looks like a program without updates. */
static void keep_one_rhythm(struct neap_record *record)
{
	struct neap_event *events = record->journal;
	size_t kept = 0;
	int best = 0;

	for (size_t i = 0; i < record->journal_count; i++)
		best = rhythm_of(record, &events[i]) > best ? rhythm_of(record, &events[i]) : best;
	for (size_t i = 0; i < record->journal_count; i++)
		if (rhythm_of(record, &events[i]) == 0 || rhythm_of(record, &events[i]) == best)
			events[kept++] = events[i];
	record->journal_count = kept;
}

enum neap_status neap_record_read(const char *path, struct neap_record *ret_record, struct neap_error *err)
{
	struct neap_record_header header;
	struct ring journal = {0}, allocations = {0};
	struct neap_kept kept = {0};
	enum neap_status status;
	int fd = -1;

	status = neap_record_open(path, &fd, &header, err);
	if (status)
		return status;
	status = load_kept(fd, path, &header, &kept, err);
	if (status) {
		close(fd);
		return status;
	}
	journal.offset = NEAP_RECORD_HEADER_BYTES;
	journal.capacity = header.journal_capacity;
	journal.written = header.journal_written;
	journal.counter = FIELD(journal_written);
	journal.from = kept.header.next[NEAP_RECORD_JOURNAL];
	journal.earlier = allocations.earlier = header.version == NEAP_RECORD_EARLIER_VERSION ? &header : NULL;
	journal.continues = allocations.continues = kept.header.events > 0;
	allocations.offset = journal.offset + journal.capacity * sizeof(struct neap_event);
	allocations.capacity = header.allocation_capacity;
	allocations.runs = true;
	allocations.written = header.allocation_written;
	allocations.counter = FIELD(allocation_written);
	allocations.from = kept.header.next[NEAP_RECORD_ALLOCATIONS];
	status = read_ring(fd, &journal, &kept, path, err);
	if (!status)
		status = read_ring(fd, &allocations, &kept, path, err);
	close(fd);
	if (status) {
		neap_kept_fini(&kept);
		free(journal.events);
		return status;
	}
	*ret_record = (struct neap_record){
		.pid = header.pid,
		.start_ticks = header.start_ticks,
		.wall_at_zero_ns = header.wall_at_zero_ns,
		.journal = journal.events,
		.journal_count = journal.count,
		.allocations = allocations.events,
		.allocation_count = allocations.count,
		.journal_lost = journal.lost + header.journal_lost + kept.header.journal_lost,
		.allocations_lost = header.allocations_lost + kept.header.allocations_lost +
				    (allocations.continues ? 0 : allocations.lost),
		.allocations_missing = header.allocations_missing + kept.header.allocations_missing +
				       (allocations.continues ? allocations.lost : 0),
		.thinned_events = header.thinned_events + kept.header.thinned_events,
		.thinned_steps = header.thinned_steps + kept.header.thinned_steps,
		.torn = journal.torn + allocations.torn,
		.names_used = header.names_used,
	};
	for (uint32_t i = 1; i < header.names_used; i++)
		copy_name(ret_record->names[i], header.names[i]);
	neap_kept_fini(&kept);
	keep_one_rhythm(ret_record);
	return NEAP_OK;
}

void neap_record_fini(struct neap_record *record)
{
	if (!record)
		return;
	free(record->journal);
	free(record->allocations);
	*record = (struct neap_record){0};
}

const struct neap_event_settings *neap_record_settings(const struct neap_event *event)
{
	const struct neap_event_split *split = neap_event_as_split(event);
	const struct neap_event_rung *rung = neap_event_as_rung(event);

	return split ? &split->settings : rung ? &rung->settings : NULL;
}

struct neap_split neap_record_split(const struct neap_event *event, uint64_t ranks)
{
	const struct neap_event_settings *settings = neap_record_settings(event);
	const struct neap_event_split *recorded = neap_event_as_split(event);
	struct neap_split split = {.micro_batch = settings->micro_batch,
				   .accumulate = settings->accumulate,
				   .ranks = recorded && recorded->ranks ? recorded->ranks : ranks};
	uint64_t smaller = settings->smaller_parts, batch = neap_split_batch(&split);

	if (batch != UINT64_MAX && smaller < split.accumulate && split.micro_batch > (smaller > 0))
		split.batch = batch - smaller;
	split.ranks = split.ranks ? split.ranks : 1;
	return split;
}

const char *neap_record_name(const struct neap_record *record, uint64_t name)
{
	return name < record->names_used && name < NEAP_RECORD_NAMES ? record->names[name] : "";
}
