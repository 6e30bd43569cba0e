/* neap/stats.h: an allocator's counters, under PyTorch's names.
 *
 * Source of names and meaning: torch.cuda.memory_stats() of PyTorch 2.6 (122 keys): nine metrics by three pools by
 * four values, two oversize metrics by four values, and six plain counters.
 *
 *   active >= allocated            active blocks are allocated, or freed with an event still pending
 *   reserved = cached + active     cached (inactive) bytes are what neap_empty_cache can give back, pages permitting
 */
#ifndef NEAP_STATS_H
#define NEAP_STATS_H

#include "neap/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_stat {
	int64_t current;
	int64_t peak;      /* since creation or neap_reset_peak_stats */
	int64_t allocated; /* sum of all increases since creation or neap_reset_accumulated_stats */
	int64_t freed;     /* sum of all decreases, likewise */
};

enum neap_metric {
	NEAP_METRIC_ALLOCATION,           /* live blocks */
	NEAP_METRIC_SEGMENT,              /* segments */
	NEAP_METRIC_ACTIVE,               /* live or pending blocks */
	NEAP_METRIC_INACTIVE_SPLIT,       /* free blocks beside live ones in a segment */
	NEAP_METRIC_ALLOCATED_BYTES,      /* bytes of live blocks, rounded */
	NEAP_METRIC_RESERVED_BYTES,       /* bytes held from the driver */
	NEAP_METRIC_ACTIVE_BYTES,         /* bytes of live or pending blocks */
	NEAP_METRIC_INACTIVE_SPLIT_BYTES, /* bytes of free blocks beside live ones */
	NEAP_METRIC_REQUESTED_BYTES,      /* bytes asked for, before rounding */
	NEAP_METRIC_COUNT
};

enum neap_pool_class { NEAP_CLASS_ALL, NEAP_CLASS_LARGE, NEAP_CLASS_SMALL, NEAP_CLASS_COUNT };

struct neap_stats {
	struct neap_stat metric[NEAP_METRIC_COUNT][NEAP_CLASS_COUNT];
	struct neap_stat oversize_allocations;
	struct neap_stat oversize_segments;
	int64_t num_alloc_retries; /* times cached memory was flushed because a request found none */
	int64_t num_ooms;
	int64_t max_split_size; /* bytes; -1: unlimited */
	int64_t num_sync_all_streams;
	int64_t num_device_alloc; /* driver calls that took memory (cuMemCreate, cuMemAlloc) */
	int64_t num_device_free;  /* driver calls that gave it back */
};

#define NEAP_STATS_KEYS 122

/* Calls `visit` once per key, in PyTorch's order, which is sorted: "active.all.allocated", ...,
 * "segment.small_pool.peak". */
NEAP_API void neap_stats_each(const struct neap_stats *stats,
			      void (*visit)(void *context, const char *key, int64_t value), void *context);

/* The bytes of the longest summary, with its terminator. */
#define NEAP_SUMMARY_ROOM 8192

/* The counters as the box of torch.cuda.memory_summary, in PyTorch's layout and units, each line with its newline.
 * `abbreviated`: without the rows of the two pools. The bytes of `title` beyond 75 are left out; `ret_text` has
 * NEAP_SUMMARY_ROOM bytes. Errors: NEAP_ENOMEM, NEAP_ENOSPC (never for a real allocator's figures). Any thread. */
NEAP_API enum neap_status neap_stats_summary(const struct neap_stats *stats, const char *title, bool abbreviated,
					     char *ret_text);

#define NEAP_PUBLISHED_LANES 16
#define NEAP_PUBLISHED_PARTS 2 /* large, small */
/* The changes that a lane of the allocator (src/alloc/front) made in one class since `stats` below were written: they
 * must be added to `stats`. Written as words, between two increments of its own `sequence`. */
struct neap_published_lane {
	uint64_t sequence;
	uint64_t blocks_taken, bytes_taken, requested_taken;
	uint64_t blocks_given, bytes_given, requested_given;
	uint64_t unused;
};

/* The figures that a process publishes of one device, in shared memory: 8-byte words, written under the allocator's
 * lock between two increments of `sequence` (odd while being written). Only lanes are written without that lock. Read
 * it only with neap_published_read: in its copy, `stats` include the lanes' changes, and the lanes are zero. */
struct neap_published {
	uint64_t sequence;
	unsigned char device_uuid[16];
	uint64_t context_bytes;      /* neap_device_context_bytes */
	uint64_t limit_bytes;        /* how much the fraction allows to reserve; UINT64_MAX: no limit */
	uint64_t largest_free_bytes; /* largest request that cached memory alone could serve, as of the last miss */
	struct neap_stats stats;
	struct neap_published_lane lanes[NEAP_PUBLISHED_LANES][NEAP_PUBLISHED_PARTS];
};

/* Adds the lanes' changes to `stats` and sets the lanes to zero, for a copy that was read by other means. */
NEAP_API void neap_published_add_lanes(struct neap_published *copy);

/* Copies a consistent state, reading page words without disturbing the writer. NEAP_EBUSY when the writer kept
 * writing for 1000 tries (or died inside a write): nothing is returned. */
NEAP_API enum neap_status neap_published_read(const struct neap_published *published,
					      struct neap_published *ret_copy);

#ifdef __cplusplus
}
#endif
#endif
