/* replay/paper.h: a device on paper: a driver that only counts pages and calls, and gives out addresses.
 *
 * An event completes `event_delay` ticks of `now` after it was recorded; the caller sets both. An event that is
 * recorded while `holding` is set gets the current token. It completes when that token is removed from `held`.
 *
 * Like CUDA's driver, the functions take no context of neap's: they act on the device that the calling thread has
 * opened. So a thread has at most one open, and only that thread uses and closes it.
 */
#ifndef NEAP_REPLAY_PAPER_H
#define NEAP_REPLAY_PAPER_H

#include "base/map.h"
#include "neap/device.h"
#include "replay/policy.h"

/* The caller's storage. Zeroed: closed. */
struct neap_paper {
	uint64_t room_bytes, used_bytes, peak_bytes, page_bytes;
	uint64_t next_address, next_handle;
	struct neap_driver *driver;
	struct neap_device *device;
	void *current;         /* the context that is current */
	struct neap_map plain; /* address of a cuMemAlloc -> its bytes */
	struct neap_policy_calls calls;
	uint64_t synchronizations; /* how often it was synchronised; a cuMemFree counts */
	uint64_t events_recorded, stream_waits;
	uint64_t now, event_delay;
	bool holding;
	uint64_t token;       /* of the events recorded while holding */
	struct neap_map held; /* tokens of events that have not completed */
};

/* Opens a device that may give out `room_bytes`, in pages of `page_bytes` (0: without virtual memory, in 2 MiB). The
 * struct must not move until the device is closed. Errors: NEAP_ENOMEM; NEAP_EBUSY if this thread has one open. */
enum neap_status neap_paper_open(struct neap_paper *paper, uint64_t room_bytes, uint64_t page_bytes,
				 struct neap_error *err);
void neap_paper_close(struct neap_paper *paper);

#endif
