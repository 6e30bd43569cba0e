/* run/guard.h: a process that survives a killed supervisor and ends the processes in the run's control group.
 *
 *   supervisor --pipe--> guard: "PATH\n" the group to end; "\n" there is none any more
 *                              end of the pipe without it: the supervisor is dead: end the group, remove it
 *
 * It has a session of its own, holds none of the supervisor's files (no lock, no output, no device) and ends with it.
 */
#ifndef NEAP_RUN_GUARD_H
#define NEAP_RUN_GUARD_H

#include <sys/types.h>

/* `pid` 0: none. */
struct neap_guard {
	pid_t pid;
	int fd;
};

/* Starts it. If that fails there is no guard: a killed supervisor then leaves the command's processes running. */
void neap_guard_start(struct neap_guard *guard);
/* Names the group; NULL: none. */
void neap_guard_set_group(struct neap_guard *guard, const char *path);
/* Ends it and reaps it, unless that has been done. */
void neap_guard_end(struct neap_guard *guard);

#endif
