/* replay/neap_policy.h: a policy that calls neap's own allocator, on a device on paper (paper.h). */
#ifndef NEAP_REPLAY_NEAP_POLICY_H
#define NEAP_REPLAY_NEAP_POLICY_H

#include "replay/policy.h"

struct neap_policy_options {
	uint64_t memory_bytes; /* how much memory the device may give out; 0: 2 TiB */
	double fraction;       /* which fraction of it; 0: all */
	uint64_t event_delay;  /* as in neap_replay_options */
	bool no_plan;          /* as in neap_alloc_options */
};

/* At most one per thread. All private pools count as one. Errors: NEAP_ENOMEM, NEAP_EBUSY, NEAP_EINVAL for a fraction
 * above 1. */
enum neap_status neap_policy_create(const struct neap_policy_options *options, struct neap_policy **ret_policy,
				    struct neap_error *err);

#endif
