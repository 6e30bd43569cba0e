/* machine/gpus.c: see gpus.h. */
#include "machine/gpus.h"

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

enum neap_status neap_gpus_find(struct neap_gpus *ret_gpus, struct neap_error *err)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	struct neap_monitor *monitor = NULL;
	struct neap_reading reading;
	char first[48];
	*ret_gpus = (struct neap_gpus){0};
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, err);
	if (!status && list && !names_uuids(list)) {
		status = neap_visible_first(NEAP_BACKEND_DEFAULT, FIRST_DEVICE_NS, first, err);
		list = first;
	}
	for (size_t i = 0; !status && i < neap_monitor_device_count(monitor) && ret_gpus->count < NEAP_GPUS; i++) {
		if (neap_monitor_read(monitor, i, &reading, NULL) || (list && !is_listed(list, reading.uuid_text)))
			continue;
		struct neap_gpu *gpu = &ret_gpus->items[ret_gpus->count++];
		*gpu = (struct neap_gpu){.number = i,
					 .total_bytes = reading.total_bytes,
					 .reserved_bytes = reading.reserved_known ? reading.reserved_bytes : 0};
		snprintf(gpu->name, sizeof gpu->name, "%s", reading.name);
		memcpy(gpu->uuid, reading.uuid_text, sizeof reading.uuid_text);
	}
	neap_monitor_close(monitor);
	return status;
}
