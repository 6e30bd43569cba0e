/* sim/libraries/nccl/segment_state.h: one rank's view of the file, shared by segment.c and segment_log.c. */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_STATE_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_STATE_H

#include "sim/libraries/nccl/segment_layout.h"

/* Where a rank's log has the entries that this rank may still need: position + 1, by kind, and by number modulo the
 * ring's size. The first `scanned` entries of the log have been read. */
struct segment_index {
	uint64_t scanned;
	uint64_t places[3][NCCL_LOG_ENTRIES];
};

/* The facts that decide when an entry of this rank's own log may be overwritten. */
struct segment_own {
	uint32_t kind;
	int32_t to;
	uint64_t number;
	uint64_t data_end;
};

struct nccl_segment {
	char path[256];
	int fd; /* holds this rank's life lock */
	int ranks, rank;
	size_t bytes;
	struct segment_header *header;
	struct segment_rank *peers;
	_Atomic uint64_t *received; /* [to][from] */
	struct segment_entry *logs; /* [rank][NCCL_LOG_ENTRIES] */
	unsigned char *data;        /* [rank][SEGMENT_DATA_CAPACITY] */

	/* This rank's log: entries ever published; the oldest that is still needed; the data between them. */
	uint64_t head, tail;
	uint64_t data_head, data_tail;
	struct segment_own own[NCCL_LOG_ENTRIES];

	struct segment_index **indexes; /* by rank, its own too; each made at its first use */
};

#endif
