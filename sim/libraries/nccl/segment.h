/* sim/libraries/nccl/segment.h: the memory shared by the ranks of one communicator.
 *
 *   /dev/shm/neap-nccl-UID-HASH (else /tmp), 0600, unlinked when the last rank has arrived
 *   +--------+----------------+------------------------+-----------------------+-----------------------+
 *   | header | rank 0, 1, ... | received[to][from] ... | log of rank 0, 1, ... | data of rank 0, 1 ... |
 *   +--------+----------------+------------------------+-----------------------+-----------------------+
 *
 * Each word has one writer: a rank writes its own state, counters, log and data, and reads the others'. So a rank
 * that dies leaves nothing half changed, and no lock is needed. A log is a ring of entries of three kinds, each
 * numbered from 0: collectives and exchanges, which every rank reads, and messages, numbered per destination. An
 * entry and its data stay until the counters of all its readers have passed it:
 *
 *   entry of rank r may be overwritten  <=>  collective n: every rank's collected > n     exchange n: exchanged > n
 *                                            message n to p: received[p][r] > n
 *
 * A rank is alive exactly while it holds the kernel's lock on its byte of the file. Waiting ranks sleep on one futex,
 * the bell, which every change rings; they also wake now and then to check for dead ranks.
 *
 * Everything in the file is input from another process: read once, checked, then used.
 *
 * Threads: one thread at a time uses a segment, except nccl_segment_bell, _wait and _ring, which any thread may call.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_H

#include "sim/libraries/nccl/api.h"

#include <stdbool.h>

#define NCCL_RANK_LIMIT 1024
/* How many entries a rank may be ahead of its slowest reader. */
#define NCCL_LOG_ENTRIES 1024

enum nccl_kind {
	NCCL_COLLECTIVE,
	NCCL_EXCHANGE,
	NCCL_MESSAGE,
};

#define NCCL_LOST   1u /* flag: the buffer's bytes were not moved */
#define NCCL_LIKELY 2u /* flag: they are likely values */

struct nccl_entry {
	uint32_t kind; /* enum nccl_kind */
	uint32_t flags;
	uint64_t number; /* of its kind, for messages of its destination */
	int32_t to;      /* messages: the destination */
	int32_t function, type, reduction, root;
	uint64_t bytes;    /* of one part of the buffer; see compute.c */
	uint64_t words[2]; /* exchanges; of a piece of a larger call: its place and its length in each part */
};

/* A rank's device, to detect two ranks on one device. */
struct nccl_place {
	unsigned char uuid[16];
	char bus[32];
};

enum nccl_peer {
	NCCL_PEER_ABSENT, /* has not arrived yet */
	NCCL_PEER_HERE,
	NCCL_PEER_LEFT,
	NCCL_PEER_DEAD,
};

struct nccl_segment;

/* Enters the communicator named `id`; the first rank creates its file. Returns ncclSuccess, or has called
 * nccl_fail. */
ncclResult_t nccl_segment_join(const uint64_t id[2], int ranks, int rank, const struct nccl_place *place,
			       struct nccl_segment **ret_segment);
/* Leaves the communicator. The last rank to leave removes the file, if it still has a name. Once. */
void nccl_segment_leave(struct nccl_segment *segment);
/* After leaving, or in a forked child: frees this process's memory, and leaves shared memory alone. NULL is fine. */
void nccl_segment_destroy(struct nccl_segment *segment);
/* In a forked child, whose mapping is gone: closes the descriptor that would keep the parent's rank alive. */
void nccl_segment_forked(struct nccl_segment *segment);
/* Removes files whose ranks have all died before the last one arrived. */
void nccl_segment_sweep(void);

bool nccl_segment_complete(const struct nccl_segment *segment); /* every rank has arrived */
enum nccl_peer nccl_segment_peer(const struct nccl_segment *segment, int rank);
void nccl_segment_place(const struct nccl_segment *segment, int rank, struct nccl_place *ret_place);

/* Appends to this rank's log. False: there is no room until others have read; nothing changed. If the file system has
 * no room for the data, appends the entry without it, marked NCCL_LOST, and sets *ret_lost. */
bool nccl_segment_publish(struct nccl_segment *segment, const struct nccl_entry *entry, const void *data,
			  size_t bytes, bool *ret_lost);
/* Copies an entry that rank `from` has published. For messages, `number` counts those to this rank. False: not there
 * yet. */
bool nccl_segment_find(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number,
		       struct nccl_entry *ret_entry);
/* Copies its data, malloc'ed; *ret_data is NULL if it has none. False: host out of memory, or invalid data. */
bool nccl_segment_data(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number, void **ret_data,
		       size_t *ret_bytes);

/* This rank has finished reading `count` collectives (exchanges, messages of `from`). */
void nccl_segment_collected(struct nccl_segment *segment, uint64_t count);
void nccl_segment_exchanged(struct nccl_segment *segment, uint64_t count);
void nccl_segment_received(struct nccl_segment *segment, int from, uint64_t count);
/* This rank's log has no free entry: publishing waits for readers, however few bytes there are. */
bool nccl_segment_is_full(const struct nccl_segment *segment);
/* A rank that blocks this one's log and will never read; -1: none. */
int nccl_segment_stuck(struct nccl_segment *segment);

/* Read the bell, check for work, and wait with that bell if there is none: a change in between then ends the wait. */
uint32_t nccl_segment_bell(const struct nccl_segment *segment);
void nccl_segment_wait(struct nccl_segment *segment, uint32_t bell, int milliseconds);
void nccl_segment_ring(struct nccl_segment *segment);

#endif
