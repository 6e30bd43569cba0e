/* train/headroom.c: the sum of free and reserved bytes. Allocating moves bytes from one to the other; only other
 * processes change the sum. */
#include "train/headroom.h"

#include "train/cleanup.h"

#include <stddef.h>

void neap_headroom_emit(struct neap_alloc *alloc)
{
	struct neap_device *device = neap_alloc_device(alloc);
	uint64_t free_bytes = 0, total_bytes = 0, limit_bytes = UINT64_MAX;
	double fraction = neap_get_fraction(alloc);
	struct neap_memory memory;

	if (neap_device_memory(device, &free_bytes, &total_bytes, NULL) != NEAP_OK)
		return;
	neap_memory_read(alloc, &memory);
	if (fraction < 1)
		limit_bytes = (uint64_t)(fraction * (double)neap_device_info(device)->total_bytes);
	uint64_t room_bytes = free_bytes + memory.reserved_bytes;
	neap_emit_room(alloc,
		       (struct neap_event_room){.page_bytes = neap_device_info(device)->page_bytes,
						.device_total_bytes = total_bytes,
						.room_bytes = room_bytes < limit_bytes ? room_bytes : limit_bytes,
						.limit_bytes = limit_bytes});
}
