/* cli/estimate_here.c: see estimate_here.h. */
#include "cli/estimate_here.h"

#include "base/error.h"
#include "series/series_room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool estimate_names_here(const char *gpus)
{
	for (const char *at = gpus; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",") == strlen(NEAP_ESTIMATE_HERE) &&
		    !strncmp(at, NEAP_ESTIMATE_HERE, strlen(NEAP_ESTIMATE_HERE)))
			return true;
	return false;
}

static void add(struct neap_estimate_here *here, const struct neap_reading *reading)
{
	size_t at = 0;
	while (at < here->count && (here->gpus[at].total_bytes != reading->total_bytes ||
				    strcmp(here->gpus[at].gpu_name, reading->name) != 0))
		at++;
	if (at == here->count && here->count < NEAP_ESTIMATE_HERE_MOST) {
		snprintf(here->gpus[at].gpu_name, sizeof here->gpus[at].gpu_name, "%s", reading->name);
		here->gpus[at].total_bytes = reading->total_bytes;
		here->gpus[at].reserved_bytes = reading->reserved_known ? reading->reserved_bytes : 0;
		here->count++;
	}
}

/* A list of numbers is the driver's to resolve (series_room names the first alone), but it says how many. */
static unsigned count_listed(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	unsigned count = list && *list;
	for (const char *at = list; at && *at; at++)
		count += *at == ',';
	return count;
}

enum neap_status estimate_find_here(struct neap_estimate_here *ret_here, struct neap_error *err)
{
	struct neap_estimate_here here = {0};
	struct neap_series_room room;
	struct neap_monitor *monitor = NULL;
	enum neap_status status = neap_series_room_init(&room, err);
	if (!status)
		status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, err);
	for (size_t i = 0; !status && i < room.count; i++) {
		struct neap_reading reading;
		status = neap_monitor_read(monitor, room.numbers[i], &reading, err);
		if (!status)
			add(&here, &reading);
	}
	neap_monitor_close(monitor);
	if (!status && !here.count)
		status = neap_fail(err, NEAP_ENODEVICE, "this machine has no GPU that CUDA_VISIBLE_DEVICES lists");
	if (status)
		return status;
	here.devices = room.count == 1 && count_listed() > 1 ? count_listed() : (unsigned)room.count;
	if (here.devices > SIM_DEVICE_LIMIT)
		here.devices = SIM_DEVICE_LIMIT;
	*ret_here = here;
	return NEAP_OK;
}
