/* train/start.c: clears memory at the start, by ending processes that earlier runs of this user left on the device.
 * Emptying a new process's own cache would free nothing. */
#include "train/session_internal.h"

#include "base/error.h"
#include "base/log.h"
#include "device/driver.h"
#include "device/leftovers.h"

#include <stdlib.h>

enum neap_status neap_clear_leftovers(const unsigned char *uuid, const struct neap_log_sink *log,
				      struct neap_error *err)
{
	struct neap_leftovers_options options = {.uuid = uuid, .run_id = getenv("NEAP_RUN_ID"), .log = log};
	struct neap_monitor *monitor = NULL;
	struct neap_leftovers found;

	if (!uuid)
		return neap_fail(err, NEAP_EINVAL, "leftovers: no device's UUID was given");
	enum neap_status status = neap_monitor_open(NEAP_BACKEND_DEFAULT, &monitor, err);
	if (!status)
		status = neap_leftovers_clear(monitor, &options, &found, err);
	neap_monitor_close(monitor);
	return status;
}

void neap_session_clear_leftovers(struct neap_train *train)
{
	struct neap_device *device = neap_alloc_device(train->alloc);
	struct neap_leftovers_options options = {
		.uuid = neap_device_info(device)->uuid, .run_id = getenv("NEAP_RUN_ID"), .log = train->options.log};
	struct neap_monitor *monitor = NULL;
	struct neap_leftovers found;
	struct neap_error err = {0};
	enum neap_status status = neap_driver_monitor(neap_device_driver(device), &monitor, &err);

	if (!status)
		status = neap_leftovers_clear(monitor, &options, &found, &err);
	if (status)
		neap_log(train->options.log, NEAP_LOG_WARNING,
			 "%s: leftovers of earlier runs were not looked for: %s", train->name, err.message);
	neap_monitor_close(monitor);
}
