/* estimate/here.h: the GPUs of this machine, for `neap estimate --gpu here`: those that CUDA_VISIBLE_DEVICES
 * lists (machine/gpus.h), with their memory. */
#ifndef NEAP_ESTIMATE_HERE_H
#define NEAP_ESTIMATE_HERE_H

#include "estimate/estimate.h"

/* Whether the list of --gpu names the GPUs of this machine. */
bool neap_estimate_names_here(const char *gpus);

/* Finds the GPUs of this machine, each kind once. Errors: the driver's; NEAP_ENODEVICE: it lists none. */
enum neap_status neap_estimate_find_here(struct neap_estimate_here *ret_here, struct neap_error *err);

#endif
