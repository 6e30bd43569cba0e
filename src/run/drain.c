/* run/drain.c: see drain.h. */
#include "run/drain.h"

#include "base/error.h"
#include "base/units.h"

#include <string.h>

enum neap_status neap_needs_parse(const char *text, struct neap_needs *ret_needs, struct neap_error *err)
{
	struct neap_needs needs = {0};
	if (!strcmp(text, "device")) {
		needs.kind = NEAP_NEEDS_DEVICE;
	} else if (strcmp(text, "none") != 0) {
		needs.kind = NEAP_NEEDS_BYTES;
		enum neap_status status = neap_size_parse(text, &needs.bytes, err);
		if (status) {
			neap_error_prefix(err, "expected a size, 'device' or 'none'");
			return status;
		}
	}
	*ret_needs = needs;
	return NEAP_OK;
}

/* Whether the device is empty. If the driver has only memory info v1, it counts its reserve as used and does not
 * report the reserve separately. An empty device then shows up to about 1 GiB (1/20 of a large device) and no
 * process.
 */
static bool whole(const struct neap_reading *reading)
{
	if (reading->reserved_known)
		return reading->used_bytes <= NEAP_WHOLE_SLACK;
	uint64_t reserve = reading->total_bytes / 20 > NEAP_GIB ? reading->total_bytes / 20 : NEAP_GIB;
	return reading->used_bytes <= reserve && (!reading->processes_known || reading->process_count == 0);
}

enum neap_headroom neap_needs_headroom(const struct neap_needs *needs, const struct neap_reading *reading)
{
	switch (needs->kind) {
	case NEAP_NEEDS_NONE:
		return NEAP_ROOM_NOW;
	case NEAP_NEEDS_DEVICE:
		return whole(reading) ? NEAP_ROOM_NOW : NEAP_ROOM_LATER;
	case NEAP_NEEDS_BYTES:
		break;
	}
	if (reading->reserved_bytes > reading->total_bytes ||
	    needs->bytes > reading->total_bytes - reading->reserved_bytes)
		return NEAP_ROOM_NEVER;
	return needs->bytes <= reading->free_bytes ? NEAP_ROOM_NOW : NEAP_ROOM_LATER;
}
