/* series/packing.h: chooses the device to start an experiment on, beside those that run. Pure.
 *
 * A running experiment counts with the bytes it needs, not the bytes it holds now: right after its start it holds
 * none. (Its own supervisor waits until other programs leave these bytes free: run/drain.h.)
 *
 *   invariant: the needs of the experiments on a device fit into it together, or only one runs there
 */
#ifndef NEAP_SERIES_PACKING_H
#define NEAP_SERIES_PACKING_H

#include "run/drain.h"

#define NEAP_PACKING_ANY SIZE_MAX

struct neap_packing_device {
	uint64_t bytes;       /* available to programs */
	uint64_t taken_bytes; /* needed by the experiments on it */
	size_t running;       /* how many of them need device memory */
	bool whole;           /* one needs the whole device */
};

/* Adds the needs of an experiment that was started on the device. */
void neap_packing_add(struct neap_packing_device *device, const struct neap_needs *needs);

/* Returns the device with the most free memory for the experiment, or `only` if that is not NEAP_PACKING_ANY;
 * `count`: the experiment must wait. If it needs more than any device has, it gets an idle one; its supervisor
 * reports the error. If it needs nothing, returns 0. */
size_t neap_packing_choose(const struct neap_packing_device *devices, size_t count, const struct neap_needs *needs,
			   size_t only);

#endif
