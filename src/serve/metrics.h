/* serve/metrics.h: the memory that devices and processes hold, in Prometheus' text format (version 0.0.4). Pure, one
 * thread.
 *
 * Names and labels follow NVIDIA's exporter where it has a word (fb: the memory of a device; gpu: a device's index;
 * UUID). Sizes are in bytes. Label values may hold any bytes: they are escaped, and bytes that are not UTF-8, and
 * control characters, become '?'.
 */
#ifndef NEAP_SERVE_METRICS_H
#define NEAP_SERVE_METRICS_H

#include "base/buffer.h"
#include "device/ledger.h"

struct neap_metrics_device {
	const char *uuid, *name;
	struct neap_ledger ledger;
	int utilization_percent; /* -1: the driver does not report it */
	uint64_t gone_bytes;     /* bytes that the driver counts for PIDs without a process here */
};

struct neap_metrics_process {
	size_t device;                 /* index into the devices */
	const char *user, *name, *run; /* run: "" none */
	uint64_t run_ns;               /* since its start; UINT64_MAX: not known */
	struct neap_ledger_process account;
};

/* Borrowed. A process has one entry for each device that it uses. */
struct neap_metrics {
	bool up; /* the last sample succeeded; else there are no devices */
	const char *version;
	uint64_t poll_ns; /* how long the sample took */
	const struct neap_metrics_device *devices;
	size_t device_count;
	const struct neap_metrics_process *processes;
	size_t process_count;
};

/* Appends all metrics, each with its help, its type, and its samples. */
void neap_metrics_write(struct neap_buffer *out, const struct neap_metrics *metrics);

#endif
