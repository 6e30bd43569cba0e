/* run/drain.h: before a start, checks that the device has enough free memory. Pure functions over readings.
 * device/drain.h checks after the end that the memory is free again. */
#ifndef NEAP_RUN_DRAIN_H
#define NEAP_RUN_DRAIN_H

#include "device/drain.h"

/* A device that uses no more than this counts as empty: the driver needs it for bookkeeping. */
#define NEAP_WHOLE_SLACK (32ull << 20)

enum neap_needs_kind { NEAP_NEEDS_NONE, NEAP_NEEDS_BYTES, NEAP_NEEDS_DEVICE };

struct neap_needs {
	enum neap_needs_kind kind;
	uint64_t bytes; /* for NEAP_NEEDS_BYTES */
};

/* "none", "device" or a size. Errors: NEAP_EPARSE. */
enum neap_status neap_needs_parse(const char *text, struct neap_needs *ret_needs, struct neap_error *err);

enum neap_headroom { NEAP_ROOM_NOW, NEAP_ROOM_LATER, NEAP_ROOM_NEVER /* the device is too small */ };
enum neap_headroom neap_needs_headroom(const struct neap_needs *needs, const struct neap_reading *reading);

#endif
