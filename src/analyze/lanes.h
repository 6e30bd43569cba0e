/* analyze/lanes.h: finds which steps of a journal belong together. Pure.
 *
 * A process may train on several devices, and with several sessions at once (a generator and its critic). The steps
 * of all are in one journal. Sessions of a device that run one after another form one lane; sessions that overlap
 * have a lane each.
 *
 *   device 0   session A  1 2 3 4 5 |                   lane 0: A, then C
 *              session C            | 1 2 3
 *              session B    1 2 3 4 5 6 7               lane 1
 *   device 1   session D  1 2 3                         lane 2
 */
#ifndef NEAP_ANALYZE_LANES_H
#define NEAP_ANALYZE_LANES_H

#include "trace/record.h"

#define NEAP_LANE_NONE UINT32_MAX

struct neap_lane {
	uint16_t device;
	uint64_t steps;
	uint64_t last_ns;
};

struct neap_lanes {
	uint32_t *of; /* for each event of the journal: its lane if it is a step, else NEAP_LANE_NONE */
	struct neap_lane *items;
	size_t count;
	size_t main; /* the lane with the most steps (the first of equals); 0 when there is none */
};

/* Errors: NEAP_ENOMEM. */
enum neap_status neap_lanes_find(const struct neap_record *record, struct neap_lanes *ret_lanes,
				 struct neap_error *err);
void neap_lanes_fini(struct neap_lanes *lanes);

#endif
