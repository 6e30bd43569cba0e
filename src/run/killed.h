/* run/killed.h: how a supervisor learns that `neap kill` ended its command, whatever the command made of SIGTERM.
 *
 *   RUN/killed   one line "PID UNTIL": the process of neap kill, and the time (nanoseconds since 1970) until which an
 *                end of the command is its doing. Written before the first signal, forgotten when a start begins.
 */
#ifndef NEAP_RUN_KILLED_H
#define NEAP_RUN_KILLED_H

#include "neap/status.h"

#include <sys/types.h>

/* For neap kill: leaves word in the run's folder that `target` (and what descends from it) is ended by the caller
 * until `until_wall_ns`. NEAP_ENOENT: the process belongs to no run. Other errors: its result will not say who ended
 * it. */
enum neap_status neap_killed_tell(pid_t target, uint64_t until_wall_ns, struct neap_error *err);

/* For the supervisor: the process of neap kill that ended a command, which ended at `ended_wall_ns`; 0: none did. */
pid_t neap_killed_by(const char *folder, uint64_t ended_wall_ns);
void neap_killed_forget(const char *folder);

#endif
