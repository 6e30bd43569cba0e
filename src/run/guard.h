/* run/guard.h: a process that outlives a supervisor which is killed, and ends what was in the run's control group.
 *
 *   supervisor --pipe--> guard: "PATH\n" the group to end; "\n" there is none any more
 *                              end of the pipe without it: the supervisor is dead: end the group, remove it
 *
 * It lives in a session of its own, holds nothing of the supervisor's (no lock, no output, no device) and ends with
 * it.
 */
#ifndef NEAP_RUN_GUARD_H
#define NEAP_RUN_GUARD_H

#include <sys/types.h>

/* `pid` 0: none. */
struct neap_guard {
	pid_t pid;
	int fd;
};

/* Starts it. Where that fails there is none: a supervisor that is killed then leaves what its command started. */
void neap_guard_start(struct neap_guard *guard);
/* Names the group; NULL: none. */
void neap_guard_tell(struct neap_guard *guard, const char *path);
/* Ends it and reaps it, unless someone else does. */
void neap_guard_end(struct neap_guard *guard);

#endif
