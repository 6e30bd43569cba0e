/* run/group.h: the control group (cgroup v2) that the processes of a run live in, where one can be had.
 *
 *   our own group                 a folder of the cgroup file system, ours to write (root, or delegated to the user)
 *     neap-RUN_ID                 the command and all that it starts, however they daemonise
 *
 * A process cannot leave it by forking, by a session of its own or by an empty environment, only by the hand of
 * someone who may move it. So it can be found, counted and ended whole, also when the supervisor is gone: by the
 * group's name.
 *
 * In a login session (session-N.scope), which is not the user's to write, systemd's user manager is asked for a scope
 * "neap-RUN_ID.scope" instead. Nowhere else: a job of Slurm or a container must not lose what it contains.
 *
 * Elsewhere there is none, and `why` says so: then the run's processes are those that descend from the supervisor or
 * have NEAP_RUN_ID in their starting environment (run/orphans.h).
 */
#ifndef NEAP_RUN_GROUP_H
#define NEAP_RUN_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A zeroed struct is none. */
struct neap_group {
	char path[4200]; /* its folder; "" none (yet) */
	char why[200];   /* why there is none; "" */
	char name[80];   /* "neap-RUN_ID" */
	bool scope;      /* systemd's to make, when the first process enters, and to remove */
};

/* Makes the group of a run below our own. */
void neap_group_make(const char *run_id, struct neap_group *ret_group);

/* Moves our child, which runs no program yet, into it. False: it stays where it is; where no process is in the group,
 * there is none from now on. */
bool neap_group_enter(struct neap_group *group, pid_t pid);

/* SIGKILL to all in it, and a moment for them to be gone; false: some are left. */
bool neap_group_kill(const char *path);
/* Removes it, once it is empty. */
void neap_group_remove(struct neap_group *group);

/* Ends and removes the group of a run whose supervisor is gone, where that was started from a group as ours. */
void neap_group_end(const char *run_id);

/* The folder of the group of this run that a process lives in; false: it is in none. */
bool neap_group_find(pid_t pid, const char *run_id, char *path, size_t room);

#endif
