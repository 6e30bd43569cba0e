/* neap/drain.h: waits until the memory of processes that have ended is free again. A program needs this if it starts
 * one process after another on a device, and each needs the memory of the last one. `neap run` waits in the same way.
 *
 *     neap_drain_begin(&drain, &err)            what every device holds before
 *     start the processes, wait until they have ended
 *     neap_drain_wait(drain, &ended, &left, &err)
 *     neap_drain_end(&drain)
 *
 * Devices are read through NVML; no CUDA context is made. After a process has died, the driver frees its memory with
 * a delay, and may stop listing the process while its bytes are still used. So this waits for the bytes that the
 * driver lists for the processes, and for used bytes that it lists for no process and that were not there before.
 * Less than 8 MiB is the driver's own.
 *
 * Threads: one drain is used by one thread at a time, and not in a forked child.
 */
#ifndef NEAP_DRAIN_H
#define NEAP_DRAIN_H

#include "neap/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_drain;

/* Processes that have ended. */
struct neap_drain_ended {
	const int *pids;
	size_t pid_count;
	const unsigned char *uuids; /* 16 bytes for each device that they used; NULL: any */
	size_t uuid_count;
	uint64_t limit_ms; /* how long to wait at most */
};

/* Errors: NEAP_ENODEVICE and others where devices cannot be read, NEAP_ENOMEM. */
NEAP_API enum neap_status neap_drain_begin(struct neap_drain **ret_drain, struct neap_error *err);
/* Waits. `ret_left_bytes`: 0 when all is free again; else what is still held at the end of the limit. Errors: those
 * of reading. */
NEAP_API enum neap_status neap_drain_wait(struct neap_drain *drain, const struct neap_drain_ended *ended,
					  uint64_t *ret_left_bytes, struct neap_error *err);
/* Bytes of one device, as nvidia-smi reports them. */
struct neap_drain_memory {
	uint64_t used_bytes, free_bytes;
};
/* Reads each device now; writes at most `capacity` of them. Errors: those of reading. */
NEAP_API enum neap_status neap_drain_read(struct neap_drain *drain, struct neap_drain_memory *ret_memory,
					  size_t capacity, size_t *ret_count, struct neap_error *err);
/* NULL and zero are fine. */
NEAP_API void neap_drain_end(struct neap_drain **drain);

#ifdef __cplusplus
}
#endif
#endif
