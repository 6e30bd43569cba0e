/* sim/libraries/nccl/sparse.c: see the header. */
#include "sim/libraries/nccl/sparse.h"

#include <stdlib.h>

#define EXTENT_LIMIT (NCCL_PACKED_LIMIT / NCCL_BLOCK)

struct scan {
	const struct runtime_services *services;
	const struct nccl_parts *parts;
	struct nccl_extent *extents; /* room for EXTENT_LIMIT */
	size_t count;
	uint64_t held; /* their bytes */
	bool lost;
};

uint64_t nccl_sparse_stride(uint64_t bytes) { return (bytes + NCCL_BLOCK - 1) / NCCL_BLOCK * NCCL_BLOCK; }

static uint64_t address_of(const struct scan *scan, uint64_t offset)
{
	uint64_t stride = nccl_sparse_stride(scan->parts->bytes);

	return scan->parts->address + offset / stride * scan->parts->stride + offset % stride;
}

static void add(struct scan *scan, uint64_t offset, uint64_t bytes)
{
	struct nccl_extent *last = scan->count ? &scan->extents[scan->count - 1] : NULL;
	bool first_of_part = offset % nccl_sparse_stride(scan->parts->bytes) == 0;

	scan->held += bytes;
	if (scan->held > NCCL_PACKED_LIMIT)
		scan->lost = true;
	else if (last && !first_of_part && last->offset + last->bytes == offset)
		last->bytes += bytes;
	else if (scan->count < EXTENT_LIMIT)
		scan->extents[scan->count++] = (struct nccl_extent){offset, bytes};
	else
		scan->lost = true;
}

/* Adds the blocks of the range that are not empty. Recurses into halves: its depth is the logarithm of the size. */
static void visit(struct scan *scan, uint64_t offset, uint64_t bytes)
{
	uint64_t left;

	if (scan->lost || !scan->services->holds(address_of(scan, offset), bytes))
		return;
	if (bytes <= NCCL_BLOCK) {
		add(scan, offset, bytes);
		return;
	}
	left = (bytes / 2 + NCCL_BLOCK - 1) / NCCL_BLOCK * NCCL_BLOCK;
	visit(scan, offset, left);
	if (bytes > left)
		visit(scan, offset + left, bytes - left);
}

static bool pack(const struct scan *scan, struct nccl_packed *ret_packed)
{
	uint64_t count = scan->count, table = sizeof count + count * sizeof *scan->extents;
	unsigned char *data, *at;
	size_t i;

	if (count == 0)
		return true;
	data = malloc(table + scan->held);
	if (!data)
		return false;
	memcpy(data, &count, sizeof count);
	memcpy(data + sizeof count, scan->extents, count * sizeof *scan->extents);
	for (i = 0, at = data + table; i < count; at += scan->extents[i++].bytes)
		scan->services->read(address_of(scan, scan->extents[i].offset), at, scan->extents[i].bytes);
	*ret_packed = (struct nccl_packed){.data = data, .bytes = table + scan->held};
	return true;
}

static bool holds_any(const struct runtime_services *services, const struct nccl_parts *parts)
{
	uint64_t i;

	for (i = 0; i < parts->count; i++)
		if (services->holds(parts->address + i * parts->stride, parts->bytes))
			return true;
	return false;
}

bool nccl_sparse_pack(const struct runtime_services *services, const struct nccl_parts *parts,
		      struct nccl_packed *ret_packed)
{
	struct scan scan = {.services = services, .parts = parts};
	bool packed = true;
	uint64_t i;

	*ret_packed = (struct nccl_packed){0};
	if (parts->bytes == 0 || !holds_any(services, parts))
		return true;
	scan.extents = malloc(EXTENT_LIMIT * sizeof *scan.extents);
	if (!scan.extents)
		return false;
	for (i = 0; i < parts->count; i++)
		visit(&scan, i * nccl_sparse_stride(parts->bytes), parts->bytes);
	if (scan.lost)
		ret_packed->lost = true;
	else
		packed = pack(&scan, ret_packed);
	free(scan.extents);
	return packed;
}

void nccl_sparse_drop(struct nccl_packed *packed)
{
	free(packed->data);
	*packed = (struct nccl_packed){0};
}

static bool extents_valid(const struct nccl_extent *extents, uint64_t count, uint64_t total, uint64_t capacity)
{
	uint64_t end = 0, held = 0, i;

	for (i = 0; i < count; i++) {
		if (extents[i].offset % NCCL_BLOCK != 0 || extents[i].offset < end || extents[i].offset >= total ||
		    extents[i].bytes == 0 || extents[i].bytes > total - extents[i].offset ||
		    extents[i].bytes > capacity - held)
			return false;
		end = extents[i].offset + extents[i].bytes;
		held += extents[i].bytes;
	}
	return held == capacity;
}

bool nccl_sparse_open(const void *packed, size_t packed_bytes, uint64_t total, struct nccl_sparse *ret_sparse)
{
	const unsigned char *data = packed;
	const struct nccl_extent *extents;
	uint64_t count, table;

	*ret_sparse = (struct nccl_sparse){0};
	if (packed_bytes == 0)
		return true;
	if (packed_bytes < sizeof count || packed_bytes > NCCL_PACKED_CAPACITY)
		return false;
	memcpy(&count, data, sizeof count);
	if (count > EXTENT_LIMIT)
		return false;
	table = sizeof count + count * sizeof *extents;
	if (packed_bytes < table)
		return false;
	extents = (const struct nccl_extent *)(const void *)(data + sizeof count); /* malloc'ed: aligned */
	if (!extents_valid(extents, count, total, packed_bytes - table))
		return false;
	*ret_sparse = (struct nccl_sparse){.extents = extents, .count = count, .bytes = data + table};
	return true;
}

uint64_t nccl_sparse_next(const struct nccl_sparse *sparse, uint64_t offset)
{
	size_t low = 0, high = sparse->count;

	while (low < high) { /* the first extent that ends after `offset` */
		size_t middle = low + (high - low) / 2;

		if (sparse->extents[middle].offset + sparse->extents[middle].bytes <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == sparse->count)
		return UINT64_MAX;
	return sparse->extents[low].offset > offset ? sparse->extents[low].offset : offset;
}

void nccl_sparse_read(const struct nccl_sparse *sparse, uint64_t offset, void *to, size_t bytes)
{
	const unsigned char *data = sparse->bytes;
	uint64_t end = offset + bytes;
	size_t i;

	memset(to, 0, bytes);
	for (i = 0; i < sparse->count && sparse->extents[i].offset < end; data += sparse->extents[i++].bytes) {
		const struct nccl_extent *extent = &sparse->extents[i];
		uint64_t first = extent->offset > offset ? extent->offset : offset;
		uint64_t last = extent->offset + extent->bytes < end ? extent->offset + extent->bytes : end;

		if (first < last)
			memcpy((unsigned char *)to + (first - offset), data + (first - extent->offset), last - first);
	}
}
