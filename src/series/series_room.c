/* series/series_room.c: see series_room.h. */
#include "series/series_room.h"

#include "base/units.h"
#include "device/visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIRST_DEVICE_NS (60ull * 1000000000ull)

/* Whether every entry of the list is a UUID or the beginning of one. */
static bool names_uuids(const char *list)
{
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncasecmp(at, "GPU-", 4) != 0)
			return false;
	return true;
}

static bool is_listed(const char *list, const char *uuid_text)
{
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncasecmp(at, uuid_text, strcspn(at, ", ")))
			return true;
	return false;
}

enum neap_status neap_series_room_init(struct neap_series_room *room, struct neap_error *err)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	struct neap_monitor *monitor = NULL;
	struct neap_reading reading;
	char first[48];
	*room = (struct neap_series_room){0};
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, err);
	if (!status && list && !names_uuids(list)) {
		status = neap_visible_first(NEAP_BACKEND_DEFAULT, FIRST_DEVICE_NS, first, err);
		list = first;
	}
	for (size_t i = 0; !status && i < neap_monitor_device_count(monitor) && room->count < NEAP_ROOM_DEVICES;
	     i++) {
		if (neap_monitor_read(monitor, i, &reading, NULL) || (list && !is_listed(list, reading.uuid_text)))
			continue;
		uint64_t held = reading.reserved_known ? reading.reserved_bytes : 0;
		room->devices[room->count].bytes = reading.total_bytes > held ? reading.total_bytes - held : 0;
		memcpy(room->uuids[room->count], reading.uuid_text, sizeof reading.uuid_text);
		room->numbers[room->count++] = i;
	}
	neap_monitor_close(monitor);
	return status;
}

size_t neap_series_room_find(const struct neap_series_room *room, const char *name)
{
	uint64_t number = 0;
	bool numbered = !neap_u64_parse(name, &number, NULL);
	for (size_t i = 0; i < room->count; i++)
		if (numbered ? room->numbers[i] == number : !strncasecmp(room->uuids[i], name, strlen(name)))
			return i;
	return room->count;
}
