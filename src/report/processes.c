/* report/processes.c: see processes.h. */
#include "report/processes.h"

#include "base/printable.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>

bool neap_report_processes_known(const struct neap_result *result)
{
	return result->rank_count > 1 || (result->rank_count == 1 && result->ranks[0].rank != UINT64_MAX);
}

void neap_report_processes(struct neap_buffer *out, const struct neap_result *result)
{
	for (size_t i = 0; neap_report_processes_known(result) && i < result->rank_count; i++) {
		const struct neap_result_rank *process = &result->ranks[i];
		char allocated[NEAP_UNITS_CAPACITY], reserved[NEAP_UNITS_CAPACITY], name[32], of[48] = "",
											      device[256] = "";
		snprintf(name, sizeof name, "%s", neap_role_name(process->role));
		if (process->role == NEAP_ROLE_RANK)
			snprintf(name, sizeof name, "rank %" PRIu64, process->rank);
		else if (process->rank != UINT64_MAX)
			snprintf(of, sizeof of, " of rank %" PRIu64, process->rank);
		if (process->device[0]) {
			char clean[sizeof process->device];
			neap_printable(clean, sizeof clean, process->device);
			snprintf(device, sizeof device, " on %s", clean);
		}
		neap_buffer_format(out,
				   "  %-9s %" PRIu64 "%s: peak %s allocated, %s reserved%s; %" PRIu64
				   " steps, ran out %" PRIu64 " time%s\n",
				   name, process->pid, of, neap_size_format(process->peak_allocated_bytes, allocated),
				   neap_size_format(process->peak_reserved_bytes, reserved), device, process->steps,
				   process->ooms, process->ooms == 1 ? "" : "s");
	}
}
