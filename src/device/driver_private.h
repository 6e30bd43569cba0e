/* device/driver_private.h: the inside of a driver, for driver.c and device.c alone. */
#ifndef NEAP_DEVICE_DRIVER_PRIVATE_H
#define NEAP_DEVICE_DRIVER_PRIVATE_H

#include "device/driver.h"
#include "device/fork_guard.h"

#include <stdbool.h>

struct neap_driver {
	struct neap_cuda cuda;
	struct neap_capabilities can;
	struct neap_nvml nvml; /* call it only while nvml_running is set */
	bool nvml_running;
	enum neap_backend backend;
	const struct neap_sim_calls *sim;
	int device_count;
	struct neap_fork_guard guard;
};

#endif
