/* device/monitor.h: reads devices through NVML alone, for the command. It creates no CUDA context, so it costs the
 * device nothing.
 *
 * Threads: one monitor, one thread at a time. Not usable in a forked child.
 */
#ifndef NEAP_DEVICE_MONITOR_H
#define NEAP_DEVICE_MONITOR_H

#include "neap/device.h"

#include <stdbool.h>
#include <sys/types.h>

#define NEAP_BYTES_UNKNOWN     UINT64_MAX
#define NEAP_READING_PROCESSES 256

struct neap_reading_process {
	pid_t pid;
	uint64_t bytes; /* NEAP_BYTES_UNKNOWN if the driver does not report it */
};

struct neap_reading {
	unsigned char uuid[16];
	char uuid_text[48];
	char name[96];
	char pci_bus_id[32];
	uint64_t total_bytes, reserved_bytes /* the driver's own */, used_bytes /* without reserved */, free_bytes;
	/* False: memory info v1, where used_bytes includes the reserve, and reserved_bytes is 0. */
	bool reserved_known;
	/* The device has no memory of its own and uses the host's (GB10): total and free are the whole host's. */
	bool unified;
	int utilization_percent; /* -1: not available */
	size_t process_count;
	bool processes_known;     /* false: the driver gave no list */
	bool processes_truncated; /* there are more than `processes` can hold */
	struct neap_reading_process processes[NEAP_READING_PROCESSES];
};

/* What a device and its processes are doing. All may be unknown: virtual and simulated devices have no sensors. */
struct neap_condition {
	int temperature_celsius; /* -1: unknown; also in the fields below */
	int power_watts, power_limit_watts;
	int clock_mhz; /* of the multiprocessors */
	size_t busy_count;
	struct neap_busy {
		pid_t pid;
		int percent; /* of the multiprocessors' time, in the last sample that the driver took */
	} busy[NEAP_READING_PROCESSES];
};

struct neap_monitor;

/* Errors as neap_driver_open: NEAP_ENODEVICE names NEAP_DEVICE=sim. */
enum neap_status neap_monitor_open(enum neap_backend backend, struct neap_monitor **ret_monitor,
				   struct neap_error *err);
/* Wraps the caller's table, for tests; copies the table, loads no library. */
struct neap_nvml;
enum neap_status neap_monitor_wrap(const struct neap_nvml *nvml, struct neap_monitor **ret_monitor,
				   struct neap_error *err);
void neap_monitor_close(struct neap_monitor *monitor);
enum neap_backend neap_monitor_backend(const struct neap_monitor *monitor);
size_t neap_monitor_device_count(const struct neap_monitor *monitor);
enum neap_status neap_monitor_read(struct neap_monitor *monitor, size_t index, struct neap_reading *ret_reading,
				   struct neap_error *err);
/* Reads only the memory, which is cheaper, and leaves the other fields unset. */
enum neap_status neap_monitor_memory(struct neap_monitor *monitor, size_t index, struct neap_reading *ret_reading,
				     struct neap_error *err);
/* A figure that it cannot read is unknown. */
void neap_monitor_condition(struct neap_monitor *monitor, size_t index, struct neap_condition *ret_condition);
/* Finds the index of the device with this UUID. Errors: NEAP_ENODEVICE. */
enum neap_status neap_monitor_find(struct neap_monitor *monitor, const unsigned char uuid[16], size_t *ret_index,
				   struct neap_error *err);

#endif
