/* replay/rerun_torch.h: rerun.h's sequences through the model of PyTorch's allocator. */
#ifndef NEAP_REPLAY_RERUN_TORCH_H
#define NEAP_REPLAY_RERUN_TORCH_H

#include "replay/rerun.h"
#include "replay/torch_policy.h"

/* A function for `other` in a struct neap_rerun. other_context: a struct neap_torch_options; the function uses its
 * settings and rules alone. Errors: as neap_rerun. */
enum neap_status neap_rerun_torch(const struct neap_rerun *rerun, struct neap_rerun_result *ret_result,
				  struct neap_error *err);

#endif
