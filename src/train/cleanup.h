/* train/cleanup.h: one cleanup, for the session and neap_clear. */
#ifndef NEAP_TRAIN_CLEANUP_H
#define NEAP_TRAIN_CLEANUP_H

#include "neap/train.h"

struct neap_cleanup {
	uint64_t freed_bytes, ns;
};

/* Empties the cache, logs the lines of a cleanup, and emits NEAP_EVENT_CLEANUP. Call it without any lock. Errors:
 * those of neap_empty_cache; then it logs a warning instead, and emits nothing. */
enum neap_status neap_cleanup_run(struct neap_alloc *alloc, const struct neap_log_sink *log,
				  enum neap_cleanup_reason reason, struct neap_cleanup *ret_cleanup,
				  struct neap_error *err);

/* The current and the peak bytes of one counter. */
struct neap_memory {
	uint64_t allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes;
};
void neap_memory_read(struct neap_alloc *alloc, struct neap_memory *ret_memory);

/* This process's resident bytes of the host's memory; 0 if /proc does not report them. */
uint64_t neap_host_resident(void);

/* Bytes in GB (2^30) for a log line; never "-0.0". */
double neap_gb(int64_t bytes);

#endif
