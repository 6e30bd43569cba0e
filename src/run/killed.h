/* run/killed.h: how a supervisor learns that `neap kill` ended its command, however the command handled SIGTERM.
 *
 *   RUN/killed   one line "PID UNTIL": the process of neap kill, and a time (nanoseconds since 1970). If the
 *                command ends before UNTIL, neap kill ended it. Written before the first signal, deleted at a start.
 */
#ifndef NEAP_RUN_KILLED_H
#define NEAP_RUN_KILLED_H

#include "neap/status.h"

#include <sys/types.h>

/* For neap kill: records in the run's folder that the caller ends `target` and its descendants before
 * `until_wall_ns`. NEAP_ENOENT: the process belongs to no run. Other errors: the run's result will not name neap
 * kill. */
enum neap_status neap_killed_record(pid_t target, uint64_t until_wall_ns, struct neap_error *err);

/* For the supervisor: returns the PID of the neap kill that ended a command at `ended_wall_ns`; 0: none did. */
pid_t neap_killed_by(const char *folder, uint64_t ended_wall_ns);
void neap_killed_forget(const char *folder);

#endif
