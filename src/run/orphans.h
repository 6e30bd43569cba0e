/* run/orphans.h: names and ends the processes that a run left behind.
 *
 * A process belongs to a run when it lives in the run's control group (run/group.h), when the environment it
 * started with has NEAP_RUN_ID=ID, or when it descends from the run's supervisor, which is the subreaper of
 * everything it started. Descent does not count below process 1, the first of a container: it adopts the processes
 * of others, too. Only processes of our own user count, never the caller. base/ending.h ends them, and never signals
 * a reused PID.
 */
#ifndef NEAP_RUN_ORPHANS_H
#define NEAP_RUN_ORPHANS_H

#include "base/ending.h"

#include <stddef.h>

/* Says which run's processes to find. */
struct neap_orphans_of {
	const char *run_id;
	pid_t ancestor;  /* the supervisor; 0: it has exited. Processes older than the supervisor are not examined */
	pid_t except[2]; /* processes that are the supervisor's own; 0: none */
};

/* Writes up to `capacity` processes of the run. Errors: NEAP_EIO without /proc. */
enum neap_status neap_orphans_find(const struct neap_orphans_of *of, struct neap_process *ret_processes,
				   size_t capacity, size_t *ret_count, struct neap_error *err);

/* Whether the process belongs to the run. `process_run_id`: NEAP_RUN_ID in the environment it started with; NULL:
 * unknown. `descends`: it descends from the supervisor or is in the run's control group. */
bool neap_orphans_match(const struct neap_process *process, const char *process_run_id, const char *run_id,
			bool descends, pid_t self, uid_t uid);

/* Finds and ends the run's processes: SIGTERM, after `grace_ms` SIGKILL, then waits at most 30 s. Repeats this for
 * processes that appeared meanwhile. Our own ended children stay zombies for the caller to reap. */
enum neap_status neap_orphans_end(const struct neap_orphans_of *of, int grace_ms, struct neap_ended *ret_orphans,
				  size_t capacity, size_t *ret_count, struct neap_error *err);

/* Ends all processes of the run, however many, and reports each, even one that it could not end. Then ends the
 * control group with all processes that are still in it (a fork bomb). *ret_count: the processes reported. Errors: as
 * neap_orphans_find. */
enum neap_status neap_orphans_end_all(const struct neap_orphans_of *of,
				      void (*tell)(void *context, const struct neap_ended *orphan), void *context,
				      size_t *ret_count, struct neap_error *err);

#endif
