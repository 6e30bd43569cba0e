/* report/replayed.h: writes what `neap replay` shows: how much memory a trace needs under an allocator's policy. Pure
 * functions. */
#ifndef NEAP_REPORT_REPLAYED_H
#define NEAP_REPORT_REPLAYED_H

#include "base/buffer.h"
#include "replay/replay.h"
#include "store/json.h"

/* All borrowed. */
struct neap_replayed {
	const char *path; /* of the trace; it is shown */
	const struct neap_replay_options *options;
	const struct neap_replay_result *result;
	uint64_t smallest_bytes; /* the smallest device that completes; 0: not asked for */
};

#define NEAP_REPLAY_POLICIES 3
/* By enum neap_replay_policy, as --policy takes them. */
extern const char *const neap_replay_policy_names[NEAP_REPLAY_POLICIES];

void neap_report_replayed(struct neap_buffer *out, const struct neap_replayed *replayed);

/* Schema 1. The caller owns the result. Failed allocations are counted (neap_json_failures). */
json_t *neap_replayed_json(const struct neap_replayed *replayed);

#endif
