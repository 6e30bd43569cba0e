/* neap/external.h: makes another allocator of this process, such as PyTorch's, visible and reachable like neap's own.
 *
 * neap cannot see into an allocator that is not its own. Code that can (the Python package, for PyTorch) reports
 * here what the allocator holds, for the statistics page and `neap info`, and answers the agent's requests for it:
 *
 *   agent's thread                              the program's side
 *   a peer asks: clear      ---- queued ---->   neap_external_next       waits for one, in a thread of its own
 *     2 s to begin it                           neap_external_begin      where the work may be done; too late: ESTATE
 *     20 s more to finish   <--- answered ---   neap_external_answer
 *
 * (a release, for another process that is out of memory, has 150 ms in all)
 *
 * A request that does not begin in time is withdrawn and never executed; its peer gets the answer that the program is
 * busy. So the agent's thread runs no code of the program, and waits for it no longer than that.
 *
 * Threads: all functions from any thread; one thread at a time waits in neap_external_next. After a fork the child
 * has no external allocator until it opens one.
 */
#ifndef NEAP_EXTERNAL_H
#define NEAP_EXTERNAL_H

#include "neap/stats.h"
#include "neap/status.h"
#include "neap/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NEAP_EXTERNAL_DEVICES 16
#define NEAP_EXTERNAL_TEXT    8192 /* bytes of an answer's text that are kept */

enum neap_external_kind {
	NEAP_EXTERNAL_INFO = 1,       /* fill the figures as they are */
	NEAP_EXTERNAL_CLEAR = 2,      /* give cached memory back; with `force`, release what pins memory, too */
	NEAP_EXTERNAL_RESET_PEAK = 3, /* reset the peaks; answer their old values */
	NEAP_EXTERNAL_FRACTION = 4,   /* limit what may be reserved to `fraction` of each device */
	NEAP_EXTERNAL_RELEASE = 5,    /* give cached memory back and do no more: another process is out of memory */
};

struct neap_external_request {
	uint64_t id; /* to begin and answer it with */
	uint32_t kind;
	uint32_t force;
	double fraction;
};

/* One device's part of an answer. All in bytes; UINT64_MAX: not known, and, of a limit, none. */
struct neap_device_answer {
	unsigned char uuid[16];
	uint64_t status;  /* enum neap_status; else `message` says why */
	uint64_t ordinal; /* CUDA's, in this process */
	uint64_t total, allocated, reserved, max_allocated, max_reserved; /* after it was done */
	uint64_t allocated_before, reserved_before, free_before, free;
	uint64_t reserved_now; /* when the answer was sent: the program continues */
	uint64_t limit_before, limit;
	uint64_t emptied; /* 1: the cache was emptied for a limit */
	uint64_t freed, nanoseconds;
	char name[96];
	char message[200];
};

/* From now on the agent passes requests on. Idempotent. NEAP_EINVAL without a name. `name`: whose memory it is,
 * "PyTorch", for messages; copied. */
NEAP_API enum neap_status neap_external_open(const char *name, struct neap_error *err);
/* Ends the requests: withdraws the waiting one, and neap_external_next returns. Idempotent. */
NEAP_API void neap_external_close(void);

/* Waits up to `timeout_ms` for a request. NEAP_ETIMEDOUT: none came. NEAP_ECANCELED: closed. */
NEAP_API enum neap_status neap_external_next(uint32_t timeout_ms, struct neap_external_request *ret_request,
					     struct neap_error *err);
/* NEAP_ESTATE: it was withdrawn, do nothing. */
NEAP_API enum neap_status neap_external_begin(uint64_t id, struct neap_error *err);
/* Answers the request, begun or not. If `status` is not NEAP_OK, the whole request is refused, and `text` says why.
 * Else `text` is shown with the answer (lines; NULL: none). At most NEAP_EXTERNAL_DEVICES devices. NEAP_ESTATE: its
 * peer no longer waits. */
NEAP_API enum neap_status neap_external_answer(uint64_t id, enum neap_status status, const char *text,
					       const struct neap_device_answer *devices, size_t count,
					       struct neap_error *err);

/* Sets what the allocator holds on the device of this UUID, for the statistics page; `sequence` is not read.
 * NEAP_ESTATE when the process is not attached, NEAP_ENOSPC when the page has no room for another device. */
NEAP_API enum neap_status neap_external_publish(const struct neap_published *counters, struct neap_error *err);

/* The bytes that the driver lists for this process on the device of this UUID (16 bytes): allocators, context,
 * libraries. Asks NVML each time, which can take some 10 ms. NEAP_ENOENT: it does not list this process, or not its
 * bytes, as in some containers. Other errors: there is no NVML. */
NEAP_API enum neap_status neap_external_held(const unsigned char *uuid, uint64_t *ret_bytes, struct neap_error *err);

/* Hands an event to this process's recording, with the time filled in; nothing where it is not attached. */
NEAP_API void neap_external_emit(const struct neap_event *event);
/* The recording's number for a name; 0 where there is no recording. */
NEAP_API uint16_t neap_external_name(const char *text);

#ifdef __cplusplus
}
#endif
#endif
