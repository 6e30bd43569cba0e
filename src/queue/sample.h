/* queue/sample.h: collects the facts that decide.h needs: the devices as the driver shows them now, and how much of
 * them the runs with leases use.
 *
 * The memory of a process counts against the promise to the run whose supervisor the process descends from. A device
 * is read until two readings agree: else a process that allocates or frees in between would count twice, or not at
 * all. If they never agree, or if the driver does not say how much a process uses, its run counts as using nothing
 * yet. So no run starts too early.
 */
#ifndef NEAP_QUEUE_SAMPLE_H
#define NEAP_QUEUE_SAMPLE_H

#include "queue/decide.h"
#include "queue/queue.h"

struct neap_queue_sample {
	struct neap_queue_device devices[NEAP_GPUS]; /* by NVML's index */
	char uuids[NEAP_GPUS][48], names[NEAP_GPUS][96];
	size_t device_count;
	struct neap_queue_entry *entries;  /* one for each ticket, in their order */
	struct neap_queue_answer *answers; /* likewise */
	size_t count;
};

/* Takes a sample and decides. `monitor` NULL: no driver, and every ticket waits. The caller calls
 * neap_queue_sample_fini. A device that cannot be read has no UUID, so no ticket gets it. Errors: NEAP_ENOMEM. */
enum neap_status neap_queue_sample_take(const struct neap_tickets *tickets, struct neap_monitor *monitor,
					struct neap_queue_sample *ret_sample, struct neap_error *err);
void neap_queue_sample_fini(struct neap_queue_sample *sample);

/* The bytes promised to leases on the device and not used yet. */
uint64_t neap_queue_promised(const struct neap_queue_sample *sample, size_t device);

#endif
