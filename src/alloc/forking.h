/* alloc/forking.h: holds an allocator at rest around a fork, so that the child does not inherit a lock that is never
 * released. In the child, blocks can be freed and the allocator destroyed; the driver does not survive a fork.
 * The agent calls this, because its own thread may be inside an allocator.
 */
#ifndef NEAP_ALLOC_FORKING_H
#define NEAP_ALLOC_FORKING_H

#include "neap/alloc.h"

#include <time.h>

/* Waits for the allocator to be at rest and keeps it so; gives up at `until` (CLOCK_REALTIME): a program may fork
 * where it should not, for example in a crash handler. Returns whether parent and child must call
 * neap_alloc_fork_end. */
bool neap_alloc_fork_begin(struct neap_alloc *alloc, const struct timespec *until);
void neap_alloc_fork_end(struct neap_alloc *alloc);

#endif
