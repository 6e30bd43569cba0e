/* series/packing.h: the devices that the experiments of a series share if several run at a time (those of
 * machine/gpus.h), and the choice of a device for the next experiment.
 *
 * A running experiment counts with the bytes that it needs, not with those that it holds now: right after its start
 * it holds none. (Its own supervisor waits until other programs leave these bytes free: run/drain.h.)
 *
 *   invariant: the needs of the experiments on a device fit into it together, or only one runs there
 */
#ifndef NEAP_SERIES_PACKING_H
#define NEAP_SERIES_PACKING_H

#include "machine/gpus.h"
#include "run/drain.h"

#define NEAP_PACKING_ANY SIZE_MAX

struct neap_packing_device {
	uint64_t bytes;       /* how many bytes programs may use */
	uint64_t taken_bytes; /* needed by the experiments on it */
	size_t running;       /* how many of them need device memory */
	bool whole;           /* one of them needs the whole device */
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
	struct neap_packing_device devices[NEAP_ROOM_DEVICES]; /* as if no experiment were running */
	char uuids[NEAP_ROOM_DEVICES][48];
	size_t numbers[NEAP_ROOM_DEVICES]; /* NVML's indices */
	size_t count;
};

/* Lists the devices. Without a driver there are none: returns an error that says so, and a headroom that is empty but
 * can be used. */
enum neap_status neap_series_headroom_init(struct neap_series_headroom *headroom, struct neap_error *err);

/* Returns the index of the device that a series file names by number or UUID; `count` if there is none. */
size_t neap_series_headroom_find(const struct neap_series_headroom *headroom, const char *name);

#endif
