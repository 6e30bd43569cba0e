/* run/supervise_astray.c: finds a Python that lost neap's environment on the way to the simulator. Such a Python
 * finds no device, or not even NVIDIA's libraries: unlike on a real GPU, no driver lists it (run/observe.h). */
#include "run/orphans.h"
#include "run/outsider.h"
#include "run/supervise_internal.h"

#include "base/clock.h"

#include <stdio.h>

#define FIRST_NS  (10 * NEAP_NS_PER_MS) /* doubled each time: each search reads all of /proc */
#define LAST_NS   (60 * NEAP_NS_PER_S)
#define PROCESSES 64

void neap_supervise_astray_poll(struct neap_supervise *run, uint64_t now_ns)
{
	const struct neap_orphans_of of = neap_supervise_processes(run);
	struct neap_process processes[PROCESSES];
	uint64_t age_ns = now_ns - run->started_ns;
	size_t count = 0;

	if (run->simulated_reported || run->astray[0] || run->observe.attached_count || !run->monitor ||
	    neap_monitor_backend(run->monitor) != NEAP_BACKEND_SIM || age_ns < run->astray_ns || age_ns > LAST_NS)
		return;
	run->astray_ns = run->astray_ns ? 2 * run->astray_ns : FIRST_NS;
	if (age_ns < FIRST_NS || neap_orphans_find(&of, processes, PROCESSES, &count, NULL))
		return;
	for (size_t i = 0; i < count && !run->astray[0]; i++)
		if (!neap_outsider_is_astray(processes[i].pid, run->astray, sizeof run->astray))
			run->astray[0] = '\0';
}
