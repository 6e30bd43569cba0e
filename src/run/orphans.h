/* run/orphans.h: names and ends the processes that a run left behind.
 *
 * A process belongs to a run when it lives in the run's control group (run/group.h), when the environment it
 * started with has NEAP_RUN_ID=ID, or when it descends from the run's supervisor, which is the subreaper of
 * everything it started. Only processes of our own user count, never the caller. base/ending.h ends them: never a
 * reused PID.
 */
#ifndef NEAP_RUN_ORPHANS_H
#define NEAP_RUN_ORPHANS_H

#include "base/ending.h"

#include <stddef.h>

/* The run they belong to. */
struct neap_orphans_of {
	const char *run_id;
	pid_t ancestor;  /* the supervisor; 0: it is dead */
	pid_t except[2]; /* processes that are the supervisor's own; 0: none */
};

/* Writes up to `room` processes of the run. Errors: NEAP_EIO without /proc. */
enum neap_status neap_orphans_find(const struct neap_orphans_of *of, struct neap_process *ret_processes, size_t room,
				   size_t *ret_count, struct neap_error *err);

/* True when the process (with its starting environment's NEAP_RUN_ID, NULL unknown) belongs to the run. */
bool neap_orphans_match(const struct neap_process *process, const char *process_run_id, const char *run_id,
			bool descends, pid_t self, uid_t uid);

/* Finds and ends them: SIGTERM, `grace_ms`, SIGKILL, at most 30 s more; again for processes that appeared meanwhile.
 * Our own ended children stay zombies for the caller to reap. */
enum neap_status neap_orphans_end(const struct neap_orphans_of *of, int grace_ms, struct neap_ended *ret_orphans,
				  size_t room, size_t *ret_count, struct neap_error *err);

/* Ends all of them, however many, and reports each, ended or not; then ends the group with what is still in it (a
 * fork bomb). *ret_count: the processes reported. Errors as above. */
enum neap_status neap_orphans_end_all(const struct neap_orphans_of *of,
				      void (*tell)(void *context, const struct neap_ended *orphan), void *context,
				      size_t *ret_count, struct neap_error *err);

#endif
