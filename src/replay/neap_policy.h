/* replay/neap_policy.h: neap's own allocator as a policy, on a device on paper (paper.h). */
#ifndef NEAP_REPLAY_NEAP_POLICY_H
#define NEAP_REPLAY_NEAP_POLICY_H

#include "replay/policy.h"

/* `memory_bytes`: what the device may hand out, 0: 2 TiB; `fraction`: of it, 0: all; `event_delay`: as in
 * neap_replay_options. At most one per thread. All private pools count as one. Errors: NEAP_ENOMEM, NEAP_EBUSY,
 * NEAP_EINVAL for a fraction above 1. */
enum neap_status neap_policy_create(uint64_t memory_bytes, double fraction, uint64_t event_delay,
				    struct neap_policy **ret_policy, struct neap_error *err);

#endif
