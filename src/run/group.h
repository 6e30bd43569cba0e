/* run/group.h: the control group (cgroup v2) of a run's processes, where one is available.
 *
 *   our own group                 a folder of the cgroup file system, ours to write (root, or delegated to the user)
 *     neap-RUN_ID                 the command and all that it starts, however they daemonise
 *
 * A process cannot leave it by forking, by starting a session or by emptying its environment; only a user with the
 * permission can move it. So neap can find, count and end all processes by the group's name, even after the
 * supervisor has exited.
 *
 * The user cannot write the group of a login session (session-N.scope). There, neap asks systemd's user manager for a
 * scope "neap-RUN_ID.scope". It does so nowhere else: the processes of a Slurm job or a container must stay in it.
 *
 * Elsewhere there is no group, and `why` gives the reason. The run's processes are then those that descend from the
 * supervisor or have NEAP_RUN_ID in their starting environment (run/orphans.h).
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
	bool scope;      /* systemd creates the group when the first process enters, and removes it */
};

/* Makes the run's group below our own group. */
void neap_group_make(const char *run_id, struct neap_group *ret_group);

/* fork(2), with the child in the group of this path from its start where the kernel can (Linux 5.7): moving a process
 * takes some 10 ms. The caller has one thread. If `path` is "", it only forks. */
pid_t neap_group_fork(const char *path);

/* Moves our child, which has not called exec yet, into the group, unless neap_group_fork has put it there. False: the
 * child stays where it is, and the group is removed if it has no processes. */
bool neap_group_enter(struct neap_group *group, pid_t pid);

/* Sends SIGKILL to all processes in it and waits a moment until they are gone. False: some are left. */
bool neap_group_kill(const char *path);
/* Removes the group if it is empty. */
void neap_group_remove(struct neap_group *group);

/* For a run whose supervisor has exited: ends and removes its group, if the supervisor was started in the group that
 * we are in. */
void neap_group_end(const char *run_id);

/* Finds the folder of this run's group if the process is in that group. False: it is not. */
bool neap_group_find(pid_t pid, const char *run_id, char *path, size_t capacity);

#endif
