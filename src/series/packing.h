/* series/packing.h: the devices shared by a series that runs several experiments at a time (those of machine/gpus.h),
 * and on which of them to start an experiment, beside those that run.
 *
 * A running experiment counts with the bytes it needs, not the bytes it holds now: right after its start it holds
 * none. (Its own supervisor waits until other programs leave these bytes free: run/drain.h.)
 *
 *   invariant: the needs of the experiments on a device fit into it together, or only one runs there
 */
#ifndef NEAP_SERIES_PACKING_H
#define NEAP_SERIES_PACKING_H

#include "machine/gpus.h"
#include "run/drain.h"

#define NEAP_PACKING_ANY SIZE_MAX

struct neap_packing_device {
	uint64_t bytes;       /* available to programs */
	uint64_t taken_bytes; /* needed by the experiments on it */
	size_t running;       /* how many of them need device memory */
	bool whole;           /* one needs the whole device */
};

/* Pure. Adds the needs of an experiment that was started on the device. */
void neap_packing_add(struct neap_packing_device *device, const struct neap_needs *needs);

/* Pure. Returns the device with the most free memory for the experiment, or `only` if that is not NEAP_PACKING_ANY;
 * `count`: the experiment must wait. If it needs more than any device has, it gets an idle one; its supervisor
 * reports the error. If it needs nothing, returns 0. */
size_t neap_packing_choose(const struct neap_packing_device *devices, size_t count, const struct neap_needs *needs,
			   size_t only);

#define NEAP_ROOM_DEVICES NEAP_GPUS

struct neap_series_headroom {
	struct neap_packing_device devices[NEAP_ROOM_DEVICES]; /* as if nothing were started */
	char uuids[NEAP_ROOM_DEVICES][48];
	size_t numbers[NEAP_ROOM_DEVICES]; /* NVML's indices */
	size_t count;
};

/* Without a driver there are no devices: returns an error that says so, and an empty but usable headroom. */
enum neap_status neap_series_headroom_init(struct neap_series_headroom *headroom, struct neap_error *err);

/* The index of the device that a file names by number or UUID; `count` when there is none. */
size_t neap_series_headroom_find(const struct neap_series_headroom *headroom, const char *name);

#endif
