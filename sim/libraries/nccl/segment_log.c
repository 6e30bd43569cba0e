/* The logs of a communicator's ranks (segment.h). */
#include "sim/libraries/nccl/segment_state.h"

#include "sim/libraries/nccl/sparse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(2 * NCCL_PACKED_CAPACITY <= SEGMENT_DATA_CAPACITY,
	       "the largest buffer fits wherever the ring's end is");

/* -- writing ----------------------------------------------------------------------------------------------------- */

static uint64_t counter(const struct nccl_segment *segment, const struct segment_own *entry, int reader)
{
	switch (entry->kind) {
	case NCCL_COLLECTIVE:
		return atomic_load(&segment->peers[reader].collected);
	case NCCL_EXCHANGE:
		return atomic_load(&segment->peers[reader].exchanged);
	default:
		return atomic_load(
			&segment->received[(size_t)reader * (size_t)segment->ranks + (size_t)segment->rank]);
	}
}

/* A rank that has not read the entry yet; -1: none. */
static int reader_of(const struct nccl_segment *segment, const struct segment_own *entry)
{
	int i;

	if (entry->kind == NCCL_MESSAGE)
		return counter(segment, entry, entry->to) > entry->number ? -1 : entry->to;
	for (i = 0; i < segment->ranks; i++)
		if (counter(segment, entry, i) <= entry->number)
			return i;
	return -1;
}

static void reclaim(struct nccl_segment *segment)
{
	while (segment->tail < segment->head) {
		const struct segment_own *entry = &segment->own[segment->tail % NCCL_LOG_ENTRIES];

		if (reader_of(segment, entry) >= 0)
			return;
		segment->data_tail = entry->data_end;
		segment->tail++;
	}
	segment->data_head = segment->data_tail = 0; /* reuse the same pages: an idle ring stays small */
}

bool nccl_segment_is_full(const struct nccl_segment *segment)
{
	return segment->head - segment->tail == NCCL_LOG_ENTRIES;
}

int nccl_segment_stuck(struct nccl_segment *segment)
{
	int reader;

	reclaim(segment);
	if (segment->head - segment->tail < NCCL_LOG_ENTRIES && segment->data_head == segment->data_tail)
		return -1;
	if (segment->head == segment->tail)
		return -1;
	reader = reader_of(segment, &segment->own[segment->tail % NCCL_LOG_ENTRIES]);
	if (reader < 0 || nccl_segment_peer(segment, reader) == NCCL_PEER_HERE)
		return -1;
	return reader;
}

/* Finds room for `bytes` in one piece. False: there is none until others have read. */
static bool reserve(struct nccl_segment *segment, size_t bytes, uint64_t *ret_start)
{
	uint64_t start = segment->data_head, at = start % SEGMENT_DATA_CAPACITY;

	if (at + bytes > SEGMENT_DATA_CAPACITY)
		start += SEGMENT_DATA_CAPACITY - at;
	if (start + bytes - segment->data_tail > SEGMENT_DATA_CAPACITY)
		return false;
	*ret_start = start;
	return true;
}

static unsigned char *data_of(const struct nccl_segment *segment, int rank, uint64_t start)
{
	return segment->data + (size_t)rank * SEGMENT_DATA_CAPACITY + start % SEGMENT_DATA_CAPACITY;
}

