/* estimate/driver.h: how much memory a program without PyTorch took from the simulated driver.
 *
 *   RUN/driver.PID   of each process: sim/driver/account.c. The program's processes may write anything there
 */
#ifndef NEAP_ESTIMATE_DRIVER_H
#define NEAP_ESTIMATE_DRIVER_H

#include "estimate/estimate.h"
#include "store/json.h"

/* The figures of the device from which all processes together took the most. The peaks of the processes are added
 * up. */
struct neap_estimate_driver {
	uint64_t memory_bytes, contexts, processes;
};

/* False: no process of the run took memory from the driver. */
bool neap_estimate_driver_read(const char *folder, struct neap_estimate_driver *ret_driver);

struct neap_estimate_driver_report {
	const char *command;
	const struct neap_estimate_plan *plan;
	const struct neap_estimate_run *run;
	const struct neap_estimate_driver *driver;
};

/* Whether the program fits on a GPU of the plan. The interval is how much of the GPU the program takes; it is an
 * interval because only a GPU shows how much a context takes. */
enum neap_estimate_fits neap_estimate_driver_fits(const struct neap_estimate_driver_report *report, size_t gpu,
						  uint64_t *ret_low_bytes, uint64_t *ret_high_bytes);

void neap_estimate_driver_text(struct neap_buffer *out, const struct neap_estimate_driver_report *report);
json_t *neap_estimate_driver_json(const struct neap_estimate_driver_report *report);

#endif
