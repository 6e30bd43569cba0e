/* series/series_room.c: see series_room.h. */
#include "series/series_room.h"

#include "base/units.h"

#include <string.h>
#include <strings.h>

enum neap_status neap_series_room_init(struct neap_series_room *room, struct neap_error *err)
{
	struct neap_gpus gpus;
	enum neap_status status = neap_gpus_find(&gpus, err);
	*room = (struct neap_series_room){.count = gpus.count};
	for (size_t i = 0; i < gpus.count; i++) {
		const struct neap_gpu *gpu = &gpus.items[i];
		uint64_t held = gpu->reserved_bytes;
		room->devices[i].bytes = gpu->total_bytes > held ? gpu->total_bytes - held : 0;
		memcpy(room->uuids[i], gpu->uuid, sizeof gpu->uuid);
		room->numbers[i] = gpu->number;
	}
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
