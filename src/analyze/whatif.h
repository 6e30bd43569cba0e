/* analyze/whatif.h: the same trace under other settings of the allocator, by replaying it: what would it have
 * reserved, and on the device it ran out of, would it have ended? Pure.
 *
 * Every figure is of this very trace: another length, batch or order of it may do otherwise.
 */
#ifndef NEAP_ANALYZE_WHATIF_H
#define NEAP_ANALYZE_WHATIF_H

#include "replay/replay.h"

struct neap_whatif {
	char name[48]; /* "expandable_segments:True", "neap's allocator" */
	enum neap_replay_policy policy;
	const char *settings;
	bool own;    /* the trace's own settings: nothing changes */
	bool active; /* another name for the trace's own */
	bool fits;   /* no request ran out of memory */
	uint64_t reserved_peak, first_oom_event, driver_calls, retries;
};

#define NEAP_WHATIFS 8
struct neap_whatifs {
	struct neap_whatif items[NEAP_WHATIFS]; /* own first; then what fits, the cheapest to adopt first; then what
						   does not fit, the least reserved first; the active last. Without a
						   bound the least reserved first */
	size_t count;
	uint64_t memory_bytes; /* of the device they were replayed on; 0: no bound */
};

/* `options`: device, memory_bytes and progress count; the rest is chosen here. Errors: as neap_replay. */
enum neap_status neap_whatifs_find(const struct neap_trace *trace, const struct neap_replay_options *options,
				   struct neap_whatifs *ret_whatifs, struct neap_error *err);

#endif
