/* charlm/leak.h: leaks on purpose. Something still refers to the tensors, as a list of losses with their graphs
 * would. They are dropped by force only: by `neap clear --force`, or by the session before memory ends. */
#ifndef CHARLM_LEAK_H
#define CHARLM_LEAK_H

#include "device.h"

#include <stddef.h>

/* Takes `bytes` that are not freed; a failure shows in the gpu, as with gpu_new. */
void leak_some(struct gpu *gpu, size_t bytes);

/* Forgets the leaked tensors, so that nothing drops them after the gpu is closed. */
void leak_forget(void);

#endif
