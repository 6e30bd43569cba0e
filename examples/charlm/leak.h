/* charlm/leak.h: a leak on purpose: tensors that something still refers to, as a list of losses with their graphs
 * would. They are dropped by force only: by `neap clear --force`, or by the session before memory ends. */
#ifndef CHARLM_LEAK_H
#define CHARLM_LEAK_H

#include "device.h"

#include <stddef.h>

/* Takes `bytes` that are not given back; a failure shows in the gpu, as of any gpu_new. */
void leak_some(struct gpu *gpu, size_t bytes);

/* Forgets what has leaked, so that nothing drops it after the gpu is closed. */
void leak_forget(void);

#endif
