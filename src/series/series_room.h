/* series/series_room.h: the devices shared by a series that runs several experiments at a time: those of
 * machine/gpus.h. series/packing.h decides which experiment gets which. */
#ifndef NEAP_SERIES_SERIES_ROOM_H
#define NEAP_SERIES_SERIES_ROOM_H

#include "machine/gpus.h"
#include "series/packing.h"

#define NEAP_ROOM_DEVICES NEAP_GPUS

struct neap_series_room {
	struct neap_packing_device devices[NEAP_ROOM_DEVICES]; /* as if nothing were started */
	char uuids[NEAP_ROOM_DEVICES][48];
	size_t numbers[NEAP_ROOM_DEVICES]; /* NVML's indices */
	size_t count;
};

/* Without a driver there are no devices: returns an error that says so, and a room that is empty but usable. */
enum neap_status neap_series_room_init(struct neap_series_room *room, struct neap_error *err);

/* The index of the device that a file names by number or UUID; `count` when there is none. */
size_t neap_series_room_find(const struct neap_series_room *room, const char *name);

#endif
