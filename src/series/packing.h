/* series/packing.h: which device an experiment that needs so many bytes may be started on, beside those that run.
 * Pure.
 *
 * What counts of those that run is what they need, not what they hold at the moment: one that has just been started
 * holds nothing yet. (That the bytes are free of others' use is waited for by its own supervisor: run/drain.h.)
 *
 *   invariant: the needs of those that run on a device fit into it together, or it is one alone
 */
#ifndef NEAP_SERIES_PACKING_H
#define NEAP_SERIES_PACKING_H

#include "run/drain.h"

#define NEAP_PACKING_ANY SIZE_MAX

struct neap_packing_device {
	uint64_t bytes;       /* that programs can have of it */
	uint64_t taken_bytes; /* needed by those that run on it */
	size_t running;       /* how many that need some */
	bool whole;           /* one of them needs all of it */
};

/* Adds one that was started on the device. */
void neap_packing_add(struct neap_packing_device *device, const struct neap_needs *needs);

/* The device with the most room for it, or `only` where that is not NEAP_PACKING_ANY; `count` when it must wait. One
 * that needs more than a device has is let on an idle one, where its supervisor says so. Nothing needed: any device
 * will do, and 0 is returned. */
size_t neap_packing_choose(const struct neap_packing_device *devices, size_t count, const struct neap_needs *needs,
			   size_t only);

#endif