/* Allocates the pages before bytes are written: a write to a full file system would end the process with SIGBUS. */
static bool allocate(const struct nccl_segment *segment, uint64_t start, size_t bytes)
{
	off_t offset = data_of(segment, segment->rank, start) - (unsigned char *)segment->header;

	return fallocate(segment->fd, 0, offset, (off_t)bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

bool nccl_segment_publish(struct nccl_segment *segment, const struct nccl_entry *entry, const void *data,
			  size_t bytes, bool *ret_lost)
{
	size_t slot = segment->head % NCCL_LOG_ENTRIES;
	struct segment_entry *shared = &segment->logs[(size_t)segment->rank * NCCL_LOG_ENTRIES + slot];
	uint64_t start = segment->data_head;

	reclaim(segment);
	start = segment->data_head;
	if (segment->head - segment->tail == NCCL_LOG_ENTRIES || (bytes && !reserve(segment, bytes, &start)))
		return false;
	atomic_store(&shared->position, 0);
	shared->entry = *entry;
	if (bytes && !allocate(segment, start, bytes)) {
		shared->entry.flags |= NCCL_LOST;
		*ret_lost = true;
		bytes = 0;
	}
	if (bytes) {
		memcpy(data_of(segment, segment->rank, start), data, bytes);
		segment->data_head = start + bytes;
	}
	shared->data_start = start;
	shared->data_bytes = bytes;
	segment->own[slot] = (struct segment_own){entry->kind, entry->to, entry->number, segment->data_head};
	atomic_store(&shared->position, ++segment->head);
	atomic_store(&segment->peers[segment->rank].published, segment->head);
	nccl_segment_ring(segment);
	return true;
}

/* -- reading ----------------------------------------------------------------------------------------------------- */

/* Copies one entry whole. False: its slot does not hold the entry of `position`, or was overwritten meanwhile. */
static bool copy_entry(const struct nccl_segment *segment, int from, uint64_t position,
		       struct segment_entry *ret_copy)
{
	const struct segment_entry *shared =
		&segment->logs[(size_t)from * NCCL_LOG_ENTRIES + position % NCCL_LOG_ENTRIES];

	if (atomic_load(&shared->position) != position + 1)
		return false;
	memcpy(&ret_copy->entry, &shared->entry, sizeof shared->entry);
	ret_copy->data_start = shared->data_start;
	ret_copy->data_bytes = shared->data_bytes;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&shared->position) == position + 1;
}

/* Reads the entries that a rank has published since the last call. Entries that it has overwritten were not for this
 * rank. */
static struct segment_index *scan(struct nccl_segment *segment, int from)
{
	struct segment_index *index = segment->indexes[from];
	uint64_t published = atomic_load(&segment->peers[from].published);
	struct segment_entry copy;

	if (!index)
		index = segment->indexes[from] = calloc(1, sizeof *index);
	if (!index || published <= index->scanned)
		return index;
	if (published - index->scanned > NCCL_LOG_ENTRIES)
		index->scanned = published - NCCL_LOG_ENTRIES;
	for (; index->scanned < published; index->scanned++) {
		if (!copy_entry(segment, from, index->scanned, &copy) || copy.entry.kind > NCCL_MESSAGE)
			continue;
		if (copy.entry.kind != NCCL_MESSAGE || copy.entry.to == segment->rank)
			index->places[copy.entry.kind][copy.entry.number % NCCL_LOG_ENTRIES] = index->scanned + 1;
	}
	return index;
}

static bool find(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number,
		 struct segment_entry *ret_copy)
{
	const struct segment_index *index = scan(segment, from);
	uint64_t place = index ? index->places[kind][number % NCCL_LOG_ENTRIES] : 0;

	return place != 0 && copy_entry(segment, from, place - 1, ret_copy) && ret_copy->entry.kind == kind &&
	       ret_copy->entry.number == number && (kind != NCCL_MESSAGE || ret_copy->entry.to == segment->rank);
}

bool nccl_segment_find(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number,
		       struct nccl_entry *ret_entry)
{
	struct segment_entry copy;

	if (!find(segment, from, kind, number, &copy))
		return false;
	*ret_entry = copy.entry;
	return true;
}

bool nccl_segment_data(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number, void **ret_data,
		       size_t *ret_bytes)
{
	struct segment_entry copy;
	void *data;

	*ret_data = NULL;
	*ret_bytes = 0;
	if (!find(segment, from, kind, number, &copy))
		return false;
	if (copy.data_bytes == 0)
		return true;
	if (copy.data_bytes > NCCL_PACKED_CAPACITY ||
	    copy.data_start % SEGMENT_DATA_CAPACITY + copy.data_bytes > SEGMENT_DATA_CAPACITY)
		return false;
	data = malloc(copy.data_bytes);
	if (!data)
		return false;
	memcpy(data, data_of(segment, from, copy.data_start), copy.data_bytes);
	*ret_data = data;
	*ret_bytes = copy.data_bytes;
	return true;
}

void nccl_segment_collected(struct nccl_segment *segment, uint64_t count)
{
	atomic_store(&segment->peers[segment->rank].collected, count);
	nccl_segment_ring(segment);
}

void nccl_segment_exchanged(struct nccl_segment *segment, uint64_t count)
{
	atomic_store(&segment->peers[segment->rank].exchanged, count);
	nccl_segment_ring(segment);
}

void nccl_segment_received(struct nccl_segment *segment, int from, uint64_t count)
{
	atomic_store(&segment->received[(size_t)segment->rank * (size_t)segment->ranks + (size_t)from], count);
	nccl_segment_ring(segment);
}
