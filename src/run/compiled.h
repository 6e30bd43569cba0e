/* run/compiled.h: what compiling took of a run's peak. One thread. */
#ifndef NEAP_RUN_COMPILED_H
#define NEAP_RUN_COMPILED_H

#include "base/buffer.h"

/* Adds a line, behind `first`, with the peaks that the run in this folder would have had if torch.compile had had
 * nothing left to compile. Adds nothing where it compiled nothing, or where a recording is large: `neap analyze` has
 * the time for that. */
void neap_run_compiled(struct neap_buffer *out, const char *first, const char *folder);

#endif
