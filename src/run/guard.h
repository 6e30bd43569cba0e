/* run/guard.h: the parent of the command. It knows how the command ended even if the supervisor was killed.
 *
 *   supervisor --forks--> guard --forks--> command        one guard for each start
 *
 *   guard --pipe--> supervisor   the command's PID; then its wait status. The guard has not reaped it yet
 *   supervisor --pipe--> guard   a byte: the end is on disk
 *                                end of the pipe: the supervisor is dead
 *
 *   supervisor dead   the guard checks once more: if the command has ended by itself, the guard calls `note`. If not,
 *                     it sends SIGKILL, and calls `note` only if the command ended before the signal. Then the guard
 *                     ends and removes the control group. It holds the run's lock until the end is on disk
 *   guard dead        the kernel ends the command (PR_SET_PDEATHSIG), and gives it to the supervisor to reap
 *   both dead         the command ends too; if it had just ended, and that was not on disk yet, it counts as lost
 *
 * The guard has a process group of its own in the supervisor's session. So the command's group is not orphaned: its
 * parent is in another group of the same session, and a terminal can stop it. Of the supervisor's files the guard
 * keeps only those in `keep` (no output, no device). It ignores all signals.
 */
#ifndef NEAP_RUN_GUARD_H
#define NEAP_RUN_GUARD_H

#include "neap/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define NEAP_GUARD_KEEPS 3

/* `pid` 0: none. */
struct neap_guard {
	pid_t pid;
	int to_fd, from_fd; /* -1: none */
};

/* The functions that the guard's process and the command's process run, and their arguments. All of it is
 * borrowed. */
struct neap_guard_task {
	void (*become)(void *context);                /* in the command's process: runs exec. Never returns */
	void (*note)(void *context, int wait_status); /* in the guard, if the supervisor died and the command ended */
	void *context;
	const char *run_id;
	const char *group;          /* the folder of the command's control group, if known yet; "" none */
	int keep[NEAP_GUARD_KEEPS]; /* descriptors that the guard keeps open until it is released; -1: none */
	bool own_group;             /* the command has a process group of its own */
};

/* Forks the guard, which forks the command. Errors: NEAP_EIO and the like: nothing was started. */
enum neap_status neap_guard_start(const struct neap_guard_task *task, struct neap_guard *ret_guard,
				  pid_t *ret_command, struct neap_error *err);

/* True once: how the command ended, as of waitpid. It is not reaped. Never waits. */
bool neap_guard_news(struct neap_guard *guard, int *ret_wait_status);

/* Call when the command's end is on disk: lets the guard reap the command and close the files in `keep`. */
void neap_guard_release(const struct neap_guard *guard);

/* Call when the guard was reaped. */
void neap_guard_reaped(struct neap_guard *guard);

/* Kills and reaps the guard. A command that is still running ends with it. */
void neap_guard_end(struct neap_guard *guard);

#endif
