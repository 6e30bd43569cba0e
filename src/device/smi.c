/* device/smi.c: the figures of nvidia-smi, without starting it. */
#include "base/error.h"
#include "device/driver_private.h"
#include "device/monitor.h"

enum neap_status neap_driver_monitor(struct neap_driver *driver, struct neap_monitor **ret_monitor,
				     struct neap_error *err)
{
	if (!neap_fork_guard_holds(&driver->guard))
		return neap_fail(err, NEAP_ESTATE, "the driver was opened before a fork: open it again in the child");
	if (!driver->nvml_running)
		return neap_fail(err, NEAP_ENOTSUP, "NVML could not be opened");
	return neap_monitor_wrap(&driver->nvml, ret_monitor, err);
}

enum neap_status neap_device_smi_memory(struct neap_device *device, uint64_t *ret_used_bytes,
					uint64_t *ret_free_bytes, struct neap_error *err)
{
	struct neap_monitor *monitor = NULL;
	struct neap_reading reading;
	size_t index = 0;
	enum neap_status status = neap_driver_monitor(neap_device_driver(device), &monitor, err);

	if (!status)
		status = neap_monitor_find(monitor, neap_device_info(device)->uuid, &index, err);
	if (!status)
		status = neap_monitor_memory(monitor, index, &reading, err);
	if (!status) {
		*ret_used_bytes = reading.used_bytes;
		*ret_free_bytes = reading.free_bytes;
	}
	neap_monitor_close(monitor);
	return status;
}
