/* runtime/libraries/nccl/segment.h: the memory that the ranks of one communicator share.
 *
 *   /dev/shm/neap-nccl-UID-HASH (else /tmp), 0600, unlinked when the last rank has arrived
 *   +--------+----------------+------------------------+-----------------------+-----------------------+
 *   | header | rank 0, 1, ... | received[to][from] ... | log of rank 0, 1, ... | data of rank 0, 1 ... |
 *   +--------+----------------+------------------------+-----------------------+-----------------------+
 *
 * Each word has one writer: a rank writes its own state, counters, log and data, and reads the others'. So nothing is
 * left half changed by a rank that dies, and there is no lock. A log is a ring of entries of three kinds, each
 * numbered from 0: collectives and exchanges, which every rank reads, and messages, numbered for each destination. An
 * entry and its data stay until all its readers have counted past it:
 *
 *   entry of rank r may be overwritten  <=>  collective n: every rank's collected > n     exchange n: exchanged > n
 *                                            message n to p: received[p][r] > n
 *
 * A rank is alive exactly while it holds the kernel's lock on its byte of the file. Sleepers wait on one futex, the
 * bell, which every change rings; they wake now and then on their own, to look for the dead.
 *
 * Everything in the file is input from another process: read once, checked, then used.
 *
 * Threads: a segment is one thread's at a time, except nccl_segment_bell, _wait and _ring, which are any thread's.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_H

#include "runtime/libraries/nccl/api.h"

#include <stdbool.h>

#define NCCL_RANK_LIMIT 1024
/* Entries that a rank may be ahead of its slowest reader. */
#define NCCL_LOG_ENTRIES 1024

enum nccl_kind {
	NCCL_COLLECTIVE,
	NCCL_EXCHANGE,
	NCCL_MESSAGE,
};

#define NCCL_LOST 1u /* flag: the buffer held too much to be moved */

struct nccl_entry {
	uint32_t kind; /* enum nccl_kind */
	uint32_t flags;
	uint64_t number; /* of its kind, for messages of its destination */
	int32_t to;      /* messages: the destination */
	int32_t function, type, reduction, root;
	uint64_t bytes;    /* of one part of the buffer; see operation.c */
	uint64_t words[2]; /* exchanges */
};

/* What a rank says of its device, so that two ranks on one are noticed. */
struct nccl_place {
	unsigned char uuid[16];
	char bus[32];
};

enum nccl_peer {
	NCCL_PEER_ABSENT, /* not here yet */
	NCCL_PEER_HERE,
	NCCL_PEER_LEFT,
	NCCL_PEER_DEAD,
};

struct nccl_segment;

/* Enters the communicator whose name is `id`, making its file when this rank is the first. Returns ncclSuccess, or
 * has called nccl_fail. */
ncclResult_t nccl_segment_join(const uint64_t id[2], int ranks, int rank, const struct nccl_place *place,
			       struct nccl_segment **ret_segment);
/* This rank is gone for the others. The last to leave removes the file, if it has still a name. Once. */
void nccl_segment_leave(struct nccl_segment *segment);
/* After leaving, or in a forked child: frees what is this process's, and touches nothing that is shared. NULL is
 * fine. */
void nccl_segment_destroy(struct nccl_segment *segment);
/* In a forked child, whose mapping is gone: closes what would keep the parent's rank alive. */
void nccl_segment_forked(struct nccl_segment *segment);
/* Removes files whose ranks have all died before the last one arrived. */
void nccl_segment_sweep(void);

bool nccl_segment_complete(const struct nccl_segment *segment); /* every rank has arrived */
enum nccl_peer nccl_segment_peer(const struct nccl_segment *segment, int rank);
void nccl_segment_place(const struct nccl_segment *segment, int rank, struct nccl_place *ret_place);

/* Appends to this rank's log. False: there is no room until others have read; nothing happened. Where the file system
 * has no room for the data, the entry goes without it, marked NCCL_LOST, and *ret_lost is set. */
bool nccl_segment_publish(struct nccl_segment *segment, const struct nccl_entry *entry, const void *data,
			  size_t bytes, bool *ret_lost);
/* A copy of the entry that rank `from` has published: a message means one to this rank. False: not there yet. */
bool nccl_segment_find(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number,
		       struct nccl_entry *ret_entry);
/* Its data, malloc'ed; *ret_data is NULL if it has none. False: host out of memory, or not what a rank publishes. */
bool nccl_segment_data(struct nccl_segment *segment, int from, enum nccl_kind kind, uint64_t number, void **ret_data,
		       size_t *ret_bytes);

/* This rank has read `count` collectives (exchanges, messages of `from`) and needs them no more. */
void nccl_segment_collected(struct nccl_segment *segment, uint64_t count);
void nccl_segment_exchanged(struct nccl_segment *segment, uint64_t count);
void nccl_segment_received(struct nccl_segment *segment, int from, uint64_t count);
/* A rank that keeps this one's log from moving on and will never read; -1: none. */
int nccl_segment_stuck(struct nccl_segment *segment);

/* Read the bell, look whether there is work, and if not wait: no change in between is missed. */
uint32_t nccl_segment_bell(const struct nccl_segment *segment);
void nccl_segment_wait(struct nccl_segment *segment, uint32_t bell, int milliseconds);
void nccl_segment_ring(struct nccl_segment *segment);

#endif
