/* sim/libraries/nccl/sparse.h: the real contents of a device buffer, in the form that is sent between ranks.
 *
 *   buffer   |0000|xxxx|xxxx|0000 ... 0000|xx|      blocks of 4 KiB; empty ones read as zeros
 *   packed   [count][offset, bytes]...[bytes]...    one extent for each run of non-empty blocks
 *
 * Where no values are computed, a gradient buffer of any size packs to nothing. A buffer that holds more than
 * NCCL_PACKED_LIMIT bytes is not packed: it is *lost*. Where values are computed, comm.h cuts it into pieces.
 *
 * Invariants of a packed buffer: offsets rise, are multiples of NCCL_BLOCK, and lie inside the buffer; extents do not
 * overlap; the bytes are exactly theirs. nccl_sparse_open checks them: a packed buffer comes from another process.
 */
#ifndef NEAP_RUNTIME_LIBRARIES_NCCL_SPARSE_H
#define NEAP_RUNTIME_LIBRARIES_NCCL_SPARSE_H

#include "sim/runtime/services.h"

#define NCCL_BLOCK        4096
#define NCCL_PACKED_LIMIT (32ull << 20) /* above the 25 MiB of a bucket of DDP */
/* The largest packed form: as many extents as fit, each of one block. */
#define NCCL_PACKED_CAPACITY (NCCL_PACKED_LIMIT + (NCCL_PACKED_LIMIT / NCCL_BLOCK + 1) * 16 + 8)

struct nccl_extent {
	uint64_t offset, bytes;
};

/* malloc'ed; NULL and 0: all zeros. */
struct nccl_packed {
	void *data;
	size_t bytes;
	bool lost;
};

/* The memory to pack: `count` parts of `bytes` each, every `stride` bytes of memory from `address` on. */
struct nccl_parts {
	uint64_t address, bytes, stride, count;
};

/* From one part to the next in the packed form; one part has no next. */
uint64_t nccl_sparse_stride(uint64_t bytes);
/* Packs the parts, after the gates over them have opened. False: host out of memory. */
bool nccl_sparse_pack(const struct runtime_services *services, const struct nccl_parts *parts,
		      struct nccl_packed *ret_packed);
void nccl_sparse_drop(struct nccl_packed *packed);

/* A packed buffer, opened: pointers into the packed form, which the caller keeps. A zeroed one is all zeros. */
struct nccl_sparse {
	const struct nccl_extent *extents;
	size_t count;
	const unsigned char *bytes;
};

/* False: not a packed buffer of `total` bytes. */
bool nccl_sparse_open(const void *packed, size_t packed_bytes, uint64_t total, struct nccl_sparse *ret_sparse);
/* The first offset at or after `offset` that may not be empty; UINT64_MAX: none. */
uint64_t nccl_sparse_next(const struct nccl_sparse *sparse, uint64_t offset);
/* Empty parts are zeros. */
void nccl_sparse_read(const struct nccl_sparse *sparse, uint64_t offset, void *to, size_t bytes);

#endif
