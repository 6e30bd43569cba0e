/* analyze/state_at.h: a device's segments and blocks at one instant of a trace, from its events. Pure.
 *
 * If the file has the state at its end, it undoes the events of segments after the instant; else it applies those up
 * to the instant. Blocks are the live allocations, each rounded up to 512 bytes; bytes between them are free. A text
 * trace has no addresses, and a recording that has lost its beginning does not know all segments.
 */
#ifndef NEAP_ANALYZE_STATE_AT_H
#define NEAP_ANALYZE_STATE_AT_H

#include "analyze/lives.h"

struct neap_state {
	struct neap_trace_segment *segments; /* by address; first_block and block_count in blocks */
	size_t segment_count;
	struct neap_trace_block *blocks;
	size_t block_count;
};

/* Finds the state just after `event`. *ret_known false: addresses are not known, and *ret_state is empty. Free with
 * neap_state_fini. Errors: NEAP_ENOMEM. */
enum neap_status neap_state_at(const struct neap_trace *trace, size_t device, const struct neap_lives *lives,
			       uint64_t event, struct neap_state *ret_state, bool *ret_known, struct neap_error *err);
void neap_state_fini(struct neap_state *state);

#endif
