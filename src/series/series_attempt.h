/* series/series_attempt.h: one attempt at an experiment: its folder, its lock, its supervisor.
 *
 *   series process                                  supervisor (`neap run`, its own session)
 *   --------------                                  ----------------------------------------
 *   make RUN, flock RUN/lock
 *   journal the start
 *   fork ------------------------------------------> holds the same open file: the lock has no gap
 *   close its own descriptor of the lock             RUN/supervisor: its pid; RUN/neap.log: its log
 *   wait; if we die, a later one waits for the lock  runs the command, drains, writes RUN/result.json, ends
 *
 * A flock belongs to the open file, so it is free when the last process that inherited it has exited, for any reason.
 * On a file system without locks, the forked supervisor waits until the series has made it the owner of the folder
 * (base/owner.h), so there is no gap either.
 */
#ifndef NEAP_SERIES_SERIES_ATTEMPT_H
#define NEAP_SERIES_SERIES_ATTEMPT_H

#include "series/spec.h"
#include "series/step.h"

#include <sys/types.h>

struct neap_attempt {
	char folder[4096];
	int lock_fd;   /* we hold it until the supervisor has it; -1 */
	bool owned;    /* without locks: we own the folder until the supervisor does (base/owner.h) */
	pid_t child;   /* our own supervisor; 0: another process started it, or there is none */
	int pidfd;     /* of `child`; -1 */
	int log_fd;    /* RUN/neap.log, read as it grows; -1 */
	int exit_code; /* of our own supervisor once reaped; 128 + signal; -1 unknown */
	char line[1024];
	size_t line_length;
};

/* Sets the folder to SERIES_FOLDER/runs/EXPERIMENT-N. Opens nothing. Errors: NEAP_EINVAL when the path is too long.
 */
enum neap_status neap_attempt_init(struct neap_attempt *attempt, const char *series_folder, const char *experiment,
				   uint32_t number, struct neap_error *err);
/* Closes the descriptors; a supervisor keeps running. */
void neap_attempt_fini(struct neap_attempt *attempt);

/* Finds the attempt's state from its lock and files. Takes the lock for a moment. Errors: NEAP_EIO and the like. */
enum neap_status neap_attempt_find(const struct neap_attempt *attempt, enum neap_step_found *ret_found,
				   struct neap_error *err);

/* Makes the folder and takes its lock. NEAP_EBUSY: another process holds the lock; NEAP_EEXIST: the folder has a
 * result. In both cases adopt the attempt. */
enum neap_status neap_attempt_claim(struct neap_attempt *attempt, struct neap_error *err);

/* Starts the supervisor, which gets the claimed lock. `program`: neap's own. `needs`: a size, "device" or
 * "none". `quiet`: it logs nothing but errors. */
enum neap_status neap_attempt_start(struct neap_attempt *attempt, const char *program,
				    const struct neap_experiment *experiment, const char *needs, const char *run_id,
				    bool quiet, struct neap_error *err);

/* Makes this process the supervisor, with the claimed lock: a task of a job array has nothing else to do. It stays in
 * the task's session, so that its parent finds it. Returns only on failure. */
enum neap_status neap_attempt_become(struct neap_attempt *attempt, const char *program,
				     const struct neap_experiment *experiment, const char *needs, const char *run_id,
				     struct neap_error *err);

/* Shows the supervisor's new log lines. */
void neap_attempt_show(struct neap_attempt *attempt, void (*line)(void *context, const char *text), void *context);

/* Sleeps for `timeout_ms`, or until our own supervisor ends or a signal comes. */
void neap_attempt_sleep(struct neap_attempt *attempt, int timeout_ms);

/* Asks the supervisor, ours or adopted, to end its command. Errors: NEAP_ENOENT when it cannot be found. */
enum neap_status neap_attempt_cancel(const struct neap_attempt *attempt, struct neap_error *err);

#endif
