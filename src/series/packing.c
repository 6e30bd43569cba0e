/* series/packing.c: see packing.h. */
#include "series/packing.h"

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

static uint64_t room(const struct neap_packing_device *device)
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
		    (best == count || room(&devices[i]) > room(&devices[best])))
			best = i;
	return best;
}
