/* sim/libraries/nccl/segment_layout.h: the file's layout, for segment.c and the tests that damage it. */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_LAYOUT_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_SEGMENT_LAYOUT_H

#include "sim/libraries/nccl/segment.h"

#include <stdatomic.h>

#define SEGMENT_MAGIC         0x6c63636e7061656eull /* "neapnccl" */
#define SEGMENT_LAYOUT        1
#define SEGMENT_PAGE          4096
#define SEGMENT_DATA_CAPACITY (66ull << 20) /* of one rank: two of the largest buffers */
#define SEGMENT_LIFE_BASE     (1ll << 50)   /* past the file's end: locks need no bytes */

enum segment_rank_state {
	SEGMENT_RANK_ABSENT,
	SEGMENT_RANK_HERE,
	SEGMENT_RANK_LEFT,
};

struct segment_header {
	uint64_t magic;
	uint32_t layout, ranks;
	uint64_t bytes;
	atomic_uint bell, waiters, arrived;
};

struct segment_rank {
	atomic_uint state;
	struct nccl_place place;
	_Atomic uint64_t published; /* entries of its log, ever */
	_Atomic uint64_t collected, exchanged;
} __attribute__((aligned(128)));

struct segment_entry {
	_Atomic uint64_t position; /* in the log, plus 1; 0 while it is written */
	struct nccl_entry entry;
	uint64_t data_start,
		data_bytes; /* start: counted from the log's beginning, modulo SEGMENT_DATA_CAPACITY in the file */
} __attribute__((aligned(128)));

_Static_assert(sizeof(struct segment_header) <= SEGMENT_PAGE, "the header fits its page");

#endif
