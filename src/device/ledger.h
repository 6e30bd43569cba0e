/* device/ledger.h: accounts for every byte of a device. Pure functions over plain data.
 *
 *   driver_reserved + contexts + allocated + cached + not_attached + unexplained + free = total
 *
 * contexts, allocated and cached are those of attached processes. not_attached is NVML's figure for the other
 * processes. unexplained is the rest of the driver's `used`; it is shown if it is not zero, and may be negative if a
 * reading and a page are of different instants. On a device that uses the host's memory (reading->unified),
 * not_attached includes the memory of the host's other programs, which comes from the same total.
 */
#ifndef NEAP_DEVICE_LEDGER_H
#define NEAP_DEVICE_LEDGER_H

#include "device/monitor.h"
#include "neap/stats.h"

struct neap_ledger {
	uint64_t driver_reserved, contexts, allocated, cached, not_attached;
	int64_t unexplained;
	uint64_t free, total;
};

/* What an attached process published about this device. */
struct neap_ledger_attached {
	pid_t pid;
	struct neap_published published;
};

struct neap_ledger_process {
	pid_t pid;
	bool attached;
	uint64_t bytes;                      /* as the driver reports it; NEAP_BYTES_UNKNOWN */
	uint64_t context, allocated, cached; /* attached only */
	int64_t other; /* attached only: bytes - context - allocated - cached; 0 when bytes is unknown */
};

/* Computes the ledger. `ret_processes` has space for reading->process_count + attached_count rows. Attached processes
 * that NVML does not list (PIDs of another namespace) are added with unknown bytes. */
void neap_ledger_compute(const struct neap_reading *reading, const struct neap_ledger_attached *attached,
			 size_t attached_count, struct neap_ledger *ret_ledger,
			 struct neap_ledger_process *ret_processes, size_t *ret_process_count);

/* Whether the bytes that a process holds on a device can be just a context, given the size of its context on another
 * device (0: unknown). Contexts differ from device to device, but not by a factor of two. Unknown bytes can be one.
 * An attached process that has no allocator on a device but holds such bytes there has a stray context: it costs
 * hundreds of MB and does nothing. */
bool neap_ledger_context_sized(uint64_t bytes, uint64_t context_elsewhere_bytes);

#endif
