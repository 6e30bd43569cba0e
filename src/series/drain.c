/* series/drain.c: sums over the driver's lists; a byte that is listed for the run counts once. */
#include "series/drain.h"

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

/* With memory info v1 alone the driver's reserve is part of `used` and not known by itself: an empty device then
 * shows up to about 1 GiB (or a twentieth of a large one) and no process. */
static bool whole(const struct neap_reading *reading)
{
	if (reading->reserved_known)
		return reading->used_bytes <= NEAP_WHOLE_SLACK;
	uint64_t reserve = reading->total_bytes / 20 > NEAP_GIB ? reading->total_bytes / 20 : NEAP_GIB;
	return reading->used_bytes <= reserve && (!reading->processes_known || reading->process_count == 0);
}

enum neap_room neap_needs_room(const struct neap_needs *needs, const struct neap_reading *reading)
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

static bool among(pid_t pid, const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* Used bytes that the driver lists for nobody but the run; and what it lists for the run. */
static uint64_t unlisted(const struct neap_reading *reading, const pid_t *pids, size_t count, uint64_t *ret_run_bytes)
{
	uint64_t others_bytes = 0, run_bytes = 0;
	for (size_t i = 0; reading->processes_known && i < reading->process_count; i++) {
		const struct neap_reading_process *process = &reading->processes[i];
		bool ours = among(process->pid, pids, count);
		uint64_t bytes =
			process->bytes == NEAP_BYTES_UNKNOWN ? (ours ? NEAP_DRAIN_SLACK + 1 : 0) : process->bytes;
		*(ours ? &run_bytes : &others_bytes) += bytes;
	}
	*ret_run_bytes = run_bytes;
	return reading->used_bytes > others_bytes ? reading->used_bytes - others_bytes : 0;
}

uint64_t neap_drain_left(const struct neap_reading *before, const struct neap_reading *now, const pid_t *pids,
			 size_t pid_count)
{
	uint64_t run_before = 0, run_now = 0;
	uint64_t unlisted_before = unlisted(before, NULL, 0, &run_before);
	uint64_t unlisted_now = unlisted(now, pids, pid_count, &run_now);
	/* unlisted_now holds the run's listed bytes too: they are part of `used` and of nobody else's */
	uint64_t left = unlisted_now > unlisted_before ? unlisted_now - unlisted_before : 0;
	if (left < run_now)
		left = run_now;
	return left <= NEAP_DRAIN_SLACK ? 0 : left;
}
