/* alloc/forking.h: around a fork, so that the child does not inherit an allocator in the middle of something, with a
 * lock that nobody will ever give back. There it can be freed from and destroyed; the driver does not survive a fork.
 * For the agent, whose own thread is one that may be in the middle of something.
 */
#ifndef NEAP_ALLOC_FORKING_H
#define NEAP_ALLOC_FORKING_H

#include "neap/alloc.h"

#include <time.h>

/* Waits for the allocator to be at rest and keeps it so; gives up at `until` (CLOCK_REALTIME): a program may fork
 * from where it must not, inside a crash handler say. Whether neap_alloc_fork_end is due, in parent and child. */
bool neap_alloc_fork_begin(struct neap_alloc *alloc, const struct timespec *until);
void neap_alloc_fork_end(struct neap_alloc *alloc);

#endif
