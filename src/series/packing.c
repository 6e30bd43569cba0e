/* series/packing.c: see packing.h. */
#include "series/packing.h"

#include "base/units.h"

#include <string.h>
#include <strings.h>

void neap_packing_add(struct neap_packing_device *device, const struct neap_needs *needs)
{
	if (needs->kind == NEAP_NEEDS_NONE)
		return;
	device->running++;
	device->whole = device->whole || needs->kind == NEAP_NEEDS_DEVICE;
	if (needs->kind == NEAP_NEEDS_BYTES && needs->bytes < UINT64_MAX - device->taken_bytes)
		device->taken_bytes += needs->bytes;
}

static bool fits(const struct neap_packing_device *device, const struct neap_needs *needs)
{
	if (!device->running)
		return true;
	return needs->kind == NEAP_NEEDS_BYTES && !device->whole && device->taken_bytes <= device->bytes &&
	       needs->bytes <= device->bytes - device->taken_bytes;
}

static uint64_t headroom(const struct neap_packing_device *device)
{
	return device->bytes > device->taken_bytes ? device->bytes - device->taken_bytes : 0;
}

size_t neap_packing_choose(const struct neap_packing_device *devices, size_t count, const struct neap_needs *needs,
			   size_t only)
{
	size_t best = count;
	if (needs->kind == NEAP_NEEDS_NONE)
		return 0;
	for (size_t i = 0; i < count; i++)
		if ((only == NEAP_PACKING_ANY || only == i) && fits(&devices[i], needs) &&
		    (best == count || headroom(&devices[i]) > headroom(&devices[best])))
			best = i;
	return best;
}

enum neap_status neap_series_headroom_init(struct neap_series_headroom *headroom, struct neap_error *err)
{
	struct neap_gpus gpus;
	enum neap_status status = neap_gpus_find(&gpus, err);
	*headroom = (struct neap_series_headroom){.count = gpus.count};
	for (size_t i = 0; i < gpus.count; i++) {
		const struct neap_gpu *gpu = &gpus.items[i];
		uint64_t held = gpu->reserved_bytes;
		headroom->devices[i].bytes = gpu->total_bytes > held ? gpu->total_bytes - held : 0;
		memcpy(headroom->uuids[i], gpu->uuid, sizeof gpu->uuid);
		headroom->numbers[i] = gpu->number;
	}
	return status;
}

size_t neap_series_headroom_find(const struct neap_series_headroom *headroom, const char *name)
{
	uint64_t number = 0;
	bool numbered = !neap_u64_parse(name, &number, NULL);
	for (size_t i = 0; i < headroom->count; i++)
		if (numbered ? headroom->numbers[i] == number : !strncasecmp(headroom->uuids[i], name, strlen(name)))
			return i;
	return headroom->count;
}
