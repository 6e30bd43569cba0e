/* cli/estimate_here.h: the GPUs of this machine, for `neap estimate --gpu here`: those that CUDA_VISIBLE_DEVICES
 * lists (series/series_room.h), with their memory. */
#ifndef NEAP_CLI_ESTIMATE_HERE_H
#define NEAP_CLI_ESTIMATE_HERE_H

#include "estimate/estimate.h"

/* Whether the list of --gpu names them. */
bool estimate_names_here(const char *gpus);

/* Each kind of GPU once. Errors: those of the driver; NEAP_ENODEVICE: it lists none. */
enum neap_status estimate_find_here(struct neap_estimate_here *ret_here, struct neap_error *err);

#endif
