/* run/compiled.h: how much of a run's peak torch.compile took. One thread. */
#ifndef NEAP_RUN_COMPILED_H
#define NEAP_RUN_COMPILED_H

#include "base/buffer.h"

/* Adds a line, behind `first`, with the peaks of the run in this folder without the memory that torch.compile took
 * while it compiled. Adds nothing if nothing was compiled, or if a recording is large: `neap analyze` takes the time
 * for that. */
void neap_run_compiled(struct neap_buffer *out, const char *first, const char *folder);

#endif
